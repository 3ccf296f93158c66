// What a repeated call does not do: allocate, lock, or call the kernel. Counted by standing in for
// operator new and pthread_mutex_lock, and proved for system calls by a filter that kills.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <string>
#include <vector>

#include "kiln/kiln.h"
#include "kiln/kiln.hpp"
#include "tests/support/counted.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

using testing::allocations;
using testing::locks;

class HotPath : public ::testing::TestWithParam<DeviceType> {
 protected:
  static constexpr std::int64_t kSize = 4096;

  void SetUp() override {
#ifdef KILN_SANITIZED
    GTEST_SKIP() << "a sanitizer has its own allocator and locks";
#endif
    if (!testing::has_device(GetParam())) GTEST_SKIP() << jit::why_absent(GetParam());
    device = {GetParam(), 0};
    backend = &jit::backend(device);
    stream = backend->create_stream();
    for (void*& pointer : memory) pointer = backend->allocate(kSize * sizeof(float));
  }
  void TearDown() override {
    if (backend == nullptr) return;
    backend->synchronize(stream);
    for (void* pointer : memory) backend->free(pointer);
    backend->destroy_stream(stream);
  }
  View view(int which, Dims shape = {kSize}) const {
    return {memory[which], DType::f32, std::move(shape), device};
  }

  /// Repeats `call` after a first one and says what it cost beyond computing. What the driver does
  /// in a raw launch is its own.
  template <class Call>
  void expect_nothing(const Call& call) {
    call();
    const std::size_t allocated = allocations;
    const std::size_t locked = locks;
    for (int i = 0; i < 100; ++i) call();
    EXPECT_EQ(allocations - allocated, 0u) << "allocations in 100 calls";
    // A driver may lock in its launch; kiln's own part is what the CPU device shows.
    if (GetParam() == DeviceType::cpu) {
      EXPECT_EQ(locks - locked, 0u) << "locks in 100 calls";
    }
    backend->synchronize(stream);
  }

  Device device;
  jit::Backend* backend = nullptr;
  Stream stream;
  void* memory[4] = {};
};

TEST_P(HotPath, CountersCount) {
  const std::size_t allocated = allocations;
  const std::size_t locked = locks;
  ::operator delete(::operator new(16));
  std::mutex mutex;
  { const std::lock_guard lock(mutex); }
  EXPECT_EQ(allocations - allocated, 1u);
  EXPECT_EQ(locks - locked, 1u);
}

TEST_P(HotPath, ACallAllocatesAndLocksNothing) {
  const Function f = fuse("f", [](Value a, Value x, Value y) { return a * x + y; });
  expect_nothing([&] { f(stream, {2.0, view(0), view(1)}, {view(2)}); });
  const std::vector<Argument> inputs = {2.0, view(0), view(1)};
  const View output = view(2);
  expect_nothing([&] { EXPECT_FALSE(f.try_call(stream, inputs, {&output, 1})); });
  const Function g = fuse("g", [](Value x, Value y) { return x + y; });
  // Broadcast and strided operands of several axes.
  expect_nothing([&] {
    g(stream, {View(memory[0], DType::f32, {8, 16, 4}, {4, 32, 1}, device), view(1, {16, 1})},
      {view(2, {8, 16, 4})});
  });
  const Function h = fuse("h", [](Value x) { return std::tuple(x + 1, x * 2); });
  expect_nothing([&] { h(stream, {view(0)}, {view(2), view(3)}); });
}

// Of a class that was called before (call/call_class.hpp).
TEST_P(HotPath, ACallOfANewShapeAllocatesAndLocksNothing) {
  struct Case {
    const char* text;
    Dims a, b, out;        // -1 stands for a length
    Dims i = {};           // integers, if there are any
    bool updates = false;  // the output is a
  };
  const Case cases[] = {
      {"a * 2 + b", {-1, 64}, {-1, 64}, {-1, 64}},
      {"a * 2 + b", {-1, 64}, {64}, {-1, 64}},
      {"sum(a * b, -1)", {-1, 64}, {-1, 64}, {-1, 1}},
      {"a / sum(b, 0)", {-1, 64}, {-1, 64}, {-1, 64}},
      {"sum(a * b, 0)", {-1, 64}, {-1, 64}, {1, 64}},
      {"cumsum(a, -1) + b", {-1, 64}, {-1, 64}, {-1, 64}},
      {"cumsum(a, -1) * b", {8, -1}, {-1}, {8, -1}},
      {"sum(a * b, -1)", {-1, 64}, {64}, {-1, 1}},
      {"sum(a * b, -1)", {64, -1}, {-1}, {64, 1}},
      {"where(iota(1) > iota(0), a, b) + f32(iota())", {-1, 64}, {64}, {-1, 64}},
      {"softmax(a, -1) * b", {8, -1}, {-1}, {8, -1}},
      {"argmax(a - b, -1) + 0.5", {8, -1}, {8, -1}, {8, 1}},
      {"take(a, i) + b", {-1, 64}, {64}, {3, 64}, {3}},
      {"put(a, i, b)", {-1, 64}, {3, 64}, {-1, 64}, {3}, true},
      {"exp(bound(a, i, 0)) - b", {-1, 64}, {64}, {-1, 64}, {1, 1}},
      {"sum(bound(a, i, 0) * b, -1)", {-1, 64}, {64}, {-1, 1}, {1, 1}},
      {"sum(softmax(where(iota(-2) < 40, sum(a * b, -1), -inf), -2) * f32(i), -2)",
       {2, 1, -1, 16},
       {2, 3, 1, 16},
       {2, 3, 1, 8},
       {2, 1, -1, 8}},
  };
  backend->fill(memory[3], 0, kSize * sizeof(float), stream);
  for (const Case& one : cases) {
    std::vector<std::string> names = {"a", "b"};
    if (one.i.size() != 0) names.emplace_back("i");
    const Function f = parse("f", one.text, {}, names);
    const auto call = [&](std::int64_t length) {
      const auto of = [&](int which, Dims shape) {
        for (std::int64_t& size : shape) size = size == -1 ? length : size;
        return view(which, shape);
      };
      Dims places = one.i;
      for (std::int64_t& size : places) size = size == -1 ? length : size;
      const Argument in[] = {of(0, one.a), of(1, one.b),
                             View(memory[3], DType::i32, places, device)};
      const View out = of(one.updates ? 0 : 2, one.out);
      f.call(stream, std::span(in).first(names.size()), {&out, 1});
    };
    for (std::int64_t length = 2; length < 64; length += 2) call(length);
    call(33);
    const std::uint64_t plans = statistics(device).plans;
    const std::size_t locked = locks;
    const std::size_t allocated = allocations;
    for (std::int64_t length = 35; length < 64; length += 2) call(length);
    if (GetParam() == DeviceType::cpu) {
      EXPECT_EQ(locks - locked, 0u) << one.text;
      EXPECT_EQ(allocations - allocated, 0u) << one.text;
      EXPECT_EQ(statistics(device).plans, plans) << one.text;
    }
    backend->synchronize(stream);
  }
}

TEST_P(HotPath, ACopyAllocatesAndLocksNothing) {
  const View turned(memory[1], DType::f32, {64, 64}, {1, 64}, device);
  expect_nothing([&] { copy(stream, {.from = view(0, {64, 64}), .to = turned}); });
  expect_nothing(
      [&] { copy(stream, {.from = view(0), .to = View(memory[1], DType::i32, {kSize}, device)}); });
  expect_nothing([&] { copy(stream, {.from = view(0), .to = view(1)}); });
}

TEST_P(HotPath, ALaunchAllocatesAndLocksNothing) {
  const Function f = fuse("f", [](Value a, Value x, Value y) { return a * x + y; });
  Launch launch = f.bind(stream, {2.0, view(0), view(1)}, {view(2)});
  expect_nothing([&] { launch(stream); });
  int turn = 0;
  expect_nothing([&] {
    launch.set_input(1, memory[++turn % 2]);
    launch.set_scalar(0, double(turn));
    launch.set_output(0, memory[2 + turn % 2]);
    launch(stream);
  });
}

// Kernels that depend on each other, and a call of the caller between them.
TEST_P(HotPath, AProgramAllocatesAndLocksNothing) {
  int calls = 0;
  const LibraryCall count{
      "count", [](std::span<const DType> in) { return std::vector{in[0]}; },
      [](std::span<const Dims> in) { return std::vector{in[0]}; },
      [&](const Stream&, std::span<const View>, std::span<const View>) { ++calls; }};
  const Program program = trace_program("p", [&](Value a, Value x) {
    const Value scaled = kiln::call(count, {a * x});
    return scaled + kiln::sum(scaled, -1);
  });
  const std::vector<Argument> inputs = {2.0, view(0, {4, 256})};
  const std::vector<View> outputs = {view(1, {4, 256})};
  const std::size_t bytes = program.workspace_bytes(stream, inputs, outputs);
  ASSERT_GT(bytes, 0u);
  const View workspace(memory[2], DType::u8, {static_cast<std::int64_t>(bytes)}, device);
  expect_nothing([&] { program.run(stream, inputs, outputs, workspace); });
  Launch launch = program.bind(stream, inputs, outputs, workspace);
  int turn = 0;
  expect_nothing([&] {
    launch.set_input(1, memory[turn++ % 2 * 3]);
    launch.set_scalar(0, double(turn));
    launch(stream);
  });
  EXPECT_EQ(calls, 202);
}

// Of a class that was run before (program/program_class.hpp).
TEST_P(HotPath, ARunOfANewShapeAllocatesAndLocksNothing) {
  for (const char* const text :
       {"y = x / sum(x, 0); y / sum(y, 1)", "a = softmax(x * s, -1); a + sum(a, 0)",
        "t = transpose(x); transpose(t * 2 + sum(t, -1)) * s",
        "b = softmax(sum(x[:, :64], 0) * s, -1); x[:, :64] * b",
        "i = i32(x[:, 0]); y = take(x, i) * s; y + sum(y, -1)",
        "a = sum(softmax(sum(x[:, :32] * s, -1), 0) * x[:, 32:], 0); x + sum(a, -1)"}) {
    const Program program = parse_program("p", text);
    const auto run = [&](std::int64_t rows) {
      const std::vector<Argument> all = {view(0, {rows, 64}), 2.0};
      const std::span<const Argument> inputs = std::span(all).first(argument_names(program).size());
      const View output = view(1, {rows, 64});
      const std::size_t allocated = allocations;
      const std::size_t locked = locks;
      const std::size_t bytes = program.workspace_bytes(stream, inputs, {&output, 1});
      const View workspace(memory[2], DType::u8, {static_cast<std::int64_t>(bytes)}, device);
      program.run(stream, inputs, {&output, 1}, workspace);
      return std::pair(allocations - allocated, locks - locked);
    };
    // Few rows, and one more than a power of two, are planned in ways of their own.
    for (std::int64_t rows = 2; rows < 64; rows += rows < 10 ? 1 : 2) run(rows);
    run(33);
    const std::uint64_t plans = statistics(device).plans;
    int of_known_schedules = 0;
    for (std::int64_t rows = 11; rows < 64; rows += 2) {
      if (rows == 33) continue;
      const std::uint64_t kernels = statistics(device).kernels;
      const auto [allocated, locked] = run(rows);
      // Of a GPU some columns that are as short have schedules, and so kernels, of their own.
      if (statistics(device).kernels != kernels) continue;
      ++of_known_schedules;
      EXPECT_EQ(allocated, 0u) << text << ", " << rows;
      if (GetParam() == DeviceType::cpu) {
        EXPECT_EQ(locked, 0u) << text << ", " << rows;
      }
    }
    if (GetParam() == DeviceType::cpu) {
      EXPECT_EQ(statistics(device).plans, plans) << text;
    }
    // Sums of an odd number of products are columns there, those of an even one are products.
    EXPECT_GT(of_known_schedules, GetParam() == DeviceType::cpu ? 20 : 15) << text;
    backend->synchronize(stream);
  }
}

TEST_P(HotPath, ACallOfAnOwnKernelAllocatesAndLocksNothing) {
  const Kernel k = kernel("k", "extern \"C\" __global__ void k(float* x, float a) { x[0] = a; }",
                          {writes(DType::f32), scalar(DType::f32)});
  expect_nothing([&] { k(stream, {}, {view(0), 1.5}); });
}

TEST_P(HotPath, ACallFromCAllocatesAndLocksNothing) {
  kiln_function* f = nullptr;
  ASSERT_EQ(kiln_parse("f", "a * x + y", nullptr, &f), KILN_OK);
  const std::int64_t shape[] = {kSize};
  const kiln_stream on = {{static_cast<std::int32_t>(device.type), 0}, stream.native};
  const auto array = [&](int which) {
    return kiln_view{memory[which], on.device, KILN_F32, 1, shape, nullptr, 0};
  };
  const kiln_argument inputs[] = {kiln_number(2), kiln_array(array(0)), kiln_array(array(1))};
  const kiln_view output = array(2);
  const kiln_call call = {inputs, 3, &output, 1};
  kiln_status status = KILN_OK;
  expect_nothing([&] { status = kiln_function_call(f, &on, &call); });
  EXPECT_EQ(status, KILN_OK) << kiln_last_error()->message;
  kiln_function_destroy(f);
}

TEST_P(HotPath, ReplayingAGraphAllocatesNothing) {
  if (GetParam() != DeviceType::cpu) GTEST_SKIP() << "a driver's replay is its own";
  const Function f = fuse("f", [](Value x) { return x + 1; });
  Graph graph = record(device, [&](Recorder& r) {
    for (int i = 0; i < 10; ++i) r.call(f, {view(0)}, {view(0)});
  });
  graph.launch(stream);
  const std::size_t allocated = allocations;
  for (int i = 0; i < 100; ++i) graph.launch(stream);
  EXPECT_EQ(allocations, allocated);
}

INSTANTIATE_TEST_SUITE_P(Every, HotPath,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

// From here on this thread may end the process, and nothing else.
bool forbid_system_calls() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  const sock_fprog program = {static_cast<unsigned short>(std::size(filter)), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// From here on this thread may not name, look at, read or lock a file.
bool forbid_files() {
  constexpr long kForbidden[] = {SYS_openat,    SYS_openat2,    SYS_newfstatat, SYS_statx,
                                 SYS_faccessat, SYS_fstat,      SYS_read,       SYS_pread64,
                                 SYS_readv,     SYS_readlinkat, SYS_flock,      SYS_write,
                                 SYS_utimensat, SYS_mkdirat};
  std::vector<sock_filter> filter = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const long call : kForbidden) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Another function of the same text, and the same function on another shape, find the kernel among
// those that the process has loaded.
TEST(HotPathDeathTest, AHitInMemoryTouchesNoFile) {
#ifdef KILN_SANITIZED
  GTEST_SKIP() << "a sanitizer makes system calls of its own";
#endif
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto calls = [] {
    const auto make = [] { return fuse("f", [](Value x, Value y) { return x * 2.0 + y; }); };
    alignas(64) static float x[4096], y[4096], out[4096];
    const auto prepare = [&](const Function& f, std::int64_t size) {
      const auto view = [&](float* data) { return View(data, DType::f32, {size}); };
      const std::vector<Argument> inputs = {view(x), view(y)};
      const std::vector<View> outputs = {view(out)};
      return f.prepare(Stream{}, inputs, outputs).cache;
    };
    const Function first = make();
    prepare(first, 4096);
    if (!forbid_files()) _exit(77);
    const bool memory =
        prepare(first, 1024) == CacheState::memory && prepare(make(), 4096) == CacheState::memory;
    _exit(memory ? 42 : 43);
  };
  EXPECT_EXIT(calls(), ::testing::ExitedWithCode(42), "") << "killed by signal 31: a file";
}

TEST(HotPathDeathTest, ACallMakesNoSystemCall) {
#ifdef KILN_SANITIZED
  GTEST_SKIP() << "a sanitizer makes system calls of its own";
#endif
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto calls = [] {
    const Function f = fuse("f", [](Value a, Value x, Value y) { return a * x + y; });
    alignas(64) static float x[4096], y[4096], out[4096];
    const auto view = [](float* data, std::int64_t size = 4096) {
      return View(data, DType::f32, {size});
    };
    const auto call = [&] { f({}, {2.0, view(x), view(y)}, {view(out)}); };
    const auto call_new = [&](std::int64_t size) {
      f({}, {2.0, view(x, size), view(y, size)}, {view(out, size)});
    };
    const Program program = parse_program("p", "y = x / sum(x, 0); y / sum(y, 1)");
    alignas(16) static std::byte workspace[1 << 14];
    const auto run_new = [&](std::int64_t rows) {
      const Argument input = View(x, DType::f32, {rows, 32});
      const View output(out, DType::f32, {rows, 32});
      program.run({}, {&input, 1}, {&output, 1}, View(workspace, DType::u8, {1 << 14}));
    };
    call();
    call_new(999);
    for (std::int64_t rows = 2; rows < 24; rows += 2) run_new(rows);
    const Launch launch = f.bind({}, {2.0, view(x), view(y)}, {view(out)});
    if (!forbid_system_calls()) _exit(77);
    for (int i = 0; i < 100; ++i) {
      call();
      launch({});
      call_new(1000 + i);
      if (i < 20) run_new(3 + i);
    }
    _exit(42);
  };
  EXPECT_EXIT(calls(), ::testing::ExitedWithCode(42), "") << "killed by signal 31: a system call";
}

}  // namespace
}  // namespace kiln
