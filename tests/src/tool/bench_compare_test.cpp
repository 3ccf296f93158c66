// What `kiln bench` calls right: every rounding that a right computation can end in, nothing else.
#include "tool/bench_compare.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "fusion/infer/infer.hpp"
#include "fusion/reference/value.hpp"
#include "fusion/text/text.hpp"

namespace kiln::tool {
namespace {

// Whether those stored values may come from these exact ones.
bool accepted(DType dtype, const std::vector<double>& stored, const std::vector<double>& exact) {
  using namespace fusion::reference;
  std::vector<std::byte> bytes(stored.size() * static_cast<std::size_t>(bits(dtype)) / 8);
  for (std::size_t i = 0; i < stored.size(); ++i) {
    write(bytes.data(), convert(from_real(DType::f64, stored[i]), dtype, true),
          static_cast<std::int64_t>(i));
  }
  return may_be_rounded_from(dtype, bytes, exact);
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(BenchCompare, both_neighbours_of_an_f8_are_right_only_where_either_may_come_out) {
  // The numbers of f8e4m3 above 1 are 0.125 apart: 1.0625 is between two of them.
  EXPECT_TRUE(accepted(DType::f8e4m3, {1.0}, {1.0624}));
  EXPECT_TRUE(accepted(DType::f8e4m3, {1.125}, {1.0624}));
  EXPECT_TRUE(accepted(DType::f8e4m3, {1.0}, {1.05}));
  EXPECT_FALSE(accepted(DType::f8e4m3, {1.125}, {1.05}));
  EXPECT_FALSE(accepted(DType::f8e4m3, {0.9375}, {1.0}));
  EXPECT_FALSE(accepted(DType::f8e4m3, {-1.0}, {1.0}));
  EXPECT_FALSE(accepted(DType::f8e5m2, {1.25}, {1.1}));
}

TEST(BenchCompare, subnormal_and_too_large_numbers_of_8_bits_are_rounded_as_the_format_does) {
  for (const DType dtype : {DType::f8e4m3, DType::f8e5m2, DType::f8e4m3fnuz, DType::f8e5m2fnuz}) {
    const auto rounded = [&](double value) {
      return static_cast<double>(fusion::reference::round_to(value, dtype));
    };
    EXPECT_TRUE(accepted(dtype, {rounded(3.3e-3)}, {3.3e-3})) << name(dtype);
    EXPECT_TRUE(accepted(dtype, {rounded(1e6)}, {1e6})) << name(dtype);
    EXPECT_FALSE(accepted(dtype, {rounded(1e6) / 2}, {1e6})) << name(dtype);
    EXPECT_FALSE(accepted(dtype, {rounded(6.6e-3)}, {3.3e-3})) << name(dtype);
  }
}

TEST(BenchCompare, parts_of_a_complex_number_are_as_exact_as_the_larger_one) {
  const auto accepted = [](std::vector<float> stored, const std::vector<double>& exact) {
    return may_be_rounded_from(DType::c64, std::as_bytes(std::span(stored)), exact);
  };
  EXPECT_TRUE(accepted({1, 1e-8F, 2, 3}, {1, 0, 2, 3}));
  EXPECT_TRUE(accepted({1, 5e-4F}, {1, 0}));
  EXPECT_FALSE(accepted({1, 5e-3F}, {1, 0}));
  EXPECT_FALSE(accepted({3, 2}, {2, 3}));
  EXPECT_TRUE(accepted({std::nanf(""), 1}, {kNan, 1}));
  EXPECT_FALSE(accepted({1, std::nanf("")}, {1, 0}));
}

TEST(BenchCompare, what_rounding_each_step_moves_results_by_is_allowed) {
  const std::vector<double> exact = {0.5, -0.25};
  const std::vector<double> rounded = {0.501, -0.251};
  const double off = typical_difference(exact, rounded);
  EXPECT_NEAR(off, 1e-3, 1e-9);
  const std::vector<float> stored = {0.502F, -0.252F};
  const auto bytes = std::as_bytes(std::span(stored));
  EXPECT_FALSE(may_be_rounded_from(DType::f32, bytes, exact));
  EXPECT_TRUE(may_be_rounded_from(DType::f32, bytes, exact, 8 * off));
  EXPECT_FALSE(may_be_rounded_from(DType::f32, bytes, exact, off));
}

TEST(BenchCompare, nan_and_infinity_are_right_only_where_they_are_exact) {
  EXPECT_TRUE(accepted(DType::f8e4m3fnuz, {kNan, 1}, {kNan, 1}));
  EXPECT_FALSE(accepted(DType::f8e4m3fnuz, {kNan}, {1.0}));
  EXPECT_FALSE(accepted(DType::f8e4m3fnuz, {1.0}, {kNan}));
  EXPECT_TRUE(accepted(DType::bf16, {-kInfinity, 1}, {-kInfinity, 1}));
  EXPECT_FALSE(accepted(DType::bf16, {kInfinity}, {-kInfinity}));
  EXPECT_FALSE(accepted(DType::f32, {kInfinity}, {1.0}));
}

TEST(BenchCompare, a_result_of_16_bits_may_be_off_by_its_rounding_and_no_more) {
  EXPECT_TRUE(accepted(DType::bf16, {1.0}, {1.0038}));
  EXPECT_FALSE(accepted(DType::bf16, {1.0078125}, {1.0}));
  EXPECT_FALSE(accepted(DType::f16, {1.003}, {1.0}));
  EXPECT_FALSE(accepted(DType::f32, {1.002}, {1.0}));
}

TEST(BenchCompare, small_results_are_not_right_because_they_are_small) {
  const std::vector<double> probabilities(4096, 1.0 / 4096);
  EXPECT_TRUE(accepted(DType::f32, probabilities, probabilities));
  EXPECT_FALSE(accepted(DType::f32, std::vector<double>(4096, 0.0), probabilities));
}

TEST(BenchCompare, a_sum_that_cancels_is_compared_with_the_size_of_the_others) {
  EXPECT_TRUE(accepted(DType::f32, {100, -100, 1e-3}, {100, -100, 1.1e-3}));
  EXPECT_FALSE(accepted(DType::f32, {100, -100, 0.1}, {100, -100, 0.2}));
}

TEST(BenchCompare, a_written_cast_of_the_result_is_taken_off_and_others_stay) {
  const std::vector<fusion::ArgumentType> types = {{DType::f32, false, false}};
  fusion::TypedGraph graph =
      fusion::infer(fusion::parse("f8e4m3(f16(x)), i8(x), x + 1"), types, {}, Rounding::once, "t");
  leave_outputs_unrounded(graph);
  EXPECT_EQ(graph.nodes[graph.outputs[0]].dtype, DType::f16);
  EXPECT_EQ(graph.nodes[graph.outputs[1]].dtype, DType::i8);
  EXPECT_EQ(graph.nodes[graph.outputs[2]].op, fusion::Op::add);
}

}  // namespace
}  // namespace kiln::tool
