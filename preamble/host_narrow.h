// Functions for host compilers whose results end in f16 or bf16: 2^-18 of the exact ones, where f16
// needs 2^-17.6 and bf16 2^-14.6 to stay within 0.51 ULP. Branch-free.
#pragma once

#include "host_math.h"

#if KILN_HOST
namespace kiln {

namespace host {

// 2^t for t in [-127, 128], at whose ends it is 0 and infinity; NaN stays. The lowest bits of the
// sum with kShift are the exponent.
KILN_FN f32 narrow_exp2(f32 t) {
  constexpr f32 kShift = kToInteger + 127.0f;
  const f32 shifted = t + kShift;
  const f32 r = t - (shifted - kShift);
  f32 p = 0.00957092736f;  // 2^-18.6
  p = madd(p, r, 0.0559176877f);
  p = madd(p, r, 0.240247145f);
  p = madd(p, r, 0.69312185f);
  p = madd(p, r, 0.999999285f);
  return p * bit_cast<f32>(bit_cast<u32>(shifted) << 23);
}

// Computed 2^24 larger, which leaves bf16's subnormals in the normal range until the end.
constexpr f32 kNarrowUnit = 5.96046448e-08f;

KILN_FN f32 narrow_exp_of_negative(f32 x) {
  const f32 t = madd(x, kLog2E, 24.0f);
  return narrow_exp2(t < -127.0f ? -127.0f : t) * kNarrowUnit;
}

// 1 / (1 + e^-x), all of it 2^16 smaller on the way, so that no exponential overflows where the
// result is one of bf16's subnormals.
KILN_FN f32 narrow_sigmoid(f32 x) {
  const f32 e = narrow_exp2(clamp(madd(x, -kLog2E, -16.0f), -127.0f, 128.0f));
  return 1.52587891e-05f / (1.52587891e-05f + e);
}

// A quotient of polynomials in x^2, 2^-20.7, as far as where the result is 1.
KILN_FN f32 narrow_tanh(f32 x) {
  const f32 a = clamp(x, -9.0f, 9.0f);
  const f32 z = a * a;
  f32 p = -4.99813329e-09f;
  p = madd(p, z, 6.48343283e-06f);
  p = madd(p, z, 0.00260216430f);
  p = madd(p, z, 0.126182748f);
  p = madd(p, z, 0.999999416f);
  f32 q = 0.000184847141f;
  q = madd(q, z, 0.0224448079f);
  q = madd(q, z, 0.459511775f);
  q = madd(q, z, 1.0f);
  return a * p / q;
}

// As kiln::ndtr: e^(-x^2/2) times a polynomial in v = 1 / (1 + 0.36 |x|), 2^-19.8 of it.
KILN_FN f32 narrow_ndtr(f32 x) {
  const f32 v = 1.0f / madd(magnitude(x), 0.36f, 1.0f);
  const f32 t = madd(x * x, -0.721347520f, 24.0f);
  const f32 w = v * v;
  f32 p = madd(0.0465225503f * kNarrowUnit, w,
               madd(-0.177935645f * kNarrowUnit, v, 0.178466305f * kNarrowUnit));
  p = madd(p, w, madd(0.0282574166f * kNarrowUnit, v, 0.139099002f * kNarrowUnit));
  p = madd(p, w, madd(0.141884670f * kNarrowUnit, v, 0.143705189f * kNarrowUnit));
  const f32 tail = p * v * narrow_exp2(t < -127.0f ? -127.0f : t);
  return x < 0.0f ? tail : 1.0f - tail;
}

}  // namespace host

}  // namespace kiln
#endif
