// The reference interpreter for graphs with reductions: evaluates a typed graph one whole array at
// a time, each value over its own shape. Slow, and holds every array of the graph at once, but not
// what is computed element by element for one reader.
#pragma once

#include <span>

#include "fusion/reference/reference.hpp"

namespace kiln::fusion {

/// `shapes` are those of infer_shapes(). An argument's strides go with its own shape, an output's
/// with the shape of the node that is stored. Sums are in long double, of integers exact.
void evaluate_arrays(const TypedGraph& graph, std::span<const Dims> shapes,
                     std::span<const ReferenceOperand> arguments,
                     std::span<const ReferenceOperand> outputs);

}  // namespace kiln::fusion
