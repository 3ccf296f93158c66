// Whether an iota can count along an axis of a shape.
#pragma once

#include <cstdint>
#include <string_view>

#include "fusion/graph/typed_graph.hpp"
#include "kiln/dims.hpp"

namespace kiln::fusion {

/// The axis that an iota counts along, negative from the end, or kAllAxes.
std::int64_t iota_axis(const TypedNode& node);

/// Throws Error(invalid_argument) for an iota along an axis that the shape has not, or whose
/// integer dtype is too small to count.
void check_count(const TypedNode& node, const Dims& shape, std::string_view function);

}  // namespace kiln::fusion
