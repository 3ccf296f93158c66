// Calls of reductions by name: the ops that work along axes, and what is composed of them (var,
// softmax, layer_norm and their kin). As with composition.hpp, the graph sees only the ops.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "fusion/graph/graph.hpp"

namespace kiln::fusion {

/// Every name that call_reduction() knows.
std::span<const std::string_view> reduction_names();

/// Adds `function(x, axis...)`: the axes are integer literals, none of them means all (softmax and
/// log_softmax: the last). A reduced axis stays with size one, so that the result broadcasts back.
/// layer_norm and rms_norm work on the last axis and take (x, eps), (x, weight, eps) or
/// (x, weight, bias, eps), eps being a literal. Nothing if the name is none of these; throws
/// Error(invalid_argument) for arguments that do not fit.
std::optional<NodeId> call_reduction(Graph& graph, std::string_view function,
                                     std::span<const NodeId> arguments);

/// Adds `function(value, axes...)` for the name of a reduction and its axes as numbers.
NodeId reduce_by_name(Graph& graph, std::string_view function, NodeId value, AxisSet axes);

}  // namespace kiln::fusion
