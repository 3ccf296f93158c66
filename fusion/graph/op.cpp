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

constexpr ComplexBound kC64Exact{0, true};
constexpr ComplexBound kC64Rounded{0.5, true};
// Every device rounds f64's + - * / and sqrt alike, and then to f32.
constexpr ComplexBound kC64ByF64{0.51, true};
// A library's functions of f64.
constexpr ComplexBound kC64ByLibrary{0.51, false};

constexpr bool works_along_axes(Op op) { return op >= Op::sum && op <= Op::cummax; }

constexpr OpInfo row(Op op, std::string_view name, int arity, Rule rule, Bounds f32, Bounds f64,
                     OpTraits traits = {}) {
  traits.cheap = traits.cheap && traits.cost <= kMostCheap && !works_along_axes(op);
  return {traits, op, name, arity, rule, f32, f64};
}
constexpr OpInfo exact(Op op, std::string_view name, int arity, Rule rule, OpTraits traits = {}) {
  return row(op, name, arity, rule, kExact, kExact, traits);
}
// By every device.
constexpr OpInfo rounded(Op op, std::string_view name, int arity, Rule rule, OpTraits traits = {}) {
  return row(op, name, arity, rule, kRounded, kRounded, traits);
}

// `infix` is filled where the text form and C++ spell the operation alike; `//`, `%`, `**` and the
// shifts are the text form's alone, because C++ means something else by them.
//
// The bounds of the own functions and of libm (glibc 2.36) were measured, those of CUDA's library
// too; `kiln numerics` does it again on any device. ROCm's could not be measured: they are half a
// unit more than the distances from correctly rounded results that LLVM's libc found on an AMD GPU
// ("GPU Conformance" in its documentation of math functions), or, where that has none, that HIP's
// own documentation gives ("HIP math API"); more where an emulated GPU gives more whose v_exp_f32,
// v_log_f32 and v_rcp_f32 are as wrong as AMD's ISA documents allow (tests/amd/numerics).
constexpr std::array kOps = {
    exact(Op::input, "input", 0, Rule::leaf, {.cost = 0}),
    exact(Op::scalar, "scalar", 0, Rule::leaf, {.cost = 0}),
    exact(Op::constant, "constant", 0, Rule::leaf, {.cost = 0}),
    exact(Op::iota, "iota", 0, Rule::index),
    rounded(Op::cast, "cast", 1, Rule::convert),
    rounded(Op::promote, "promote", 1, Rule::convert, {.relative_error = RelativeError::kept}),
    exact(Op::bitcast, "bitcast", 1, Rule::convert, {.cost = 0}),

    exact(Op::abs, "abs", 1, Rule::same,
          {.sign = Sign::magnitude,
           .order = Order::increasing_from_zero,
           .relative_error = RelativeError::kept,
           .c64 = kC64ByF64}),
    exact(Op::neg, "neg", 1, Rule::same,
          {.infix = "-",
           .relative_error = RelativeError::kept,
           .undoes_itself = true,
           .c64 = kC64Exact}),
    exact(Op::sign, "sign", 1, Rule::same, {.order = Order::increasing, .c64 = kC64ByF64}),
    rounded(Op::square, "square", 1, Rule::same,
            {.sign = Sign::square,
             .order = Order::increasing_from_zero,
             .ieee = true,
             .c64 = kC64ByF64}),
    rounded(Op::sqrt, "sqrt", 1, Rule::floating,
            {.cost = 15,
             .sign = Sign::never_negative,
             .order = Order::increasing_from_zero,
             .relative_error = RelativeError::kept,
             .ieee = true,
             .fast_instruction = true,
             .c64 = kC64ByF64}),
    row(Op::rsqrt, "rsqrt", 1, Rule::floating, {1.5, 1.5, 2, 1.5}, library(1.5, 1, 1.5),
        {.cost = 8, .relative_error = RelativeError::kept, .c64 = kC64ByF64}),
    row(Op::cbrt, "cbrt", 1, Rule::floating, {0.51, 1, 1.5, 1.5}, library(3.7, 1, 1.5),
        {.cost = 19, .order = Order::increasing, .relative_error = RelativeError::dampened}),
    rounded(Op::reciprocal, "reciprocal", 1, Rule::floating,
            {.cost = 12,
             .relative_error = RelativeError::kept,
             .ieee = true,
             .fast_instruction = true,
             .c64 = kC64ByF64}),
    row(Op::exp, "exp", 1, Rule::floating, {1.2, 0.51, 2.5, 1.5}, library(0.52, 1, 1.5),
        {.cost = 10,
         .narrow_cost = 8,
         .sign = Sign::never_negative,
         .order = Order::increasing,
         .c64 = kC64ByLibrary}),
    row(Op::exp2, "exp2", 1, Rule::floating, {1.3, 0.51, 2.5, 1.5}, library(0.52, 1, 1.5),
        {.cost = 8, .sign = Sign::never_negative, .order = Order::increasing}),
    row(Op::expm1, "expm1", 1, Rule::floating, {1.8, 0.85, 1.5, 1.5}, library(0.95, 1.5, 2.5),
        {.cost = 30, .narrow_cost = 9, .order = Order::increasing}),
    row(Op::log, "log", 1, Rule::floating, {0.85, 0.85, 1.5, 2.5}, library(0.52, 1, 1.5),
        {.cost = 30,
         .narrow_cost = 14,
         .order = Order::increasing_from_zero,
         .c64 = kC64ByLibrary}),
    row(Op::log2, "log2", 1, Rule::floating, {0.51, 0.8, 1.5, 1.5}, library(0.55, 1.5, 1.5),
        {.cost = 32,
         .narrow_cost = 13,
         .order = Order::increasing_from_zero,
         .c64 = kC64ByLibrary}),
    row(Op::log10, "log10", 1, Rule::floating, {0.51, 2.1, 2.5, 2.5}, library(1.7, 1.5, 1.5),
        {.cost = 32,
         .narrow_cost = 14,
         .order = Order::increasing_from_zero,
         .c64 = kC64ByLibrary}),
    row(Op::log1p, "log1p", 1, Rule::floating, {1.1, 0.85, 1.8, 1.8}, library(0.95, 2, 1.5),
        {.cost = 25,
         .narrow_cost = 10,
         .sign = Sign::of_all_operands,
         .order = Order::increasing_from_zero}),
    row(Op::sin, "sin", 1, Rule::floating, {0.51, 0.57, 1.5, 2.5}, library(0.52, 2, 1.5),
        {.cost = 30, .c64 = kC64ByLibrary}),
    row(Op::cos, "cos", 1, Rule::floating, {0.51, 0.57, 2.5, 2.5}, library(0.52, 2, 1.5),
        {.cost = 30, .c64 = kC64ByLibrary}),
    row(Op::tan, "tan", 1, Rule::floating, {0.51, 1.5, 3.5, 2.5}, library(0.65, 2.5, 1.5),
        {.cost = 30, .c64 = kC64ByLibrary}),
    row(Op::asin, "asin", 1, Rule::floating, {0.51, 0.95, 1.5, 3.5}, library(0.52, 2.5, 1.5),
        {.cost = 26}),
    row(Op::acos, "acos", 1, Rule::floating, {0.51, 0.95, 1.5, 1.5}, library(0.53, 2, 1.5),
        {.cost = 26}),
    row(Op::atan, "atan", 1, Rule::floating, {0.51, 0.9, 1.5, 2.5}, library(0.53, 2, 1.5),
        {.cost = 20, .order = Order::increasing, .relative_error = RelativeError::dampened}),
    row(Op::sinh, "sinh", 1, Rule::floating, {0.51, 2, 3.5, 1.5}, library(2, 2.5, 1.5),
        {.cost = 28, .order = Order::increasing, .c64 = kC64ByLibrary}),
    row(Op::cosh, "cosh", 1, Rule::floating, {0.51, 2, 2.5, 1.5}, library(1.95, 1.5, 1.5),
        {.cost = 26, .c64 = kC64ByLibrary}),
    row(Op::tanh, "tanh", 1, Rule::floating, {2.7, 2.3, 2.5, 2}, library(2.3, 1.5, 1.5),
        {.cost = 17,
         .narrow_cost = 14,
         .order = Order::increasing,
         .relative_error = RelativeError::dampened,
         .c64 = kC64ByLibrary}),
    row(Op::asinh, "asinh", 1, Rule::floating, {0.51, 1.9, 2.5, 1.5}, library(2, 3, 1.5),
        {.cost = 38, .order = Order::increasing, .relative_error = RelativeError::dampened}),
    row(Op::acosh, "acosh", 1, Rule::floating, {0.51, 2.1, 2.5, 1.5}, library(2.3, 3, 1.5),
        {.cost = 38}),
    row(Op::atanh, "atanh", 1, Rule::floating, {0.51, 1.8, 3.5, 1.5}, library(1.9, 2.5, 1.5),
        {.cost = 34}),
    row(Op::sigmoid, "sigmoid", 1, Rule::floating, {2.5, 2.4, 4, 4}, library(2.3, 2.5, 2.5),
        {.cost = 19,
         .narrow_cost = 14,
         .sign = Sign::never_negative,
         .order = Order::increasing,
         .c64 = kC64ByLibrary}),
    row(Op::erf, "erf", 1, Rule::floating, {1.75, 0.95, 1.5, 2.5}, library(1.5, 2, 4.5),
        {.cost = 28, .order = Order::increasing, .relative_error = RelativeError::dampened}),
    row(Op::erfc, "erfc", 1, Rule::floating, {0.51, 3.2, 4.5, 4.5}, library(5.2, 5, 5),
        {.cost = 50}),
    row(Op::ndtr, "ndtr", 1, Rule::floating, {7.5, 0.51, 10, 10}, library(5, 5, 5),
        {.cost = 20, .order = Order::increasing}),
    row(Op::erfinv, "erfinv", 1, Rule::floating, {0.53, 0.51, 2.5, 4}, library(2.5, 5, 8),
        {.cost = 20}),
    row(Op::lgamma, "lgamma", 1, Rule::floating, {0.51, 0.51, 6.5, 7}, library(4, 4.5, 4.5),
        {.cost = 50}),
    exact(Op::floor, "floor", 1, Rule::integral, {.cost = 4, .order = Order::increasing}),
    exact(Op::ceil, "ceil", 1, Rule::integral, {.cost = 4, .order = Order::increasing}),
    exact(Op::round, "round", 1, Rule::integral, {.cost = 4, .order = Order::increasing}),
    exact(Op::trunc, "trunc", 1, Rule::integral, {.cost = 4, .order = Order::increasing}),
    exact(Op::isnan, "isnan", 1, Rule::predicate),
    exact(Op::isinf, "isinf", 1, Rule::predicate),
    exact(Op::isfinite, "isfinite", 1, Rule::predicate),
    exact(Op::logical_not, "logical_not", 1, Rule::logical, {.undoes_itself = true}),
    exact(Op::bitwise_not, "bitwise_not", 1, Rule::bitwise, {.infix = "~", .undoes_itself = true}),
    exact(Op::real, "real", 1, Rule::component),
    exact(Op::imag, "imag", 1, Rule::component),
    exact(Op::conj, "conj", 1, Rule::integral, {.undoes_itself = true, .c64 = kC64Exact}),
    exact(Op::popcount, "popcount", 1, Rule::bitwise),
    exact(Op::clz, "clz", 1, Rule::bitwise),

    rounded(Op::add, "add", 2, Rule::same,
            {.infix = "+",
             .sign = Sign::of_all_operands,
             .relative_error = RelativeError::kept_of_one_sign,
             .ieee = true,
             .on_bools = Op::logical_or,
             .c64 = kC64Rounded}),
    rounded(Op::sub, "sub", 2, Rule::same, {.infix = "-", .ieee = true, .c64 = kC64Rounded}),
    rounded(Op::mul, "mul", 2, Rule::same,
            {.infix = "*",
             .sign = Sign::product,
             .relative_error = RelativeError::kept,
             .ieee = true,
             .on_bools = Op::logical_and,
             .c64 = kC64ByF64}),
    rounded(Op::div, "div", 2, Rule::floating,
            {.infix = "/",
             .cost = 16,
             .relative_error = RelativeError::kept,
             .ieee = true,
             .fast_instruction = true,
             .refuses_bools = true,
             .c64 = kC64ByF64}),
    rounded(Op::floor_divide, "floor_divide", 2, Rule::same, {.cost = 32}),
    rounded(Op::remainder, "remainder", 2, Rule::same, {.cost = 36}),
    exact(Op::fmod, "fmod", 2, Rule::same, {.cost = 50}),
    row(Op::power, "power", 2, Rule::same, {0.51, 0.51, 1.5, 3}, library(0.53, 2, 1.5),
        {.cost = 80, .c64 = kC64ByLibrary}),
    exact(Op::maximum, "maximum", 2, Rule::same,
          {.cost = 3,
           .sign = Sign::of_any_operand,
           .relative_error = RelativeError::kept,
           .idempotent = true,
           .on_bools = Op::logical_or}),
    exact(Op::minimum, "minimum", 2, Rule::same,
          {.cost = 3,
           .relative_error = RelativeError::kept,
           .idempotent = true,
           .on_bools = Op::logical_and}),
    exact(Op::fmax, "fmax", 2, Rule::same, {.idempotent = true, .on_bools = Op::logical_or}),
    exact(Op::fmin, "fmin", 2, Rule::same, {.idempotent = true, .on_bools = Op::logical_and}),
    row(Op::atan2, "atan2", 2, Rule::floating, {0.51, 1.5, 2.5, 3.5}, library(0.53, 2.5, 1.5),
        {.cost = 39}),
    row(Op::hypot, "hypot", 2, Rule::floating, {0.51, 0.51, 1.5, 2.5}, library(0.95, 2.5, 1.5),
        {.cost = 27}),
    row(Op::logaddexp, "logaddexp", 2, Rule::floating, {0.51, 1.5, 2, 2}, library(2.4, 2.5, 2.5),
        {.cost = 50}),
    exact(Op::copysign, "copysign", 2, Rule::floating),
    exact(Op::nextafter, "nextafter", 2, Rule::floating, {.cheap = false}),
    exact(Op::equal, "equal", 2, Rule::compare, {.infix = "==", .c64 = kC64Exact}),
    exact(Op::not_equal, "not_equal", 2, Rule::compare, {.infix = "!=", .c64 = kC64Exact}),
    exact(Op::less, "less", 2, Rule::compare, {.infix = "<"}),
    exact(Op::less_equal, "less_equal", 2, Rule::compare, {.infix = "<="}),
    exact(Op::greater, "greater", 2, Rule::compare, {.infix = ">"}),
    exact(Op::greater_equal, "greater_equal", 2, Rule::compare, {.infix = ">="}),
    exact(Op::logical_and, "logical_and", 2, Rule::logical, {.idempotent = true}),
    exact(Op::logical_or, "logical_or", 2, Rule::logical, {.idempotent = true}),
    exact(Op::logical_xor, "logical_xor", 2, Rule::logical),
    exact(Op::bitwise_and, "bitwise_and", 2, Rule::bitwise, {.infix = "&", .idempotent = true}),
    exact(Op::bitwise_or, "bitwise_or", 2, Rule::bitwise, {.infix = "|", .idempotent = true}),
    exact(Op::bitwise_xor, "bitwise_xor", 2, Rule::bitwise, {.infix = "^"}),
    exact(Op::left_shift, "left_shift", 2, Rule::shift),
    exact(Op::right_shift, "right_shift", 2, Rule::shift),

    exact(Op::where, "where", 3, Rule::select,
          {.sign = Sign::of_all_operands, .relative_error = RelativeError::kept}),
    rounded(Op::fma, "fma", 3, Rule::same, {.ieee = true, .c64 = kC64ByF64}),
    exact(Op::clip, "clip", 3, Rule::same, {.cost = 5}),
    row(Op::lerp, "lerp", 3, Rule::floating, {1.5, 1.5, 1.5, 1.5}, library(1.5, 1.5, 1.5),
        {.cheap = false}),
    exact(Op::uniform, "uniform", 3, Rule::random, {.cheap = false}),
    row(Op::normal, "normal", 3, Rule::random, {4, 4, 4, 4}, library(4, 4, 4), {.cheap = false}),

    // The error of a sum or a product grows with its length: these are bounds of the last rounding.
    rounded(Op::sum, "sum", 1, Rule::accumulate,
            {.relative_error = RelativeError::kept_of_one_sign, .combiner = "Sum"}),
    rounded(Op::mean, "mean", 1, Rule::floating,
            {.relative_error = RelativeError::kept_of_one_sign, .combiner = "Sum"}),
    rounded(Op::prod, "prod", 1, Rule::accumulate, {.combiner = "Prod"}),
    exact(Op::reduce_max, "max", 1, Rule::same,
          {.cost = 3,
           .relative_error = RelativeError::kept,
           .on_bools = Op::reduce_any,
           .combiner = "Max"}),
    exact(Op::reduce_min, "min", 1, Rule::same,
          {.cost = 3,
           .relative_error = RelativeError::kept,
           .on_bools = Op::reduce_all,
           .combiner = "Min"}),
    exact(Op::reduce_any, "any", 1, Rule::logical, {.combiner = "Any"}),
    exact(Op::reduce_all, "all", 1, Rule::logical, {.combiner = "All"}),
    exact(Op::argmax, "argmax", 1, Rule::position, {.cost = 12, .combiner = "ArgMax"}),
    exact(Op::argmin, "argmin", 1, Rule::position, {.cost = 12, .combiner = "ArgMin"}),
    exact(Op::cumsum, "cumsum", 1, Rule::accumulate, {.combiner = "Sum"}),
    exact(Op::cumprod, "cumprod", 1, Rule::accumulate, {.combiner = "Prod"}),
    exact(Op::cummax, "cummax", 1, Rule::same,
          {.cost = 3, .on_bools = Op::cummax, .combiner = "Max"}),

    exact(Op::reshape, "reshape", 1, Rule::integral),
    exact(Op::transpose, "transpose", 1, Rule::integral),
    exact(Op::swapaxes, "swapaxes", 1, Rule::integral),
    exact(Op::slice, "slice", 1, Rule::integral),
    exact(Op::expand_dims, "expand_dims", 1, Rule::integral),
    exact(Op::squeeze, "squeeze", 1, Rule::integral),
    exact(Op::concat, "concat", 2, Rule::integral),
    exact(Op::take, "take", 2, Rule::indexed),
    exact(Op::put, "put", 3, Rule::indexed),
    exact(Op::bound, "bound", 2, Rule::indexed),
    exact(Op::tuple, "tuple", 2, Rule::convert),
    exact(Op::custom_call, "custom_call", 1, Rule::convert),
    exact(Op::view, "view", 1, Rule::convert),
    exact(Op::join, "join", 0, Rule::convert),
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

constexpr bool is_writable(const OpInfo& entry) {
  return entry.rule != Rule::leaf && entry.rule != Rule::index && entry.rule != Rule::convert;
}

}  // namespace

const OpInfo& info(Op op) { return kOps[static_cast<std::size_t>(op)]; }

std::span<const OpInfo> all_ops() { return {kOps.data(), kFirstReduction}; }

std::span<const OpInfo> all_reductions() {
  return std::span(kOps).subspan(kFirstReduction, kFirstShapeOp - kFirstReduction);
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
    case Rule::indexed:
    case Rule::component: return true;
    default: return op == Op::mean || info(op).c64.has_value();
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
    case Rule::indexed: return true;
    case Rule::same:
      if (operands == Kind::boolean) return op.on_bools.has_value();
      break;
    case Rule::floating:
      if (operands == Kind::boolean) return !op.refuses_bools;
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

}  // namespace kiln::fusion
