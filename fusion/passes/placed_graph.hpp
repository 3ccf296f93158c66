// A graph without shape ops, in which every array that a kernel reads or writes lies somewhere by
// strides: what place_views.hpp makes.
#pragma once

#include <optional>
#include <vector>

#include "fusion/graph/shape_ops.hpp"
#include "fusion/infer/shapes.hpp"

namespace kiln::fusion {

/// A computed value, or for an output a join or a result of a call too, and where it lies: in the
/// joined array in C order, or in the output's memory.
struct PlacedPart {
  NodeId value = 0;
  ArrayLayout layout;
};

struct PlacedCall {
  std::size_t call = 0;         ///< in the graph's tables
  std::vector<NodeId> inputs;   ///< arguments, stored values and views of either
  std::vector<NodeId> results;  ///< nodes Op::custom_call, also those that nothing reads
};

/// Of indexed ops take and put are left (graph/indexed.hpp), with two operands: take reads a view
/// with an indexed axis at places that broadcast to its shape, put is a value and the places at
/// which a join stores it. That join is the argument which is updated.
/// Of shape ops only these are left: Op::view of an argument, a computed value, a join or a result
/// of a call, its payload a position in `views`; and Op::join, a position in `joins`. Op::tuple is
/// gone, and the payload of Op::custom_call is a position in `calls`, times kMostResults, plus the
/// result.
struct PlacedGraph : ShapedGraph {
  std::vector<ArrayLayout> views;
  std::vector<std::vector<PlacedPart>> joins;
  std::vector<std::optional<NodeId>> updates;  ///< of each join, the argument that it updates
  std::vector<PlacedCall> calls;
  std::vector<std::vector<PlacedPart>> stores;  ///< of each output
  /// Of a computed value, where axes end of what it is computed over: its own, and of a reduction
  /// its operand's. Ends are arguments and arrays. Sorted; none beyond the end.
  std::vector<std::vector<BoundedAxis>> bounds;
};

/// Whether a kernel computes it: no leaf, view, join or result of a call.
bool is_computed(const TypedNode& node);

/// The 8-bit dtype that holds every number of a packed one.
DType byte_dtype(DType packed);

/// The dtype in which a value is stored between kernels: one that loses nothing.
DType stored_dtype(const PlacedGraph& graph, NodeId id);

/// In C order.
ArrayLayout contiguous_layout(const Dims& shape);
/// Whether its strides are that of C order.
bool is_contiguous(const ArrayLayout& layout, const Dims& shape);
bool is_same(const ArrayLayout& a, const ArrayLayout& b);

/// The argument that a join updates in place; nothing for any other node.
std::optional<NodeId> updated_argument(const PlacedGraph& graph, NodeId id);

/// What a view is of; the value itself if it is none.
NodeId viewed(const TypedGraph& graph, NodeId id);

}  // namespace kiln::fusion
