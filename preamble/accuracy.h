// The cheaper methods: kiln::narrow for values that end in f16 or bf16, whose stored result stays
// within 0.51 ULP of the exact one, and kiln::fast for what Accuracy::fast allows on top. What has
// no cheaper method is the default.
#pragma once

namespace kiln {

// Operations that are the same at every accuracy, and functions that have one method besides
// strict.
#define KILN_USE_EXACT      \
  using kiln::abs;          \
  using kiln::neg;          \
  using kiln::sign;         \
  using kiln::copysign;     \
  using kiln::maximum;      \
  using kiln::minimum;      \
  using kiln::fmax;         \
  using kiln::fmin;         \
  using kiln::nextafter;    \
  using kiln::add;          \
  using kiln::sub;          \
  using kiln::mul;          \
  using kiln::floor;        \
  using kiln::ceil;         \
  using kiln::round;        \
  using kiln::trunc;        \
  using kiln::fmod;         \
  using kiln::clip;         \
  using kiln::square;       \
  using kiln::fma;          \
  using kiln::lerp;         \
  using kiln::floor_divide; \
  using kiln::remainder;
#define KILN_USE_COMMON \
  using kiln::cbrt;     \
  using kiln::expm1;    \
  using kiln::asin;     \
  using kiln::acos;     \
  using kiln::atan;     \
  using kiln::sinh;     \
  using kiln::cosh;     \
  using kiln::asinh;    \
  using kiln::acosh;    \
  using kiln::atanh;    \
  using kiln::erf;      \
  using kiln::erfc;     \
  using kiln::erfinv;   \
  using kiln::lgamma;   \
  using kiln::atan2;    \
  using kiln::hypot;    \
  using kiln::logaddexp;

namespace strict {
KILN_USE_EXACT
using kiln::div;
using kiln::reciprocal;
using kiln::sqrt;
}  // namespace strict

namespace narrow {

#if !KILN_HOST
// The error of x log2(e), 2^-24 of at most 128, is the result's relative error: 2^-17.5 where bf16
// needs 2^-14.6, and for f16, whose results end at 2^16, 2^-20.5 where it needs 2^-17.6. Results
// below f32's normal range are computed 2^64 larger, for bf16's subnormals.
KILN_FN f32 exp(f32 x) {
  const f32 t = x * 1.44269504f;
  const bool tiny = t < -125.0f;
  return native::exp2(tiny ? t + 64.0f : t) * (tiny ? 5.42101086e-20f : 1.0f);
}
// The same where x is not positive: all results are computed 2^24 larger, which leaves none below
// the normal range. The error is that of a sum between 24 and -126, 2^-20 where f16 has results.
KILN_FN f32 exp_not_positive(f32 x) {
  return native::exp2(::fmaf(x, 1.44269504f, 24.0f)) * 5.96046448e-08f;
}
// A term of a sum that has one term of 1 and none above it, which is infinite where x is. The
// hardware is off by 2^-22 of the term, the product's rounding by less than 2^-24 of 1, and what
// becomes 0 below the normal range is not seen.
KILN_FN f32 exp_term(f32 x) { return native::exp2(x * 1.44269504f); }
KILN_FN f32 exp_term_not_positive(f32 x) { return exp_term(x); }
// 1 / (1 + e^-x), all of it 2^16 smaller on the way, so that neither the exponential overflows nor
// the reciprocal underflows where the result is one of bf16's subnormals. The exponent's error,
// 2^-19 where f16 has results, is the result's: 2^-19.5.
KILN_FN f32 sigmoid(f32 x) {
  const f32 e = native::exp2(::fmaf(x, -1.44269504f, -16.0f));
  return native::rcp(1.52587891e-05f + e) * 1.52587891e-05f;
}
// From 0.1 on as 1 - 2 / (e^2x + 1), whose error is 2^-21.5, 2^-18.1 of the result there, and which
// is 1 where the exponential overflows; below, an odd polynomial (2^-18.7) that keeps the sign of a
// zero. f16 needs 2^-17.6.
KILN_FN f32 tanh(f32 x) {
  const f32 far = ::fmaf(-2.0f, native::rcp(1.0f + native::exp2(x * 2.88539008f)), 1.0f);
  const f32 near = x * ::fmaf(x * x, -0.33222877f, 1.0f);
  return ::fabsf(x) < 0.1f ? near : far;
}
KILN_FN f64 exp(f64 x) { return kiln::exp(x); }
using kiln::ndtr;
#else
using kiln::exp;
KILN_FN f32 exp_not_positive(f32 x) { return host::narrow_exp_of_negative(x); }
KILN_FN f32 exp_term(f32 x) { return kiln::exp(x); }
KILN_FN f32 exp_term_not_positive(f32 x) { return kiln::exp_not_positive(x); }
KILN_FN f32 sigmoid(f32 x) { return host::narrow_sigmoid(x); }
KILN_FN f32 tanh(f32 x) { return host::narrow_tanh(x); }
KILN_FN f32 ndtr(f32 x) { return host::narrow_ndtr(x); }
KILN_FN f64 ndtr(f64 x) { return kiln::ndtr(x); }
#endif
KILN_FN f64 sigmoid(f64 x) { return kiln::sigmoid(x); }
KILN_FN f64 tanh(f64 x) { return kiln::tanh(x); }

KILN_USE_EXACT
KILN_USE_COMMON
using kiln::cos;
using kiln::div;
using kiln::exp2;
using kiln::log;
using kiln::log10;
using kiln::log1p;
using kiln::log1p_of_fraction;
using kiln::log2;
using kiln::power;
using kiln::reciprocal;
using kiln::rsqrt;
using kiln::sin;
using kiln::sqrt;
using kiln::tan;

}  // namespace narrow

namespace fast {

#if !KILN_HOST
KILN_FN f32 div(f32 a, f32 b) { return a * native::rcp(b); }
KILN_FN f32 sqrt(f32 x) { return native::sqrt(x); }
KILN_FN f32 rsqrt(f32 x) { return native::rsqrt(x); }
KILN_FN f32 reciprocal(f32 x) { return native::rcp(x); }
KILN_FN f32 exp(f32 x) { return native::exp2(x * 1.44269504f); }
KILN_FN f32 exp2(f32 x) { return native::exp2(x); }
KILN_FN f32 log(f32 x) { return native::log2(x) * 0.693147181f; }
KILN_FN f32 log2(f32 x) { return native::log2(x); }
KILN_FN f32 log10(f32 x) { return native::log2(x) * 0.301029996f; }
// Near zero the first terms of the series, since the logarithm's error there is 2^-22 of 1.
KILN_FN f32 log1p(f32 x) {
  const f32 near = x * (1.0f - x * (0.5f - x * 0.333333333f));
  return abs(x) < 0.0156f ? near : native::log2(1.0f + x) * 0.693147181f;
}
KILN_FN f64 log1p(f64 x) { return kiln::log1p(x); }
KILN_FN f32 sin(f32 x) { return native::sin(x); }
KILN_FN f32 cos(f32 x) { return native::cos(x); }
KILN_FN f32 tan(f32 x) { return native::sin(x) * native::rcp(native::cos(x)); }
KILN_FN f32 sigmoid(f32 x) { return native::rcp(1.0f + exp(-x)); }
#if KILN_NVIDIA && __CUDA_ARCH__ >= 750
KILN_FN f32 tanh(f32 x) { return native::tanh(x); }
#else
KILN_FN f32 tanh(f32 x) { return narrow::tanh(x); }
#endif
// The library's for what the logarithm of |x| cannot tell: negative bases.
KILN_FN f32 power(f32 x, f32 y) {
  return x > 0.0f ? native::exp2(y * native::log2(x)) : kiln::power(x, y);
}
KILN_FN f64 power(f64 x, f64 y) { return kiln::power(x, y); }
KILN_FN f64 div(f64 a, f64 b) { return a / b; }
KILN_FN f64 sqrt(f64 x) { return kiln::sqrt(x); }
KILN_FN f64 reciprocal(f64 x) { return kiln::reciprocal(x); }
KILN_FN f64 exp(f64 x) { return kiln::exp(x); }
KILN_FN f64 exp2(f64 x) { return kiln::exp2(x); }
KILN_FN f64 log(f64 x) { return kiln::log(x); }
KILN_FN f64 log2(f64 x) { return kiln::log2(x); }
KILN_FN f64 log10(f64 x) { return kiln::log10(x); }
KILN_FN f64 sin(f64 x) { return kiln::sin(x); }
KILN_FN f64 cos(f64 x) { return kiln::cos(x); }
KILN_FN f64 tan(f64 x) { return kiln::tan(x); }
KILN_FN f64 tanh(f64 x) { return kiln::tanh(x); }
KILN_FN f64 sigmoid(f64 x) { return kiln::sigmoid(x); }
KILN_FN f64 rsqrt(f64 x) { return kiln::rsqrt(x); }
#else
using kiln::cos;
using kiln::div;
using kiln::exp;
using kiln::exp2;
using kiln::log;
using kiln::log10;
using kiln::log1p;
using kiln::log2;
using kiln::power;
using kiln::reciprocal;
using kiln::rsqrt;
using kiln::sigmoid;
using kiln::sin;
using kiln::sqrt;
using kiln::tan;
using kiln::tanh;
#endif

KILN_USE_EXACT
KILN_USE_COMMON
using kiln::ndtr;

}  // namespace fast

#undef KILN_USE_EXACT
#undef KILN_USE_COMMON

}  // namespace kiln
