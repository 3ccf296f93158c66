// What a recording lacks is compiled side by side, be it of functions, of kernels of the caller's
// or of programs: a compiler that waits for the others is begun for each of them before any ends.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <future>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/io.hpp"
#include "kiln/kiln.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln {
namespace {

constexpr int kJobs = 4;
const int chosen_jobs = setenv("KILN_COMPILE_JOBS", std::to_string(kJobs).c_str(), 1);

/// The host compiler of this process. While it is held, each run of it that makes a kernel says so
/// and waits until it is let go.
class HeldCompiler {
 public:
  HeldCompiler() {
    for (const char* const name : {"begun", "go"}) {
      if (mkfifo(directory_.path(name).c_str(), 0600) != 0) throw std::runtime_error("mkfifo");
    }
    begun_ = open("begun");
    go_ = open("go");
    const char* const real = std::getenv("KILN_CXX");
    const std::string script =
        directory_.put("c++", fmt::format("#!/bin/sh\n"
                                          "case \"$*\" in *kernel.cpp*) if [ -e {0}/held ]; then\n"
                                          "  echo x > {0}/begun; read go < {0}/go\n"
                                          "fi;; esac\n"
                                          "exec {1} \"$@\"\n",
                                          directory_.path(), real != nullptr ? real : "c++"));
    chmod(script.c_str(), 0700);
    setenv("KILN_CXX", script.c_str(), 1);
  }

  /// How many runs there are at once while `record` is at work, which returns what it recorded.
  int runs_at_once(int expected, const std::function<Graph()>& record) {
    directory_.put("held", "");
    std::future<Graph> recorded = std::async(std::launch::async, record);
    int runs = 0;
    while (runs < expected && next_begins()) ++runs;
    unlink(directory_.path("held").c_str());  // those that come later do not wait
    const std::string lines(static_cast<std::size_t>(runs), '\n');
    EXPECT_EQ(write(go_.get(), lines.data(), lines.size()), std::ssize(lines));
    recorded.get().launch({});
    return runs;
  }

 private:
  base::UniqueFd open(std::string_view name) const {
    return base::UniqueFd(::open(directory_.path(name).c_str(), O_RDWR | O_CLOEXEC));
  }
  /// Waits for a run to begin, and for none that does not come.
  bool next_begins() const {
    constexpr int kMostMilliseconds = 30'000;
    pollfd ready{begun_.get(), POLLIN, 0};
    char line[2];
    return poll(&ready, 1, kMostMilliseconds) == 1 && read(begun_.get(), line, 2) == 2;
  }

  testing::TemporaryDirectory directory_;
  base::UniqueFd begun_;
  base::UniqueFd go_;
};

HeldCompiler& compiler() {
  static HeldCompiler one;
  return one;
}
const HeldCompiler& made_first = compiler();

class Recording : public ::testing::Test {
 protected:
  void SetUp() override { KILN_NEED(host); }
  View view(std::size_t i) { return {memory_.at(i).data(), DType::f32, {16, 16}}; }

 private:
  std::vector<std::vector<float>> memory_{12, std::vector<float>(16 * 16, 1.0F)};
};

TEST_F(Recording, CompilesFunctionsAndKernelsSideBySide) {
  const Function sums = fuse("sums", [](Value x) { return sum(x, -1) + 1.25; });
  const Function scaled = fuse("scaled", [](Value x) { return x * 3.75; });
  const Function scan = fuse("running", [](Value x) { return cumsum(x, -1) * 0.5; });
  const Kernel own = kernel("own",
                            "extern \"C\" __global__ void own(float* x) { if (blockIdx.x + "
                            "threadIdx.x == 0) x[0] = 7; }",
                            {writes(DType::f32)});
  const int runs = compiler().runs_at_once(kJobs, [&] {
    return record({}, [&](Recorder& recorder) {
      recorder.call(sums, {view(0)}, {View(view(1).data(), DType::f32, {16, 1})});
      recorder.call(scaled, {view(0)}, {view(2)});
      recorder.call(own, {{1}, {1}}, {view(3)});
      recorder.call(scan, {view(2)}, {view(4)});
    });
  });
  EXPECT_EQ(runs, kJobs);
}

// Of a program alone, and of one beside another.
TEST_F(Recording, CompilesProgramsSideBySide) {
  const Program first = parse_program("first", "a = softmax(x, 0) * 1.5; a / sum(a, 1)");
  const Program second = parse_program("second", "b = sum(x, 0) + 2.25; cumsum(x, 1) * b");
  const auto kernels = [&](const Program& program, std::size_t out) {
    const Argument in[] = {view(0)};
    const View result = view(out);
    return static_cast<int>(program.explain({}, in, {&result, 1}).kernels.size());
  };
  ASSERT_EQ(kernels(first, 5), 2);
  ASSERT_EQ(kernels(second, 6), 2);
  std::vector<std::uint64_t> workspace(1 << 12);
  const View scratch(workspace.data(), DType::u8, {std::int64_t{1} << 14});
  const View other(workspace.data() + (1 << 11), DType::u8, {std::int64_t{1} << 14});
  const auto record_all = [&](std::span<const Program> programs) {
    return record({}, [&](Recorder& recorder) {
      std::size_t out = 5;
      for (const Program& program : programs) {
        const Argument in[] = {view(0)};
        const View result = view(out);
        program.record(recorder, {}, in, {&result, 1}, out++ == 5 ? scratch : other);
      }
    });
  };
  const Program alone[] = {parse_program("alone", "a = softmax(x, 0) * 2.5; a - sum(a, 1)")};
  EXPECT_EQ(compiler().runs_at_once(2, [&] { return record_all(alone); }), 2);
  const Program both[] = {first, second};
  EXPECT_EQ(compiler().runs_at_once(kJobs, [&] { return record_all(both); }), kJobs);
}

}  // namespace
}  // namespace kiln
