// The text form: Python's operators and precedence, calls by op name, casts by dtype name, `;`
// between statements. The last statement is one output or several separated by commas.
//
//   program    := statement (';' statement)* ';'?
//   statement  := NAME '=' expression | expression (',' expression)*     (the latter only last)
//   expression := Python's: or and not, comparisons, | ^ & << >> + - * / // % unary - ~ **, calls,
//                 parentheses, `a if c else b`, numbers (decimal, hex, hex float, exponent, inf,
//                 nan), True False, and NAME, which is a statement's name or an argument;
//                 x[...] after any of them, with NumPy's basic indexing: slices, integers, `...`
//                 and None, all of them literals, and `:n` with a NAME that is a value
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "fusion/graph/graph.hpp"

namespace kiln::fusion {

/// Parses `text`. Arguments are the free names in the order of their first use. When the last
/// statement is an assignment, its value is the output and its name the output's name. Throws
/// Error(invalid_argument) with the position, what was expected and what was found. Any length and
/// any depth of nesting up to 1,000 is accepted; the stack is never the limit. `arguments` come
/// first and in that order, whether `text` uses them or not.
Graph parse(std::string_view text, std::span<const std::string> arguments = {});

/// The text form of a graph. Values that are used more than once become statements, so its length
/// is linear in the number of nodes. parse(to_text(g)) computes the same.
std::string to_text(const Graph& graph);

/// to_text() for people: what only puts arguments into their order is left out.
std::string to_short_text(const Graph& graph);

}  // namespace kiln::fusion
