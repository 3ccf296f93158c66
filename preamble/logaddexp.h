// The logarithm of a sum of two exponentials.
#pragma once

#include "exp.h"
#include "host_wide.h"
#include "log.h"
#include "order.h"

namespace kiln {

#if KILN_HOST
namespace host {

// The larger plus log(1 + e^-|difference|); log(1 + e) is log(u) e / (u - 1) for u = 1 + e rounded.
KILN_FN f32 logaddexp(f32 a, f32 b) {
  const f64 x = a;
  const f64 y = b;
  const f64 larger = x > y ? x : y;
  const f64 difference = x > y ? y - x : x - y;
  const f64 e = wide_exp2(difference * kWideLog2E);
  const f64 u = 1.0 + e;
  const f64 log1p = u == 1.0 ? e : wide_log(u) * (e / (u - 1.0));
  const f32 result = f32(larger + log1p);
  return a == b && magnitude(a) == kInf ? a : a == a && b == b ? result : kNan;
}

}  // namespace host
#endif

namespace strict {

KILN_FN f32 logaddexp(f32 a, f32 b) {
  const f32 log1p_e = log1p(exp(-abs(a - b)));
  return a == b ? a + 0.693147181f : maximum(a, b) + log1p_e;
}
KILN_FN f64 logaddexp(f64 a, f64 b) {
  const f64 log1p_e = log1p(exp(-abs(a - b)));
  return a == b ? a + 0.69314718055994531 : maximum(a, b) + log1p_e;
}

}  // namespace strict

KILN_DEFAULT_2(logaddexp)
KILN_AT_LOWER_ACCURACY(logaddexp)

}  // namespace kiln
