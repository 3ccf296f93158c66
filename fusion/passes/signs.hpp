// What a typed graph says about the signs of its values, whatever it is given.
#pragma once

#include <vector>

#include "fusion/graph/typed_graph.hpp"

namespace kiln::fusion {

/// Of each value, whether it has no element below zero; it may have -0 and NaN. False of complex
/// numbers, and of signed integers that an operation may wrap.
std::vector<bool> never_negative(const TypedGraph& graph);

}  // namespace kiln::fusion
