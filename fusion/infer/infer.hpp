// Inference: from a graph and the dtypes of one call to a typed graph in which every operand
// already has the dtype its op wants. Promotion, weak literals and rounding are decided here and
// nowhere else.
#pragma once

#include <span>
#include <string_view>

#include "fusion/graph/graph.hpp"
#include "fusion/graph/typed_graph.hpp"
#include "kiln/options.hpp"

namespace kiln::fusion {

/// Types `graph` for the given arguments. `outputs` holds the dtype of each output the caller
/// stores into, or is empty for the natural ones; a store may widen or narrow within a kind and go
/// from bool to integer to float, anything else needs a written cast and is
/// Error(invalid_argument). `function` names the function in messages.
TypedGraph infer(const Graph& graph, std::span<const ArgumentType> arguments,
                 std::span<const DType> outputs, Rounding rounding, std::string_view function);

}  // namespace kiln::fusion
