// Powers of floats.
#pragma once

#include "host_wide.h"
#include "integer.h"
#include "math.h"
#include "native.h"

namespace kiln {

#if KILN_HOST
namespace host {

// C's pow: 2^(y log2 |x|) with the sign of an odd power.
KILN_FN f32 power(f32 x, f32 y) {
  const f64 a = wide_magnitude(x);
  const f64 inside = wide_log(a) * kWideLog2E;
  const f64 log2 = a == 0.0 ? -kWideInf : inside;
  const f32 result = f32(wide_exp2(f64(y) * log2));
  const f32 half = y * 0.5f;
  const bool integer = y == __builtin_truncf(y);
  const bool even = half == __builtin_truncf(half);
  const bool odd = integer & !even;
  const u32 sign = bit_cast<u32>(x) & (odd ? 0x80000000u : 0u);
  const f32 sized = bit_cast<f32>(bit_cast<u32>(a == 1.0 ? 1.0f : result) | sign);
  const bool outside = !integer & (x < 0.0f) & (x > -kInf);
  const f32 defined = outside ? kNan : sized;
  const f32 known = y == y ? defined : kNan;
  const bool one = (y == 0.0f) | (x == 1.0f);
  return one ? 1.0f : known;
}

}  // namespace host
#endif

namespace strict {

KILN_LIBRARY_2(power, pow)

}  // namespace strict
KILN_DEFAULT_2(power)

namespace narrow {

using kiln::power;

}  // namespace narrow
namespace fast {

#if !KILN_HOST
// The library's for what the logarithm of |x| cannot tell: negative bases.
KILN_FN f32 power(f32 x, f32 y) {
  return x > 0.0f ? native::exp2(y * native::log2(x)) : kiln::power(x, y);
}
KILN_FN f64 power(f64 x, f64 y) { return kiln::power(x, y); }
#else
using kiln::power;
#endif

}  // namespace fast

}  // namespace kiln
