// A process that runs for long: layouts without end, functions, programs and graphs made and
// dropped, kernels that calls do not wait for, in bounded memory and time. This program has a low
// limit, so that it is reached soon; how long the soak takes is KILN_TEST_SECONDS, and of a second
// KILN_TEST_BUSY hundredths are spent on calls (all of them without it), the rest is left to
// others.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "call/call_specs.hpp"
#include "call/function_impl.hpp"
#include "kiln/kiln.hpp"
#include "tests/support/device_test.hpp"
#include "tests/support/general_kernels.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

// 128 plans, about, and eight kernels.
constexpr std::uint64_t kLimit = std::uint64_t{512} << 10;
const bool has_limit = [] { return ::setenv("KILN_MEMORY_LIMIT", "512K", 1) == 0; }();

/// More than the limit lets in.
constexpr int kKernels = 14;
/// A function with a kernel of its own.
Function numbered(int n) { return parse(fmt::format("f{}", n), fmt::format("x * {} + 1", n)); }

/// Puts their kernels into the cache, a few at a time.
void compile_numbered(Device device) {
  static std::vector<Device> done;
  if (std::ranges::find(done, device) != done.end()) return;
  done.push_back(device);
  std::vector<PrepareItem> items;
  for (int n = 0; n < kKernels; ++n) {
    Specification types;
    types.arguments = {{"x", DType::f32, {64}, {}}};
    types.outputs = {DType::f32};
    items.push_back({numbered(n), device, types});
  }
  for (const Preparation& one : prepare_all(items)) one.get();
}

class Steady : public testing::DeviceTest {
 protected:
  static constexpr std::int64_t kSize = 4096;

  void SetUp() override {
    ASSERT_TRUE(has_limit);
    DeviceTest::SetUp();
    if (backend == nullptr) return;
    compile_numbered(device);
    x = allocate(testing::counting(kSize));
    y = zeros(kSize);
    // What was held while it was prepared goes when other kernels are loaded.
    for (int n = 0; n < 4 && usage().kernel_bytes > kLimit; ++n) {
      parse("other", fmt::format("x - {}", n + 2))(stream, {view(x, 64)}, {view(y, 64)});
    }
  }

  static constexpr int kLayouts = 20000;
  /// A new layout for each turn: rows, their length, and the gaps between them.
  View matrix(float* data, int turn) const {
    // The driver made for tests compiles no kernels of several vectors, as unaligned rows take.
    const std::int64_t unit = testing::is_host_driver(*backend) ? 4 : 1;
    const std::int64_t rows = 2 + turn % 4, columns = unit * (1 + turn / 4 % 100);
    const std::int64_t pitch = columns + unit * (turn / 400 % 50);
    return {data, DType::f32, {rows, columns}, {pitch, 1}, device};
  }
  View grown(float* data, int turn) const { return view(data, 1 + turn % kSize); }

  Statistics usage() const { return statistics(device); }

  float* x = nullptr;
  float* y = nullptr;
};

TEST_P(Steady, PlansAreDroppedAboveTheLimit) {
  const Function next = fuse("next", [](Value v) { return v + 1; });
  const std::uint64_t dropped = usage().plans_dropped;
  for (int turn = 0; turn < 1000; ++turn) {
    const std::array<Argument, 1> in = {grown(x, turn)};
    const View out = grown(y, turn);
    next.prepare(stream, in, {&out, 1});  // a call alone would leave no plan behind
    next.call(stream, in, {&out, 1});
    ASSERT_LE(usage().plan_bytes, kLimit) << turn;
  }
  EXPECT_GT(usage().plans_dropped, dropped);
  EXPECT_GT(usage().plans, 20u);
  EXPECT_EQ(usage().memory_limit, kLimit);
  EXPECT_EQ(read(y, kSize)[999], 1001);
}

TEST_P(Steady, DevicesDropNothingOfEachOther) {
  if (!on_gpu()) GTEST_SKIP() << "there is one CPU device";
  std::vector<float> here(64, 1);
  const View host(here.data(), DType::f32, {64});
  const std::array<Argument, 1> in = {host};
  const Function kept = fuse("kept", [](Value v) { return v * 2; });
  kept.prepare({}, in, {&host, 1});
  const Statistics before = statistics({});
  const std::uint64_t dropped = usage().plans_dropped;
  const Function next = fuse("next", [](Value v) { return v + 1; });
  for (int turn = 0; turn < 400; ++turn) {
    const std::array<Argument, 1> of_device = {grown(x, turn)};
    const View out = grown(y, turn);
    next.prepare(stream, of_device, {&out, 1});
  }
  EXPECT_GT(usage().plans_dropped, dropped);
  EXPECT_EQ(statistics({}).plans, before.plans);
  EXPECT_EQ(statistics({}).plans_dropped, before.plans_dropped);
  EXPECT_EQ(statistics({}).kernels, before.kernels);
}

TEST_P(Steady, WhatIsCalledOftenStays) {
  const Function next = fuse("next", [](Value v) { return v + 1; }, {.on_miss = OnMiss::fail});
  const std::array<Argument, 1> often = {view(x, 64)};
  const View result = view(y, 64);
  next.prepare(stream, often, {&result, 1});
  const Function other = fuse("other", [](Value v) { return v - 1; });
  for (int turn = 0; turn < 1000; ++turn) {
    const std::array<Argument, 1> in = {grown(x, turn)};
    const View out = grown(y, turn);
    other.prepare(stream, in, {&out, 1});
    const std::uint64_t plans = usage().plans;
    next.call(stream, often, {&result, 1});
    ASSERT_EQ(usage().plans, plans) << "it was dropped, turn " << turn;
  }
}

TEST_P(Steady, LaunchesAndGraphsKeepWhatTheyUse) {
  const Function first = numbered(kKernels - 1);
  Launch launch = first.bind(stream, {view(x, 64)}, {view(y, 64)});
  Graph graph = record(device, [&](Recorder& r) {
    r.call(numbered(kKernels - 2), {view(x, 64)},
           {view(y + 64, 64)});  // the graph holds the function
  });
  const Function next = fuse("next", [](Value v) { return v + 1; });
  for (int turn = 0; turn < 500; ++turn) next(stream, {grown(x, turn)}, {grown(y, turn)});
  for (int n = 0; n < kKernels - 2; ++n) numbered(n)(stream, {view(x, 64)}, {view(y, 64)});
  backend->synchronize(stream);
  launch(stream);
  launch.set_input(0, x + 64);
  launch(stream);
  graph.launch(stream);
  graph.rebind(y + 64, y + 128);
  graph.launch(stream);
  EXPECT_EQ(read(y, kSize)[1], 66 * (kKernels - 1) + 1);
  EXPECT_EQ(read(y, kSize)[65], 2 * (kKernels - 2) + 1);
  EXPECT_EQ(read(y, kSize)[129], 2 * (kKernels - 2) + 1);
}

// Each is unloaded while the one before may be running, and made again when it is wanted again.
TEST_P(Steady, KernelsOfFunctionsThatAreGoneAreUnloaded) {
  const std::uint64_t unloaded = usage().kernels_unloaded;
  for (int round = 0; round < 2; ++round) {
    for (int n = 0; n < kKernels; ++n) {
      numbered(n)(stream, {view(x, 64)}, {view(y, 64)});
      ASSERT_LE(usage().kernel_bytes, kLimit) << n;
      ASSERT_EQ(read(y, 64)[9], 10 * n + 1);
    }
  }
  EXPECT_GT(usage().kernels_unloaded, unloaded + kKernels);
}

// Of functions that live, plans go for the kernels that they hold, and come back.
TEST_P(Steady, KernelsOfOldPlansAreUnloaded) {
  if (on_gpu()) GTEST_SKIP() << "a function keeps its kernels there, for captures";
  std::vector<Function> functions;
  for (int n = 0; n < kKernels; ++n) functions.push_back(numbered(n));
  for (int round = 0; round < 2; ++round) {
    for (int n = 0; n < kKernels; ++n) {
      functions[static_cast<std::size_t>(n)](stream, {view(x, 64)}, {view(y, 64)});
      ASSERT_LE(usage().kernel_bytes, kLimit + kLimit / 4) << n;
      ASSERT_EQ(read(y, 64)[9], 10 * n + 1);
    }
  }
}

TEST_P(Steady, FunctionsThatDieReleaseTheirPlans) {
  const std::uint64_t plans = usage().plans;
  for (int i = 0; i < 1000; ++i) {
    const Function next = fuse("next", [](Value v) { return v + 1; });
    next(stream, {view(x, 64)}, {view(y, 64)});
    ASSERT_LE(usage().plans, plans + 1);
  }
  EXPECT_EQ(usage().plans, plans);
}

// In place, where each shape has a plan.
TEST_P(Steady, ProgramsAreBoundedToo) {
  const Program program = parse_program("scaled", "y = exp(-x); y * 2 + y");
  for (int turn = 0; turn < 300; ++turn) {
    const View in(x, DType::f32, {2, 1024 + turn}, device);
    program.run(stream, {in}, {in}, {});
    ASSERT_LE(usage().plan_bytes, kLimit) << turn;
    backend->synchronize(stream);
  }
  EXPECT_GT(usage().plans_dropped, 0u);
}

// Calls and runs go on while others drop what they have just found.
TEST_P(Steady, ThreadsCallWhilePlansAreDropped) {
  const Function next = fuse("next", [](Value v) { return v + 1; });
  const Program program = parse_program("scaled", "y = x + 1; y * 2 + y");
  std::vector<std::thread> threads;
  std::vector<float*> outputs;
  for (int t = 0; t < 4; ++t) outputs.push_back(zeros(kSize));
  std::vector<int> wrong(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Stream own = backend->create_stream();
      float* const out = outputs[static_cast<std::size_t>(t)];
      const auto expect_at = [&](int place, int value) {
        backend->synchronize(own);
        if (!on_gpu() && out[place] != static_cast<float>(value)) {
          ++wrong[static_cast<std::size_t>(t)];
        }
      };
      for (int turn = 0; turn < 400; ++turn) {
        const int size = t * 400 + turn;
        const std::array<Argument, 1> in = {grown(x, size)};
        const View result = grown(out, size);
        if (turn % 2 == 0) next.prepare(own, in, {&result, 1});
        next.call(own, in, {&result, 1});
        next(own, {grown(x, 0)}, {grown(out, 0)});
        expect_at(size % kSize, size % kSize + 2);
        const std::array<Argument, 1> rows = {matrix(x, size)};
        const View scaled = matrix(out, size);
        program.run(own, rows, {&scaled, 1}, {});
        expect_at(0, 6);
      }
      backend->destroy_stream(own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ::testing::Each(0));
}

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<std::size_t>(
      std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n'));
}

// Everything of the above at once, for as long as is asked for.
class Soak : public Steady {
 protected:
  void SetUp() override {
    Steady::SetUp();
    if (backend == nullptr) return;
    has_rows = !testing::is_host_driver(*backend);
    lent = allocate(std::vector<std::byte>(std::size_t{1} << 20));
    lend_fallback_memory(View(lent, DType::u8, {1 << 20}, device));
    if (!on_gpu()) return;  // the CPU device has an interpreter
    CallTypes types;
    types.arguments = {{DType::f32, false, false}};
    types.arrays = {{DType::f32, {64}, {1}}};
    types.outputs = {{DType::f32, {64}, {1}}};
    const std::vector<KernelSpec> kernels = call_specs(numbered(1).impl().definition, types);
    testing::load_general_kernels(kernels, *backend);
  }
  void TearDown() override {
    if (lent != nullptr) lend_fallback_memory(View(nullptr, DType::u8, {0}, device));
    Steady::TearDown();
  }

  void run_turn() {
    next(stream, {grown(x, turn)}, {grown(y, turn)});
    next(stream, {matrix(x, turn)}, {matrix(y, turn)});
    fuse("dropped", [](Value v) { return v * 2; })(stream, {view(x, 64)}, {view(y, 64)});
    if (turn % 10 == 0) run_tenth();
    // A kernel that is in no cache.
    if (turn % 10000 == 0) cold.emplace(cold_numbered(turn / 10000));
    if (turn % 50 == 0) {
      (*cold)(stream, {view(x, 64)}, {view(y, 64)});
      backend->synchronize(stream);
    }
    ++turn;
  }

  // What takes longer.
  void run_tenth() {
    Graph graph = record(device, [&](Recorder& r) {
      r.call(next, {grown(x, turn)}, {grown(y, turn)});
      r.call(next, {grown(y, turn)}, {grown(z, turn)});
    });
    graph.launch(stream);
    numbered(turn / 10 % kKernels)(stream, {view(x, 64)}, {view(y, 64)});
    const std::array<Argument, 1> in = {matrix(x, turn)};
    const View out = matrix(y, turn);
    next.prepare(stream, in, {&out, 1});  // a plan
    const View row(x, DType::f32, {2, 1024 + turn % 1024}, device);
    const View scaled_row(y, DType::f32, {2, 1024 + turn % 1024}, device);
    scaled.run(stream, {row}, {scaled_row}, {});
    if (has_rows) {
      const Dims shape{2 + turn % 20, 64 + 4 * (turn / 20 % 20)};
      const View given(x, DType::f32, shape, device);
      const View result(y, DType::f32, shape, device);
      normalised.run(stream, {given}, {result}, View(z, DType::u8, {4 * kSize}, device));
    }
    backend->synchronize(stream);
  }

  /// None of them is like another one.
  static Function cold_numbered(int n) {
    return parse(fmt::format("cold{}", n), fmt::format("x * {} + 0.5", n),
                 {.on_miss = OnMiss::fallback});
  }

  const Function next = fuse("next", [](Value v) { return v + 1; });
  const Program scaled = parse_program("scaled", "y = exp(x); y * 2 + y");
  const Program normalised = parse_program("normalised", "y = x / sum(x, 0); y / sum(y, 1)");
  std::optional<Function> cold;
  bool has_rows = false;
  std::byte* lent = nullptr;
  float* z = nullptr;
  int turn = 0;
};

TEST_P(Soak, TakesBoundedMemory) {
  const char* const wanted = std::getenv("KILN_TEST_SECONDS");
  const double seconds = wanted != nullptr ? std::atof(wanted) : 1.5;
  const auto seconds_of = [](clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const auto busy = static_cast<double>(
      std::clamp<std::uint64_t>(testing::setting("KILN_TEST_BUSY", 100), 1, 100));
  constexpr int kTurns = 200;
  z = zeros(kSize);
  const auto rounds = [&](double limit) {  // this thread's time for the fastest one
    const double begin = seconds_of(CLOCK_MONOTONIC);
    double fastest = 1e9;
    do {
      const double before = seconds_of(CLOCK_THREAD_CPUTIME_ID);
      for (int i = 0; i < kTurns; ++i) run_turn();
      const double taken = seconds_of(CLOCK_THREAD_CPUTIME_ID) - before;
      fastest = std::min(fastest, taken);
      if (turn <= kLayouts) continue;  // so many are made on any machine
      std::this_thread::sleep_for(std::chrono::duration<double>(taken * (100 / busy - 1)));
    } while (seconds_of(CLOCK_MONOTONIC) - begin < limit);
    return fastest;
  };
  const std::uint64_t served = usage().fallbacks;
  rounds(0);  // compiles
  const double first = rounds(seconds / 3);
  const std::size_t bytes = mallinfo2().uordblks;
  const std::size_t mapped = mappings();
  const double last = rounds(seconds * 2 / 3);
  const std::size_t later = mallinfo2().uordblks;
  const std::size_t mapped_later = mappings();
  RecordProperty("turns", turn);
  EXPECT_LT(later, bytes + kLimit) << "bytes before and after, of " << turn << " turns";
  EXPECT_LT(mapped_later, mapped + 200) << "mappings before and after, of " << turn << " turns";
  EXPECT_LE(usage().plan_bytes, kLimit);
  EXPECT_GT(usage().fallbacks, served);
  if (seconds >= 60) {  // the fastest of enough rounds that other work does not show
    EXPECT_LT(last, 2 * first) << "seconds for 200 turns at the beginning and the end";
    EXPECT_GT(turn, kLayouts);
  }
  fmt::print(
      "{} turns; {} and {} bytes in use, {} and {} mappings; {:.1f} and {:.1f} us a turn; {} plans "
      "dropped, {} kernels unloaded, {} calls served without their kernel\n",
      turn, bytes, later, mapped, mapped_later, first / kTurns * 1e6, last / kTurns * 1e6,
      usage().plans_dropped, usage().kernels_unloaded, usage().fallbacks - served);
}

KILN_ON_EVERY_DEVICE(Soak);
KILN_ON_EVERY_DEVICE(Steady);

}  // namespace
}  // namespace kiln
