// Shapes: what each value of a typed graph has, from the shapes of the arguments. Only graphs with
// reductions need them; where every op works element by element the outputs' shape says it all.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "fusion/infer.hpp"
#include "kiln/dims.hpp"

namespace kiln::fusion {

bool has_reductions(const Graph& graph);
bool has_reductions(const TypedGraph& graph);

/// The shape of every node. `arguments` has one shape for each argument, an empty one for a scalar.
/// Operands are broadcast; a reduction keeps its axes with size one. Throws Error(invalid_argument)
/// that names `function` and the shapes that do not fit.
std::vector<Dims> infer_shapes(const TypedGraph& graph, std::span<const Dims> arguments,
                               std::string_view function);

/// The axes of `shape`, of which some have been reduced to size one, without those.
Dims without_axes(const Dims& shape, const std::vector<bool>& axes);

}  // namespace kiln::fusion
