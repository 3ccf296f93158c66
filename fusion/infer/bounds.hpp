// Run-time extents: which axes of each value end where another value says (graph/indexed.hpp). A
// bound travels along with the shape. What is computed element by element, or runs along an axis,
// ends where the first of its operands ends, along the axes that those have; an operand that is
// broadcast along an axis bounds nothing there. A reduction over a bounded axis covers what is
// before the end, and its result ends along the other axes as its operand does. So does what is
// concatenated of operands that end alike along another axis. What is taken at bounded places is
// bounded along their axes, and puts store as much.
#pragma once

#include <string_view>
#include <vector>

#include "fusion/graph/typed_graph.hpp"

namespace kiln::fusion {

/// Sorted; an axis comes several times where it ends at the least of several ends.
using Ends = std::vector<BoundedAxis>;

bool has_bounds(const ShapedGraph& graph);

/// Of every node; ends are nodes of the graph and broadcast to the value's shape. Throws
/// Error(unsupported) in the name of `function` for what cannot be bounded.
std::vector<Ends> infer_bounds(const ShapedGraph& graph, std::string_view function);

/// Where axes end of what a node is computed over: as it is itself, a reduction as its operand, and
/// a put as its places and its value.
Ends bounds_of_space(const ShapedGraph& graph, const std::vector<Ends>& bounds, NodeId id);

}  // namespace kiln::fusion
