// What is seen of values in parts (sink_slices, read_parts, join_parts, put_parts), and what meets.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fusion/graph/typed_graph.hpp"

namespace kiln::fusion {

/// Neighbours along an axis of a value.
struct Window {
  std::size_t axis = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
  friend bool operator==(const Window&, const Window&) = default;
};

/// What a numbered slice (simplify) shows; nothing for one in steps.
std::optional<Window> window_of(const ShapedGraph& graph, NodeId id);

/// The neighbours that a window of one shape is in another one, of as many elements in the same
/// order; nothing where they are none along one axis.
std::optional<Window> reshaped_window(const Dims& from, const Window& window, const Dims& to);

/// Whether a value has an element for each that a reduction gives, of which it is a view, or
/// computed by a few operations; or, unless `whole`, of a part of which.
bool comes_of_reduction(const ShapedGraph& graph, NodeId id, bool whole = true);

/// Whether an operation computes what is made of a value, or seen of it, with what else is made of
/// a reduction that the value comes of, as far as a few operations lead. `users`: of each node.
bool meets_its_reduction(const TypedGraph& graph, const std::vector<std::vector<NodeId>>& users,
                         NodeId id);

/// Whether some operation computes elements of two of the values, or of what is made of them or
/// seen of them. At least one value.
bool are_computed_together(const TypedGraph& graph, std::span<const NodeId> values);

/// What is made of a value beside reads the parts in which the value is seen along another axis, as
/// values do beside the halves of queries and keys. Of a graph whose slices were moved
/// (sink_slices).
ShapedGraph read_parts(const ShapedGraph& graph);

/// Computes parts with one operation where two differ in what is the same along the parts' axis: of
/// a = (y * p)[:m] and b = (y * q)[m:] both are parts of y * where(iota < m, p, q), whose kernel
/// stores them together. Only behind a reduction of rows, whose kernel counts the index. Of a graph
/// whose slices were moved (sink_slices).
ShapedGraph join_parts(const ShapedGraph& graph);

}  // namespace kiln::fusion
