// The meaning of every op on complex numbers, through <complex> in long double.
#include <complex>
#include <limits>

#include "fusion/reference/kinds.hpp"

namespace kiln::fusion::reference {
namespace {

using Real = long double;
using Complex = std::complex<Real>;

constexpr Real kComplexNan = std::numeric_limits<Real>::quiet_NaN();

// The plain formula, also where an infinity meets a zero.
Complex product(const Complex& a, const Complex& b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

Complex power(const Complex& a, const Complex& b) {
  if (b == Complex(0)) return 1;
  if (a == Complex(0)) return b.real() > 0 ? Complex(0) : Complex(kComplexNan, kComplexNan);
  return std::exp(product(b, std::log(a)));
}

Complex unary(Op op, const Complex& z) {
  switch (op) {
    case Op::abs: return std::abs(z);
    case Op::neg: return -z;
    case Op::sign: return z == Complex(0) ? z : z / std::abs(z);
    case Op::square: return product(z, z);
    case Op::sqrt: return std::sqrt(z);
    case Op::rsqrt: return Complex(1) / std::sqrt(z);
    case Op::reciprocal: return Complex(1) / z;
    case Op::exp: return std::exp(z);
    case Op::log: return std::log(z);
    case Op::log2: return std::log(z) / std::log(2.0L);
    case Op::log10: return std::log10(z);
    case Op::sin: return std::sin(z);
    case Op::cos: return std::cos(z);
    case Op::tan: return std::tan(z);
    case Op::sinh: return std::sinh(z);
    case Op::cosh: return std::cosh(z);
    case Op::tanh: return std::tanh(z);
    case Op::conj: return std::conj(z);
    case Op::sigmoid: return Complex(1) / (Complex(1) + std::exp(-z));
    default: no_meaning(op, DType::c64);
  }
}

Complex binary(Op op, const Complex& a, const Complex& b) {
  switch (op) {
    case Op::add: return a + b;
    case Op::sub: return a - b;
    case Op::mul: return product(a, b);
    case Op::div: return a / b;
    case Op::power: return power(a, b);
    default: no_meaning(op, DType::c64);
  }
}

}  // namespace

Value operate_complex(const TypedNode& node, std::span<const Value> operands, Rounding rounding) {
  const auto z = [&](std::size_t i) { return Complex(operands[i].real, operands[i].imag); };
  Complex result;
  if (node.arity == 1) {
    result = unary(node.op, z(0));
  } else if (node.arity == 2) {
    result = binary(node.op, z(0), z(1));
  } else if (node.op == Op::fma) {
    result = product(z(0), z(1)) + z(2);
  } else {
    no_meaning(node.op, node.dtype);
  }
  return convert({node.dtype, result.real(), result.imag(), 0}, node.dtype,
                 rounding == Rounding::each);
}

}  // namespace kiln::fusion::reference
