// Floating-point operations by the names of the op table, for f32 and f64. Namespace kiln holds the
// default accuracy, kiln::strict the functions of the compiler's own library; accuracy.h adds the
// cheaper ones. What numerics.md defines exactly has the same bits on every device.
#pragma once

#if KILN_HOST
#define KILN_LIBRARY(function) __builtin_##function
#else
#define KILN_LIBRARY(function) ::function
#endif

namespace kiln {

// ---- exact operations ---------------------------------------------------------------------------

namespace exact {

template <class T>
struct BitsOf;
template <>
struct BitsOf<f32> {
  using Type = u32;
};
template <>
struct BitsOf<f64> {
  using Type = u64;
};
template <class T>
using Bits = typename BitsOf<T>::Type;
template <class T>
KILN_FN constexpr Bits<T> sign_bit() {
  return Bits<T>(1) << (sizeof(T) * 8 - 1);
}
template <class T>
KILN_FN constexpr Bits<T> infinity_bits() {
  return Bits<T>(is_same<T, f32>() ? 0x7f800000u : 0x7ff0000000000000u);
}

template <class T>
KILN_FN Bits<T> to_bits(T x) {
  return bit_cast<Bits<T>>(x);
}
template <class T>
KILN_FN Bits<T> size_bits(T x) {
  return Bits<T>(to_bits(x) & ~sign_bit<T>());
}
template <class T>
KILN_FN T from_bits(Bits<T> bits) {
  return bit_cast<T>(bits);
}

template <class T>
KILN_FN T abs(T x) {
  return from_bits<T>(size_bits(x));
}
template <class T>
KILN_FN T neg(T x) {
  return from_bits<T>(to_bits(x) ^ sign_bit<T>());
}
template <class T>
KILN_FN T copysign(T x, T sign) {
  return from_bits<T>(size_bits(x) | (to_bits(sign) & sign_bit<T>()));
}
template <class T>
KILN_FN T sign(T x) {
  return x > T(0) ? T(1) : x < T(0) ? T(-1) : x;
}
template <class T>
KILN_FN bool isnan(T x) {
  return size_bits(x) > infinity_bits<T>();
}
template <class T>
KILN_FN bool isinf(T x) {
  return size_bits(x) == infinity_bits<T>();
}
template <class T>
KILN_FN bool isfinite(T x) {
  return size_bits(x) < infinity_bits<T>();
}

// Equal numbers have equal bits but for the zeros, where `and` gives +0 and `or` gives -0. A
// comparison with NaN is false, which leaves b.
template <class T>
KILN_FN T larger(T a, T b) {
  const T either = from_bits<T>(to_bits(a) & to_bits(b));
  const T different = a > b ? a : b;
  return a == b ? either : different;
}
template <class T>
KILN_FN T smaller(T a, T b) {
  const T either = from_bits<T>(to_bits(a) | to_bits(b));
  const T different = a < b ? a : b;
  return a == b ? either : different;
}
template <class T>
KILN_FN T maximum(T a, T b) {
  const T result = larger(a, b);
  return a != a ? a : result;
}
template <class T>
KILN_FN T minimum(T a, T b) {
  const T result = smaller(a, b);
  return a != a ? a : result;
}
template <class T>
KILN_FN T fmax(T a, T b) {
  const T result = larger(a, b);
  return b != b ? a : result;
}
template <class T>
KILN_FN T fmin(T a, T b) {
  const T result = smaller(a, b);
  return b != b ? a : result;
}
#if KILN_NVIDIA
// NVIDIA's instruction takes -0 for less than +0, and of a NaN and a number the number. Its
// compiler takes the zeros for equal where it knows both operands, so it is not told what this is.
KILN_FN f32 max_number(f32 a, f32 b) {
  f32 result;
  asm("max.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
KILN_FN f32 min_number(f32 a, f32 b) {
  f32 result;
  asm("min.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
KILN_FN f32 maximum(f32 a, f32 b) {
  const f32 number = max_number(a, b);
  const f32 result = b != b ? b : number;
  return a != a ? a : result;
}
KILN_FN f32 minimum(f32 a, f32 b) {
  const f32 number = min_number(a, b);
  const f32 result = b != b ? b : number;
  return a != a ? a : result;
}
KILN_FN f32 fmax(f32 a, f32 b) {
  const f32 number = max_number(a, b);
  return b != b ? a : number;
}
KILN_FN f32 fmin(f32 a, f32 b) {
  const f32 number = min_number(a, b);
  return b != b ? a : number;
}
#endif
template <class T>
KILN_FN T clip(T a, T low, T high) {
  return minimum(maximum(a, low), high);
}
#if KILN_NVIDIA
// The same, without asking of the first result whether it is a NaN.
KILN_FN f32 clip(f32 a, f32 low, f32 high) {
  const f32 number = min_number(max_number(a, low), high);
  const f32 bounded = high != high ? high : number;
  const f32 result = low != low ? low : bounded;
  return a != a ? a : result;
}
#endif

// Neighbouring floats have neighbouring bits, counted away from zero.
template <class T>
KILN_FN T nextafter(T from, T towards) {
  const Bits<T> bits = to_bits(from);
  const bool away = (from < towards) == (from > T(0));
  const T stepped = from_bits<T>(away ? bits + 1 : bits - 1);
  const T least = from_bits<T>((to_bits(towards) & sign_bit<T>()) | 1);
  const T moved = from == T(0) ? least : stepped;
  return isnan(from) ? from : isnan(towards) || from == towards ? towards : moved;
}

}  // namespace exact

#define KILN_EXACT_1(op)                         \
  KILN_FN f32 op(f32 x) { return exact::op(x); } \
  KILN_FN f64 op(f64 x) { return exact::op(x); }
#define KILN_EXACT_2(op)                                   \
  KILN_FN f32 op(f32 a, f32 b) { return exact::op(a, b); } \
  KILN_FN f64 op(f64 a, f64 b) { return exact::op(a, b); }
#define KILN_PREDICATE(op)                        \
  KILN_FN bool op(f32 x) { return exact::op(x); } \
  KILN_FN bool op(f64 x) { return exact::op(x); }
#define KILN_OPERATOR(op, symbol)                     \
  KILN_FN f32 op(f32 a, f32 b) { return a symbol b; } \
  KILN_FN f64 op(f64 a, f64 b) { return a symbol b; }
#define KILN_LIBRARY_1(op, function)                             \
  KILN_FN f32 op(f32 x) { return KILN_LIBRARY(function##f)(x); } \
  KILN_FN f64 op(f64 x) { return KILN_LIBRARY(function)(x); }
#define KILN_LIBRARY_2(op, function)                                       \
  KILN_FN f32 op(f32 a, f32 b) { return KILN_LIBRARY(function##f)(a, b); } \
  KILN_FN f64 op(f64 a, f64 b) { return KILN_LIBRARY(function)(a, b); }

KILN_EXACT_1(abs)
KILN_EXACT_1(neg)
KILN_EXACT_1(sign)
KILN_PREDICATE(isnan)
KILN_PREDICATE(isinf)
KILN_PREDICATE(isfinite)
KILN_EXACT_2(copysign)
KILN_EXACT_2(maximum)
KILN_EXACT_2(minimum)
KILN_EXACT_2(fmax)
KILN_EXACT_2(fmin)
KILN_EXACT_2(nextafter)
// The neighbour in a narrower float, which both operands are rounded to first.
template <class T>
KILN_FN f32 nextafter(f32 from, f32 towards) {
  constexpr u32 kSign = 0x8000u;
  const T stored = to<T>(from);
  const f32 a = to<f32>(stored);
  const T target = to<T>(towards);
  const f32 b = to<f32>(target);
  const u32 bits = stored.bits;
  const u32 stepped = (a < b) == (a > 0.0f) ? bits + 1 : bits - 1;
  const u32 moved = a == 0.0f ? (target.bits & kSign) | 1u : stepped;
  const f32 result = to<f32>(T{u16(moved)});
  return isnan(a) ? a : isnan(b) || a == b ? b : result;
}
KILN_OPERATOR(add, +)
KILN_OPERATOR(sub, -)
KILN_OPERATOR(mul, *)
#if KILN_HOST
KILN_OPERATOR(div, /)
KILN_LIBRARY_1(sqrt, sqrt)
#else
KILN_FN f32 div(f32 a, f32 b) { return gpu::div(a, b); }
KILN_FN f64 div(f64 a, f64 b) { return a / b; }
KILN_FN f32 sqrt(f32 x) { return gpu::sqrt(x); }
KILN_FN f64 sqrt(f64 x) { return ::sqrt(x); }
#endif
KILN_LIBRARY_1(floor, floor)
KILN_LIBRARY_1(ceil, ceil)
KILN_LIBRARY_1(round, rint)
KILN_LIBRARY_1(trunc, trunc)
KILN_LIBRARY_2(fmod, fmod)

KILN_FN f32 clip(f32 a, f32 low, f32 high) { return exact::clip(a, low, high); }
KILN_FN f64 clip(f64 a, f64 low, f64 high) { return exact::clip(a, low, high); }
KILN_FN f32 square(f32 x) { return x * x; }
KILN_FN f64 square(f64 x) { return x * x; }
KILN_FN f32 reciprocal(f32 x) { return div(1.0f, x); }
KILN_FN f64 reciprocal(f64 x) { return 1.0 / x; }
#if KILN_HOST && !defined(__clang__)
// g++ makes -a * b - c of -(a * b + c), also for a division by -d, and with it another sign of
// zero. It cannot where it does not see which instruction a number is from.
#if defined(__x86_64__)
#define KILN_HIDDEN "+x"
#elif defined(__aarch64__)
#define KILN_HIDDEN "+w"
#else
#define KILN_HIDDEN "+m"
#endif
KILN_FN f32 fma(f32 a, f32 b, f32 c) {
  f32 result = __builtin_fmaf(a, b, c);
  asm("" : KILN_HIDDEN(result));
  return result;
}
KILN_FN f64 fma(f64 a, f64 b, f64 c) {
  f64 result = __builtin_fma(a, b, c);
  asm("" : KILN_HIDDEN(result));
  return result;
}
#undef KILN_HIDDEN
#else
KILN_FN f32 fma(f32 a, f32 b, f32 c) { return KILN_LIBRARY(fmaf)(a, b, c); }
KILN_FN f64 fma(f64 a, f64 b, f64 c) { return KILN_LIBRARY(fma)(a, b, c); }
#endif
// a / b where a is often zero, which NVIDIA's sequence leaves to its slow part.
KILN_FN f32 quotient_or_zero(f32 a, f32 b) {
#if KILN_NVIDIA
  const f32 quotient = (a == 0.0f ? 1.0f : a) / b;
  const f32 zero = bit_cast<f32>((bit_cast<u32>(a) ^ bit_cast<u32>(b)) & 0x80000000u);
  const f32 of_zero = ::fabsf(b) > 0.0f ? zero : quotient * 0.0f;  // 0 / 0 and 0 / NaN are NaN
  return a == 0.0f ? of_zero : quotient;
#else
  return div(a, b);
#endif
}
// a / b where a is an integer of no more than 16 bits and b a constant from 2^-60 to 2^60. The
// product with the reciprocal, corrected once, is correctly rounded for all of these; compilers for
// GPUs make ten instructions and more of a quotient.
KILN_FN f32 quotient_of_integer(f32 a, f32 b) {
#if KILN_HOST
  return a / b;
#else
  const f32 reciprocal = 1.0f / b;  // by the compiler
  const f32 near = a * reciprocal;
  return ::fmaf(-::fmaf(near, b, -a), reciprocal, near);
#endif
}
// Exactly a at t = 0 and b at t = 1.
KILN_FN f32 lerp(f32 a, f32 b, f32 t) { return fma(t, b, fma(-t, a, a)); }
KILN_FN f64 lerp(f64 a, f64 b, f64 t) { return fma(t, b, fma(-t, a, a)); }

// The rounded quotient's floor is one too high where rounding reached the next integer, which shows
// in the sign of the exact a - floor * b: from one rounding in f64 for f32, from fma for f64.
KILN_FN f32 floor_divide(f32 a, f32 b) {
  const f32 q = floor(div(a, b));
  const f64 rest = f64(a) - f64(q) * f64(b);
  const f64 wrong_side = b < 0.0f ? rest : -rest;
  return wrong_side > 0.0 ? q - 1.0f : q;
}
KILN_FN f64 floor_divide(f64 a, f64 b) {
  const f64 q = floor(a / b);
  const f64 rest = fma(-q, b, a);
  const f64 wrong_side = b < 0.0 ? rest : -rest;
  return wrong_side > 0.0 ? q - 1.0 : q;
}
// The sign of the divisor, as in Python.
KILN_FN f32 remainder(f32 a, f32 b) {
  const f32 rest = fmod(a, b);
  const f32 moved = (rest < 0.0f) != (b < 0.0f) ? rest + b : rest;
  return rest == 0.0f ? copysign(rest, b) : moved;
}
KILN_FN f64 remainder(f64 a, f64 b) {
  const f64 rest = fmod(a, b);
  const f64 moved = (rest < 0.0) != (b < 0.0) ? rest + b : rest;
  return rest == 0.0 ? copysign(rest, b) : moved;
}

// ---- functions: the library's -------------------------------------------------------------------

namespace strict {

KILN_LIBRARY_1(cbrt, cbrt)
KILN_LIBRARY_1(exp, exp)
KILN_LIBRARY_1(exp2, exp2)
KILN_LIBRARY_1(log, log)
KILN_LIBRARY_1(log2, log2)
KILN_LIBRARY_1(log10, log10)
#if KILN_AMD
// The device library makes +0 of -0 in all but the log1p of f32. The results have the sign of x.
KILN_FN f32 expm1(f32 x) { return exact::copysign(::expm1f(x), x); }
KILN_FN f64 expm1(f64 x) { return exact::copysign(::expm1(x), x); }
KILN_FN f32 log1p(f32 x) { return ::log1pf(x); }
KILN_FN f64 log1p(f64 x) { return exact::copysign(::log1p(x), x); }
#else
KILN_LIBRARY_1(expm1, expm1)
KILN_LIBRARY_1(log1p, log1p)
#endif
KILN_LIBRARY_1(sin, sin)
KILN_LIBRARY_1(cos, cos)
KILN_LIBRARY_1(tan, tan)
KILN_LIBRARY_1(asin, asin)
KILN_LIBRARY_1(acos, acos)
KILN_LIBRARY_1(atan, atan)
KILN_LIBRARY_1(sinh, sinh)
KILN_LIBRARY_1(cosh, cosh)
KILN_LIBRARY_1(tanh, tanh)
KILN_LIBRARY_1(asinh, asinh)
KILN_LIBRARY_1(acosh, acosh)
KILN_LIBRARY_1(atanh, atanh)
KILN_LIBRARY_1(erf, erf)
KILN_LIBRARY_1(erfc, erfc)
// The argument's rounding moves the result by x^2 times as much as the result's own.
#if KILN_HOST
KILN_FN f32 ndtr(f32 x) { return f32(0.5 * __builtin_erfc(f64(x) * -0.70710678118654752)); }
KILN_FN f64 ndtr(f64 x) { return 0.5 * __builtin_erfc(x * -0.70710678118654752); }
#else
KILN_LIBRARY_1(ndtr, normcdf)
#endif
KILN_LIBRARY_2(power, pow)
KILN_LIBRARY_2(atan2, atan2)
KILN_LIBRARY_2(hypot, hypot)

#if KILN_HOST
// Left to the host's own: C has no rsqrt and no erfinv, and its lgamma writes a global variable.
KILN_FN f32 rsqrt(f32 x) { return 1.0f / sqrt(x); }
KILN_FN f64 rsqrt(f64 x) { return 1.0 / sqrt(x); }
KILN_FN f32 erfinv(f32 x) { return host::erfinv(x); }
KILN_FN f64 erfinv(f64 x) { return host::erfinv(x); }
KILN_FN f32 lgamma(f32 x) { return host::lgamma(x); }
KILN_FN f64 lgamma(f64 x) { return host::lgamma(x); }
#else
KILN_LIBRARY_1(rsqrt, rsqrt)
KILN_LIBRARY_1(erfinv, erfinv)
KILN_LIBRARY_1(lgamma, lgamma)
#endif

// No overflow on the way, and the small results of negative x in full.
KILN_FN f32 sigmoid(f32 x) {
  const f32 e = exp(-abs(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
KILN_FN f64 sigmoid(f64 x) {
  const f64 e = exp(-abs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}
KILN_FN f32 logaddexp(f32 a, f32 b) {
  const f32 log1p_e = log1p(exp(-abs(a - b)));
  return a == b ? a + 0.693147181f : maximum(a, b) + log1p_e;
}
KILN_FN f64 logaddexp(f64 a, f64 b) {
  const f64 log1p_e = log1p(exp(-abs(a - b)));
  return a == b ? a + 0.69314718055994531 : maximum(a, b) + log1p_e;
}

}  // namespace strict

// ---- functions: the default ---------------------------------------------------------------------

#if KILN_HOST
#define KILN_DEFAULT_1(op)                      \
  KILN_FN f32 op(f32 x) { return host::op(x); } \
  KILN_FN f64 op(f64 x) { return strict::op(x); }
#define KILN_DEFAULT_2(op)                                \
  KILN_FN f32 op(f32 a, f32 b) { return host::op(a, b); } \
  KILN_FN f64 op(f64 a, f64 b) { return strict::op(a, b); }
#else
#define KILN_DEFAULT_1(op) using strict::op;
#define KILN_DEFAULT_2(op) using strict::op;
#define KILN_GPU_1(op)                         \
  KILN_FN f32 op(f32 x) { return gpu::op(x); } \
  KILN_FN f64 op(f64 x) { return strict::op(x); }
#endif

using strict::rsqrt;
KILN_DEFAULT_1(cbrt)
KILN_DEFAULT_1(exp)
// Of what is known not to be above zero, or to be between 0 and 1, which saves a host instructions.
#if KILN_HOST
KILN_FN f32 exp_not_positive(f32 x) { return host::exp_of_negative(x); }
KILN_FN f32 log1p_of_fraction(f32 x) { return host::log1p_of_fraction(x); }
#else
KILN_FN f32 exp_not_positive(f32 x) { return exp(x); }
KILN_FN f32 log1p_of_fraction(f32 x) { return gpu::log1p(x); }
#endif
KILN_DEFAULT_1(exp2)
KILN_DEFAULT_1(expm1)
KILN_DEFAULT_1(log)
KILN_DEFAULT_1(log2)
KILN_DEFAULT_1(log10)
KILN_DEFAULT_1(sin)
KILN_DEFAULT_1(cos)
KILN_DEFAULT_1(tan)
KILN_DEFAULT_1(asin)
KILN_DEFAULT_1(acos)
KILN_DEFAULT_1(atan)
KILN_DEFAULT_1(sinh)
KILN_DEFAULT_1(cosh)
KILN_DEFAULT_1(tanh)
KILN_DEFAULT_1(asinh)
KILN_DEFAULT_1(acosh)
KILN_DEFAULT_1(atanh)
KILN_DEFAULT_1(erf)
KILN_DEFAULT_1(erfc)
KILN_DEFAULT_1(erfinv)
KILN_DEFAULT_1(lgamma)
#if KILN_HOST
KILN_DEFAULT_1(log1p)
KILN_DEFAULT_1(sigmoid)
#else
KILN_GPU_1(log1p)
KILN_GPU_1(sigmoid)
#undef KILN_GPU_1
#endif
KILN_DEFAULT_2(power)
KILN_DEFAULT_2(atan2)
KILN_DEFAULT_2(hypot)
KILN_DEFAULT_2(logaddexp)

// The standard normal distribution function. Below zero e^(-x^2/2) times a polynomial in
// v = 1 / (1 + 0.26 |x|), 2^-24.9 of it; above zero what that leaves of 1.
KILN_FN f32 ndtr(f32 x) {
#if KILN_HOST
  const auto madd = [](f32 a, f32 b, f32 c) { return host::madd(a, b, c); };
  const f32 v = 1.0f / madd(abs(x), 0.26f, 1.0f);
  const f32 e = host::exp_of_negative(x * x * -0.5f);
  const f32 rest = 1.0f;
#else
  const auto madd = [](f32 a, f32 b, f32 c) { return ::fmaf(a, b, c); };
  const f32 v = native::rcp(madd(abs(x), 0.26f, 1.0f));
  // In two halves, since the hardware's gives no results below f32's normal range.
  const f32 e = native::exp2(x * x * -0.360673760f);
  const f32 rest = e;
#endif
  f32 p = 0.0299602840f;
  p = madd(p, v, -0.150187865f);
  p = madd(p, v, 0.246045992f);
  p = madd(p, v, -0.144728571f);
  p = madd(p, v, 0.156652272f);
  p = madd(p, v, 0.0528596267f);
  p = madd(p, v, 0.102560088f);
  p = madd(p, v, 0.103083022f);
  p = madd(p, v, 0.103755139f);
  const f32 tail = p * v * e * rest;
  return x < 0.0f ? tail : 1.0f - tail;
}
KILN_FN f64 ndtr(f64 x) { return strict::ndtr(x); }

}  // namespace kiln

#undef KILN_EXACT_1
#undef KILN_EXACT_2
#undef KILN_PREDICATE
#undef KILN_OPERATOR
#undef KILN_LIBRARY_1
#undef KILN_LIBRARY_2
#undef KILN_DEFAULT_1
#undef KILN_DEFAULT_2
