// Placing views: from a graph with shape ops to one without, in which every array that a kernel
// reads or writes lies somewhere by strides. A view of an argument becomes another view of its
// memory, a view of a stored value likewise, and concat an array that several kernels write parts
// of. What strides cannot express is copied, by an operation of its own.
#pragma once

#include <compare>
#include <optional>
#include <span>
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

/// The arrays of packed numbers that conversions read through a join of one part, which has a byte
/// for each number: arguments by position (none beyond the end), and all results of calls.
struct Unpacked {
  std::vector<bool> arguments;
  bool results = false;

  auto operator<=>(const Unpacked&) const = default;
};

/// `arguments` and `outputs` say where those lie, over the shapes that they have in the graph.
PlacedGraph place_views(const ShapedGraph& graph, std::span<const ArrayLayout> arguments,
                        std::span<const ArrayLayout> outputs, const Unpacked& unpacked = {});

/// Places the views of a graph whose arguments and outputs lie in C order.
PlacedGraph place_views(const ShapedGraph& graph);

/// Whether a kernel computes it: no leaf, view, join or result of a call.
bool is_computed(const TypedNode& node);

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
