// Literals in the dtype that inference found for them.
#pragma once

#include <cstdint>
#include <string_view>

#include "fusion/graph/graph.hpp"
#include "kiln/options.hpp"

namespace kiln::fusion {

/// The bits of a literal in `dtype`, as TypedNode::payload has them. Throws Error(invalid_argument)
/// that names `function` for an integer that the dtype cannot hold: it does not wrap.
std::uint64_t literal_bits(const Literal& literal, DType dtype, Rounding rounding,
                           std::string_view function);

}  // namespace kiln::fusion
