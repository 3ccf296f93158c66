// Python's operators and their precedence: the one table that the parser and the printer of the
// text form share, so that what one writes the other reads.
#pragma once

#include <string_view>

#include "fusion/graph/composition.hpp"
#include "fusion/graph/op.hpp"
#include "fusion/text/tokens.hpp"
#include "kiln/dtype.hpp"

namespace kiln::fusion {

struct Operator {
  std::string_view text;
  Op op;
  int precedence;
  bool right = false;  ///< a ** b ** c is a ** (b ** c)
};

inline constexpr int kTernaryPrecedence = 1;
inline constexpr int kComparePrecedence = 5;
inline constexpr int kPrefixPrecedence = 12;
inline constexpr int kPowerPrecedence = 13;
inline constexpr int kLeafPrecedence = 14;

inline constexpr Operator kInfix[] = {
    {"or", Op::logical_or, 2},
    {"and", Op::logical_and, 3},
    {"==", Op::equal, kComparePrecedence},
    {"!=", Op::not_equal, kComparePrecedence},
    {"<", Op::less, kComparePrecedence},
    {"<=", Op::less_equal, kComparePrecedence},
    {">", Op::greater, kComparePrecedence},
    {">=", Op::greater_equal, kComparePrecedence},
    {"|", Op::bitwise_or, 6},
    {"^", Op::bitwise_xor, 7},
    {"&", Op::bitwise_and, 8},
    {"<<", Op::left_shift, 9},
    {">>", Op::right_shift, 9},
    {"+", Op::add, 10},
    {"-", Op::sub, 10},
    {"*", Op::mul, 11},
    {"/", Op::div, 11},
    {"//", Op::floor_divide, 11},
    {"%", Op::remainder, 11},
    {"**", Op::power, kPowerPrecedence, true},
};

inline constexpr Operator kPrefix[] = {
    {"not", Op::logical_not, 4},
    {"-", Op::neg, kPrefixPrecedence},
    {"~", Op::bitwise_not, kPrefixPrecedence},
};
/// Read, and never written: it leaves its operand as it is.
inline constexpr Operator kPlus = {"+", Op::input, kPrefixPrecedence};

inline const Operator* find_infix(const Token& token) {
  for (const Operator& entry : kInfix) {
    if (token.is(entry.text)) return &entry;
  }
  return nullptr;
}

inline const Operator* find_prefix(const Token& token) {
  for (const Operator& entry : kPrefix) {
    if (token.is(entry.text)) return &entry;
  }
  return token.is(kPlus.text) ? &kPlus : nullptr;
}

/// What `name` already means ("a dtype", "a function"), or empty if an argument may have it.
inline std::string_view reserved_as(std::string_view name) {
  if (parse_dtype(name)) return "a dtype";
  if (find_op(name) || find_composition(name) || name == "iota") return "a function";
  return {};
}

}  // namespace kiln::fusion
