// The arrays of a graph whose views are being placed (place_views.hpp): where each value lies,
// views of it, and copies of what no strides express.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "fusion/graph/rewriter.hpp"
#include "fusion/passes/placed_graph.hpp"

namespace kiln::fusion {

/// Whether a node has memory of its own, or is given some where another kernel needs it.
bool is_array(const TypedNode& node);

class PlacedArrays {
 public:
  /// A graph with everything of `from` but its nodes. `arguments` say where those lie.
  PlacedArrays(const ShapedGraph& from, std::span<const ArrayLayout> arguments);
  PlacedArrays(const PlacedArrays&) = delete;
  PlacedArrays& operator=(const PlacedArrays&) = delete;

  const TypedNode& node(NodeId id) const { return graph.graph.nodes[id]; }
  const Dims& shape(NodeId id) const { return graph.shapes[id]; }
  /// Where a value lies from its first element on: an argument as the caller says, what is computed
  /// in C order.
  ArrayLayout layout_of(NodeId id) const;

  NodeId append(const TypedNode& node, const Dims& shape) { return builder_.append(node, shape); }
  NodeId number(DType dtype, std::int64_t value);
  /// The elements of an array at `places`, along an axis of it, as far as they are there; the
  /// result has one element along that axis for each of those of `places`.
  NodeId taken(NodeId array, std::size_t axis, NodeId places);
  /// A join of those parts.
  NodeId join(DType dtype, std::vector<PlacedPart> parts, const Dims& shape);
  /// The value in a new array in C order, made once.
  NodeId copy(NodeId id);
  NodeId new_copy(NodeId id);
  /// `root`, which is no view, seen so: a view, or itself.
  NodeId view_of(NodeId root, const Dims& shape, ArrayLayout layout);
  /// What shape op `op` with that list gives of a value, as that lies in memory, or of a copy of it
  /// where strides cannot express the view.
  NodeId view(Op op, const ShapeList& list, NodeId operand, const Dims& shape);

  PlacedGraph graph;

 private:
  std::span<const ArrayLayout> arguments_;
  GraphBuilder builder_;  ///< copies are nodes of their own
  std::map<NodeId, NodeId> copies_;
  std::map<NodeId, std::vector<NodeId>> views_;  ///< of each root
};

}  // namespace kiln::fusion
