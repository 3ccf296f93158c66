// Every floating-point function of the device code by its op, at each accuracy that the host has,
// with the exact value from the reference interpreter and a count of errors.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

#include "fusion/graph/op.hpp"
#include "fusion/reference/bound.hpp"
#include "fusion/reference/operation.hpp"
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
      KILN_UNARY_FUNCTION(ndtr),    KILN_UNARY_FUNCTION(erfinv),     KILN_UNARY_FUNCTION(lgamma),
      KILN_UNARY_FUNCTION(floor),   KILN_UNARY_FUNCTION(ceil),       KILN_UNARY_FUNCTION(round),
      KILN_UNARY_FUNCTION(trunc),
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

using fusion::counted_error;
using fusion::info;

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

/// Half a unit is what correct rounding costs, and an f64 reference has paid it too.
inline void expect_not_loose(const fusion::OpInfo& op, double bound, double measured) {
  EXPECT_LE(bound, std::max(2 * measured, 0.51))
      << op.name << ": the table's bound is looser than twice the error found";
}

/// The table's bounds of the host's library are those of this release; a newer one may be better.
inline bool is_library_of_the_table() {
#if defined(__GLIBC__)
  return std::string_view(gnu_get_libc_version()) == "2.36";
#else
  return false;
#endif
}

}  // namespace kiln::test
