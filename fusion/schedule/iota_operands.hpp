// Iotas as operands. To the layout an iota is an operand without memory, whose value grows by its
// strides, so that axes are merged, reversed and vectorised only where that keeps its values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/schedule/layout.hpp"

namespace kiln::fusion {

/// The axes of the graph's iotas, kAllAxes among them, each once.
ScratchVector<std::int64_t> iota_axes(const TypedGraph& graph);

/// "index", "index0" or "index_end1", for people.
std::string iota_name(std::int64_t axis);

/// Of those the axes of iotas that differ within a row, or from element to element.
std::vector<std::int64_t> varying_iotas(const TypedGraph& graph, const Schedule& schedule);

/// One operand for each of `iota_axes`, over the outputs' shape, after check_iota()
/// (infer/iota.hpp). `function` names the function in messages.
ScratchVector<Operand> iota_operands(const TypedGraph& graph, const Dims& shape,
                                     std::string_view function);

}  // namespace kiln::fusion
