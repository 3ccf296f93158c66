// Indexed ops: take, put and bound, which take from integers that are data where along an axis to
// read, where to write, and where to end. What they mean is here and nowhere else.
//
//   take(x, i)    the elements of x at the places i along the axis: the result has the axes of i
//                 in place of that axis, as NumPy's take has. Of a place that is not there, below
//                 zero or not below the extent, it is 0
//   put(x, i, y)  x with y at the places i along the axis: y broadcasts to what take(x, i) has.
//                 A place that is not there is not written; where several are equal, one of their
//                 values stands. x is an argument, and the result an output that lies there: the
//                 rest of it is neither read nor written
//   bound(x, n)   x up to element n along the axis, which keeps its extent: n is taken to be from 0
//                 to that, and broadcasts to x with one element along the axis. What lies beyond
//                 is no part of the value
// The axis may be negative, from the end of x's. Integers are of any integer dtype.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "fusion/graph/shape_ops.hpp"
#include "fusion/graph/typed_graph.hpp"
#include "kiln/dims.hpp"

namespace kiln::fusion {

/// The axis of an indexed op in an array of that rank. Throws Error(invalid_argument) in the name
/// of `function` for one that is not there.
std::size_t indexed_axis(Op op, const ShapeList& list, const Dims& array,
                         std::string_view function);

/// What take() gives of an array and places of these shapes.
Dims taken_shape(const Dims& array, const Dims& places, std::size_t axis);

/// The result's shape of an indexed op on operands of those shapes. Throws Error(invalid_argument)
/// that names `function`, the op, what was expected and what was given.
Dims indexed_shape(Op op, const ShapeList& list, std::span<const Dims> operands,
                   std::string_view function);

// ---- Building ----------------------------------------------------------------------------------

NodeId take(Graph& graph, NodeId array, NodeId places, std::int64_t axis);
NodeId put(Graph& graph, NodeId array, NodeId places, NodeId value, std::int64_t axis);
NodeId bound(Graph& graph, NodeId value, NodeId end, std::int64_t axis);

/// The indexed op of that name as the text form writes it: take(x, i, axis), put(x, i, y, axis),
/// bound(x, n, axis), the axis being an integer literal, by default 0.
std::optional<NodeId> call_indexed(Graph& graph, std::string_view function,
                                   std::span<const NodeId> arguments);
std::span<const std::string_view> indexed_names();

}  // namespace kiln::fusion
