// The meaning of every op, written once more and independently of the device code: floats through
// <cmath> in long double, integers as mathematics. The definitions are those of the table "Defined
// where others are silent" in the documentation of numerics.
#include "fusion/reference_operation.hpp"

#include <cmath>
#include <complex>
#include <limits>
#include <string>

#include "fusion/dtype_lattice.hpp"
#include "fusion/reference_random.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion::reference {
namespace {

using Real = long double;
using Complex = std::complex<Real>;

constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
constexpr Real kNan = std::numeric_limits<Real>::quiet_NaN();

[[noreturn]] void no_meaning(Op op, DType dtype) {
  throw Error(Code::internal, "reference: " + std::string(info(op).name) + " has no meaning on " +
                                  std::string(name(dtype)));
}

// ---- floats ------------------------------------------------------------------------------------

// Newton's method on erf, or on erfc where 1 - |x| has the digits.
template <class T>
T erfinv(T x) {
  const T a = std::fabs(x);
  if (a > 1) return std::numeric_limits<T>::quiet_NaN();
  if (a == 1) return std::copysign(std::numeric_limits<T>::infinity(), x);
  const T w = -std::log1p(-a * a);
  T y = w < 5 ? a * std::sqrt(std::acos(T(-1))) / 2 : std::sqrt(w);
  for (int i = 0; i < 60 && y != 0; ++i) {
    const T miss = a < T(0.5) ? std::erf(y) - a : (1 - a) - std::erfc(y);
    const T step = miss * std::sqrt(std::acos(T(-1))) / 2 * std::exp(y * y);
    y -= step / (1 + y * step);
    if (std::fabs(step) < T(0x1p-33) * y) break;  // the next one would be its square
  }
  return std::copysign(y, x);
}

template <class T>
T ndtr(T x) {
  return std::erfc(-x * std::sqrt(T(0.5))) / 2;
}

template <class T>
T sigmoid(T x) {
  const T e = std::exp(-std::fabs(x));
  return (x < 0 ? e : 1) / (1 + e);
}

template <class T>
T unary(Op op, T x, DType dtype) {
  switch (op) {
    case Op::abs: return std::fabs(x);
    case Op::neg: return -x;
    case Op::sign: return x > 0 ? 1 : x < 0 ? -1 : x;
    case Op::square: return x * x;
    case Op::sqrt: return std::sqrt(x);
    case Op::rsqrt: return 1 / std::sqrt(x);
    case Op::cbrt: return std::cbrt(x);
    case Op::reciprocal: return 1 / x;
    case Op::exp: return std::exp(x);
    case Op::exp2: return std::exp2(x);
    case Op::expm1: return std::expm1(x);
    case Op::log: return std::log(x);
    case Op::log2: return std::log2(x);
    case Op::log10: return std::log10(x);
    case Op::log1p: return std::log1p(x);
    case Op::sin: return std::sin(x);
    case Op::cos: return std::cos(x);
    case Op::tan: return std::tan(x);
    case Op::asin: return std::asin(x);
    case Op::acos: return std::acos(x);
    case Op::atan: return std::atan(x);
    case Op::sinh: return std::sinh(x);
    case Op::cosh: return std::cosh(x);
    case Op::tanh: return std::tanh(x);
    case Op::asinh: return std::asinh(x);
    case Op::acosh: return std::acosh(x);
    case Op::atanh: return std::atanh(x);
    case Op::sigmoid: return sigmoid(x);
    case Op::erf: return std::erf(x);
    case Op::erfc: return std::erfc(x);
    case Op::ndtr: return ndtr(x);
    case Op::erfinv: return erfinv(x);
    case Op::lgamma: return std::lgamma(x);
    case Op::floor: return std::floor(x);
    case Op::ceil: return std::ceil(x);
    case Op::round: return std::rint(x);
    case Op::trunc: return std::trunc(x);
    case Op::real:
    case Op::conj: return x;
    case Op::imag: return 0;
    default: no_meaning(op, dtype);
  }
}

template <class T>
T larger(T a, T b) {
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
template <class T>
T smaller(T a, T b) {
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

// The quotient's floor, from the sign of the exact rest where the quotient was rounded up.
template <class T>
T floor_divide(T a, T b) {
  const T quotient = std::floor(a / b);
  if (!std::isfinite(quotient) || !std::isfinite(b)) return quotient;
  const T rest = std::fma(-quotient, b, a);
  return rest != 0 && std::signbit(rest) != std::signbit(b) ? quotient - 1 : quotient;
}

template <class T>
T remainder(T a, T b) {
  const T rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(rest, b);
  return !std::isnan(rest) && std::signbit(rest) != std::signbit(b) ? rest + b : rest;
}

template <class T>
T logaddexp(T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (a == b) return a + std::log(T(2));
  return std::fmax(a, b) + std::log1p(std::exp(-std::fabs(a - b)));
}

// The neighbour in `dtype`, which both operands are rounded to first. The spacing of a narrow float
// is that of the binade that the step stays in.
Real nextafter_narrow(Real from, Real towards, DType dtype) {
  const Real a = round_to(from, dtype);
  const Real b = round_to(towards, dtype);
  if (std::isnan(a)) return a;
  if (std::isnan(b) || a == b) return b;
  const Real least = dtype == DType::f16 ? 0x1p-24L : 0x1p-133L;
  if (a == 0) return std::copysign(least, b);
  const Real largest = dtype == DType::f16 ? 65504.0L : 0x1.fep127L;
  if (std::isinf(a)) return std::copysign(largest, a);
  const bool outwards = (a < b) == (a > 0);
  int exponent = 0;
  const bool power = std::frexp(std::fabs(a), &exponent) == 0.5L;
  if (power && !outwards) --exponent;
  const Real spacing = std::ldexp(1.0L, exponent - (dtype == DType::f16 ? 11 : 8));
  const Real step = std::fmax(spacing, least);
  // Beyond the largest number this rounds to infinity; of the smallest it leaves a zero's sign.
  return std::copysign(round_to(std::fabs(a) + (outwards ? step : -step), dtype), a);
}

Real neighbour(Real a, Real b, DType dtype) {
  if (dtype == DType::f16 || dtype == DType::bf16) return nextafter_narrow(a, b, dtype);
  if (dtype == DType::f64) return std::nextafter(static_cast<double>(a), static_cast<double>(b));
  return std::nextafter(static_cast<float>(a), static_cast<float>(b));
}

template <class T>
T binary(Op op, T a, T b, DType dtype) {
  switch (op) {
    case Op::add: return a + b;
    case Op::sub: return a - b;
    case Op::mul: return a * b;
    case Op::div: return a / b;
    case Op::floor_divide: return floor_divide(a, b);
    case Op::remainder: return remainder(a, b);
    case Op::fmod: return std::fmod(a, b);
    case Op::power:
      // From 2^63 on every number is even; there glibc's powl takes -infinity for an odd power's.
      return std::pow(std::fabs(b) >= T(0x1p63) ? std::fabs(a) : a, b);
    case Op::maximum: return std::isnan(a) ? a : std::isnan(b) ? b : larger(a, b);
    case Op::minimum: return std::isnan(a) ? a : std::isnan(b) ? b : smaller(a, b);
    case Op::fmax: return std::isnan(b) ? a : std::isnan(a) ? b : larger(a, b);
    case Op::fmin: return std::isnan(b) ? a : std::isnan(a) ? b : smaller(a, b);
    case Op::atan2: return std::atan2(a, b);
    case Op::hypot: return std::hypot(a, b);
    case Op::logaddexp: return logaddexp(a, b);
    case Op::copysign: return std::copysign(a, b);
    case Op::nextafter: return static_cast<T>(neighbour(a, b, dtype));
    default: no_meaning(op, dtype);
  }
}

Real ternary(Op op, Real a, Real b, Real c, DType dtype) {
  switch (op) {
    case Op::fma: return std::fma(a, b, c);
    case Op::lerp: return std::fma(c, b, std::fma(-c, a, a));
    case Op::clip: return binary(Op::minimum, binary(Op::maximum, a, b, dtype), c, dtype);
    default: no_meaning(op, dtype);
  }
}

// The arithmetic of Float itself: what a device rounds correctly, the reference must round no
// twice. True if `op` is one of those.
template <class Float>
bool native(Op op, std::span<const Value> operands, Real& result) {
  const auto x = [&](std::size_t i) { return static_cast<Float>(operands[i].real); };
  switch (op) {
    case Op::add: result = static_cast<Float>(x(0) + x(1)); return true;
    case Op::sub: result = static_cast<Float>(x(0) - x(1)); return true;
    case Op::mul: result = static_cast<Float>(x(0) * x(1)); return true;
    case Op::div: result = static_cast<Float>(x(0) / x(1)); return true;
    case Op::square: result = static_cast<Float>(x(0) * x(0)); return true;
    case Op::reciprocal: result = static_cast<Float>(1 / x(0)); return true;
    case Op::sqrt: result = std::sqrt(x(0)); return true;
    case Op::fma: result = std::fma(x(0), x(1), x(2)); return true;
    case Op::lerp: result = std::fma(x(2), x(1), std::fma(-x(2), x(0), x(0))); return true;
    default: return false;
  }
}

Value operate_float(const TypedNode& node, std::span<const Value> operands, Rounding rounding) {
  const DType dtype = node.dtype;
  Real result = 0;
  // An f64 chain is computed in f64 whatever the mode.
  if (rounding == Rounding::each || dtype == DType::f64) {
    const bool done = dtype == DType::f64 ? native<double>(node.op, operands, result)
                                          : native<float>(node.op, operands, result);
    // A narrow float is computed in f32 and then rounded to its own dtype.
    if (done) return from_real(dtype, round_to(result, dtype));
  }
  if (node.arity == 1) result = unary(node.op, operands[0].real, dtype);
  if (node.arity == 2) result = binary(node.op, operands[0].real, operands[1].real, dtype);
  if (node.arity == 3) {
    result = ternary(node.op, operands[0].real, operands[1].real, operands[2].real, dtype);
  }
  if (rounding == Rounding::each) result = round_to(round_to(result, compute_dtype(dtype)), dtype);
  return from_real(dtype, result);
}

// ---- integers and bool -------------------------------------------------------------------------

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

// ---- complex numbers ---------------------------------------------------------------------------

// The plain formula, also where an infinity meets a zero.
Complex product(const Complex& a, const Complex& b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

Complex power(const Complex& a, const Complex& b) {
  if (b == Complex(0)) return 1;
  if (a == Complex(0)) return b.real() > 0 ? Complex(0) : Complex(kNan, kNan);
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

// ---- results of another dtype ------------------------------------------------------------------

bool compare(Op op, const Value& a, const Value& b) {
  const auto holds = [op](const auto& x, const auto& y) {
    switch (op) {
      case Op::equal: return x == y;
      case Op::not_equal: return x != y;
      case Op::less: return x < y;
      case Op::less_equal: return x <= y;
      case Op::greater: return x > y;
      default: return x >= y;
    }
  };
  if (kind(a.dtype) == Kind::complex) {
    const bool same = a.real == b.real && a.imag == b.imag;
    if (op == Op::equal) return same;
    if (op == Op::not_equal) return !same;
    no_meaning(op, a.dtype);
  }
  return is_floating(a.dtype) ? holds(a.real, b.real) : holds(a.integer, b.integer);
}

bool predicate(Op op, const Value& x) {
  const bool nan = std::isnan(x.real) || std::isnan(x.imag);
  const bool infinite = std::isinf(x.real) || std::isinf(x.imag);
  if (op == Op::isnan) return nan;
  if (op == Op::isinf) return infinite;
  return !nan && !infinite;
}

bool logical(Op op, std::span<const Value> operands) {
  const bool a = operands[0].integer != 0;
  if (op == Op::logical_not) return !a;
  const bool b = operands[1].integer != 0;
  return op == Op::logical_and ? a && b : op == Op::logical_or ? a || b : a != b;
}

}  // namespace

double operate_quickly(Op op, double x) { return unary(op, x, DType::f64); }
double operate_quickly(Op op, double x, double y) { return binary(op, x, y, DType::f64); }

Value operate(const TypedNode& node, std::span<const Value> operands, Rounding rounding) {
  switch (info(node.op).rule) {
    case Rule::compare: return from_integer(node.dtype, compare(node.op, operands[0], operands[1]));
    case Rule::predicate: return from_integer(node.dtype, predicate(node.op, operands[0]));
    case Rule::logical: return from_integer(node.dtype, logical(node.op, operands));
    case Rule::select: return operands[0].integer != 0 ? operands[1] : operands[2];
    case Rule::same:
      if (node.op != Op::abs || operands[0].dtype != DType::c64) break;
      return from_real(node.dtype,
                       rounding == Rounding::each
                           ? round_to(std::hypot(operands[0].real, operands[0].imag), node.dtype)
                           : std::hypot(operands[0].real, operands[0].imag));
    case Rule::random: {
      std::uint64_t place[3];
      for (std::size_t i = 0; i < 3; ++i)
        place[i] = static_cast<std::uint64_t>(operands[i].integer);
      if (node.op == Op::uniform)
        return from_real(node.dtype, uniform(place[0], place[1], place[2]));
      const Real p = normal_probability(place[0], place[1], place[2]);
      const Real x = std::sqrt(2.0L) * erfinv(2 * std::fabs(p) - 1);
      const Real number = std::signbit(p) ? x : -x;
      return from_real(node.dtype,
                       rounding == Rounding::each ? round_to(number, node.dtype) : number);
    }
    case Rule::component:
      if (operands[0].dtype != DType::c64) break;
      return from_real(DType::f32, node.op == Op::real ? operands[0].real : operands[0].imag);
    default: break;
  }
  if (kind(node.dtype) == Kind::complex) return operate_complex(node, operands, rounding);
  if (is_floating(node.dtype)) return operate_float(node, operands, rounding);
  return operate_integer(node, operands);
}

}  // namespace kiln::fusion::reference
