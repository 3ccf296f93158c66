// Calls beside a compiler that does not end: nobody waits for it, and what it makes takes over.
// They are served by the interpreter, or by the base pack of which KILN_TEST_BASE_PACK says that it
// is among KILN_CACHE_READONLY_DIRS: another compiler has made that.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <latch>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "fallback/general_kernels.hpp"
#include "kernel/named_kernel.hpp"
#include "kiln/kiln.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln {
namespace {

// A host compiler that waits for a line from a pipe before it compiles a kernel, and for one from
// another before it first says what it is; from the begin of the process, which finds its compiler
// once.
class GatedCompiler {
 public:
  GatedCompiler() {
    const std::string path = directory_.path() + "/c++";
    const std::string gate = directory_.path() + "/gate";
    const std::string question = directory_.path() + "/question";
    std::ofstream(path) << "#!/bin/sh\ncase \"$*\" in */kernel.cpp*) read line < " << gate
                        << " ;;\n*) if mkdir " << directory_.path()
                        << "/asked 2>/dev/null; then read line < " << question
                        << "; fi ;; esac\nexec " << KILN_TEST_QUICK_CXX << " \"$@\"\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    gate_ = make_pipe(gate);
    question_ = make_pipe(question);
    ::setenv("KILN_CXX", path.c_str(), 1);
    ::setenv("KILN_FALLBACK_MEMORY", "1M", 1);
  }
  // Lets so many compiles go on.
  bool open(int compiles) const { return put_lines(gate_, compiles); }
  // Lets it say what it is.
  bool answer() const { return put_lines(question_, 1); }

 private:
  static int make_pipe(const std::string& path) {
    return ::mkfifo(path.c_str(), 0600) == 0 ? ::open(path.c_str(), O_RDWR | O_CLOEXEC) : -1;
  }
  static bool put_lines(int pipe, int count) {
    const std::string lines(static_cast<std::size_t>(count), '\n');
    return ::write(pipe, lines.data(), lines.size()) == static_cast<ssize_t>(lines.size());
  }

  testing::TemporaryDirectory directory_;
  int gate_ = -1;
  int question_ = -1;
};
const GatedCompiler gated;

TEST(FallbackBesideACompiler, ServesTheCallAndIsTakenOverFromBetweenCalls) {
  const Stream cpu;
  const Function swiglu = fuse("swiglu", [](Value gate, Value up) { return silu(gate) * up; },
                               {.on_miss = OnMiss::fallback});
  std::array<float, 100> gate{};
  std::array<float, 100> up{};
  std::array<float, 100> first{};
  for (std::size_t i = 0; i < gate.size(); ++i) {
    gate[i] = static_cast<float>(i) / 8 - 4;
    up[i] = 1.5F;
  }
  const auto view = [](std::array<float, 100>& data) {
    return View(data.data(), DType::f32, {100});
  };
  const std::array<Argument, 2> inputs = {Argument(view(gate)), Argument(view(up))};
  const std::array outputs = {view(first)};
  // The compiler waits, but no call does: neither for what it is, nor for what it makes.
  swiglu.call(cpu, inputs, outputs);
  EXPECT_EQ(statistics({}).fallbacks, 1u);
  ASSERT_TRUE(gated.answer());
  swiglu.call(cpu, inputs, outputs);
  EXPECT_EQ(statistics({}).fallbacks, 2u);
  const std::uint64_t general = statistics({}).kernels;
  EXPECT_EQ(general != 0, std::getenv("KILN_TEST_BASE_PACK") != nullptr);
  EXPECT_TRUE(swiglu.look_up(cpu, inputs, outputs).fallback);
  EXPECT_NEAR(first[99], 8.375 * 1.5 / (1 + std::exp(-8.375)), 1e-5);
  ASSERT_TRUE(gated.open(1));
  swiglu.prepare(cpu, inputs, outputs);
  const std::array<float, 100> before = first;
  swiglu.call(cpu, inputs, outputs);
  EXPECT_EQ(statistics({}).fallbacks, 2u);
  EXPECT_EQ(statistics({}).kernels, general + 1);
  const KernelInfo info = swiglu.look_up(cpu, inputs, outputs);
  EXPECT_FALSE(info.fallback);
  EXPECT_EQ(info.cache, CacheState::memory);
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_NEAR(first[i], before[i], 1e-6 * std::abs(before[i]));
  }
}

// Threads that call shapes never seen, while kernels take over.
TEST(FallbackBesideACompiler, ServesThreadsUntilKernelsTakeOver) {
  constexpr int kThreads = 4;
  const Options options{.on_miss = OnMiss::fallback};
  const Function function = parse("threaded", "x * 3 + 0.5", options);
  const Program program = parse_program("threaded", "y = x * 2; y + max(y, -1)", options);
  std::latch served(kThreads);
  std::array<int, kThreads> wrong{};
  ASSERT_TRUE(gated.answer());
  const auto work = [&](int& errors) {
    alignas(64) std::array<float, 256> x{};
    alignas(64) std::array<float, 256> y{};
    std::iota(x.begin(), x.end(), 0.F);
    const Stream cpu;
    const auto call = [&](std::int64_t size) {
      const Argument in[] = {View(x.data(), DType::f32, {size})};
      const View out(y.data(), DType::f32, {size});
      function.call(cpu, in, {&out, 1});
      const auto last = static_cast<std::size_t>(size - 1);
      if (y[last] != x[last] * 3 + 0.5F) ++errors;
      return function.look_up(cpu, in, {&out, 1}).fallback;
    };
    const auto run = [&](std::int64_t rows) {
      const Argument in[] = {View(x.data(), DType::f32, {rows, 16})};
      const View out(y.data(), DType::f32, {rows, 16});
      program.run(cpu, in, {&out, 1}, {});
      const auto last = static_cast<std::size_t>(16 * rows - 1);
      if (y[last] != x[last] * 4) ++errors;
      return program.look_up(cpu, in, {&out, 1}).fallback;
    };
    int served_turns = 0;
    for (int after = 0; after < 200;) {
      const int turn = served_turns + after;
      const bool calls_wait = call(16 * (1 + turn % 16));
      const bool runs_wait = run(2 + turn % 15);
      if (!calls_wait && !runs_wait) {
        ++after;
      } else if (++served_turns == 10) {
        served.count_down();
      }
    }
    if (served_turns >= 10) return;
    ++errors;  // the compiler did not wait
    served.count_down();
  };
  std::vector<std::thread> threads;
  for (int& errors : wrong) threads.emplace_back(work, std::ref(errors));
  served.wait();  // all of them are served without kernels
  ASSERT_TRUE(gated.open(64));
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ::testing::Each(0));
}

// A base pack serves whatever compiler a machine has.
TEST(GeneralKernels, HaveKeysThatNoCompilerIsPartOf) {
  const jit::Toolchain compiler{jit::ToolchainKind::hiprtc, "/lib/libhiprtc.so", "HIP", "another"};
  KernelRequest request = general_request(GeneralKernel(), "gfx90a");
  const NamedKernel named = name_kernel(request);
  EXPECT_EQ(named.key, name_with(request, compiler).key);
  EXPECT_EQ(named.key_text, named.key.hex());
  request.any_toolchain = false;
  EXPECT_NE(named.key, name_with(request, compiler).key);
}

TEST(GeneralKernels, HaveDistinctTexts) {
  std::vector<std::string> texts;
  for (const GeneralKernel& kernel : all_general_kernels()) {
    texts.push_back(general_request(kernel, "sm_90").text);
  }
  EXPECT_GT(texts.size(), 200u);
  std::ranges::sort(texts);
  EXPECT_EQ(std::ranges::adjacent_find(texts), texts.end());
}

}  // namespace
}  // namespace kiln
