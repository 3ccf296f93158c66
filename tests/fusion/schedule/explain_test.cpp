// What is said about a layout: which axes merged, why an access is no wider, what it should cost.
#include "fusion/schedule/explain.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fusion/infer/infer.hpp"
#include "fusion/infer/reduce_space.hpp"
#include "fusion/schedule/rows/row_layout.hpp"
#include "fusion/text/text.hpp"
#include "tests/fusion/schedule/operand.hpp"

namespace kiln::fusion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Explained {
  Layout layout;
  LayoutReport report;
};

Explained explained(const Dims& shape, const std::vector<Operand>& operands,
                    Backend backend = Backend::amd) {
  static const std::vector<std::string> kNames = {"a", "b", "c", "d"};
  const auto names =
      std::span(kNames).subspan(kNames.size() - operands.size());  // the last is "d", the output
  Explained result{plan_layout(shape, operands, backend), {}};
  result.report = explain(shape, operands, names, result.layout);
  return result;
}

TEST(Explain, NamesTheAxesThatMerged) {
  const Explained all = explained({4, 1, 8, 16}, {operand(DType::f32, {128, 7, 16, 1}),
                                                  operand(DType::f32, {128, 7, 16, 1}, true)});
  EXPECT_THAT(all.report.axes,
              ElementsAre("axis 1 of [4,1,8,16]: dropped, one element",
                          "axes 0, 2, 3: merged into one of 512 elements, innermost"));
}

TEST(Explain, SaysWhichOperandKeepsTwoAxesApart) {
  const Explained gap =
      explained({4, 16}, {operand(DType::f32, {20, 1}), operand(DType::f32, {16, 1}, true)});
  EXPECT_THAT(gap.report.axes[0],
              HasSubstr("since c's stride along it is 20, not the 16 of one longer axis"));
  const Explained row =
      explained({4, 16}, {operand(DType::f32, {0, 1}), operand(DType::f32, {16, 1}, true)});
  EXPECT_THAT(row.report.axes[0], HasSubstr("since c repeats along it"));
  const Explained column =
      explained({4, 16}, {operand(DType::f32, {1, 0}), operand(DType::f32, {16, 1}, true)});
  EXPECT_THAT(column.report.axes[0], HasSubstr("c repeats along the next axis but not along it"));
}

TEST(Explain, SaysWhyAnAccessIsNoWider) {
  const auto reason = [](std::int64_t row, std::uint64_t address) {
    return explained({8, 64}, {operand(DType::bf16, {row, 1}, false, address),
                               operand(DType::bf16, {64, 1}, true)})
        .report.operands[0];
  };
  EXPECT_EQ(reason(72, 4096).access, "contiguous, 16 bytes at a time");
  EXPECT_EQ(reason(72, 4096).reason, "the widest access of a GPU");
  EXPECT_EQ(reason(68, 4096).access, "contiguous, 8 bytes at a time");
  EXPECT_EQ(reason(68, 4096).reason, "its rows start 136 bytes apart, which is no multiple of 16");
  EXPECT_EQ(reason(72, 4096 + 6).access, "contiguous, 2 bytes at a time");
  EXPECT_EQ(reason(72, 4096 + 6).reason, "its first element is at address 6 modulo 16");
  const Explained strided =
      explained({64}, {operand(DType::f32, {3}), operand(DType::f32, {1}, true)});
  EXPECT_EQ(strided.report.operands[0].reason,
            "its neighbours are 3 elements apart along the innermost axis");
}

TEST(Explain, SaysWhatDataSays) {
  Operand rows = operand(DType::f32, {0, 1});
  rows.indexed = {64, 1000};
  rows.index_operands = 2;
  const std::vector<Operand> operands{rows, operand(DType::i32, {1, 0}),
                                      operand(DType::i32, {0, 0}),
                                      operand(DType::f32, {64, 1}, true)};
  static const std::vector<std::string> kNames = {"x_rows", "i", "n", "out"};
  const Dims shape{8, 64};
  const AxisBound bound{0, 4};
  const Layout layout = plan_layout(shape, operands, Backend::amd, std::span(&bound, 1));
  const LayoutReport report = explain(shape, operands, kNames, layout);
  EXPECT_THAT(report.axes.back(), HasSubstr("one of 8 elements ends where data says"));
  EXPECT_EQ(
      report.operands[0].access,
      "contiguous, 16 bytes at a time, where data says: one of 1000 places, 64 elements apart");
  EXPECT_THAT(report.operands[3].access, Not(HasSubstr("data says")));
}

TEST(Explain, SaysWhatDecidedTheWidth) {
  const auto width = [](const Dims& shape, const std::vector<Operand>& operands) {
    return explained(shape, operands).report.width;
  };
  EXPECT_EQ(width({4096}, {operand(DType::f32, {1}), operand(DType::bf16, {1}, true)}),
            "8 elements per work item: 16 bytes of d, the narrowest contiguous operand");
  EXPECT_EQ(width({4096}, {operand(DType::bf16, {1}), operand(DType::f32, {1}, true)}),
            "4 elements per work item: 16 bytes of d, so that neighbouring threads store whole "
            "cache lines");
  EXPECT_EQ(
      width({3, 5}, {operand(DType::f32, {8, 1}), operand(DType::u8, {5, 1}, true)}),
      "1 element per work item, 16 times: rows are too short, or too unaligned, for vectors of "
      "their own");
  EXPECT_EQ(width({3, 5}, {operand(DType::u4, {8, 1}), operand(DType::f32, {5, 1}, true)}),
            "4 elements per work item: a row has only 5");
  EXPECT_EQ(width({4096}, {operand(DType::f64, {1}), operand(DType::u8, {1}, true)}),
            "8 elements per work item: more would take too many registers for c, which is 64 bits "
            "wide");
  EXPECT_EQ(width({64}, {operand(DType::f32, {2}), operand(DType::f32, {2}, true)}),
            "1 element per work item: no operand is contiguous, so a vector would save no access");
}

TEST(Explain, SaysWhichOperandTakesWideIndices) {
  const std::int64_t far = std::int64_t{1} << 31;
  const Explained wide =
      explained({2, 8}, {operand(DType::u8, {far, 1}), operand(DType::u8, {8, 1}, true)});
  EXPECT_EQ(wide.report.index, "64 bits: c spans 2147483656 elements");
  const Explained narrow =
      explained({2, 8}, {operand(DType::u8, {9, 1}), operand(DType::u8, {8, 1}, true)});
  EXPECT_EQ(narrow.report.index, "32 bits: no operand spans 2^31 elements");
}

Estimate estimated(std::string_view text, std::int64_t step, std::string_view target) {
  const Graph graph = parse(text);
  const std::vector<ArgumentType> arguments(graph.arguments().size(), {DType::f32, false, false});
  const TypedGraph typed = infer(graph, arguments, {}, Rounding::once, "f");
  std::vector<Operand> operands(arguments.size(), operand(DType::f32, {step}));
  operands.push_back(operand(DType::f32, {1}, true));
  const Dims shape = {1 << 20};
  return estimate(typed, shape, operands, plan_layout(shape, operands, Backend::nvidia), target);
}

TEST(Estimate, IsACopyForFewOperationsOnContiguousOperands) {
  const Estimate few = estimated("x + y", 1, "sm_90");
  EXPECT_NEAR(few.fraction_of_copy, 1, 1e-3);
  EXPECT_EQ(few.memory, 1);
  EXPECT_EQ(few.operations, 1);
}

TEST(Estimate, CountsWhatIsFetchedForNothing) {
  // Of a sector of 32 bytes one element of four is used, the output is whole.
  EXPECT_DOUBLE_EQ(estimated("x + 1", 2, "sm_90").memory, 1.5);
  EXPECT_DOUBLE_EQ(estimated("x + 1", 100, "sm_90").memory, 4.5);
  EXPECT_LT(estimated("x + 1", 100, "sm_90").fraction_of_copy, 0.25);
}

TEST(Estimate, FallsWithArithmeticAndByTarget) {
  const std::string_view heavy = "power(power(power(x, y), y), y)";
  const Estimate both = estimated(heavy, 1, "sm_90");
  EXPECT_LT(both.fraction_of_copy, 1);
  EXPECT_GT(both.arithmetic, 1);
  EXPECT_NEAR(both.fraction_of_copy,
              std::pow(std::pow(both.memory, 3) + std::pow(both.arithmetic, 3), -1.0 / 3), 1e-9)
      << "without rows each hides most of the other";
  EXPECT_GT(estimated(heavy, 1, "gfx1030").fraction_of_copy,
            estimated(heavy, 1, "sm_90").fraction_of_copy);
}

double operations_on_host(std::string_view text, DType dtype, int passes = 0) {
  const Graph graph = parse(text);
  const std::vector<ArgumentType> arguments(graph.arguments().size(), {dtype, false, false});
  const TypedGraph typed = infer(graph, arguments, {}, Rounding::once, "f");
  ReduceSpace space;
  space.shape = {1 << 10, 1 << 10};
  space.reduced = {false, true};
  space.passes = passes;
  std::vector<Operand> operands(arguments.size(), operand(dtype, {1 << 10, 1}));
  operands.push_back(operand(dtype, {1 << 10, 1}, true));
  const std::vector<bool> varying(operands.size(), false);
  const Layout layout =
      passes == 0 ? plan_layout(space.shape, operands, Backend::host)
                  : plan_rows(space, space.shape, operands, varying, false, Backend::host, {});
  return estimate(typed, space.shape, operands, layout, "x86-64").operations;
}

TEST(Estimate, OfTheCpuCountsConversions) {
  const double whole = operations_on_host("x + y", DType::f32);
  const double half = operations_on_host("x + y", DType::f16);
  const double brain = operations_on_host("x + y", DType::bf16);
  const double eighth = operations_on_host("x + y", DType::f8e4m3);
  EXPECT_EQ(whole, half);
  EXPECT_LT(half, brain);
  EXPECT_LT(brain, eighth);
}

TEST(Estimate, OfTheCpuCountsWhatEachPassComputes) {
  const auto operations = [&](std::string_view text, int passes) {
    return operations_on_host(text, DType::bf16, passes);
  };
  // One pass more reads and computes again; what costs much is kept from the pass before.
  const double one = operations("x * 2 - max(x * 2, -1)", 2);
  const double two = operations("h = x * 2 - max(x * 2, -1); h - sum(h, -1)", 3);
  const double kept = operations("h = exp(x); h - sum(h, -1)", 2);
  const double exponential = info(Op::exp).cost;
  EXPECT_GT(two, one + 3);
  EXPECT_GT(kept, exponential);
  EXPECT_LT(kept, operations("x - sum(exp(x), -1)", 2) + exponential);
}

// Of a sum over all of 4,096 x 4,096 elements, which are counted along the axis in which they are
// far apart in memory: element by element, or through a buffer.
Estimate of_transposed(Backend backend, std::string_view target, std::int64_t splits) {
  const TypedGraph typed =
      infer(parse("sum(x)"), std::vector<ArgumentType>{{DType::f32, false, false}}, {},
            Rounding::once, "f");
  ReduceSpace space;
  space.shape = {1 << 12, 1 << 12};
  space.reduced = {true, true};
  space.passes = 1;
  space.reductions = 1;
  space.trees = 1;
  space.splits = splits;
  const std::vector<Operand> operands = {operand(DType::f32, {1, 1 << 12}),
                                         operand(DType::f32, {0, 0}, true)};
  const Layout layout = plan_rows(space, space.shape, operands, {false, true}, false, backend, {});
  return estimate(typed, space.shape, operands, layout, target);
}

TEST(Estimate, OfTheCpuCountsWhatGoesThroughBuffers) {
  const double moved = of_transposed(Backend::host, "x86-64", 512).operations;
  EXPECT_GT(moved, 8 + operations_on_host("sum(x, -1)", DType::f32, 1));
}

TEST(Estimate, KnowsThatFewBlocksHaveFewSharesOfTheBandwidth) {
  const double many = of_transposed(Backend::nvidia, "sm_90", 512).fraction_of_copy;
  EXPECT_GT(many, 0.9);
  EXPECT_LT(of_transposed(Backend::nvidia, "sm_90", 1).fraction_of_copy, 0.25 * many);
}

}  // namespace
}  // namespace kiln::fusion
