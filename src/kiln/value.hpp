// kiln::Value: the operand of a callable that is being traced. Every operator and function below
// adds one op to the graph of the function that is being described; nothing is computed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>

#include "kiln/dtype.hpp"

namespace kiln::fusion {
class Graph;
}

#pragma GCC visibility push(default)

namespace kiln {

/// An operand of the callable that is being traced; only for the thread that traces it.
class Value {
 public:
  Value(fusion::Graph* graph, std::uint32_t node) : graph_(graph), node_(node) {}
  /// A literal: weak, so it takes the dtype of its partner (numerics.md).
  template <class T>
  requires std::is_arithmetic_v<T> Value(T literal)
      : literal_(true) {  // NOLINT: implicit on purpose
    if constexpr (std::is_same_v<T, bool>) {
      kind_ = Kind::boolean;
      integer_ = literal ? 1 : 0;
    } else if constexpr (std::is_floating_point_v<T>) {
      kind_ = Kind::floating;
      floating_ = static_cast<double>(literal);
    } else {
      kind_ = std::is_signed_v<T> ? Kind::signed_integer : Kind::unsigned_integer;
      integer_ = static_cast<std::uint64_t>(literal);
    }
  }

  fusion::Graph* graph() const { return graph_; }
  /// The node in `graph`, made there if this is a literal.
  std::uint32_t node_in(fusion::Graph& graph) const;

 private:
  fusion::Graph* graph_ = nullptr;
  std::uint32_t node_ = 0;
  bool literal_ = false;
  Kind kind_ = Kind::floating;
  double floating_ = 0;
  std::uint64_t integer_ = 0;
};

/// Adds the op or library function of that name, as the text form would. Throws
/// Error(invalid_argument) for an unknown name, a wrong number of operands, or operands of two
/// different functions.
Value apply(std::string_view function, std::initializer_list<Value> operands);

/// Rounds or converts to `dtype`; a written cast is always honoured (numerics.md: float to integer
/// truncates, saturates, and takes NaN to 0; to bool is x != 0).
Value cast(const Value& x, DType dtype);
/// Reinterprets the bits as a dtype of the same width.
Value bitcast(const Value& x, DType dtype);

/// The place of each element of the outputs along `axis` of their shape, negative from its end; or
/// with no axis among all elements, in C order. A dtype that cannot count so far is an error of the
/// call. Only inside a callable that is being traced.
Value iota(int axis, DType dtype = DType::i32);
Value iota(DType dtype = DType::i32);

/// Random numbers in f32 that depend on integers only, with the same bits on every device and for
/// every layout (Philox 4x32-10, one 32-bit word for each element): `uniform` in [0, 1) with 24
/// bits, `normal` with mean 0 and deviation 1, up to 6.3. `offset` is the number of the draw in the
/// sequence of `seed`; `index`, by default iota(u64), the number of the element in the draw.
inline Value uniform(const Value& seed, const Value& offset) {
  return apply("uniform", {seed, offset});
}
inline Value uniform(const Value& seed, const Value& offset, const Value& index) {
  return apply("uniform", {seed, offset, index});
}
inline Value normal(const Value& seed, const Value& offset) {
  return apply("normal", {seed, offset});
}
inline Value normal(const Value& seed, const Value& offset, const Value& index) {
  return apply("normal", {seed, offset, index});
}

inline Value operator+(const Value& a, const Value& b) { return apply("add", {a, b}); }
inline Value operator-(const Value& a, const Value& b) { return apply("sub", {a, b}); }
inline Value operator*(const Value& a, const Value& b) { return apply("mul", {a, b}); }
inline Value operator/(const Value& a, const Value& b) { return apply("div", {a, b}); }
/// Python's: the sign of the divisor.
inline Value operator%(const Value& a, const Value& b) { return apply("remainder", {a, b}); }
inline Value operator-(const Value& a) { return apply("neg", {a}); }
inline Value operator~(const Value& a) { return apply("bitwise_not", {a}); }
inline Value operator!(const Value& a) { return apply("logical_not", {a}); }
inline Value operator==(const Value& a, const Value& b) { return apply("equal", {a, b}); }
inline Value operator!=(const Value& a, const Value& b) { return apply("not_equal", {a, b}); }
inline Value operator<(const Value& a, const Value& b) { return apply("less", {a, b}); }
inline Value operator<=(const Value& a, const Value& b) { return apply("less_equal", {a, b}); }
inline Value operator>(const Value& a, const Value& b) { return apply("greater", {a, b}); }
inline Value operator>=(const Value& a, const Value& b) { return apply("greater_equal", {a, b}); }
inline Value operator&&(const Value& a, const Value& b) { return apply("logical_and", {a, b}); }
inline Value operator||(const Value& a, const Value& b) { return apply("logical_or", {a, b}); }
inline Value operator&(const Value& a, const Value& b) { return apply("bitwise_and", {a, b}); }
inline Value operator|(const Value& a, const Value& b) { return apply("bitwise_or", {a, b}); }
inline Value operator^(const Value& a, const Value& b) { return apply("bitwise_xor", {a, b}); }
inline Value operator<<(const Value& a, const Value& b) { return apply("left_shift", {a, b}); }
inline Value operator>>(const Value& a, const Value& b) { return apply("right_shift", {a, b}); }

// One function per op and composition of the text form, named alike; the op table
// (fusion/graph/op.cpp) and the composition table (fusion/graph/composition.cpp) hold their
// definitions and error bounds.
#define KILN_UNARY(name) \
  inline Value name(const Value& x) { return apply(#name, {x}); }
#define KILN_BINARY(name) \
  inline Value name(const Value& a, const Value& b) { return apply(#name, {a, b}); }
#define KILN_TERNARY(name)                                            \
  inline Value name(const Value& a, const Value& b, const Value& c) { \
    return apply(#name, {a, b, c});                                   \
  }

KILN_UNARY(abs)
KILN_UNARY(sign)
KILN_UNARY(square)
KILN_UNARY(sqrt)
KILN_UNARY(rsqrt)
KILN_UNARY(cbrt)
KILN_UNARY(reciprocal)
KILN_UNARY(exp)
KILN_UNARY(exp2)
KILN_UNARY(expm1)
KILN_UNARY(log)
KILN_UNARY(log2)
KILN_UNARY(log10)
KILN_UNARY(log1p)
KILN_UNARY(sin)
KILN_UNARY(cos)
KILN_UNARY(tan)
KILN_UNARY(asin)
KILN_UNARY(acos)
KILN_UNARY(atan)
KILN_UNARY(sinh)
KILN_UNARY(cosh)
KILN_UNARY(tanh)
KILN_UNARY(asinh)
KILN_UNARY(acosh)
KILN_UNARY(atanh)
KILN_UNARY(sigmoid)
KILN_UNARY(erf)
KILN_UNARY(erfc)
KILN_UNARY(ndtr)
KILN_UNARY(erfinv)
KILN_UNARY(lgamma)
KILN_UNARY(floor)
KILN_UNARY(ceil)
KILN_UNARY(round)
KILN_UNARY(trunc)
KILN_UNARY(isnan)
KILN_UNARY(isinf)
KILN_UNARY(isfinite)
KILN_UNARY(logical_not)
KILN_UNARY(bitwise_not)
KILN_UNARY(popcount)
KILN_UNARY(clz)
KILN_BINARY(floor_divide)
KILN_BINARY(remainder)
KILN_BINARY(fmod)
KILN_BINARY(power)
KILN_BINARY(maximum)
KILN_BINARY(minimum)
KILN_BINARY(fmax)
KILN_BINARY(fmin)
KILN_BINARY(atan2)
KILN_BINARY(hypot)
KILN_BINARY(logaddexp)
KILN_BINARY(copysign)
KILN_BINARY(nextafter)
KILN_BINARY(logical_and)
KILN_BINARY(logical_or)
KILN_BINARY(logical_xor)
KILN_TERNARY(where)
KILN_TERNARY(fma)
KILN_TERNARY(clip)
KILN_TERNARY(lerp)
KILN_UNARY(real)
KILN_UNARY(imag)
KILN_UNARY(conj)
KILN_UNARY(relu)
KILN_UNARY(relu6)
KILN_UNARY(leaky_relu)
KILN_UNARY(elu)
KILN_UNARY(selu)
KILN_UNARY(celu)
KILN_UNARY(gelu)
KILN_UNARY(gelu_tanh)
KILN_UNARY(quick_gelu)
KILN_UNARY(silu)
KILN_UNARY(mish)
KILN_UNARY(softplus)
KILN_UNARY(softsign)
KILN_UNARY(hardswish)
KILN_UNARY(hardsigmoid)
KILN_UNARY(tanhshrink)
KILN_UNARY(squared_relu)
KILN_UNARY(logit)
KILN_UNARY(nan_to_num)
// With a slope or alpha of its own:
KILN_BINARY(leaky_relu)
KILN_BINARY(elu)
KILN_BINARY(celu)

#undef KILN_UNARY
#undef KILN_BINARY
#undef KILN_TERNARY

}  // namespace kiln

#pragma GCC visibility pop
