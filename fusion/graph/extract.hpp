// Parts of a graph: what an output depends on, and the graph of some outputs alone. For calls whose
// outputs have several shapes, which take a kernel for each.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "fusion/graph/graph.hpp"

namespace kiln::fusion {

/// For every argument of the graph, whether one of `values` depends on it.
std::vector<bool> arguments_of(const Graph& graph, std::span<const NodeId> values);

struct Extract {
  Graph graph;
  std::vector<std::size_t> arguments;  ///< their positions in the whole graph, in order
};

/// The graph of `outputs` (positions, in the order wanted) with the arguments that they read, under
/// the same names and in the same order.
Extract extract(const Graph& graph, std::span<const std::size_t> outputs);

}  // namespace kiln::fusion
