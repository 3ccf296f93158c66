// The op table's contents. Error bounds are measured by the tests in tests/preamble, which fail
// when one is exceeded or looser than twice the largest error found.
#include "fusion/op.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace kiln::fusion {
namespace {

// `infix` is filled where the text form and C++ spell the operation alike; `//`, `%`, `**` and the
// shifts are the text form's alone, because C++ means something else by them. Bounds of 0 mark
// results that are exact in every dtype, 0.5 correctly rounded ones; they hold on every device, so
// where a GPU's library is less exact than the host's functions they are the library's. Sums that
// may cancel (logaddexp, lerp) are measured in units of their larger term, lgamma where it is not
// near one of its negative zeros.
constexpr std::array kOps = {
    OpInfo{Op::input, "input", 0, Rule::leaf, "", 0, 0},
    OpInfo{Op::scalar, "scalar", 0, Rule::leaf, "", 0, 0},
    OpInfo{Op::constant, "constant", 0, Rule::leaf, "", 0, 0},
    OpInfo{Op::cast, "cast", 1, Rule::convert, "", 0.5, 0.5},
    OpInfo{Op::promote, "promote", 1, Rule::convert, "", 0.5, 0.5},
    OpInfo{Op::bitcast, "bitcast", 1, Rule::convert, "", 0, 0},

    OpInfo{Op::abs, "abs", 1, Rule::same, "", 0, 0},
    OpInfo{Op::neg, "neg", 1, Rule::same, "-", 0, 0},
    OpInfo{Op::sign, "sign", 1, Rule::same, "", 0, 0},
    OpInfo{Op::square, "square", 1, Rule::same, "", 0.5, 0.5},
    OpInfo{Op::sqrt, "sqrt", 1, Rule::floating, "", 0.5, 0.5},
    OpInfo{Op::rsqrt, "rsqrt", 1, Rule::floating, "", 2, 1.5},
    OpInfo{Op::cbrt, "cbrt", 1, Rule::floating, "", 1, 3},
    OpInfo{Op::reciprocal, "reciprocal", 1, Rule::floating, "", 0.5, 0.5},
    OpInfo{Op::exp, "exp", 1, Rule::floating, "", 2, 1},
    OpInfo{Op::exp2, "exp2", 1, Rule::floating, "", 2, 1},
    OpInfo{Op::expm1, "expm1", 1, Rule::floating, "", 2, 1},
    OpInfo{Op::log, "log", 1, Rule::floating, "", 1, 1},
    OpInfo{Op::log2, "log2", 1, Rule::floating, "", 1, 1},
    OpInfo{Op::log10, "log10", 1, Rule::floating, "", 2, 2},
    OpInfo{Op::log1p, "log1p", 1, Rule::floating, "", 1, 1},
    OpInfo{Op::sin, "sin", 1, Rule::floating, "", 2, 2},
    OpInfo{Op::cos, "cos", 1, Rule::floating, "", 2, 2},
    OpInfo{Op::tan, "tan", 1, Rule::floating, "", 4, 2},
    OpInfo{Op::asin, "asin", 1, Rule::floating, "", 2, 2},
    OpInfo{Op::acos, "acos", 1, Rule::floating, "", 2, 2},
    OpInfo{Op::atan, "atan", 1, Rule::floating, "", 2, 2},
    OpInfo{Op::sinh, "sinh", 1, Rule::floating, "", 3, 2},
    OpInfo{Op::cosh, "cosh", 1, Rule::floating, "", 2, 1},
    OpInfo{Op::tanh, "tanh", 1, Rule::floating, "", 3, 2.5},
    OpInfo{Op::asinh, "asinh", 1, Rule::floating, "", 3, 3},
    OpInfo{Op::acosh, "acosh", 1, Rule::floating, "", 4, 3},
    OpInfo{Op::atanh, "atanh", 1, Rule::floating, "", 3, 2.5},
    OpInfo{Op::sigmoid, "sigmoid", 1, Rule::floating, "", 3, 2.5},
    OpInfo{Op::erf, "erf", 1, Rule::floating, "", 2, 2},
    OpInfo{Op::erfc, "erfc", 1, Rule::floating, "", 4, 5},
    OpInfo{Op::erfinv, "erfinv", 1, Rule::floating, "", 2, 5},
    OpInfo{Op::lgamma, "lgamma", 1, Rule::floating, "", 6, 4},
    OpInfo{Op::floor, "floor", 1, Rule::integral, "", 0, 0},
    OpInfo{Op::ceil, "ceil", 1, Rule::integral, "", 0, 0},
    OpInfo{Op::round, "round", 1, Rule::integral, "", 0, 0},
    OpInfo{Op::trunc, "trunc", 1, Rule::integral, "", 0, 0},
    OpInfo{Op::isnan, "isnan", 1, Rule::predicate, "", 0, 0},
    OpInfo{Op::isinf, "isinf", 1, Rule::predicate, "", 0, 0},
    OpInfo{Op::isfinite, "isfinite", 1, Rule::predicate, "", 0, 0},
    OpInfo{Op::logical_not, "logical_not", 1, Rule::logical, "", 0, 0},
    OpInfo{Op::bitwise_not, "bitwise_not", 1, Rule::bitwise, "~", 0, 0},
    OpInfo{Op::real, "real", 1, Rule::component, "", 0, 0},
    OpInfo{Op::imag, "imag", 1, Rule::component, "", 0, 0},
    OpInfo{Op::conj, "conj", 1, Rule::integral, "", 0, 0},
    OpInfo{Op::popcount, "popcount", 1, Rule::bitwise, "", 0, 0},
    OpInfo{Op::clz, "clz", 1, Rule::bitwise, "", 0, 0},

    OpInfo{Op::add, "add", 2, Rule::same, "+", 0.5, 0.5},
    OpInfo{Op::sub, "sub", 2, Rule::same, "-", 0.5, 0.5},
    OpInfo{Op::mul, "mul", 2, Rule::same, "*", 0.5, 0.5},
    OpInfo{Op::div, "div", 2, Rule::floating, "/", 0.5, 0.5},
    OpInfo{Op::floor_divide, "floor_divide", 2, Rule::same, "", 0.5, 0.5},
    OpInfo{Op::remainder, "remainder", 2, Rule::same, "", 0.5, 0.5},
    OpInfo{Op::fmod, "fmod", 2, Rule::same, "", 0, 0},
    OpInfo{Op::power, "power", 2, Rule::same, "", 4, 2},
    OpInfo{Op::maximum, "maximum", 2, Rule::same, "", 0, 0},
    OpInfo{Op::minimum, "minimum", 2, Rule::same, "", 0, 0},
    OpInfo{Op::fmax, "fmax", 2, Rule::same, "", 0, 0},
    OpInfo{Op::fmin, "fmin", 2, Rule::same, "", 0, 0},
    OpInfo{Op::atan2, "atan2", 2, Rule::floating, "", 3, 2},
    OpInfo{Op::hypot, "hypot", 2, Rule::floating, "", 3, 2},
    OpInfo{Op::logaddexp, "logaddexp", 2, Rule::floating, "", 2, 2},
    OpInfo{Op::copysign, "copysign", 2, Rule::floating, "", 0, 0},
    OpInfo{Op::nextafter, "nextafter", 2, Rule::floating, "", 0, 0},
    OpInfo{Op::equal, "equal", 2, Rule::compare, "==", 0, 0},
    OpInfo{Op::not_equal, "not_equal", 2, Rule::compare, "!=", 0, 0},
    OpInfo{Op::less, "less", 2, Rule::compare, "<", 0, 0},
    OpInfo{Op::less_equal, "less_equal", 2, Rule::compare, "<=", 0, 0},
    OpInfo{Op::greater, "greater", 2, Rule::compare, ">", 0, 0},
    OpInfo{Op::greater_equal, "greater_equal", 2, Rule::compare, ">=", 0, 0},
    OpInfo{Op::logical_and, "logical_and", 2, Rule::logical, "", 0, 0},
    OpInfo{Op::logical_or, "logical_or", 2, Rule::logical, "", 0, 0},
    OpInfo{Op::logical_xor, "logical_xor", 2, Rule::logical, "", 0, 0},
    OpInfo{Op::bitwise_and, "bitwise_and", 2, Rule::bitwise, "&", 0, 0},
    OpInfo{Op::bitwise_or, "bitwise_or", 2, Rule::bitwise, "|", 0, 0},
    OpInfo{Op::bitwise_xor, "bitwise_xor", 2, Rule::bitwise, "^", 0, 0},
    OpInfo{Op::left_shift, "left_shift", 2, Rule::shift, "", 0, 0},
    OpInfo{Op::right_shift, "right_shift", 2, Rule::shift, "", 0, 0},

    OpInfo{Op::where, "where", 3, Rule::select, "", 0, 0},
    OpInfo{Op::fma, "fma", 3, Rule::same, "", 0.5, 0.5},
    OpInfo{Op::clip, "clip", 3, Rule::same, "", 0, 0},
    OpInfo{Op::lerp, "lerp", 3, Rule::floating, "", 1.5, 1.5},
};

constexpr bool in_enum_order() {
  for (std::size_t i = 0; i < kOps.size(); ++i) {
    if (static_cast<std::size_t>(kOps[i].op) != i) return false;
  }
  return kOps.size() == static_cast<std::size_t>(Op::lerp) + 1;
}
static_assert(in_enum_order(), "info() indexes the table by the enumerator");

constexpr bool is_writable(const OpInfo& entry) {
  return entry.rule != Rule::leaf && entry.rule != Rule::convert;
}

}  // namespace

const OpInfo& info(Op op) { return kOps[static_cast<std::size_t>(op)]; }

std::span<const OpInfo> all_ops() { return kOps; }

std::optional<Op> find_op(std::string_view name) {
  const auto found = std::ranges::find_if(
      kOps, [&](const OpInfo& entry) { return entry.name == name && is_writable(entry); });
  if (found == kOps.end()) return std::nullopt;
  return found->op;
}

}  // namespace kiln::fusion
