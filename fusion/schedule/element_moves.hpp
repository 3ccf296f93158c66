// How the operands of an elementwise kernel or a scan move between memory and its lanes, as far as
// it follows from a graph and its schedule together. emit/elementwise and emit/scan write it and
// `explain` prints it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/schedule/layout.hpp"
#include "kiln/options.hpp"

namespace kiln::fusion {

struct ElementMove {
  bool in_blocks = false;  ///< CPU: f16 that is converted in blocks (preamble/halves.h)
  bool unrounded = false;  ///< 8-bit floats that are rounded vector by vector when they are stored,
                           ///< as NVIDIA GPUs do (preamble/small_floats.h)
  bool rows_prefetched = false;  ///< CPU: of a tile, which are far apart
};

/// Of each operand of `schedule`, which is of plan_layout() or plan_scan(): the array arguments in
/// the graph's order, the outputs, the iotas.
std::vector<ElementMove> element_moves(const TypedGraph& graph, const Schedule& schedule,
                                       Accuracy accuracy);

/// For people.
std::vector<std::string> explain_moves(std::span<const std::string> names,
                                       std::span<const ElementMove> moves);

}  // namespace kiln::fusion
