// The meaning of every op on integers and bool: mathematics, modulo what the result's dtype holds.
#include "fusion/reference/kinds.hpp"

namespace kiln::fusion::reference {
namespace {

// Modulo 2^128, which keeps every bit that a 64-bit result needs.
Integer product(Integer a, Integer b) {
  __extension__ typedef unsigned __int128 Bits;
  return static_cast<Integer>(static_cast<Bits>(a) * static_cast<Bits>(b));
}

Integer floor_of_quotient(Integer a, Integer b) {
  if (b == 0) return 0;
  const Integer quotient = a / b;
  return a % b != 0 && (a % b < 0) != (b < 0) ? quotient - 1 : quotient;
}

Integer power(Integer base, Integer exponent, DType dtype) {
  if (exponent < 0) {
    if (base == 1) return 1;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    return 0;
  }
  Integer result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result = from_integer(dtype, product(result, base)).integer;
    base = from_integer(dtype, product(base, base)).integer;
  }
  return result;
}

// A count that is negative stands for one modulo 2^width, which is never inside.
Integer shift(Op op, Integer value, Integer count, DType dtype) {
  const bool outside = count < 0 || count >= bits(dtype);
  if (op == Op::left_shift)
    return outside ? 0 : product(value, Integer{1} << static_cast<int>(count));
  if (outside) return value < 0 ? -1 : 0;
  return value >> static_cast<int>(count);
}

Integer count_bits(Integer value, DType dtype) {
  Integer count = 0;
  for (int i = 0; i < bits(dtype); ++i) count += (value >> i) & 1;
  return count;
}

Integer leading_zeros(Integer value, DType dtype) {
  const int width = dtype == DType::boolean ? 1 : bits(dtype);
  Integer zeros = 0;
  for (int i = width - 1; i >= 0 && ((value >> i) & 1) == 0; --i) ++zeros;
  return zeros;
}

Integer unary(Op op, Integer x, DType dtype) {
  switch (op) {
    case Op::abs: return x < 0 ? -x : x;
    case Op::neg: return -x;
    case Op::sign: return (x > 0) - (x < 0);
    case Op::square: return product(x, x);
    case Op::floor:
    case Op::ceil:
    case Op::round:
    case Op::trunc:
    case Op::real:
    case Op::conj: return x;
    case Op::imag: return 0;
    case Op::bitwise_not: return dtype == DType::boolean ? 1 - x : -x - 1;
    case Op::popcount: return count_bits(x, dtype);
    case Op::clz: return leading_zeros(x, dtype);
    default: no_meaning(op, dtype);
  }
}

Integer binary(Op op, Integer a, Integer b, DType dtype) {
  switch (op) {
    case Op::add: return a + b;
    case Op::sub: return a - b;
    case Op::mul: return product(a, b);
    case Op::floor_divide: return floor_of_quotient(a, b);
    case Op::remainder: return b == 0 ? a : a - b * floor_of_quotient(a, b);
    case Op::fmod: return b == 0 ? a : a % b;
    case Op::power: return power(a, b, dtype);
    case Op::maximum:
    case Op::fmax: return a > b ? a : b;
    case Op::minimum:
    case Op::fmin: return a < b ? a : b;
    case Op::bitwise_and: return a & b;
    case Op::bitwise_or: return a | b;
    case Op::bitwise_xor: return a ^ b;
    case Op::left_shift:
    case Op::right_shift: return shift(op, a, b, dtype);
    default: no_meaning(op, dtype);
  }
}

}  // namespace

Value operate_integer(const TypedNode& node, std::span<const Value> operands) {
  const DType dtype = node.dtype;
  const auto x = [&](std::size_t i) { return operands[i].integer; };
  if (node.arity == 1) return from_integer(dtype, unary(node.op, x(0), dtype));
  if (node.arity == 2) return from_integer(dtype, binary(node.op, x(0), x(1), dtype));
  if (node.op == Op::fma) {
    const Integer scaled = from_integer(dtype, product(x(0), x(1))).integer;
    return from_integer(dtype, scaled + x(2));
  }
  if (node.op == Op::clip) {
    const Integer above = x(0) > x(1) ? x(0) : x(1);
    return from_integer(dtype, above < x(2) ? above : x(2));
  }
  no_meaning(node.op, dtype);
}

}  // namespace kiln::fusion::reference
