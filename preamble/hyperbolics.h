// Hyperbolic functions and their inverses, but for tanh.
#pragma once

#include "host_exp.h"
#include "host_wide.h"
#include "math.h"

namespace kiln {

#if KILN_HOST
namespace host {

KILN_FN f32 sinh(f32 x) {
  const f64 a = wide_magnitude(x);
  const f64 e = wide_exp2(a * kWideLog2E);
  const f64 z = a * a;
  // Below 1/4 the difference of exponentials cancels; the Taylor series has 2^-45 there.
  const f64 p = ((z * (1.0 / 362880) + 1.0 / 5040) * z + 1.0 / 120) * z + 1.0 / 6;
  return with_sign(f32(a < 0.25 ? a + a * z * p : 0.5 * (e - 1.0 / e)), x);
}
KILN_FN f32 cosh(f32 x) {
  const f64 e = wide_exp2(wide_magnitude(x) * kWideLog2E);
  return f32(0.5 * (e + 1.0 / e));
}
KILN_FN f32 asinh(f32 x) {
  const f64 a = wide_magnitude(x);
  const f64 z = a * a;
  // The Taylor series has 2^-43 below 1/16.
  const f64 p = ((z * (35.0 / 1152) - 15.0 / 336) * z + 3.0 / 40) * z - 1.0 / 6;
  const f64 far = wide_log(a + __builtin_sqrt(z + 1.0));
  return with_sign(f32(a < 0.0625 ? a + a * z * p : far), x);
}
KILN_FN f32 acosh(f32 x) {
  const f64 a = x;
  return x < 1.0f ? kNan : f32(wide_log(a + __builtin_sqrt(a * a - 1.0)));
}
KILN_FN f32 atanh(f32 x) {
  const f64 a = wide_magnitude(x);
  const f64 z = a * a;
  const f64 p = ((z * (1.0 / 9) + 1.0 / 7) * z + 1.0 / 5) * z + 1.0 / 3;  // 2^-43 below 1/16
  const f64 far = 0.5 * wide_log((1.0 + a) / (1.0 - a));
  return a > 1.0 ? kNan : with_sign(f32(a < 0.0625 ? a + a * z * p : far), x);
}

}  // namespace host
#endif

namespace strict {

KILN_LIBRARY_1(sinh, sinh)
KILN_LIBRARY_1(cosh, cosh)
KILN_LIBRARY_1(asinh, asinh)
KILN_LIBRARY_1(acosh, acosh)
KILN_LIBRARY_1(atanh, atanh)

}  // namespace strict
KILN_DEFAULT_1(sinh)
KILN_DEFAULT_1(cosh)
KILN_DEFAULT_1(asinh)
KILN_DEFAULT_1(acosh)
KILN_DEFAULT_1(atanh)
KILN_AT_LOWER_ACCURACY(sinh)
KILN_AT_LOWER_ACCURACY(cosh)
KILN_AT_LOWER_ACCURACY(asinh)
KILN_AT_LOWER_ACCURACY(acosh)
KILN_AT_LOWER_ACCURACY(atanh)

}  // namespace kiln
