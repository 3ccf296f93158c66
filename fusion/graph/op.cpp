// The op table's contents. A test fails when an error bound is exceeded, or looser than twice the
// largest error that was found.
#include "fusion/graph/op.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace kiln::fusion {
namespace {

constexpr Bounds kExact{0, 0, 0, 0};
constexpr Bounds kRounded{0.5, 0.5, 0.5, 0.5};
// Of functions that are a library's on every device.
constexpr Bounds library(double libm, double cuda, double hip) { return {libm, libm, cuda, hip}; }

// `infix` is filled where the text form and C++ spell the operation alike; `//`, `%`, `**` and the
// shifts are the text form's alone, because C++ means something else by them.
//
// The bounds of the own functions and of libm (glibc 2.36) were measured, those of CUDA's library
// too; `kiln numerics` does it again on any device. ROCm's could not be measured: they are half a
// unit more than the distances from correctly rounded results that LLVM's libc found on an AMD GPU
// ("GPU Conformance" in its documentation of math functions), or, where that has none, that HIP's
// own documentation gives ("HIP math API").
constexpr std::array kOps = {
    OpInfo{Op::input, "input", 0, Rule::leaf, "", kExact, kExact},
    OpInfo{Op::scalar, "scalar", 0, Rule::leaf, "", kExact, kExact},
    OpInfo{Op::constant, "constant", 0, Rule::leaf, "", kExact, kExact},
    OpInfo{Op::iota, "iota", 0, Rule::index, "", kExact, kExact},
    OpInfo{Op::cast, "cast", 1, Rule::convert, "", kRounded, kRounded},
    OpInfo{Op::promote, "promote", 1, Rule::convert, "", kRounded, kRounded},
    OpInfo{Op::bitcast, "bitcast", 1, Rule::convert, "", kExact, kExact},

    OpInfo{Op::abs, "abs", 1, Rule::same, "", kExact, kExact},
    OpInfo{Op::neg, "neg", 1, Rule::same, "-", kExact, kExact},
    OpInfo{Op::sign, "sign", 1, Rule::same, "", kExact, kExact},
    OpInfo{Op::square, "square", 1, Rule::same, "", kRounded, kRounded},
    OpInfo{Op::sqrt, "sqrt", 1, Rule::floating, "", kRounded, kRounded},
    OpInfo{Op::rsqrt, "rsqrt", 1, Rule::floating, "", {1.5, 1.5, 2, 1.5}, library(1.5, 1, 1.5)},
    OpInfo{Op::cbrt, "cbrt", 1, Rule::floating, "", {0.51, 1, 1.5, 1.5}, library(3.7, 1, 1.5)},
    OpInfo{Op::reciprocal, "reciprocal", 1, Rule::floating, "", kRounded, kRounded},
    OpInfo{Op::exp, "exp", 1, Rule::floating, "", {1.2, 0.51, 2.5, 1.5}, library(0.52, 1, 1.5)},
    OpInfo{Op::exp2, "exp2", 1, Rule::floating, "", {1.3, 0.51, 2.5, 1.5}, library(0.52, 1, 1.5)},
    OpInfo{
        Op::expm1, "expm1", 1, Rule::floating, "", {1.8, 0.85, 1.5, 1.5}, library(0.95, 1.5, 2.5)},
    OpInfo{Op::log, "log", 1, Rule::floating, "", {0.85, 0.85, 1.5, 2.5}, library(0.52, 1, 1.5)},
    OpInfo{Op::log2, "log2", 1, Rule::floating, "", {0.51, 0.8, 1.5, 1.5}, library(0.55, 1.5, 1.5)},
    OpInfo{
        Op::log10, "log10", 1, Rule::floating, "", {0.51, 2.1, 2.5, 2.5}, library(1.7, 1.5, 1.5)},
    OpInfo{Op::log1p, "log1p", 1, Rule::floating, "", {1.1, 0.85, 1.8, 1.8}, library(0.95, 2, 1.5)},
    OpInfo{Op::sin, "sin", 1, Rule::floating, "", {0.51, 0.57, 1.5, 2.5}, library(0.52, 2, 1.5)},
    OpInfo{Op::cos, "cos", 1, Rule::floating, "", {0.51, 0.57, 2.5, 2.5}, library(0.52, 2, 1.5)},
    OpInfo{Op::tan, "tan", 1, Rule::floating, "", {0.51, 1.5, 3.5, 2.5}, library(0.65, 2.5, 1.5)},
    OpInfo{
        Op::asin, "asin", 1, Rule::floating, "", {0.51, 0.95, 1.5, 3.5}, library(0.52, 2.5, 1.5)},
    OpInfo{Op::acos, "acos", 1, Rule::floating, "", {0.51, 0.95, 1.5, 1.5}, library(0.53, 2, 1.5)},
    OpInfo{Op::atan, "atan", 1, Rule::floating, "", {0.51, 0.9, 1.5, 2.5}, library(0.53, 2, 1.5)},
    OpInfo{Op::sinh, "sinh", 1, Rule::floating, "", {0.51, 2, 3.5, 1.5}, library(2, 2.5, 1.5)},
    OpInfo{Op::cosh, "cosh", 1, Rule::floating, "", {0.51, 2, 2.5, 1.5}, library(1.95, 1.5, 1.5)},
    OpInfo{Op::tanh, "tanh", 1, Rule::floating, "", {2.7, 2.3, 2.5, 1.5}, library(2.3, 1.5, 1.5)},
    OpInfo{Op::asinh, "asinh", 1, Rule::floating, "", {0.51, 1.9, 2.5, 1.5}, library(2, 3, 1.5)},
    OpInfo{Op::acosh, "acosh", 1, Rule::floating, "", {0.51, 2.1, 2.5, 1.5}, library(2.3, 3, 1.5)},
    OpInfo{
        Op::atanh, "atanh", 1, Rule::floating, "", {0.51, 1.8, 3.5, 1.5}, library(1.9, 2.5, 1.5)},
    OpInfo{Op::sigmoid, "sigmoid", 1, Rule::floating, "", {2.5, 2.4, 4, 4}, library(2.3, 2.5, 2.5)},
    OpInfo{Op::erf, "erf", 1, Rule::floating, "", {1.75, 0.95, 1.5, 2.5}, library(1.5, 2, 4.5)},
    OpInfo{Op::erfc, "erfc", 1, Rule::floating, "", {0.51, 3.2, 4.5, 4.5}, library(5.2, 5, 5)},
    OpInfo{Op::ndtr, "ndtr", 1, Rule::floating, "", {7.5, 0.51, 10, 10}, library(5, 5, 5)},
    OpInfo{Op::erfinv, "erfinv", 1, Rule::floating, "", {0.53, 0.51, 2.5, 4}, library(2.5, 5, 8)},
    OpInfo{
        Op::lgamma, "lgamma", 1, Rule::floating, "", {0.51, 0.51, 6.5, 4.5}, library(4, 4.5, 4.5)},
    OpInfo{Op::floor, "floor", 1, Rule::integral, "", kExact, kExact},
    OpInfo{Op::ceil, "ceil", 1, Rule::integral, "", kExact, kExact},
    OpInfo{Op::round, "round", 1, Rule::integral, "", kExact, kExact},
    OpInfo{Op::trunc, "trunc", 1, Rule::integral, "", kExact, kExact},
    OpInfo{Op::isnan, "isnan", 1, Rule::predicate, "", kExact, kExact},
    OpInfo{Op::isinf, "isinf", 1, Rule::predicate, "", kExact, kExact},
    OpInfo{Op::isfinite, "isfinite", 1, Rule::predicate, "", kExact, kExact},
    OpInfo{Op::logical_not, "logical_not", 1, Rule::logical, "", kExact, kExact},
    OpInfo{Op::bitwise_not, "bitwise_not", 1, Rule::bitwise, "~", kExact, kExact},
    OpInfo{Op::real, "real", 1, Rule::component, "", kExact, kExact},
    OpInfo{Op::imag, "imag", 1, Rule::component, "", kExact, kExact},
    OpInfo{Op::conj, "conj", 1, Rule::integral, "", kExact, kExact},
    OpInfo{Op::popcount, "popcount", 1, Rule::bitwise, "", kExact, kExact},
    OpInfo{Op::clz, "clz", 1, Rule::bitwise, "", kExact, kExact},

    OpInfo{Op::add, "add", 2, Rule::same, "+", kRounded, kRounded},
    OpInfo{Op::sub, "sub", 2, Rule::same, "-", kRounded, kRounded},
    OpInfo{Op::mul, "mul", 2, Rule::same, "*", kRounded, kRounded},
    OpInfo{Op::div, "div", 2, Rule::floating, "/", kRounded, kRounded},
    OpInfo{Op::floor_divide, "floor_divide", 2, Rule::same, "", kRounded, kRounded},
    OpInfo{Op::remainder, "remainder", 2, Rule::same, "", kRounded, kRounded},
    OpInfo{Op::fmod, "fmod", 2, Rule::same, "", kExact, kExact},
    OpInfo{Op::power, "power", 2, Rule::same, "", {0.51, 0.51, 1.5, 1.5}, library(0.53, 2, 1.5)},
    OpInfo{Op::maximum, "maximum", 2, Rule::same, "", kExact, kExact},
    OpInfo{Op::minimum, "minimum", 2, Rule::same, "", kExact, kExact},
    OpInfo{Op::fmax, "fmax", 2, Rule::same, "", kExact, kExact},
    OpInfo{Op::fmin, "fmin", 2, Rule::same, "", kExact, kExact},
    OpInfo{
        Op::atan2, "atan2", 2, Rule::floating, "", {0.51, 1.5, 2.5, 3.5}, library(0.53, 2.5, 1.5)},
    OpInfo{
        Op::hypot, "hypot", 2, Rule::floating, "", {0.51, 0.51, 1.5, 2.5}, library(0.95, 2.5, 1.5)},
    OpInfo{Op::logaddexp,
           "logaddexp",
           2,
           Rule::floating,
           "",
           {0.51, 1.5, 2, 2},
           library(2.4, 2.5, 2.5)},
    OpInfo{Op::copysign, "copysign", 2, Rule::floating, "", kExact, kExact},
    OpInfo{Op::nextafter, "nextafter", 2, Rule::floating, "", kExact, kExact},
    OpInfo{Op::equal, "equal", 2, Rule::compare, "==", kExact, kExact},
    OpInfo{Op::not_equal, "not_equal", 2, Rule::compare, "!=", kExact, kExact},
    OpInfo{Op::less, "less", 2, Rule::compare, "<", kExact, kExact},
    OpInfo{Op::less_equal, "less_equal", 2, Rule::compare, "<=", kExact, kExact},
    OpInfo{Op::greater, "greater", 2, Rule::compare, ">", kExact, kExact},
    OpInfo{Op::greater_equal, "greater_equal", 2, Rule::compare, ">=", kExact, kExact},
    OpInfo{Op::logical_and, "logical_and", 2, Rule::logical, "", kExact, kExact},
    OpInfo{Op::logical_or, "logical_or", 2, Rule::logical, "", kExact, kExact},
    OpInfo{Op::logical_xor, "logical_xor", 2, Rule::logical, "", kExact, kExact},
    OpInfo{Op::bitwise_and, "bitwise_and", 2, Rule::bitwise, "&", kExact, kExact},
    OpInfo{Op::bitwise_or, "bitwise_or", 2, Rule::bitwise, "|", kExact, kExact},
    OpInfo{Op::bitwise_xor, "bitwise_xor", 2, Rule::bitwise, "^", kExact, kExact},
    OpInfo{Op::left_shift, "left_shift", 2, Rule::shift, "", kExact, kExact},
    OpInfo{Op::right_shift, "right_shift", 2, Rule::shift, "", kExact, kExact},

    OpInfo{Op::where, "where", 3, Rule::select, "", kExact, kExact},
    OpInfo{Op::fma, "fma", 3, Rule::same, "", kRounded, kRounded},
    OpInfo{Op::clip, "clip", 3, Rule::same, "", kExact, kExact},
    OpInfo{Op::lerp, "lerp", 3, Rule::floating, "", {1.5, 1.5, 1.5, 1.5}, library(1.5, 1.5, 1.5)},
    OpInfo{Op::uniform, "uniform", 3, Rule::random, "", kExact, kExact},
    OpInfo{Op::normal, "normal", 3, Rule::random, "", {4, 4, 4, 4}, library(4, 4, 4)},

    // The error of a sum or a product grows with its length: these are bounds of the last rounding.
    OpInfo{Op::sum, "sum", 1, Rule::accumulate, "", kRounded, kRounded},
    OpInfo{Op::mean, "mean", 1, Rule::floating, "", kRounded, kRounded},
    OpInfo{Op::prod, "prod", 1, Rule::accumulate, "", kRounded, kRounded},
    OpInfo{Op::reduce_max, "max", 1, Rule::same, "", kExact, kExact},
    OpInfo{Op::reduce_min, "min", 1, Rule::same, "", kExact, kExact},
    OpInfo{Op::reduce_any, "any", 1, Rule::logical, "", kExact, kExact},
    OpInfo{Op::reduce_all, "all", 1, Rule::logical, "", kExact, kExact},
    OpInfo{Op::argmax, "argmax", 1, Rule::position, "", kExact, kExact},
    OpInfo{Op::argmin, "argmin", 1, Rule::position, "", kExact, kExact},
    OpInfo{Op::cumsum, "cumsum", 1, Rule::accumulate, "", kExact, kExact},
    OpInfo{Op::cumprod, "cumprod", 1, Rule::accumulate, "", kExact, kExact},
    OpInfo{Op::cummax, "cummax", 1, Rule::same, "", kExact, kExact},

    OpInfo{Op::reshape, "reshape", 1, Rule::integral, "", kExact, kExact},
    OpInfo{Op::transpose, "transpose", 1, Rule::integral, "", kExact, kExact},
    OpInfo{Op::swapaxes, "swapaxes", 1, Rule::integral, "", kExact, kExact},
    OpInfo{Op::slice, "slice", 1, Rule::integral, "", kExact, kExact},
    OpInfo{Op::expand_dims, "expand_dims", 1, Rule::integral, "", kExact, kExact},
    OpInfo{Op::squeeze, "squeeze", 1, Rule::integral, "", kExact, kExact},
    OpInfo{Op::concat, "concat", 2, Rule::integral, "", kExact, kExact},
    OpInfo{Op::link, "link", 2, Rule::convert, "", kExact, kExact},
    OpInfo{Op::opaque, "opaque", 1, Rule::convert, "", kExact, kExact},
    OpInfo{Op::view, "view", 1, Rule::convert, "", kExact, kExact},
    OpInfo{Op::join, "join", 0, Rule::convert, "", kExact, kExact},
};

constexpr bool in_enum_order() {
  for (std::size_t i = 0; i < kOps.size(); ++i) {
    if (static_cast<std::size_t>(kOps[i].op) != i) return false;
  }
  return kOps.size() == static_cast<std::size_t>(Op::join) + 1;
}
static_assert(in_enum_order(), "info() indexes the table by the enumerator");

constexpr auto kFirstReduction = static_cast<std::size_t>(Op::sum);
constexpr auto kFirstShapeOp = static_cast<std::size_t>(Op::reshape);

// What bools have of arithmetic: `or`, `and`, and the order in which False is below True.
constexpr bool is_boolean_too(Op op) {
  return op == Op::add || op == Op::mul || op == Op::maximum || op == Op::minimum ||
         op == Op::fmax || op == Op::fmin || op == Op::reduce_max || op == Op::reduce_min ||
         op == Op::cummax;
}

constexpr bool is_writable(const OpInfo& entry) {
  return entry.rule != Rule::leaf && entry.rule != Rule::index && entry.rule != Rule::convert;
}

}  // namespace

const OpInfo& info(Op op) { return kOps[static_cast<std::size_t>(op)]; }

std::span<const OpInfo> all_ops() { return {kOps.data(), kFirstReduction}; }

std::span<const OpInfo> all_reductions() {
  return std::span(kOps).subspan(kFirstReduction, kFirstShapeOp - kFirstReduction);
}

std::optional<ComplexBound> complex_bound(Op op) {
  switch (op) {
    case Op::neg:
    case Op::conj:
    case Op::equal:
    case Op::not_equal: return ComplexBound{0, true};
    case Op::add:
    case Op::sub: return ComplexBound{0.5, true};
    // Every device rounds f64's + - * / and sqrt alike, and then to f32.
    case Op::abs:
    case Op::sign:
    case Op::square:
    case Op::sqrt:
    case Op::rsqrt:
    case Op::reciprocal:
    case Op::mul:
    case Op::div:
    case Op::fma: return ComplexBound{0.51, true};
    // A library's functions of f64.
    case Op::exp:
    case Op::log:
    case Op::log2:
    case Op::log10:
    case Op::sin:
    case Op::cos:
    case Op::tan:
    case Op::sinh:
    case Op::cosh:
    case Op::tanh:
    case Op::sigmoid:
    case Op::power: return ComplexBound{0.51, false};
    default: return std::nullopt;
  }
}

bool takes_complex(Op op) {
  if (!is_elementwise(op) && !has_axes(op)) return true;
  switch (info(op).rule) {
    case Rule::leaf:
    case Rule::convert:
    case Rule::accumulate:
    case Rule::predicate:
    case Rule::logical:
    case Rule::select:
    case Rule::component: return true;
    default: return op == Op::mean || complex_bound(op).has_value();
  }
}

bool accepts(const OpInfo& op, DType dtype) {
  const Kind operands = kind(dtype);
  const bool integers = is_integer(dtype);
  switch (op.rule) {
    case Rule::leaf:
    case Rule::index: return false;
    case Rule::bitwise: return integers || operands == Kind::boolean;
    case Rule::random:
    case Rule::shift: return integers;
    case Rule::position: return operands != Kind::complex;
    case Rule::same:
      if (operands == Kind::boolean) return is_boolean_too(op.op);
      break;
    default: break;
  }
  return operands != Kind::complex || takes_complex(op.op);
}

std::optional<Op> find_reduction(std::string_view name) {
  const auto found = std::ranges::find(all_reductions(), name, &OpInfo::name);
  if (found == all_reductions().end()) return std::nullopt;
  return found->op;
}

std::optional<Op> find_op(std::string_view name) {
  const auto found = std::ranges::find_if(
      all_ops(), [&](const OpInfo& entry) { return entry.name == name && is_writable(entry); });
  if (found == all_ops().end()) return std::nullopt;
  return found->op;
}

double cost_of(Op op) {
  switch (op) {
    case Op::input:
    case Op::scalar:
    case Op::constant:
    case Op::bitcast: return 0;
    case Op::promote:
    case Op::cast: return 1;
    case Op::sqrt:
    case Op::rsqrt:
    case Op::reciprocal:
    case Op::div: return 8;
    case Op::exp:
    case Op::exp2:
    case Op::log:
    case Op::log2:
    case Op::log10:
    case Op::sigmoid: return 10;
    case Op::expm1:
    case Op::log1p:
    case Op::tanh:
    case Op::cbrt:
    case Op::hypot:
    case Op::floor_divide:
    case Op::remainder: return 16;
    case Op::sin:
    case Op::cos:
    case Op::tan:
    case Op::asin:
    case Op::acos:
    case Op::atan:
    case Op::sinh:
    case Op::cosh:
    case Op::asinh:
    case Op::acosh:
    case Op::atanh:
    case Op::erf:
    case Op::erfc:
    case Op::ndtr:
    case Op::erfinv:
    case Op::logaddexp:
    case Op::atan2: return 24;
    case Op::power:
    case Op::fmod:
    case Op::lgamma: return 50;
    default: return 1;
  }
}

}  // namespace kiln::fusion
