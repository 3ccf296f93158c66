// The f32 functions of long chains, for host compilers: branch-free polynomials that g++ and clang
// vectorise, with NaN, infinities, zeros and subnormals right. Functions that need more than
// f32's precision on the way are in math_host_wide.h.
#pragma once

#if KILN_HOST
namespace kiln {
namespace host {

// Minimax coefficients were fitted with the Remez algorithm; each comment gives the relative error
// of the exact polynomial, before rounding.

constexpr f32 kInf = __builtin_inff();
constexpr f32 kNan = __builtin_nanf("");
constexpr f32 kLog2E = 1.44269504f;
// ln 2 in two parts, the first with so few bits that its product with an exponent is exact.
constexpr f32 kLn2High = 0.693359375f;
constexpr f32 kLn2Low = -2.12194440e-4f;
// Adding and subtracting this rounds to an integer, which is left in the sum's low bits.
constexpr f32 kToInteger = 12582912.0f;

// a b + c: in one instruction where the CPU has one, which saves the polynomials half of their time
// and a rounding in each step.
#ifdef __FMA__
KILN_FN f32 madd(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
KILN_FN f64 madd(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }
#else
KILN_FN f32 madd(f32 a, f32 b, f32 c) { return a * b + c; }
KILN_FN f64 madd(f64 a, f64 b, f64 c) { return a * b + c; }
#endif

KILN_FN f32 magnitude(f32 x) { return bit_cast<f32>(bit_cast<u32>(x) & 0x7fffffffu); }
KILN_FN f32 with_sign(f32 x, f32 sign) {
  return bit_cast<f32>((bit_cast<u32>(x) & 0x7fffffffu) | (bit_cast<u32>(sign) & 0x80000000u));
}
// Keeps NaN.
KILN_FN f32 clamp(f32 x, f32 low, f32 high) {
  const f32 above = x < low ? low : x;
  return above > high ? high : above;
}

// The bits of n + kToInteger, for an n in [-252, 254]. Those of kToInteger itself are beyond what a
// shift into an exponent's place, also of a half of them, leaves.
KILN_FN u32 integer_bits(f32 shifted) { return bit_cast<u32>(shifted); }

// 2^n for n in [-126, 127]; at -127, zero, and at 128, infinity.
KILN_FN f32 power_of_two(u32 n) { return bit_cast<f32>((n << 23) + 0x3f800000u); }

// x * 2^n, in two steps, of which only the second can round.
KILN_FN f32 scale(f32 x, u32 n) {
  const u32 half = n >> 1;
  return x * power_of_two(half) * power_of_two(n - half);
}

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

// x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), for a positive normal x.
struct LogArgument {
  f32 f;
  f32 e;
};
KILN_FN LogArgument reduce_log(f32 x) {
  constexpr u32 kSqrtHalf = 0x3f3504f3u;
  const u32 offset = bit_cast<u32>(x) - kSqrtHalf;
  const f32 e = f32(i32(offset) >> 23);
  return {bit_cast<f32>((offset & 0x7fffffu) + kSqrtHalf) - 1.0f, e};
}

// log(1 + f) + e ln 2 + correction; the polynomial gives log(1 + f): 2^-30.3.
KILN_FN f32 log_series(LogArgument a, f32 correction) {
  const f32 f = a.f;
  f32 p = 0.0674719736f;
  p = madd(p, f, -0.116758905f);
  p = madd(p, f, 0.118880339f);
  p = madd(p, f, -0.124055393f);
  p = madd(p, f, 0.142195642f);
  p = madd(p, f, -0.166679993f);
  p = madd(p, f, 0.200021178f);
  p = madd(p, f, -0.250000089f);
  p = madd(p, f, 0.333333135f);
  const f32 square = f * f;
  const f32 tail = madd(-0.5f, square, madd(f * square, p, madd(a.e, kLn2Low, correction)));
  return madd(a.e, kLn2High, f + tail);
}

// What a logarithm gives outside the positive finite numbers; at zero, minus infinity.
KILN_FN f32 log_domain(f32 x, f32 inside) {
  const f32 positive = x == kInf ? kInf : inside;
  return x > 0.0f ? positive : x == 0.0f ? -kInf : kNan;
}

KILN_FN f32 log(f32 x) {
  const bool subnormal = x < 1.17549435e-38f;
  LogArgument a = reduce_log(subnormal ? x * 8388608.0f : x);
  a.e = subnormal ? a.e - 23.0f : a.e;
  return log_domain(x, log_series(a, 0.0f));
}

// With u = 1 + x rounded, log(1 + x) = log(u) + (1 + x - u) / u. Where u's exponent is 0, x itself
// is f.
KILN_FN f32 log1p(f32 x) {
  const f32 u = 1.0f + x;
  LogArgument a = reduce_log(u);
  const f32 lost = x >= 1.0f ? 1.0f - (u - x) : x - (u - 1.0f);
  const bool near = a.e == 0.0f;
  a.f = near ? x : a.f;
  const f32 result = log_series(a, near ? 0.0f : lost / u);
  return x == 0.0f ? x : log_domain(u, result);
}

// The same for an x in [0, 1]: 2^-27.5, within an ULP if no product is rounded.
#ifdef __FMA__
KILN_FN f32 log1p_of_fraction(f32 x) {
  const f32 z = x * x;
  f32 p = madd(-0.00329107977f, x, 0.0200884696f);
  p = madd(p, z, madd(-0.0574604869f, x, 0.106613711f));
  p = madd(p, z, madd(-0.153449774f, x, 0.196921214f));
  p = madd(p, z, madd(-0.249580204f, x, 0.333304644f));
  return madd(madd(p, x, -0.499999315f), z, x);
}
#else
KILN_FN f32 log1p_of_fraction(f32 x) { return log1p(x); }
#endif

KILN_FN f32 erf(f32 x) {
  const f32 a = magnitude(x);
  const f32 z = x * x;
  f32 p = -8.58256408e-06f;  // erf(x) / x - 1 up to 1.125: 2^-32.2
  p = madd(p, z, 0.000108632426f);
  p = madd(p, z, -0.000842528534f);
  p = madd(p, z, 0.00521677407f);
  p = madd(p, z, -0.0268638488f);
  p = madd(p, z, 0.112837546f);
  p = madd(p, z, -0.376126379f);
  p = madd(p, z, 0.128379166f);
  const f32 near = madd(a, p, a);
  // From there to where it vanishes beside 1, erfc: 2^-27.9, absolute.
  const f32 u = ((a > 3.9375f ? 3.9375f : a) - 2.53125f) * 0.711111111f;
  f32 q = -8.61465232e-05f;
  q = madd(q, u, -0.000102169528f);
  q = madd(q, u, 0.000853027799f);
  q = madd(q, u, -0.000418370764f);
  q = madd(q, u, -0.00250612036f);
  q = madd(q, u, 0.00514807599f);
  q = madd(q, u, -0.00291976845f);
  q = madd(q, u, -0.00663358718f);
  q = madd(q, u, 0.0206630044f);
  q = madd(q, u, -0.0307950731f);
  q = madd(q, u, 0.0301406812f);
  q = madd(q, u, -0.0203872621f);
  q = madd(q, u, 0.00931726675f);
  q = madd(q, u, -0.00261748885f);
  q = madd(q, u, 0.00034395259f);
  return with_sign(a < 1.125f ? near : 1.0f - q, x);
}

}  // namespace host
}  // namespace kiln
#endif
