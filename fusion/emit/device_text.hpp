// Type names, constants and comments in device code. Which statements a kernel has is decided in
// the emitters.
#pragma once

#include <string>
#include <string_view>

#include "fusion/graph/typed_graph.hpp"

namespace kiln::fusion {

/// The type of an element in memory, and of the value that is computed with.
std::string_view storage_type(DType dtype);
std::string_view compute_type(DType dtype);

/// One line, clipped, that cannot leave a // comment.
std::string comment_text(std::string_view text);

/// The exact value of a constant node: shortest decimals that read back to the same bits, bit
/// patterns for what has none.
std::string constant_text(const TypedNode& node, Rounding rounding);

}  // namespace kiln::fusion
