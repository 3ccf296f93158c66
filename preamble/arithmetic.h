// Arithmetic of floats: exactly rounded, so the same at every accuracy but kiln::fast.
#pragma once

#include "division.h"
#include "integer.h"
#include "native.h"
#include "signs.h"

namespace kiln {

#define KILN_OPERATOR(op, symbol)                     \
  KILN_FN f32 op(f32 a, f32 b) { return a symbol b; } \
  KILN_FN f64 op(f64 a, f64 b) { return a symbol b; }
KILN_OPERATOR(add, +)
KILN_OPERATOR(sub, -)
KILN_OPERATOR(mul, *)
#if KILN_HOST
KILN_OPERATOR(div, /)
#else
KILN_FN f32 div(f32 a, f32 b) { return gpu::div(a, b); }
KILN_FN f64 div(f64 a, f64 b) { return gpu::div(a, b); }
#endif
KILN_LIBRARY_1(floor, floor)
KILN_LIBRARY_1(ceil, ceil)
KILN_LIBRARY_1(round, rint)
KILN_LIBRARY_1(trunc, trunc)
KILN_LIBRARY_2(fmod, fmod)
KILN_FN f32 square(f32 x) { return x * x; }
KILN_FN f64 square(f64 x) { return x * x; }
KILN_FN f32 reciprocal(f32 x) { return div(1.0f, x); }
KILN_FN f64 reciprocal(f64 x) { return div(1.0, x); }
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
// a / b where b is a constant from 2^-60 to 2^60, of which compilers for GPUs make ten instructions
// and more, with a branch. The product with the correctly rounded reciprocal, corrected once, is
// correctly rounded (Markstein, as in division.h) where neither it nor a remainder leaves f32's
// normal range, as for integers of no more than 16 bits, or where a is a zero, whose sign stays.
KILN_FN f32 quotient_of_integer(f32 a, f32 b) {
#if KILN_HOST
  return a / b;
#else
  const f32 reciprocal = 1.0f / b;  // by the compiler
  const f32 near = a * reciprocal;
  return ::fmaf(-::fmaf(near, b, -a), reciprocal, near);
#endif
}
KILN_FN f32 quotient_by_constant(f32 a, f32 b) {
#if KILN_HOST
  return a / b;
#else
  f32 quotient = quotient_of_integer(a, b);
  const f32 size = ::fabsf(a);
  const bool usual = size >= 1.35525272e-20f && size <= 1.15292150e18f;  // 2^-66, 2^60
  if (!usual && a != 0.0f) quotient = unusual_quotient(a, b);
  return quotient;
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
  const f64 q = floor(div(a, b));
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

KILN_AT_EVERY_ACCURACY(add)
KILN_AT_EVERY_ACCURACY(sub)
KILN_AT_EVERY_ACCURACY(mul)
KILN_AT_EVERY_ACCURACY(floor)
KILN_AT_EVERY_ACCURACY(ceil)
KILN_AT_EVERY_ACCURACY(round)
KILN_AT_EVERY_ACCURACY(trunc)
KILN_AT_EVERY_ACCURACY(fmod)
KILN_AT_EVERY_ACCURACY(square)
KILN_AT_EVERY_ACCURACY(fma)
KILN_AT_EVERY_ACCURACY(lerp)
KILN_AT_EVERY_ACCURACY(floor_divide)
KILN_AT_EVERY_ACCURACY(remainder)

namespace strict {

using kiln::div;
using kiln::reciprocal;

}  // namespace strict
namespace narrow {

using kiln::div;
using kiln::reciprocal;

}  // namespace narrow
namespace fast {

#if !KILN_HOST
KILN_FN f32 div(f32 a, f32 b) { return a * native::rcp(b); }
KILN_FN f32 reciprocal(f32 x) { return native::rcp(x); }
KILN_FN f64 div(f64 a, f64 b) { return kiln::div(a, b); }
KILN_FN f64 reciprocal(f64 x) { return kiln::reciprocal(x); }
#else
using kiln::div;
using kiln::reciprocal;
#endif

}  // namespace fast

}  // namespace kiln
