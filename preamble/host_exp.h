// Exponentials of f32 on the host.
#pragma once

#include "host_math.h"

#if KILN_HOST
namespace kiln {

namespace host {

// x = n ln 2 + r with |r| <= ln 2 / 2.
struct ExpArgument {
  f32 r;
  u32 n;
};
KILN_FN ExpArgument reduce_exp(f32 x) {
  const f32 shifted = madd(x, kLog2E, kToInteger);
  const f32 n = shifted - kToInteger;
  const f32 r = madd(n, -kLn2Low, madd(n, -kLn2High, x));
  return {r, integer_bits(shifted)};
}

// e^r - 1 for |r| <= ln 2 / 2: 2^-26 of itself.
KILN_FN f32 expm1_series(f32 r) {
  f32 p = 0.00138825015f;
  p = madd(p, r, 0.00836664718f);
  p = madd(p, r, 0.0416672044f);
  p = madd(p, r, 0.16666542f);
  p = madd(p, r, 0.49999997f);
  return madd(r * r, p, r);
}

// What is too small is 0 by a factor of 0: a product that underflows can take a hundred times as
// long, and what a mask leaves out of a softmax is -infinity.
KILN_FN f32 exp(f32 x) {
  const ExpArgument a = reduce_exp(clamp(x, -104.0f, 89.0f));
  const u32 half = a.n >> 1;
  const f32 part = (1.0f + expm1_series(a.r)) * power_of_two(half);
  return part * (x < -103.972084f ? 0.0f : power_of_two(a.n - half));
}

// The same with 2^(n + more) in place of n, where that is a power that power_of_two() knows: its
// exponent is in the lowest bits of the sum.
struct ScaledArgument {
  f32 r;
  f32 power;
};
KILN_FN ScaledArgument reduce_exp(f32 x, f32 more) {
  const f32 shift = kToInteger + 127.0f + more;
  const f32 shifted = madd(x, kLog2E, shift);
  const f32 n = shifted - shift;
  const f32 r = madd(n, -kLn2Low, madd(n, -kLn2High, x));
  return {r, bit_cast<f32>(bit_cast<u32>(shifted) << 23)};
}

// For an x that is not above zero. e^r is computed 2^24 smaller, so that the power that it is
// scaled by is normal, or 0 where the result is.
KILN_FN f32 exp_of_negative(f32 x) {
  constexpr f32 kUnit = 5.96046448e-08f;
  const ScaledArgument a = reduce_exp(x < -104.4f ? -104.4f : x, 24.0f);
  f32 p = 0.00138207339f * kUnit;  // (e^r - 1 - r) / r^2: 2^-28.3 of e^r
  p = madd(p, a.r, 0.00836867746f * kUnit);
  p = madd(p, a.r, 0.0416682661f * kUnit);
  p = madd(p, a.r, 0.166665211f * kUnit);
  p = madd(p, a.r, 0.49999994f * kUnit);
  p = madd(p, a.r, kUnit);
  p = madd(p, a.r, kUnit);
  return p * a.power;
}

KILN_FN f32 exp2(f32 x) {
  const f32 inside = clamp(x, -151.0f, 129.0f);
  const f32 shifted = inside + kToInteger;
  const f32 r = inside - (shifted - kToInteger);
  f32 p = 0.000154769572f;  // (2^r - 1) / r: 2^-28.9
  p = madd(p, r, 0.00134008052f);
  p = madd(p, r, 0.00961800199f);
  p = madd(p, r, 0.0555032641f);
  p = madd(p, r, 0.240226507f);
  p = madd(p, r, 0.693147182f);
  return scale(madd(r, p, 1.0f), integer_bits(shifted));
}

// For x in [-18, 89]: 2^n (e^r - 1) + (2^n - 1), at half its size so that 2^128 is not met.
KILN_FN f32 expm1_inside(f32 x) {
  const ExpArgument a = reduce_exp(x);
  const f32 p = expm1_series(a.r);
  const f32 half = power_of_two(a.n - 1);
  return a.n == integer_bits(kToInteger) ? p : madd(half, p, half - 0.5f) * 2.0f;
}

KILN_FN f32 expm1(f32 x) { return with_sign(expm1_inside(clamp(x, -18.0f, 89.0f)), x); }

// e^2a - 1 over e^2a + 1.
KILN_FN f32 tanh(f32 x) {
  const f32 a = magnitude(x);
  const f32 inside = a > 10.0f ? 10.0f : a;
  const ScaledArgument twice = reduce_exp(inside + inside, 0.0f);
  const f32 t = madd(twice.power, expm1_series(twice.r), twice.power - 1.0f);
  return bit_cast<f32>(bit_cast<u32>(t / (t + 2.0f)) | (bit_cast<u32>(x) & 0x80000000u));
}

KILN_FN f32 sigmoid(f32 x) {
  const f32 e = exp_of_negative(-magnitude(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

}  // namespace host

}  // namespace kiln
#endif
