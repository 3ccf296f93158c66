// Counting: what `iota` reads. To the layout a count is an operand without memory, a number that
// goes up by its strides, so that axes merge, turn round and spread over vectors exactly where the
// count allows it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/schedule/layout.hpp"

namespace kiln::fusion {

/// The axes that the graph counts along, kAllAxes among them, each once.
std::vector<std::int64_t> iota_axes(const TypedGraph& graph);

/// "index", "index0" or "index_end1", for people.
std::string iota_name(std::int64_t axis);

/// One operand for each of `iota_axes`, over the outputs' shape, after check_iota()
/// (infer/iota.hpp). `function` names the function in messages.
std::vector<Operand> iota_operands(const TypedGraph& graph, const Dims& shape,
                                   std::string_view function);

}  // namespace kiln::fusion
