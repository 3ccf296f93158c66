// The standard normal distribution function.
#pragma once

#include "host_exp.h"
#include "host_narrow.h"
#include "native.h"
#include "signs.h"

namespace kiln {

namespace strict {

// The argument's rounding moves the result by x^2 times as much as the result's own.
#if KILN_HOST
KILN_FN f32 ndtr(f32 x) { return f32(0.5 * __builtin_erfc(f64(x) * -0.70710678118654752)); }
KILN_FN f64 ndtr(f64 x) { return 0.5 * __builtin_erfc(x * -0.70710678118654752); }
#else
KILN_LIBRARY_1(ndtr, normcdf)
#endif

}  // namespace strict

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

namespace narrow {

#if !KILN_HOST
using kiln::ndtr;
#else
KILN_FN f32 ndtr(f32 x) { return host::narrow_ndtr(x); }
KILN_FN f64 ndtr(f64 x) { return kiln::ndtr(x); }
#endif

}  // namespace narrow
namespace fast {

using kiln::ndtr;

}  // namespace fast

}  // namespace kiln
