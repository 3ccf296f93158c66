// Placing views: from a graph with shape ops to one without, in which every array that a kernel
// reads or writes lies somewhere by strides. A view of an argument becomes another view of its
// memory, a view of a stored value likewise, and concat an array that several kernels write parts
// of. What strides cannot express is copied, by an operation of its own.
#pragma once

#include <compare>
#include <span>
#include <vector>

#include "fusion/passes/placed_graph.hpp"

namespace kiln::fusion {

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

}  // namespace kiln::fusion
