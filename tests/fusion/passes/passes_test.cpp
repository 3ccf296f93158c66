// Each pass by itself: what it removes, and what it must leave because a bit would change.
#include "fusion/passes/passes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "fusion/infer/infer.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/text/text.hpp"

namespace kiln::fusion {
namespace {

ShapedGraph shaped(const std::string& text, DType dtype = DType::f32, Dims shape = {4, 3},
                   Rounding rounding = Rounding::once) {
  const Graph graph = parse(text);
  const std::vector<ArgumentType> types(graph.arguments().size(), {dtype, false, false});
  const std::vector<Dims> own(graph.arguments().size(), shape);
  ShapedGraph result;
  result.graph = infer(graph, types, {}, rounding, "f");
  result.shapes = infer_shapes(result.graph, own, "f");
  return result;
}

std::size_t operations(const ShapedGraph& graph) {
  return static_cast<std::size_t>(std::ranges::count_if(
      graph.graph.nodes, [](const TypedNode& node) { return node.arity > 0; }));
}

std::size_t simplified(const std::string& text, DType dtype = DType::f32) {
  return operations(simplify(shaped(text, dtype)));
}

TEST(Simplify, RemovesWhatChangesNoBit) {
  for (const char* text :
       {"x * 1", "1 * x", "x / 1", "x - 0", "x + -0.0", "-0.0 + x", "-(-x)", "maximum(x, x)",
        "where(True, x, y)", "where(False, y, x)", "where(y > 0, x, x)"}) {
    EXPECT_EQ(simplified(text), 0u) << text;
  }
  EXPECT_EQ(simplified("abs(abs(x))"), 1u);
  EXPECT_EQ(simplified("x + 0", DType::i32), 0u);
  EXPECT_EQ(simplified("~~x", DType::u8), 0u);
  EXPECT_EQ(simplified("i8(i32(x))", DType::i8), 0u);
  EXPECT_EQ(simplified("u8(i16(x))", DType::u8), 0u);
  EXPECT_EQ(simplified("reshape(reshape(x, -1), -1, 1, 1)"), 1u);
  EXPECT_EQ(simplified("reshape(reshape(x, -1), 4, 3)"), 0u) << "the shape of x";
}

TEST(Simplify, LeavesWhatMightChangeOne) {
  EXPECT_EQ(simplified("x + 0"), 1u) << "-0 + 0 is 0";
  EXPECT_EQ(simplified("x - -0.0"), 1u) << "-0 - -0 is 0";
  EXPECT_EQ(simplified("0 - x"), 1u);
  EXPECT_EQ(simplified("x * 0"), 1u) << "NaN * 0 is NaN";
  EXPECT_EQ(simplified("x - x"), 1u) << "inf - inf is NaN";
  EXPECT_EQ(simplified("x / x"), 1u);
  EXPECT_EQ(simplified("f32(f16(x))"), 2u) << "rounds";
  EXPECT_EQ(simplified("f32(i32(x))"), 2u) << "truncates";
  EXPECT_EQ(simplified("i32(f32(x))", DType::i32), 2u) << "f32 holds 24 bits";
  EXPECT_EQ(simplified("i32(i8(x))", DType::i32), 2u) << "wraps";
  EXPECT_EQ(simplified("i8(u8(x))", DType::i8), 2u);
  EXPECT_EQ(simplified("bf16(x * 1.5)", DType::bf16), 2u) << "a written cast rounds";
  EXPECT_EQ(simplified("x / 1", DType::i32), 1u) << "a quotient of integers is f32";
}

TEST(Simplify, KeepsTheShapeOfABroadcast) {
  const Graph graph = parse("where(y > 0, x, x)");
  const std::vector<ArgumentType> types(2, {DType::f32, false, false});
  ShapedGraph wide;
  wide.graph = infer(graph, types, {}, Rounding::once, "f");
  wide.shapes = infer_shapes(wide.graph, std::vector<Dims>{{5, 3}, {3}}, "f");
  EXPECT_GT(operations(simplify(wide)), 0u);
}

TEST(FoldConstants, ComputesWhatDependsOnConstantsAlone) {
  const ShapedGraph folded = fold_constants(shaped("x * (2.0 * 3.0 + 1.0)"));
  EXPECT_EQ(operations(folded), 1u);
  EXPECT_EQ(operations(fold_constants(shaped("x * sqrt(2.0)"))), 1u);
  EXPECT_EQ(operations(fold_constants(shaped("x + i32(2.7)", DType::i32))), 1u);
  EXPECT_EQ(operations(fold_constants(shaped("x * sqrt(-1.0)"))), 2u) << "a NaN stays";
}

// The bits of a constant of `dtype` that `text`, which is x plus it, folds to.
std::uint64_t folded_bits(const std::string& text, DType dtype) {
  const ShapedGraph folded = fold_constants(shaped("x + (" + text + ")", dtype));
  EXPECT_EQ(operations(folded), 1u) << text;
  for (const TypedNode& node : folded.graph.nodes) {
    if (node.op == Op::constant) return node.payload;
  }
  return 0;
}

// By way of a format with a few more digits some results would be rounded twice.
TEST(FoldConstants, RoundsOnceToTheFormatOfTheResult) {
  // A product that is a tie, and an addend that only its exact sum with it shows.
  const volatile float a = 1.0F + 0x1p-12F;
  const volatile float c = 0x1p-80F;
  EXPECT_EQ(folded_bits("fma(1.000244140625, 1.000244140625, 8.271806125530277e-25)", DType::f32),
            std::bit_cast<std::uint32_t>(std::fma(a, a, c)));
}

TEST(FoldConstants, RoundsEachStepAsADeviceDoes) {
  const ShapedGraph folded = fold_constants(shaped("x + (16777216.0 + 1.0) + 1.0"));
  for (const TypedNode& node : folded.graph.nodes) {
    if (node.op == Op::constant && node.payload != 0x3f800000u) {
      EXPECT_EQ(node.payload, 0x4b800000u) << "2^24 + 1 is 2^24 in f32";
    }
  }
}

std::size_t clamps(const std::string& text, DType dtype = DType::f32) {
  const ShapedGraph graph = drop_clamps(shaped(text, dtype));
  return static_cast<std::size_t>(
      std::ranges::count_if(graph.graph.nodes, [](const TypedNode& node) {
        return node.op == Op::clip || node.op == Op::maximum || node.op == Op::minimum;
      }));
}

TEST(DropClamps, LeavesOutBoundsThatTheCastHas) {
  EXPECT_EQ(clamps("f8e4m3(clip(x, -448.0, 448.0))"), 0u);
  EXPECT_EQ(clamps("f8e4m3(clip(x, -448.0, 448.0))", DType::bf16), 0u);
  EXPECT_EQ(clamps("f8e4m3(minimum(maximum(x, -448.0), 500.0))"), 0u);
  EXPECT_EQ(clamps("f8e5m2(clip(x, -57344.0, 57344.0))"), 0u);
  EXPECT_EQ(clamps("f8e4m3fnuz(clip(x, -448.0, 448.0))"), 0u);
}

TEST(DropClamps, LeavesFunctionsOfOneKernelNoDeadNodes) {
  const TypedGraph dropped = drop_clamps(shaped("f8e4m3(clip(x, -448.0, 448.0)), x * y").graph);
  EXPECT_EQ(dropped.nodes.size(), 4u) << "x, y, the cast and the product";
  EXPECT_EQ(dropped.outputs.size(), 2u);
  const TypedGraph kept = shaped("f16(clip(x, -448.0, 448.0))").graph;
  EXPECT_EQ(drop_clamps(kept).nodes, kept.nodes);
}

TEST(DropClamps, KeepsThoseThatChangeACode) {
  EXPECT_EQ(clamps("f8e4m3(clip(x, -447.0, 448.0))"), 1u);
  EXPECT_EQ(clamps("f8e4m3(clip(x, -448.0, 240.0))"), 1u);
  EXPECT_EQ(clamps("f8e5m2(clip(x, -448.0, 448.0))"), 1u);
  EXPECT_EQ(clamps("f8e4m3(maximum(x, 448.0))"), 1u);
  EXPECT_EQ(clamps("f8e4m3(clip(x, y, y))"), 1u);
  EXPECT_EQ(clamps("f16(clip(x, -65504.0, 65504.0))"), 1u) << "f16 has infinities";
  EXPECT_EQ(clamps("f8e4m3(fmin(fmax(x, -448.0), 448.0))"), 0u) << "none that is counted here";
  EXPECT_EQ(operations(drop_clamps(shaped("f8e4m3(fmin(fmax(x, -448.0), 448.0))"))), 3u)
      << "these make a number of NaN";
}

// The op whose operand is what a largest or smallest is taken of.
Op reduced(const std::string& text, Dims shape = {4, 3}, DType dtype = DType::f32) {
  const ShapedGraph graph = sink_functions(shaped(text, dtype, shape));
  for (const TypedNode& node : graph.graph.nodes) {
    if (node.op == Op::reduce_max || node.op == Op::reduce_min || node.op == Op::sum)
      return graph.graph.nodes[node.operands[0]].op;
  }
  return Op::tuple;
}

// How many reshapes, and in what shape what is computed before the last of them.
std::pair<std::size_t, Dims> sunk(const std::string& text, Dims shape = {4, 3}) {
  const ShapedGraph graph = sink_views(shaped(text, DType::f32, std::move(shape)));
  const auto reshapes = std::ranges::count(graph.graph.nodes, Op::reshape, &TypedNode::op);
  const TypedNode& output = graph.graph.nodes[graph.graph.outputs[0]];
  return {static_cast<std::size_t>(reshapes),
          graph.shapes[output.op == Op::reshape ? output.operands[0] : graph.graph.outputs[0]]};
}

TEST(SinkViews, PastOperationsOnWhatWouldBeACopy) {
  EXPECT_EQ(sunk("exp(reshape(swapaxes(x, 0, 1), 12))"), std::pair(std::size_t{1}, Dims{3, 4}));
  EXPECT_EQ(sunk("exp(reshape(x, 12))").second, Dims{12}) << "strides express it";
  EXPECT_EQ(sunk("reshape(swapaxes(x, 0, 1), 12) * sigmoid(reshape(y, 12))").second, (Dims{3, 4}))
      << "what is computed from arguments moves too";
  EXPECT_EQ(
      sunk("reshape(swapaxes(x, 0, 1), 12) + exp(reshape(swapaxes(y, 0, 1), 2, 6))[0, 0]").second,
      Dims{12})
      << "another copy is in the way";
}

// How many reductions are left, and how many views there are.
std::pair<std::size_t, std::size_t> expanded(const std::string& text, Dims shape,
                                             DType dtype = DType::f32) {
  const ShapedGraph graph = expand_windows(shaped(text, dtype, std::move(shape)));
  const auto count = [&](const auto& is) {
    return static_cast<std::size_t>(std::ranges::count_if(graph.graph.nodes, is, &TypedNode::op));
  };
  return {count(is_reduction), count([](Op op) { return op == Op::slice; })};
}

TEST(ExpandWindows, OfAFewElementsWithOthersBetween) {
  const Dims pixels{5, 3, 2, 4, 2};
  const std::pair<std::size_t, std::size_t> all{0, 2 + 2 * 2};
  EXPECT_EQ(expanded("mean(x, -1, -3)", pixels), all);
  EXPECT_EQ(expanded("max(x, -1, -3), sum(x, -1, -3)", pixels, DType::bf16), all);
  EXPECT_EQ(expanded("mean(reshape(x, 15, 2, 4, 2), 1, 3)", pixels), all);
  const std::pair<std::size_t, std::size_t> none{1, 0};
  EXPECT_EQ(expanded("sum(x, -1)", pixels), none) << "a row";
  EXPECT_EQ(expanded("sum(x, -1, -2)", pixels), none) << "a row";
  EXPECT_EQ(expanded("sum(x, -2, -4)", pixels), none) << "vectors hold what is kept";
  EXPECT_EQ(expanded("sum(x, -1, -3)", {5, 3, 9, 4, 2}), none) << "18 elements";
  EXPECT_EQ(expanded("sum(x, -1, -3)", {5, 3, 2, 4, 5}), none) << "no vectors have every fifth";
  EXPECT_EQ(expanded("sum(exp(x), -1, -3)", pixels), none) << "what is computed";
  EXPECT_EQ(expanded("x - mean(x, -1, -3)", pixels), none) << "what is needed as it is";
  EXPECT_EQ(expanded("argmax(x, -1, -3)", pixels), none);
  EXPECT_EQ(expanded("sum(x, -1, -3)", pixels, DType::i32), none);
}

// The shapes that reductions are over, after the pass.
std::vector<Dims> refined(const std::string& text, std::vector<Dims> arguments) {
  const Graph graph = parse(text);
  const std::vector<ArgumentType> types(graph.arguments().size(), {DType::f32, false, false});
  ShapedGraph shaped;
  shaped.graph = infer(graph, types, {}, Rounding::once, "f");
  shaped.shapes = infer_shapes(shaped.graph, arguments, "f");
  const ShapedGraph result = refine_shapes(shaped);
  std::vector<Dims> shapes;
  for (const TypedNode& node : result.graph.nodes) {
    if (is_reduction(node.op)) shapes.push_back(result.shapes[node.operands[0]]);
  }
  EXPECT_EQ(result.shapes[result.graph.outputs[0]], shaped.shapes[shaped.graph.outputs[0]]);
  return shapes;
}

TEST(RefineShapes, SplitsTheAxesOfBothSides) {
  EXPECT_EQ(refined("reshape(x - mean(x, -1), 4, 6, 5) * w", {{4, 2, 15}, {6, 1}}),
            std::vector<Dims>({{4, 2, 3, 5}}));
  EXPECT_EQ(refined("p = reshape(x - mean(x, -1), 4, 3, 8); p / max(p, -1)", {{4, 24}}),
            std::vector<Dims>({{4, 3, 8}, {4, 3, 8}}));
  EXPECT_EQ(
      refined("y = reshape(x - mean(x, -1), 1, 6, 2, 2) * 2.0; reshape(y, 6, 4) + x", {{6, 4}}),
      std::vector<Dims>({{6, 2, 2}}))
      << "the way back is none";
}

TEST(RefineShapes, NotWhereNothingWaitsOrAnAxisEndsWithinAnother) {
  EXPECT_EQ(refined("reshape(x - mean(x, -1), 3, 8) * 2.0", {{4, 6}}), std::vector<Dims>({{4, 6}}))
      << "6 is no multiple of 8, and no part of it";
  EXPECT_EQ(refined("reshape(mean(x, -1), 2, 2) * 2.0", {{4, 6}}), std::vector<Dims>({{4, 6}}))
      << "a row's number is stored, not the row";
  EXPECT_EQ(refined("p = reshape(x * 2.0, 4, 2, 3); p - mean(p, -1)", {{4, 6}}),
            std::vector<Dims>({{4, 2, 3}}))
      << "what is reshaped waits for no reduction";
  EXPECT_EQ(refined("reshape(x - mean(x, -1), 4, 2, 3)", {{4, 6}}), std::vector<Dims>({{4, 6}}))
      << "nothing is computed of the view";
  EXPECT_EQ(refined("cumsum(reshape(x - mean(x, -1), 4, 2, 3), -1)", {{4, 6}}),
            std::vector<Dims>({{4, 6}}))
      << "running results go along one axis";
}

// The number of sums that are left, of x [2, 3, 4, 8] and what has one element for each group.
std::size_t sums(const std::string& text, DType dtype = DType::f32,
                 Rounding rounding = Rounding::once) {
  const Graph graph = parse(text);
  std::vector<ArgumentType> types;
  std::vector<Dims> shapes;
  for (const std::string& name : graph.arguments()) {
    types.push_back({name == "s" ? DType::f32 : dtype, false, false});
    shapes.push_back(name == "s" ? Dims{3, 4, 1} : Dims{2, 3, 4, 8});
  }
  ShapedGraph from;
  from.graph = infer(graph, types, {}, rounding, "f");
  from.shapes = infer_shapes(from.graph, shapes, "f");
  const ShapedGraph to = join_sums(from);
  EXPECT_EQ(to.shapes[to.graph.outputs[0]], from.shapes[from.graph.outputs[0]]) << text;
  return static_cast<std::size_t>(std::ranges::count_if(
      to.graph.nodes, [](const TypedNode& node) { return node.op == Op::sum; }));
}

TEST(JoinSums, OfGroupsTimesWhatThereIsOneOfForEach) {
  EXPECT_EQ(sums("sum(sum(x, -1) * s, -2)"), 1u);
  EXPECT_EQ(sums("sum(s * sum(x * y, -1), -2)"), 1u);
  EXPECT_EQ(sums("sum(sum(x * y, -1) * s * s, -2, -3)"), 1u);
  EXPECT_EQ(sums("sum(sum(x, -1), -2)"), 1u);
  EXPECT_EQ(sums("sum(sum(f32(x), -1, -2) * 2, -3)", DType::bf16), 1u);
  EXPECT_EQ(sums("sum(f32(sum(i32(x) * i32(y), -1)) * s, -2)", DType::i8), 1u);
  EXPECT_EQ(sums("sum(sum((i32(x) - 8) * i32(y), -1) * s, -2)", DType::u8), 1u);
}

TEST(JoinSums, OfSeveralGroupsThatAreProductsWithOneValue) {
  EXPECT_EQ(sums("sum(sum(x * y, -1) * s + sum(y, -1) * s, -2)"), 1u);
  EXPECT_EQ(sums("sum(sum(y, -1) * s - s * sum(x * y, -1), -2)"), 1u);
  EXPECT_EQ(sums("sum(sum(x * y, -1) * s + sum(x, -1) * s, -2)", DType::bf16), 1u);
  EXPECT_EQ(sums("sum(sum(x * y, -1) * s + sum(exp(x), -1) * s, -2)"), 3u) << "no such value";
  EXPECT_EQ(sums("sum(sum(x * y, -1) * s + s, -2)"), 2u) << "not of a group's sum";
  EXPECT_EQ(sums("g = sum(y, -1); sum(sum(x * y, -1) * s + g, -2), g"), 3u);
}

TEST(JoinSums, NotWhereAnotherNumberIsMeantOrNeeded) {
  EXPECT_EQ(sums("g = sum(x, -1); sum(g * g, -2)"), 2u);
  EXPECT_EQ(sums("g = sum(x, -1); sum(g * s, -2), g"), 2u);
  EXPECT_EQ(sums("sum(exp(sum(x, -1)) * s, -2)"), 2u);
  EXPECT_EQ(sums("sum((sum(x, -1) + 1) * s, -2)"), 2u);
  EXPECT_EQ(sums("sum(sum(x, -1) * y, -2)"), 2u) << "larger than the groups' sums";
  EXPECT_EQ(sums("sum(sum(x, -1) * s, -3)"), 2u) << "an axis between them stays";
  EXPECT_EQ(sums("sum(f32(bf16(sum(x, -1))) * s, -2)"), 2u) << "rounds";
  EXPECT_EQ(sums("sum(f32(i32(sum(x, -1))) * s, -2)"), 2u) << "truncates";
  EXPECT_EQ(sums("sum(f32(sum(x * y, -1)) * s, -2)", DType::i32), 2u) << "wraps";
  EXPECT_EQ(sums("sum(f32(sum(i32(x) * i32(y), -1)) * s, -2)", DType::i16), 2u)
      << "more than f32 holds exactly";
  EXPECT_EQ(sums("sum(sum(x, -1) * s, -2)", DType::f32, Rounding::each), 2u);
}

TEST(SinkFunctions, PastTheLargestAndSmallest) {
  EXPECT_EQ(reduced("max(exp(x), -1)"), Op::input);
  EXPECT_EQ(reduced("min(tanh(x))"), Op::input);
  EXPECT_EQ(reduced("max(log10(maximum(x, 1e-10)))"), Op::input);
  EXPECT_EQ(reduced("max(minimum(log(maximum(1e-10, x)), 4.0))"), Op::input);
  EXPECT_EQ(reduced("max(log(abs(x)))"), Op::abs);
  EXPECT_EQ(reduced("max(sqrt(exp(x)))"), Op::input);
  const Dims large = {2, 1 << 20};
  EXPECT_EQ(reduced("m = exp(x); m - max(m, -1)", large), Op::input) << "read twice in any case";
}

TEST(SinkFunctions, NotWhereTheOrderOrTheResultWouldBeAnother) {
  EXPECT_EQ(reduced("max(log(x))"), Op::log) << "of a negative number it is NaN";
  EXPECT_EQ(reduced("max(log(maximum(x, -1.0)))"), Op::log);
  EXPECT_EQ(reduced("max(cos(x))"), Op::cos);
  EXPECT_EQ(reduced("max(-exp(x))"), Op::neg);
  EXPECT_EQ(reduced("sum(exp(x))"), Op::exp);
  EXPECT_EQ(reduced("max(maximum(x, 1.0))"), Op::maximum) << "saves nothing";
  EXPECT_EQ(reduced("max(exp(x), -1)", {4, 0}), Op::exp) << "nothing is the largest of nothing";
  EXPECT_EQ(reduced("m = exp(x); m - max(m, -1)"), Op::exp) << "each is computed once";
  EXPECT_EQ(reduced("m = exp(x); m == max(m, -1)", {2, 1 << 20}), Op::exp) << "one is the same";
  for (const char* text : {"max(log(square(x)))", "max(sqrt(x * x))", "max(log2(abs(x)))"}) {
    EXPECT_NE(reduced(text, {4, 3}, DType::i8), Op::promote) << text << " of what wraps";
    EXPECT_EQ(reduced(text, {4, 3}, DType::u8), Op::promote) << text;
  }
  const ShapedGraph each = shaped("max(exp(x))", DType::f16, {4, 3}, Rounding::each);
  EXPECT_EQ(sink_functions(each).graph.nodes, each.graph.nodes);
}

// Each of two operations is on equal nodes only once the nodes before it are one.
TEST(Simplify, FindsEqualOperandsHoweverFarTheyAre) {
  EXPECT_EQ(simplified("maximum(exp(exp(exp(x * 1))), exp(exp(exp(x))))"), 3u);
  EXPECT_EQ(simplified("a = maximum(exp(x * 1), exp(x)); minimum(exp(a), exp(exp(x * 1)))"), 2u);
}

// The shapes of the iotas of a graph over x of [4, 3] and y of [4, 1], after the pass.
std::vector<Dims> iotas_of(const std::string& text) {
  const Graph graph = parse(text);
  std::vector<ArgumentType> types;
  std::vector<Dims> own;
  for (const std::string& name : graph.arguments()) {
    types.push_back({DType::f32, false, false});
    own.push_back(name == "y" ? Dims{4, 1} : Dims{4, 3});
  }
  const ShapedGraph stored =
      store_iotas(shape_graph(infer(graph, types, {}, Rounding::once, "f"), own, "f"));
  std::vector<Dims> shapes;
  for (NodeId id = 0; id < stored.graph.nodes.size(); ++id) {
    if (stored.graph.nodes[id].op == Op::iota) shapes.push_back(stored.shapes[id]);
  }
  return shapes;
}

TEST(StoreIotas, AsManyAsTheAxisHasWhereTheyMeetReductions) {
  const std::vector<Dims> of_columns{{3}};
  EXPECT_EQ(iotas_of("softmax(where(iota(-1) < y, x, -inf), -1)"), of_columns);
  EXPECT_EQ(iotas_of("softmax(x, -1) - f32(iota(-1) == y)"), of_columns);
  EXPECT_EQ(iotas_of("cumsum(x * f32(iota(1)), -1)"), of_columns);
  EXPECT_EQ(iotas_of("sum(where(iota(0) <= iota(1), x, 0), -1)"), (std::vector<Dims>{{3}, {4}}));
}

TEST(StoreIotas, NotWhereNothingIsReducedOrNothingElseHasTheShape) {
  const std::vector<Dims> as_before{{4, 3}};
  EXPECT_EQ(iotas_of("where(iota(-1) < y, x, 0)"), as_before);
  EXPECT_EQ(iotas_of("sum(x * f32(iota()), -1)"), as_before) << "of all elements";
  EXPECT_EQ(iotas_of("sum(x + uniform(1, 2), -1)"), as_before) << "which numbers random elements";
}

TEST(ShareCommon, MakesEqualNodesOne) {
  ShapedGraph graph = shaped("x + y");
  const TypedNode again = graph.graph.nodes.back();
  graph.graph.nodes.push_back(again);
  graph.shapes.push_back(graph.shapes.back());
  graph.graph.outputs.push_back(static_cast<NodeId>(graph.graph.nodes.size() - 1));
  graph.graph.output_names.emplace_back();
  const ShapedGraph shared = share_common(graph);
  EXPECT_EQ(shared.graph.outputs[0], shared.graph.outputs[1]);
  EXPECT_EQ(operations(shared), 1u);
}

TEST(ShareCommon, DropsWhatNoOutputNeedsAndKeepsArguments) {
  ShapedGraph graph = shaped("x + y");
  graph.graph.nodes.push_back({Op::exp, DType::f32, 1, {0}, 0});
  graph.shapes.push_back(graph.shapes[0]);
  const ShapedGraph live = share_common(graph);
  EXPECT_EQ(live.graph.nodes.size(), 3u);
  EXPECT_EQ(live.graph.arguments.size(), 2u);
  EXPECT_EQ(live.shapes.size(), 3u);
}

}  // namespace
}  // namespace kiln::fusion
