// Passes that keep what is computed of parts together: where the parts of a concatenation are
// computed, where slices go, and in which shape groups are reduced.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "fusion/infer/infer.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/passes/passes.hpp"
#include "fusion/text/text.hpp"

namespace kiln::fusion {
namespace {

using Pass = std::function<ShapedGraph(const ShapedGraph&)>;

// A program of f32 arguments of such shapes, after a pass that leaves its outputs' shapes.
ShapedGraph after(const Pass& pass, const std::string& text, const std::vector<Dims>& arguments) {
  const Graph graph = parse(text);
  const std::vector<ArgumentType> types(graph.arguments().size(), {DType::f32, false, false});
  const ShapedGraph from =
      simplify(shape_graph(infer(graph, types, {}, Rounding::once, "f"), arguments, "f"));
  const ShapedGraph to = pass(from);
  EXPECT_EQ(to.graph.outputs.size(), from.graph.outputs.size()) << text;
  for (std::size_t i = 0; i < to.graph.outputs.size(); ++i) {
    EXPECT_EQ(to.shapes[to.graph.outputs[i]], from.shapes[from.graph.outputs[i]]) << text;
  }
  return to;
}

// The shapes of the values of an op.
std::vector<Dims> shapes_of(Op op, const ShapedGraph& graph) {
  std::vector<Dims> shapes;
  for (NodeId id = 0; id < graph.graph.nodes.size(); ++id) {
    if (graph.graph.nodes[id].op == op) shapes.push_back(graph.shapes[id]);
  }
  return shapes;
}

// The shape that the first sum is over.
Dims summed(const std::string& text, const std::vector<Dims>& arguments) {
  const ShapedGraph graph = after(group_terms, text, arguments);
  const auto sum = std::ranges::find(graph.graph.nodes, Op::sum, &TypedNode::op);
  return graph.shapes[sum->operands[0]];
}

TEST(GroupTerms, ReducesWhatIsMadeOfGroupsAsThese) {
  const std::vector<Dims> arguments = {{6, 4, 8}, {6, 4, 1}, {32}};
  EXPECT_EQ(summed("sum(reshape(q * s, 6, 32) * x, -1)", arguments), (Dims{6, 4, 8}));
  EXPECT_EQ(summed("sum(x * f32(f16(reshape(q * s, 6, -1))), -1)", {{32}, {6, 4, 8}, {6, 4, 1}}),
            (Dims{6, 4, 8}));
  EXPECT_EQ(summed("sum(reshape(q * s, 6, 32) * x[:, None], -1)", {{6, 4, 8}, {6, 4, 1}, {2, 32}}),
            (Dims{2, 6, 4, 8}));
  EXPECT_EQ(
      summed("sum(reshape(reshape(q, 6, 4, 8) * s, 6, 32) * x, -1)", {{6, 32}, {6, 4, 1}, {32}}),
      (Dims{6, 4, 8}));
}

TEST(GroupTerms, NotWhereGroupsAreNeededElsewhereOrSplitNoReducedAxis) {
  const std::vector<Dims> arguments = {{6, 4, 8}, {6, 4, 1}, {32}};
  EXPECT_EQ(summed("w = reshape(q * s, 6, 32); sum(w * x, -1), w", arguments), (Dims{6, 32}));
  EXPECT_EQ(summed("w = q * s; sum(reshape(w, 6, 32) * x, -1), w", arguments), (Dims{6, 32}));
  EXPECT_EQ(summed("sum(reshape(q * s, 24, 8) * x[:8], -1)", arguments), (Dims{24, 8}));
  EXPECT_EQ(summed("sum(reshape(q - max(q, -1) * s, 6, 32) * x, -1)", arguments), (Dims{6, 32}))
      << "what a reduction gives is computed before";
  EXPECT_EQ(summed("sum(reshape(q * s, 8, 24) * x[:24], -1)", arguments), (Dims{8, 24}))
      << "no axis is split";
}

TEST(SplitConcats, ComputesEachPart) {
  const std::string turned = "y = x * 2.0; concat(-1, -y[:, 3:], y[:, :3]) * s + y * c";
  const ShapedGraph graph = after(split_concats, turned, {{4, 6}, {6}, {6}});
  EXPECT_EQ(graph.graph.nodes[graph.graph.outputs[0]].op, Op::concat);
  EXPECT_EQ(shapes_of(Op::concat, graph).size(), 1u);
  EXPECT_EQ(shapes_of(Op::add, graph), (std::vector<Dims>{{4, 3}, {4, 3}}));
}

TEST(SplitConcats, NotOfArgumentsOrWhatIsNeededWholeOrReduced) {
  const auto is_split = [](const std::string& text) {
    const ShapedGraph graph = after(split_concats, text, {{4, 6}, {4, 6}});
    return shapes_of(Op::exp, graph).size() > 1;
  };
  EXPECT_TRUE(is_split("exp(concat(0, x * 2, y + 1))"));
  EXPECT_FALSE(is_split("exp(concat(0, x, y + 1))")) << "x would be copied";
  EXPECT_FALSE(is_split("c = concat(0, x * 2, y + 1); exp(c), c"));
  EXPECT_FALSE(is_split("sum(exp(concat(0, x * 2, y + 1)), -1)"));
}

// What is seen in slices is computed of slices of it, not of what it is made of.
TEST(SplitConcats, ReadsSlicesThatOthersRead) {
  const std::string turned = "y = x * w; concat(-1, -y[:, 3:], y[:, :3]) * s + y * c";
  const ShapedGraph graph = after(split_concats, turned, {{4, 6}, {6}, {6}, {6}});
  EXPECT_EQ(std::ranges::count(shapes_of(Op::mul, graph), Dims{4, 6}), 1);
}

// The shapes that reductions are over, after the pass.
std::vector<Dims> halved(const std::string& text, const std::vector<Dims>& arguments) {
  const ShapedGraph graph = after(reduce_halves, text, arguments);
  std::vector<Dims> shapes;
  for (const TypedNode& node : graph.graph.nodes) {
    if (is_reduction(node.op)) shapes.push_back(graph.shapes[node.operands[0]]);
  }
  return shapes;
}

TEST(ReduceHalves, OfRowsThatAreSeenSo) {
  const std::vector<Dims> arguments = {{5, 128}};
  const Dims half{5, 64};
  const auto once = std::vector<Dims>{half};
  EXPECT_EQ(halved("x[:, :64] - x[:, 64:] * sum(x * x, -1)", arguments), once);
  EXPECT_EQ(halved("mean(x, -1), x[:, 64:] * 2.0, x[:, :64] * 3.0", arguments), once);
  EXPECT_EQ(halved("y = softmax(x, -1); y[:, 64:] - y[:, :64]", arguments),
            (std::vector<Dims>{half, half}));
  EXPECT_EQ(halved("y = (x - mean(x, -1)) * w; y[:, 64:] * c + y[:, :64] * s",
                   {{5, 128}, {128}, {64}, {64}}),
            once);
  EXPECT_EQ(halved("max(abs(x), -1), x[:, 300:] * 2.0, x[:, :300] * 3.0", {{5, 600}}),
            (std::vector<Dims>{{5, 300}}))
      << "no order";
}

// Those of even and of odd numbers are added up by themselves.
TEST(ReduceHalves, OfPairs) {
  const Dims half{5, 48};
  const auto twice = std::vector<Dims>{half, half};
  EXPECT_EQ(halved("x[:, ::2] - x[:, 1::2] * sum(x * x, -1)", {{5, 96}}), twice);
  EXPECT_EQ(halved("p = reshape(x * w, 5, 48, 2); p[..., 0] * sum(x * w, -1) - p[..., 1]",
                   {{5, 96}, {96}}),
            twice);
  EXPECT_EQ(halved("x[:, ::2] - x[:, 1::2] * max(x, -1)", {{5, 96}}), std::vector<Dims>{half});
}

// What is seen of computed values is stored, as arguments are.
TEST(ReduceHalves, OfStoredRows) {
  EXPECT_EQ(
      halved("y = reshape(sum(x, -1), 5, 128); y[:, :64] - y[:, 64:] * sum(y * y, -1)", {{640, 3}})
          .back(),
      (Dims{5, 64}));
  EXPECT_EQ(halved("y = sum(x, 0); y[:, :64] - y[:, 64:] * sum(y * y, -1)", {{3, 128}}).back(),
            (Dims{1, 128}))
      << "its kernel computes it";
}

TEST(ReduceHalves, NotWhereTheTreeOrWhatNeedsTheRowHasNone) {
  const auto stays = [](const std::string& text, std::int64_t count) {
    for (const Dims& shape : halved(text, {{5, count}, {count}})) {
      if (shape[1] != count) return false;
    }
    return true;
  };
  EXPECT_TRUE(stays("x[:, :48] - x[:, 48:] * sum(x * w, -1)", 96)) << "no power of two";
  EXPECT_TRUE(stays("x[:, :512] - x[:, 512:] * sum(x * w, -1)", 1024)) << "four of a residue";
  EXPECT_TRUE(stays("x[:, :60] - x[:, :60] * sum(x * w, -1)", 128)) << "no halves";
  EXPECT_TRUE(stays("x[:, ::3] * sum(x * w, -1), x[:, 1::3]", 126)) << "no halves";
  EXPECT_TRUE(stays("x[:, ::2] - x[:, 1::2] * mean(x * w, -1)", 96)) << "no power of two";
  EXPECT_TRUE(stays("x[:, ::2] - x[:, 1::2] * sum(x * w, -1)", 1024)) << "four of a residue";
  EXPECT_TRUE(stays("y = x * w; y[:, ::2] - y[:, 1::2], y[:, :64] - y[:, 64:], sum(y, -1)", 128))
      << "of both kinds";
  EXPECT_TRUE(stays("y = x * w; y[:, ::-2] - y[:, 1::2] * sum(y, -1)", 128)) << "backwards";
  EXPECT_TRUE(stays("y = x * w; y[:, :64] - y[:, 64:], y - sum(y, -1)", 128)) << "all of it";
  EXPECT_TRUE(stays("y = x * w; y[:, :64] - y[:, 64:], argmax(y, -1), max(y, -1)", 128));
  EXPECT_TRUE(stays("y = x * w; y[:, :64] - y[:, 64:], cumsum(y, -1), max(y, -1)", 128));
  EXPECT_TRUE(stays("y = x * w; y[:, :64] - y[:, 64:], prod(y, -1), max(y, -1)", 128));
  EXPECT_TRUE(stays("y = x * w; y[:, :64] - y[:, 64:], y[1:], max(y, -1)", 128)) << "rows";
  EXPECT_TRUE(stays("y = x * w; y[:, :64] - y[:, 64:], sum(y, 0, -1)", 128)) << "another axis";
}

// A reshape is no obstacle where the others can be seen in the shape of the parts.
TEST(SplitConcats, BehindReshapes) {
  const ShapedGraph graph =
      after(split_concats, "y = x * 2.0; reshape(stack(1, y[:, 3:], y[:, :3]), 4, 6) * s + y",
            {{4, 6}, {6}});
  EXPECT_EQ(shapes_of(Op::add, graph), (std::vector<Dims>{{4, 1, 3}, {4, 1, 3}}));
}

TEST(ExpandReversals, OfTwoElementsOfSumsThatMeetOthers) {
  const auto concats = [](const std::string& text) {
    return shapes_of(Op::concat, after(expand_reversals, text, {{4, 6, 8}})).size();
  };
  EXPECT_EQ(concats("y = reshape(sum(x, -1), 4, 2, 3); y[:, ::-1] + y"), 1u);
  EXPECT_EQ(concats("y = sum(x, -1)[1:] * 2.0; reshape(reshape(y, 3, 3, 2)[..., ::-1], 3, 6, 1) * "
                    "2.0 - exp(y)"),
            1u);
  EXPECT_EQ(concats("y = reshape(sum(x, -1), 4, 3, 2); y[:, ::-1] + y"), 0u) << "more";
  EXPECT_EQ(concats("y = reshape(sum(x, -1), 4, 2, 3); y[:, ::-1] * 2.0, y - 1.0"), 0u) << "apart";
  EXPECT_EQ(concats("y = reshape(sum(x, -1), 4, 2, 3); y[:, ::-1] + max(y, -1)"), 0u) << "apart";
  EXPECT_EQ(concats("x[::-1]"), 0u) << "a view of an argument";
}

TEST(SpreadRepeats, ComputesInTheShapeOfWhatIsRepeated) {
  const std::vector<Dims> arguments = {{2, 5, 4}, {6, 5, 4}};
  const auto computed = [&](const std::string& text) {
    return shapes_of(Op::mul, after(spread_repeats, text, arguments));
  };
  EXPECT_EQ(computed("reshape(stack(1, x, x, x), 6, 5, 4) * y"), (std::vector<Dims>{{2, 3, 5, 4}}));
  EXPECT_EQ(computed("concat(0, x, x, x) * y"), (std::vector<Dims>{{3, 2, 5, 4}}));
  EXPECT_EQ(computed("concat(0, x, x, x + 1) * y"), (std::vector<Dims>{{6, 5, 4}}));
  EXPECT_EQ(shapes_of(Op::sum, after(spread_repeats, "sum(concat(0, x, x, x) * y, -1)", arguments)),
            (std::vector<Dims>{{3, 2, 5, 1}}));
  EXPECT_EQ(
      shapes_of(Op::sum, after(spread_repeats, "sum(concat(0, x, x, x) + 1, 0), y", arguments)),
      (std::vector<Dims>{{1, 5, 4}}))
      << "what is repeated is added up as often";
}

// A value that is squared as often.
std::string squares(const std::string& value, int count) {
  std::string text = "a0 = " + value + "; ";
  for (int i = 1; i <= count; ++i) text += fmt::format("a{0} = a{1} * a{1}; ", i, i - 1);
  return text;
}

// Each once, however many ways lead to it.
TEST(SpreadRepeats, ComputesWhatIsMadeOfAnIndexOnce) {
  const ShapedGraph graph =
      after(spread_repeats,
            squares("f32(iota(-1))", 60) + "reshape(stack(1, x, x, x), 6, 5, 4) * y * a60",
            {{2, 5, 4}, {6, 5, 4}});
  EXPECT_EQ(shapes_of(Op::mul, graph), std::vector<Dims>(62, {2, 3, 5, 4}));
}

TEST(SplitConcats, ComputesInAnotherShapeOnce) {
  const ShapedGraph graph =
      after(split_concats,
            squares("a", 60) + "y = x * 2.0; reshape(stack(1, y[:, 3:], y[:, :3]), 4, 6) * a60 + y",
            {{4, 6}, {4, 6}});
  EXPECT_EQ(shapes_of(Op::add, graph), (std::vector<Dims>{{4, 1, 3}, {4, 1, 3}}));
  EXPECT_LE(shapes_of(Op::mul, graph).size(), 130u);
}

TEST(SinkSlices, PastWhatIsTheSameForAllParts) {
  const std::vector<Dims> arguments = {{4, 6, 8}, {6}};
  const auto computed = [&](const std::string& text) {
    return shapes_of(Op::mul, after(sink_slices, text, arguments));
  };
  const std::vector<Dims> once = {{4, 6}};
  EXPECT_EQ(computed("y = sum(x, -1)[..., 0] + w; y[:, :2] * 3.0, y[:, 2:] * 3.0"), once);
  EXPECT_EQ(computed("y = sum(x, -1)[..., 0]; y[:, :2] * 3.0 + 1.0, y[:, 2:]"), once);
  EXPECT_EQ(computed("y = reshape(sum(x, -1), 24); reshape(y[:8], 2, 2, 2) * 3.0, "
                     "reshape(y[8:], 4, 2, 2) * 3.0"),
            (std::vector<Dims>{{6, 2, 2}}));
}

TEST(SinkSlices, NotWherePartsMeetOrElementsAreReadTwiceOrNever) {
  const std::vector<Dims> arguments = {{4, 6, 8}, {6}};
  const auto computed = [&](const std::string& text) {
    return shapes_of(Op::mul, after(sink_slices, text, arguments));
  };
  const std::vector<Dims> of_parts = {{4, 3}};
  EXPECT_EQ(computed("y = sum(x, -1)[..., 0] + w; y[:, :3] * y[:, 3:] + 1.0"), of_parts);
  EXPECT_EQ(computed("y = sum(x, -1)[..., 0] + w; y[:, :3] * 3.0, y[:, 2:]"), of_parts);
  EXPECT_EQ(computed("y = sum(x, -1)[..., 0] + w; y[:, :3] * 3.0, y[:, 4:]"), of_parts);
  EXPECT_EQ(computed("y = sum(x, -1)[..., 0]; y[:, :3] * w[:3] + 1.0, y[:, 3:]"), of_parts)
      << "what differs along the axis";
  EXPECT_EQ(computed("y = x[..., 0] + w; y[:, :3] * 3.0, y[:, 3:]"), of_parts) << "no reduction";
}

// The shapes that are reduced, of three axes, behind the sum that makes the parts a, b and c.
std::vector<Dims> rows_behind_slices(const std::string& outputs) {
  const std::string text =
      "y = sum(x, -1)[..., 0]; a = y[:, :4]; b = y[:, 4:6]; c = y[:, 6:]; " + outputs;
  const ShapedGraph graph = after(sink_slices, text, {{3, 8, 16, 5}, {16}, {16}});
  std::vector<Dims> shapes;
  for (const TypedNode& node : graph.graph.nodes) {
    const bool row = is_reduction(node.op) && graph.shapes[node.operands[0]].size() == 3;
    if (row) shapes.push_back(graph.shapes[node.operands[0]]);
  }
  return shapes;
}

TEST(SinkSlices, PastRowsOfNeighboursThatAreReducedAlike) {
  const std::vector<Dims> once = {{3, 6, 16}};
  const std::string norms = "a = a * max(a * a, -1); b = b * max(b * b, -1); ";
  const std::vector<Dims> apart = {{3, 4, 16}, {3, 2, 16}};
  const auto first_of = [](std::vector<Dims> shapes) {
    std::erase_if(shapes, [](const Dims& shape) { return shape[2] != 16; });
    shapes.resize(std::min<std::size_t>(shapes.size(), 2));
    return shapes;
  };
  EXPECT_EQ(first_of(rows_behind_slices(norms + "sum(a[..., 0], 1), sum(b[..., 0], 1), c")), once);
  EXPECT_EQ(first_of(rows_behind_slices(norms + "a, sum(b[..., 0], 1), c")), apart)
      << "an output would be a copy";
  EXPECT_EQ(first_of(rows_behind_slices("sum(a, 1), sum(b, 1), c")), apart) << "their own axis";
  EXPECT_EQ(first_of(rows_behind_slices("max(a, -1)[:, 0], sum(b, -1)[:, 0], c")), apart)
      << "not alike";
  EXPECT_EQ(first_of(rows_behind_slices("sum(max(a, -1), 1), sum(max(c, -1), 1), b")),
            (std::vector<Dims>{{3, 4, 16}, {3, 2, 16}}))
      << "no neighbours";
}

// What differs for parts that are normalised is chosen by an index.
TEST(SinkSlices, ChoosesWhatDiffersBehindReductions) {
  const auto choices = [](const std::string& outputs) {
    const std::string text =
        "y = sum(x, -1)[..., 0]; a = y[:, :4]; b = y[:, 4:6]; c = y[:, 6:]; "
        "a = a * rsqrt(max(a * a, -1)); b = b * rsqrt(max(b * b, -1)); ";
    const ShapedGraph graph =
        after(sink_slices, text + outputs, {{3, 8, 16, 5}, {16}, {16}, {3, 4, 16}});
    EXPECT_EQ(shapes_of(Op::rsqrt, graph), (std::vector<Dims>{{3, 6, 1}})) << outputs;
    return shapes_of(Op::where, graph);
  };
  const std::vector<Dims> rows = {{1, 6, 16}};
  EXPECT_EQ(choices("sum(a * w, 1), sum(b * v, 1), c * u[:, :2]"), rows);
  EXPECT_EQ(choices("sum(a * (w + 1.0), 1), sum(b * f32(bf16(v)), 1), c * u[:, :2]"), rows);
  EXPECT_EQ(choices("sum(a * w, 1), sum(b * w, 1), c * v * u[:, :2]"), std::vector<Dims>())
      << "nothing differs";
  EXPECT_EQ(choices("c * w * v, sum(a * u, 1), sum(b * u[:, :2], 1)"), std::vector<Dims>())
      << "it differs from row to row";
}

// What reads a value beside halves of it reads the halves.
TEST(SinkSlices, ReadsPartsThatOthersRead) {
  const ShapedGraph graph =
      after(sink_slices,
            "y = reshape(sum(x, -1), 4, 6); a = y[:2, :3]; b = y[:2, 3:]; a * b, y[2:] + 1.0",
            {{4, 6, 8}});
  EXPECT_EQ(shapes_of(Op::mul, graph), (std::vector<Dims>{{4, 3}})) << "of all rows";
  EXPECT_EQ(shapes_of(Op::concat, graph).size(), 1u);
}

TEST(HoistParts, OfRoundedSumsThatMeet) {
  const auto cast_shapes = [](const std::string& text) {
    return shapes_of(Op::cast, after(hoist_parts, text, {{4, 6, 8}, {6}}));
  };
  const std::vector<Dims> parts = {{4, 3}, {4, 3}};
  EXPECT_EQ(cast_shapes("y = bf16(sum(x, -1)[..., 0] + w); y[:, :3] * y[:, 3:]"), parts);
  EXPECT_EQ(cast_shapes("y = bf16(sum(x, -1)[..., 0] + w); y[:, :3], y[:, 3:]"),
            (std::vector<Dims>{{4, 6}}))
      << "they go their own ways";
}

// What is computed between a view that leaves an axis of one element out and those that add it.
TEST(KeepUnitAxes, OfWhatComesBack) {
  const std::vector<Dims> arguments = {{3, 1, 8}, {3, 5, 8}, {3, 5, 2}};
  const auto exponentials = [&](const std::string& text) {
    return shapes_of(Op::exp, after(keep_unit_axes, text, arguments));
  };
  const std::vector<Dims> kept = {{3, 5, 1}};
  const std::vector<Dims> left_out = {{3, 5}};
  const std::string scores = "s = squeeze(sum(q * k, -1), -1); ";
  EXPECT_EQ(exponentials(scores + "w = softmax(s, -1); sum(w[..., None] * v, -2)"), kept);
  EXPECT_EQ(exponentials("s = reshape(sum(q * k, -1), 3, 5); w = exp(s - max(s, -1));"
                         "sum(reshape(w / sum(w, -1), 3, 5, 1) * v, -2)"),
            kept);
  EXPECT_EQ(exponentials(scores + "w = softmax(s, -1); sum(w[..., None] * v, -2), w"), left_out)
      << "it is stored without the axis";
  EXPECT_EQ(exponentials(scores + "w = softmax(s, -1); sum(w[:, None] * v[:, :3, :1], -2)"),
            left_out)
      << "another axis is added";
}

}  // namespace
}  // namespace kiln::fusion
