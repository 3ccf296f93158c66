// Along which axis of a shape an iota runs.
#pragma once

#include <cstdint>
#include <string_view>

#include "fusion/graph/typed_graph.hpp"
#include "kiln/dims.hpp"

namespace kiln::fusion {

/// The axis along which an iota gives indices, negative from the end, or kAllAxes.
std::int64_t iota_axis(const TypedNode& node);

/// How many indices from 0 on a dtype holds; INT64_MAX where that is no bound.
std::int64_t most_indices(DType dtype);

/// Throws Error(invalid_argument) for an iota along an axis that the shape has not, or whose
/// integer dtype cannot hold its largest value.
void check_iota(const TypedNode& node, const Dims& shape, std::string_view function);

}  // namespace kiln::fusion
