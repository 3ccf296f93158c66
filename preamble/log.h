// Logarithms.
#pragma once

#include "host_wide.h"
#include "native.h"
#include "signs.h"

namespace kiln {

#if !KILN_HOST
namespace gpu {

// 1 + x = 2^e (1 + f) with 1 + f in [2/3, 4/3): f is exact but for one rounding, since 2^-e x and
// 2^-e - 1 are exact where they matter.
KILN_FN f32 log1p(f32 x) {
  const f32 u = 1.0f + x;
  const u32 e = (bit_cast<u32>(u) - 0x3f2aaaabu) & 0xff800000u;
  const f32 quarter = bit_cast<f32>(0x40800000u - e);  // 2^(2 - e): 2^-e alone may be subnormal
  const f32 f = bit_cast<f32>(bit_cast<u32>(x) - e) - ::fmaf(-0.25f, quarter, 1.0f);
  f32 p = 0.14372629f;  // (log(1 + f) - f) / f^2: 2^-25.1 of the logarithm
  p = ::fmaf(p, f, -0.15370686f);
  p = ::fmaf(p, f, 0.13921301f);
  p = ::fmaf(p, f, -0.16419779f);
  p = ::fmaf(p, f, 0.20016028f);
  p = ::fmaf(p, f, -0.25007573f);
  p = ::fmaf(p, f, 0.33333108f);
  p = ::fmaf(p, f, -0.4999994f);
  const f32 near = ::fmaf(p * f, f, f);
  // e ln 2, of e in the exponent's place. The signs keep -0.
  const f32 result = -::fmaf(f32(i32(e)), -8.26295818e-08f, -near);
  // The hardware's logarithm knows what zero, infinity, NaN and negative numbers give.
  return bit_cast<u32>(u) - 1u >= 0x7f7fffffu ? native::log2(u) : result;
}

}  // namespace gpu
#endif
#if KILN_HOST
namespace host {

KILN_FN f32 log2(f32 x) { return log_domain(x, f32(wide_log(f64(x)) * kWideLog2E)); }
KILN_FN f32 log10(f32 x) { return log_domain(x, f32(wide_log(f64(x)) * 0.434294481903251828)); }

}  // namespace host
#endif

namespace strict {

KILN_LIBRARY_1(log, log)
KILN_LIBRARY_1(log2, log2)
KILN_LIBRARY_1(log10, log10)
#if KILN_AMD
// The device library makes +0 of -0 in the log1p of f64. The results have the sign of x.
KILN_FN f32 log1p(f32 x) { return ::log1pf(x); }
KILN_FN f64 log1p(f64 x) { return exact::copysign(::log1p(x), x); }
#else
KILN_LIBRARY_1(log1p, log1p)
#endif

}  // namespace strict

KILN_DEFAULT_1(log)
KILN_DEFAULT_1(log2)
KILN_DEFAULT_1(log10)
#if KILN_HOST
KILN_DEFAULT_1(log1p)
#else
KILN_GPU_1(log1p)
#endif
// Of what is known to be between 0 and 1, which saves a host instructions.
#if KILN_HOST
KILN_FN f32 log1p_of_fraction(f32 x) { return host::log1p_of_fraction(x); }
#else
KILN_FN f32 log1p_of_fraction(f32 x) { return gpu::log1p(x); }
#endif

namespace narrow {

#if !KILN_HOST
// log(1 + f) / f near zero, 2^-21.3 of it.
KILN_FN f32 log1p_slope(f32 f) {
  f32 p = ::fmaf(-0.250783622f, f, 0.334116608f);
  p = ::fmaf(p, f, -0.499999285f);
  return ::fmaf(p, f, 0.999999642f);
}
// The hardware's logarithm is off by 2^-22.6 of 1: from 1 +- 0.0625 on by 2^-19.1 of the result,
// where f16 needs 2^-17.6. It takes subnormals 2^24 larger.
KILN_FN f32 log2(f32 x) {
  const f32 f = x - 1.0f;
  const f32 near = f * log1p_slope(f) * 1.44269504f;
  const bool tiny = x < 1.17549435e-38f;
  const f32 far = native::log2(tiny ? x * 16777216.0f : x) - (tiny ? 24.0f : 0.0f);
  return ::fabsf(f) < 0.0625f ? near : far;
}
KILN_FN f32 log(f32 x) { return log2(x) * 0.693147181f; }
KILN_FN f32 log10(f32 x) { return log2(x) * 0.301029996f; }
// The sum's rounding is 2^-20 of the result.
KILN_FN f32 log1p(f32 x) {
  const f32 far = native::log2(1.0f + x) * 0.693147181f;
  return ::fabsf(x) < 0.0625f ? x * log1p_slope(x) : far;
}
// A polynomial, 2^-19.6 of the result.
KILN_FN f32 log1p_of_fraction(f32 x) {
  f32 p = ::fmaf(0.0141410241f, x, -0.066401802f);
  p = ::fmaf(p, x, 0.149223879f);
  p = ::fmaf(p, x, -0.235038608f);
  p = ::fmaf(p, x, 0.331094503f);
  p = ::fmaf(p, x, -0.499869645f);
  p = ::fmaf(p, x, 0.999998748f);
  return p * x;
}
KILN_FN f64 log(f64 x) { return kiln::log(x); }
KILN_FN f64 log2(f64 x) { return kiln::log2(x); }
KILN_FN f64 log10(f64 x) { return kiln::log10(x); }
KILN_FN f64 log1p(f64 x) { return kiln::log1p(x); }
#else
using kiln::log;
using kiln::log10;
using kiln::log1p;
using kiln::log1p_of_fraction;
using kiln::log2;
#endif

}  // namespace narrow
namespace fast {

#if !KILN_HOST
KILN_FN f32 log(f32 x) { return native::log2(x) * 0.693147181f; }
KILN_FN f32 log2(f32 x) { return native::log2(x); }
KILN_FN f32 log10(f32 x) { return native::log2(x) * 0.301029996f; }
// Near zero the first terms of the series, since the logarithm's error there is 2^-22 of 1.
KILN_FN f32 log1p(f32 x) {
  const f32 near = x * (1.0f - x * (0.5f - x * 0.333333333f));
  return abs(x) < 0.0156f ? near : native::log2(1.0f + x) * 0.693147181f;
}
KILN_FN f64 log1p(f64 x) { return kiln::log1p(x); }
KILN_FN f64 log(f64 x) { return kiln::log(x); }
KILN_FN f64 log2(f64 x) { return kiln::log2(x); }
KILN_FN f64 log10(f64 x) { return kiln::log10(x); }
#else
using kiln::log;
using kiln::log10;
using kiln::log1p;
using kiln::log2;
#endif

}  // namespace fast

}  // namespace kiln
