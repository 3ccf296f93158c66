// Every floating-point function of the device code by its op, at each accuracy that the host has,
// with the exact value from the reference interpreter and the measure of error.
#pragma once

#include <cmath>
#include <span>

#include "fusion/op.hpp"
#include "fusion/reference_operation.hpp"
#include "tests/preamble/host_preamble.hpp"

namespace kiln::test {

template <class T>
struct UnaryFunction {
  fusion::Op op;
  T (*standard)(T);
  T (*strict)(T);
  T (*narrow)(T);
};

#define KILN_UNARY_FUNCTION(name)                                                          \
  UnaryFunction<T> {                                                                       \
    fusion::Op::name, [](T x) -> T { return kiln::name(x); },                              \
        [](T x) -> T { return strict::name(x); }, [](T x) -> T { return narrow::name(x); } \
  }

template <class T>
std::span<const UnaryFunction<T>> unary_functions() {
  static const UnaryFunction<T> functions[] = {
      KILN_UNARY_FUNCTION(abs),     KILN_UNARY_FUNCTION(neg),        KILN_UNARY_FUNCTION(sign),
      KILN_UNARY_FUNCTION(square),  KILN_UNARY_FUNCTION(sqrt),       KILN_UNARY_FUNCTION(rsqrt),
      KILN_UNARY_FUNCTION(cbrt),    KILN_UNARY_FUNCTION(reciprocal), KILN_UNARY_FUNCTION(exp),
      KILN_UNARY_FUNCTION(exp2),    KILN_UNARY_FUNCTION(expm1),      KILN_UNARY_FUNCTION(log),
      KILN_UNARY_FUNCTION(log2),    KILN_UNARY_FUNCTION(log10),      KILN_UNARY_FUNCTION(log1p),
      KILN_UNARY_FUNCTION(sin),     KILN_UNARY_FUNCTION(cos),        KILN_UNARY_FUNCTION(tan),
      KILN_UNARY_FUNCTION(asin),    KILN_UNARY_FUNCTION(acos),       KILN_UNARY_FUNCTION(atan),
      KILN_UNARY_FUNCTION(sinh),    KILN_UNARY_FUNCTION(cosh),       KILN_UNARY_FUNCTION(tanh),
      KILN_UNARY_FUNCTION(asinh),   KILN_UNARY_FUNCTION(acosh),      KILN_UNARY_FUNCTION(atanh),
      KILN_UNARY_FUNCTION(sigmoid), KILN_UNARY_FUNCTION(erf),        KILN_UNARY_FUNCTION(erfc),
      KILN_UNARY_FUNCTION(erfinv),  KILN_UNARY_FUNCTION(lgamma),     KILN_UNARY_FUNCTION(floor),
      KILN_UNARY_FUNCTION(ceil),    KILN_UNARY_FUNCTION(round),      KILN_UNARY_FUNCTION(trunc),
  };
  return functions;
}

template <class T>
struct BinaryFunction {
  fusion::Op op;
  T (*standard)(T, T);
  T (*strict)(T, T);
};

#define KILN_BINARY_FUNCTION(name)                                    \
  BinaryFunction<T> {                                                 \
    fusion::Op::name, [](T a, T b) -> T { return kiln::name(a, b); }, \
        [](T a, T b) -> T { return strict::name(a, b); }              \
  }

template <class T>
std::span<const BinaryFunction<T>> binary_functions() {
  static const BinaryFunction<T> functions[] = {
      KILN_BINARY_FUNCTION(add),          KILN_BINARY_FUNCTION(sub),
      KILN_BINARY_FUNCTION(mul),          KILN_BINARY_FUNCTION(div),
      KILN_BINARY_FUNCTION(remainder),    KILN_BINARY_FUNCTION(fmod),
      KILN_BINARY_FUNCTION(floor_divide), KILN_BINARY_FUNCTION(power),
      KILN_BINARY_FUNCTION(maximum),      KILN_BINARY_FUNCTION(minimum),
      KILN_BINARY_FUNCTION(fmax),         KILN_BINARY_FUNCTION(fmin),
      KILN_BINARY_FUNCTION(atan2),        KILN_BINARY_FUNCTION(hypot),
      KILN_BINARY_FUNCTION(logaddexp),    KILN_BINARY_FUNCTION(copysign),
      KILN_BINARY_FUNCTION(nextafter),
  };
  return functions;
}

#undef KILN_UNARY_FUNCTION
#undef KILN_BINARY_FUNCTION

/// What `op` gives on exact operands, with more digits than any result has.
inline long double exact_value(fusion::Op op, DType dtype, std::span<const long double> operands) {
  fusion::TypedNode node;
  node.op = op;
  node.dtype = dtype;
  node.arity = static_cast<std::uint8_t>(operands.size());
  fusion::reference::Value values[3];
  for (std::size_t i = 0; i < operands.size(); ++i)
    values[i] = fusion::reference::from_real(dtype, operands[i]);
  return fusion::reference::operate(node, std::span(values).first(operands.size()), Rounding::once)
      .real;
}

struct FloatFormat {
  int mantissa_bits;      ///< with the hidden one
  int smallest_exponent;  ///< of a normal number
  int largest_exponent;
};
inline FloatFormat format_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return {11, -14, 15};
    case DType::bf16: return {8, -126, 127};
    case DType::f64: return {53, -1022, 1023};
    default: return {24, -126, 127};
  }
}

/// The distance of `actual` from `exact` in units of the last place that `dtype` has at `exact`;
/// where a result overflows, infinity counts as the next number after the largest. 0 for two NaNs,
/// 1e9 where only one is a number, or where a zero has the wrong sign.
inline double ulp_error(long double actual, long double exact, DType dtype) {
  constexpr double kWrong = 1e9;
  const FloatFormat format = format_of(dtype);
  if (std::isnan(exact) || std::isnan(actual))
    return std::isnan(exact) == std::isnan(actual) ? 0 : kWrong;
  if (actual == 0 && exact == 0) return std::signbit(actual) == std::signbit(exact) ? 0 : kWrong;
  const long double beyond = std::ldexp(1.0L, format.largest_exponent + 1);
  const auto bounded = [&](long double x) {
    return x > beyond ? beyond : x < -beyond ? -beyond : x;
  };
  const long double target = bounded(exact);
  int exponent = target == 0 ? format.smallest_exponent : std::ilogb(target);
  if (exponent < format.smallest_exponent) exponent = format.smallest_exponent;
  if (exponent > format.largest_exponent) exponent = format.largest_exponent;
  const long double unit = std::ldexp(1.0L, exponent - format.mantissa_bits + 1);
  return static_cast<double>(std::fabs(bounded(actual) - target) / unit);
}

/// The largest error of a run and how many results were not the correctly rounded one.
struct Errors {
  double largest = 0;
  long double at = 0;
  long double at_second = 0;
  std::uint64_t tried = 0;
  std::uint64_t misrounded = 0;

  void add(double error, long double x, long double y = 0) {
    ++tried;
    if (error > 0.5) ++misrounded;
    if (error <= largest) return;
    largest = error;
    at = x;
    at_second = y;
  }
  double share() const {
    return tried == 0 ? 0 : 100.0 * static_cast<double>(misrounded) / static_cast<double>(tried);
  }
};

}  // namespace kiln::test
