// How passes make one typed graph of another. A pass walks the old nodes in their order, operands
// before what uses them, and says for each which new node stands for it: no recursion, and no node
// twice. Equal new nodes are one (hash-consing), and what no output needs is left out in the end.
#pragma once

#include <vector>

#include "fusion/graph/hash_index.hpp"
#include "fusion/graph/typed_graph.hpp"

namespace kiln::fusion {

/// Appends nodes to a graph that it does not own, with their shapes if the graph has those.
class GraphBuilder {
 public:
  explicit GraphBuilder(TypedGraph& graph) : graph_(&graph) {}
  explicit GraphBuilder(ShapedGraph& graph) : graph_(&graph.graph), shapes_(&graph.shapes) {}

  /// The node: a new one, or the equal one that was added before. Its operands are nodes of the
  /// graph. `shape` is left out where the graph has no shapes; two nodes of different shapes are
  /// not equal (that of an iota is not in the node).
  NodeId add(const TypedNode& node, const Dims& shape = {});
  /// A new node even where there is an equal one.
  NodeId append(const TypedNode& node, const Dims& shape = {});
  /// The position of a shape op's list in the graph's tables. Tables that other graphs share are
  /// copied before the first change.
  std::uint64_t add_list(const std::vector<std::int64_t>& list);

 private:
  TypedGraph* graph_;
  std::vector<Dims>* shapes_ = nullptr;
  HashIndex index_;
  std::shared_ptr<Tables> own_tables_;
};

/// A graph with everything of `graph` but its nodes and outputs.
TypedGraph without_nodes(const TypedGraph& graph);

/// Takes out the nodes that no output needs; the others keep their order. Arguments stay.
void drop_dead_nodes(TypedGraph& graph);
void drop_dead_nodes(ShapedGraph& graph);

/// A new graph, made of an old one node by node.
class GraphRewriter {
 public:
  explicit GraphRewriter(const ShapedGraph& from)
      : from_(from), to_{without_nodes(from.graph), {}}, builder_(to_) {
    moved_.reserve(from.graph.nodes.size());
  }
  GraphRewriter(const GraphRewriter&) = delete;
  GraphRewriter& operator=(const GraphRewriter&) = delete;

  /// Calls `rewrite(id)` for every old node; it returns the new node that stands for that one.
  /// Gives the new graph.
  template <class Rewrite>
  ShapedGraph run(const Rewrite& rewrite) {
    while (moved_.size() < from_.graph.nodes.size()) {
      moved_.push_back(rewrite(static_cast<NodeId>(moved_.size())));
    }
    for (const NodeId output : from_.graph.outputs) to_.graph.outputs.push_back(moved_[output]);
    drop_dead_nodes(to_);
    return std::move(to_);
  }

  /// The new graph so far.
  const TypedGraph& graph() const { return to_.graph; }
  const TypedNode& node(NodeId id) const { return to_.graph.nodes[id]; }
  const Dims& shape(NodeId id) const { return to_.shapes[id]; }

  /// What stands for an old node that has been walked.
  NodeId moved(NodeId old) const { return moved_[old]; }
  /// An old node with what stands for its operands, and that added to the new graph.
  TypedNode moved_node(NodeId old) const;
  NodeId copy(NodeId old) { return add(moved_node(old), from_.shapes[old]); }

  /// A new node in shape `wanted`, of as many elements: a value that it is a view of in the same
  /// order where that has the shape, else a new reshape.
  NodeId reshaped(NodeId id, const Dims& wanted);

  /// New nodes: a value in another dtype, or itself; an operation on two values of one dtype, in
  /// the shape of the first one; and a number of a floating-point dtype that is computed in.
  NodeId converted(NodeId id, DType dtype);
  NodeId combined(Op op, NodeId a, NodeId b);
  NodeId number(double value, DType dtype);

  /// As GraphBuilder has them.
  NodeId add(const TypedNode& node, const Dims& shape) { return builder_.add(node, shape); }
  std::uint64_t add_list(const std::vector<std::int64_t>& list) { return builder_.add_list(list); }

 private:
  const ShapedGraph& from_;
  ShapedGraph to_;
  GraphBuilder builder_;
  std::vector<NodeId> moved_;
};

}  // namespace kiln::fusion
