// Nodes of a graph as messages and the text form name them.
#pragma once

#include <string>
#include <string_view>

#include "fusion/graph/graph.hpp"

namespace kiln::fusion {

/// The literal as the text form writes it: the shortest digits that read back to the same bits.
std::string constant_text(const Literal& literal);

/// For messages: the constant, the argument's name in quotes, or "the result of add".
std::string describe(const Graph& graph, NodeId id);

/// Throws Error(invalid_argument), "function: message".
[[noreturn]] void refuse_call(std::string_view function, std::string_view message);

}  // namespace kiln::fusion
