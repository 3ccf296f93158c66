// What a typed graph says about the signs of its values, whatever it is given.
#pragma once

#include "fusion/graph/typed_graph.hpp"

namespace kiln::fusion {

/// Whether a value has no element below zero; it may have NaN.
bool is_never_negative(const TypedGraph& graph, NodeId id);

}  // namespace kiln::fusion
