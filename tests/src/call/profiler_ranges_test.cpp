// Calls are ranges that carry the function's name for profilers, seen by a library that stands in
// for theirs.
#include "base/profiler_ranges.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>

#include "base/dynamic_library.hpp"
#include "kiln/kiln.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln {
namespace {

class ProfilerRanges : public ::testing::Test {
 protected:
  // Before the first call of this process, which finds the library.
  static void SetUpTestSuite() { ::setenv("KILN_PROFILER_RANGES", KILN_TEST_RANGES, 1); }

  std::string ranges() const {
    const base::DynamicLibrary library(KILN_TEST_RANGES);
    const auto seen = reinterpret_cast<const char* (*)()>(library.symbol("ranges_so_far"));
    return seen == nullptr ? library.error() : seen();
  }

  const Device cpu{DeviceType::cpu, 0};
  const Stream stream{cpu, nullptr};
  std::array<float, 16> x{};
  std::array<float, 16> y{};
  View view(std::array<float, 16>& array) const { return {array.data(), DType::f32, {16}, cpu}; }
};

TEST_F(ProfilerRanges, CarryTheNamesOfWhatIsCalledAndEndWithIt) {
  KILN_NEED(host);
  const Function twice = parse("twice", "x * 2.0");
  twice(stream, {view(x)}, {view(y)});
  EXPECT_EQ(ranges(), "(twice)");
  twice(stream, {view(x)}, {view(y)});
  EXPECT_EQ(ranges(), "(twice)(twice)");
  const Program halves = program(parse("halves", "x[0:8] - x[8:16]"));
  halves.run(stream, {view(x)}, {View(y.data(), DType::f32, {8}, cpu)}, View());
  EXPECT_EQ(ranges(), "(twice)(twice)(halves)");
  const Launch bound = twice.bind(stream, {view(x)}, {view(y)});
  bound(stream);
  EXPECT_EQ(ranges(), "(twice)(twice)(halves)(twice)");
  Graph graph =
      record(cpu, [&](Recorder& recorder) { recorder.call(twice, {view(x)}, {view(y)}); });
  graph.launch(stream);
  EXPECT_EQ(ranges(), "(twice)(twice)(halves)(twice)(kiln::Graph)");
}

TEST_F(ProfilerRanges, EndWhereACallFails) {
  const Function copied = parse("copied", "x * 1.5");
  const std::string before = ranges();
  const View shifted(x.data() + 1, DType::f32, {8}, cpu);
  EXPECT_THROW(copied(stream, {View(x.data(), DType::f32, {8}, cpu)}, {shifted}), Error);
  EXPECT_EQ(ranges(), before + "(copied)");
}

}  // namespace
}  // namespace kiln
