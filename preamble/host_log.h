// Logarithms of f32 on the host.
#pragma once

#include "host_math.h"

#if KILN_HOST
namespace kiln {

namespace host {

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

}  // namespace host

}  // namespace kiln
#endif
