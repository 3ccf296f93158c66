// The meaning of every op on floats, through <cmath> in long double, and in double where speed is
// asked for.
#include <cmath>
#include <limits>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/reference/kinds.hpp"
#include "fusion/reference/operation.hpp"

namespace kiln::fusion::reference {
namespace {

using Real = long double;

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

}  // namespace

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

double operate_quickly(Op op, double x) { return unary(op, x, DType::f64); }
double operate_quickly(Op op, double x, double y) { return binary(op, x, y, DType::f64); }

long double inverse_erf(long double x) { return erfinv(x); }

}  // namespace kiln::fusion::reference
