// What passes are written over: equal nodes become one, dead ones go, and shared tables are not
// changed behind another graph's back.
#include "fusion/graph/rewriter.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace kiln::fusion {
namespace {

constexpr TypedNode kInput{Op::input, DType::f32, 0, {}, 0};
TypedNode unary(Op op, NodeId operand) { return {op, DType::f32, 1, {operand}, 0}; }

TEST(HashIndex, TellsElementsOfOneHashApart) {
  HashIndex index;
  const std::vector<int> values = {7, 8, 9, 7, 9, 10};
  std::vector<int> kept;
  std::vector<std::uint32_t> positions;
  for (const int value : values) {
    const auto next = static_cast<std::uint32_t>(kept.size());
    positions.push_back(
        index.find_or_enter(42, next, [&](std::uint32_t at) { return kept[at] == value; }));
    if (positions.back() == next) kept.push_back(value);
  }
  EXPECT_EQ(positions, (std::vector<std::uint32_t>{0, 1, 2, 0, 2, 3}));
}

TEST(HashIndex, FindsAllAfterItHasGrown) {
  HashIndex index;
  constexpr std::uint32_t kMany = 10000;
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t i = 0; i < kMany; ++i) {
      const auto is_equal = [&](std::uint32_t at) { return at == i; };
      const std::uint32_t next = round == 0 ? i : kMany;
      EXPECT_EQ(index.find_or_enter(mixed(0, i), next, is_equal), i);
    }
  }
}

TEST(GraphBuilder, AddsEqualNodesOnce) {
  TypedGraph graph;
  GraphBuilder builder(graph);
  const NodeId x = builder.add(kInput);
  const NodeId y = builder.add(unary(Op::exp, x));
  EXPECT_EQ(builder.add(kInput), x);
  EXPECT_EQ(builder.add(unary(Op::exp, x)), y);
  EXPECT_NE(builder.add(unary(Op::log, x)), y);
  EXPECT_NE(builder.append(unary(Op::exp, x)), y) << "append() makes a new one";
  EXPECT_EQ(graph.nodes.size(), 4u);
}

TEST(GraphBuilder, TellsNodesOfDifferentShapesApart) {
  ShapedGraph graph;
  GraphBuilder builder(graph);
  const TypedNode iota{Op::iota, DType::i32, 0, {}, 0};
  const NodeId four = builder.add(iota, {4});
  EXPECT_NE(builder.add(iota, {5}), four);
  EXPECT_EQ(builder.add(iota, {4}), four);
  EXPECT_EQ(graph.shapes, (std::vector<Dims>{{4}, {5}}));
}

TEST(GraphBuilder, LeavesTablesThatAreSharedAsTheyAre) {
  const auto shared = std::make_shared<Tables>();
  const std::uint64_t first = shared->add_list({1, 2});
  TypedGraph graph;
  graph.tables = shared;
  GraphBuilder builder(graph);
  EXPECT_EQ(builder.add_list({1, 2}), first);
  EXPECT_EQ(builder.add_list({3}), first + 1);
  EXPECT_EQ(builder.add_list({3}), first + 1);
  EXPECT_EQ(graph.tables->lists.size(), 2u);
  EXPECT_EQ(shared->lists.size(), 1u);
}

TEST(GraphRewriter, LeavesOutWhatNoOutputNeedsAndKeepsTheOrder) {
  ShapedGraph from;
  GraphBuilder builder(from);
  const NodeId x = builder.add(kInput, {3});
  const NodeId dead = builder.add(unary(Op::log, x), {3});
  const NodeId exp = builder.add(unary(Op::exp, x), {3});
  const NodeId again = builder.append(unary(Op::exp, x), {3});
  const NodeId last = builder.append({Op::add, DType::f32, 2, {exp, again}, 0}, {3});
  from.graph.outputs = {last, x};
  from.graph.arguments.resize(2);
  GraphRewriter to(from);
  const ShapedGraph result = to.run([&](NodeId id) { return to.copy(id); });
  EXPECT_NE(dead, exp);
  EXPECT_EQ(
      result.graph.nodes,
      (std::vector<TypedNode>{kInput, unary(Op::exp, 0), {Op::add, DType::f32, 2, {1, 1}, 0}}));
  EXPECT_EQ(result.graph.outputs, (std::vector<NodeId>{2, 0}));
  EXPECT_EQ(result.shapes.size(), 3u);
  EXPECT_EQ(result.graph.arguments.size(), 2u);
}

TEST(GraphRewriter, TakesAnyDepth) {
  ShapedGraph from;
  GraphBuilder builder(from);
  NodeId last = builder.add(kInput, {3});
  for (int i = 0; i < 200000; ++i) last = builder.add(unary(Op::exp, last), {3});
  from.graph.outputs = {last};
  GraphRewriter to(from);
  EXPECT_EQ(to.run([&](NodeId id) { return to.copy(id); }).graph.nodes, from.graph.nodes);
}

}  // namespace
}  // namespace kiln::fusion
