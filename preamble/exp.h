// Exponentials, and the functions of one exponential: sigmoid, tanh.
#pragma once

#include "host_exp.h"
#include "host_narrow.h"
#include "native.h"
#include "signs.h"

namespace kiln {

#if !KILN_HOST
namespace gpu {

// No overflow on the way, and the small results of negative x in full.
KILN_FN f32 sigmoid(f32 x) {
  const f32 e = ::expf(-bit_cast<f32>(bit_cast<u32>(x) & 0x7fffffffu));
  const f32 d = 1.0f + e;
  const f32 r = native::rcp(d);
  return (x < 0.0f ? e : 1.0f) * ::fmaf(r, ::fmaf(-d, r, 1.0f), r);
}

}  // namespace gpu
#endif

namespace strict {

KILN_LIBRARY_1(exp, exp)
KILN_LIBRARY_1(exp2, exp2)
KILN_LIBRARY_1(tanh, tanh)
#if KILN_AMD
// The device library makes +0 of -0 in all but the log1p of f32. The results have the sign of x.
KILN_FN f32 expm1(f32 x) { return exact::copysign(::expm1f(x), x); }
KILN_FN f64 expm1(f64 x) { return exact::copysign(::expm1(x), x); }
#else
KILN_LIBRARY_1(expm1, expm1)
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

}  // namespace strict

KILN_DEFAULT_1(exp)
KILN_DEFAULT_1(exp2)
KILN_DEFAULT_1(expm1)
KILN_DEFAULT_1(tanh)
#if KILN_HOST
KILN_DEFAULT_1(sigmoid)
#else
KILN_GPU_1(sigmoid)
#endif
// Of what is known not to be above zero, which saves a host instructions.
#if KILN_HOST
KILN_FN f32 exp_not_positive(f32 x) { return host::exp_of_negative(x); }
#else
KILN_FN f32 exp_not_positive(f32 x) { return exp(x); }
#endif

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
// Near zero a polynomial, 2^-21.9 of the result; from 0.125 on the difference, which makes the
// exponential's error 2^-18.9 of it.
KILN_FN f32 expm1(f32 x) {
  const f32 far = native::exp2(x * 1.44269504f) - 1.0f;
  f32 p = ::fmaf(0.0416666642f, x, 0.166796863f);
  p = ::fmaf(p, x, 0.500000238f);
  p = ::fmaf(p, x, 0.999999762f);
  return ::fabsf(x) < 0.125f ? p * x : far;
}
KILN_FN f64 exp(f64 x) { return kiln::exp(x); }
KILN_FN f64 expm1(f64 x) { return kiln::expm1(x); }
#else
using kiln::exp;
using kiln::expm1;
KILN_FN f32 exp_not_positive(f32 x) { return host::narrow_exp_of_negative(x); }
KILN_FN f32 exp_term(f32 x) { return kiln::exp(x); }
KILN_FN f32 exp_term_not_positive(f32 x) { return kiln::exp_not_positive(x); }
KILN_FN f32 sigmoid(f32 x) { return host::narrow_sigmoid(x); }
KILN_FN f32 tanh(f32 x) { return host::narrow_tanh(x); }
#endif
KILN_FN f64 sigmoid(f64 x) { return kiln::sigmoid(x); }
KILN_FN f64 tanh(f64 x) { return kiln::tanh(x); }
using kiln::exp2;

}  // namespace narrow
namespace fast {

using kiln::expm1;
#if !KILN_HOST
KILN_FN f32 exp(f32 x) { return native::exp2(x * 1.44269504f); }
KILN_FN f32 exp2(f32 x) { return native::exp2(x); }
KILN_FN f32 sigmoid(f32 x) { return native::rcp(1.0f + exp(-x)); }
#if KILN_NVIDIA && __CUDA_ARCH__ >= 750
KILN_FN f32 tanh(f32 x) { return native::tanh(x); }
#else
KILN_FN f32 tanh(f32 x) { return narrow::tanh(x); }
#endif
KILN_FN f64 exp(f64 x) { return kiln::exp(x); }
KILN_FN f64 exp2(f64 x) { return kiln::exp2(x); }
KILN_FN f64 tanh(f64 x) { return kiln::tanh(x); }
KILN_FN f64 sigmoid(f64 x) { return kiln::sigmoid(x); }
#else
using kiln::exp;
using kiln::exp2;
using kiln::sigmoid;
using kiln::tanh;
#endif

}  // namespace fast

}  // namespace kiln
