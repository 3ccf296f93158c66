// Exponentials and logarithms in f64, for f32 functions of the host that need more than f32's
// precision on the way: rounded once, which leaves them within a thousandth of correct rounding.
// Branch-free, so that they vectorise.
#pragma once

#include "host_log.h"

#if KILN_HOST
namespace kiln {

namespace host {

constexpr f64 kWideInf = __builtin_inf();
constexpr f64 kPi = 3.14159265358979324;
constexpr f64 kHalfPi = 1.57079632679489662;
constexpr f64 kWideLog2E = 1.44269504088896341;
// As kToInteger: 1.5 * 2^52.
constexpr f64 kWideToInteger = 6755399441055744.0;

KILN_FN f64 wide_magnitude(f32 x) { return f64(magnitude(x)); }

// 2^t; below 2^-1020 and above 2^1020 it stays there, far outside f32.
KILN_FN f64 wide_exp2(f64 t) {
  t = t < -1020.0 ? -1020.0 : t;
  t = t > 1020.0 ? 1020.0 : t;
  const f64 shifted = t + kWideToInteger;
  const f64 r = t - (shifted - kWideToInteger);
  f64 p = 1.0211174519868535e-07;  // (2^r - 1) / r: 2^-45.8
  p = madd(p, r, 1.3258870837125137e-06);
  p = madd(p, r, 1.5252643936830437e-05);
  p = madd(p, r, 0.00015403438527145165);
  p = madd(p, r, 0.0013333558253277565);
  p = madd(p, r, 0.0096181291842582436);
  p = madd(p, r, 0.055504108664309944);
  p = madd(p, r, 0.24022650695711492);
  p = madd(p, r, 0.69314718055995161);
  const u64 scale = (bit_cast<u64>(shifted) << 52) + bit_cast<u64>(1.0);
  return bit_cast<f64>(scale) * madd(r, p, 1.0);
}

// The natural logarithm of a positive normal number; infinity and NaN stay. Coefficients and method
// of fdlibm's e_log.c (Sun Microsystems, 1993), within an ULP of f64.
KILN_FN f64 wide_log(f64 x) {
  constexpr u64 kSqrtHalf = 0x3fe6a09e667f3bcdu;
  constexpr u64 kOne = 0x3ff0000000000000u;
  const u64 offset = bit_cast<u64>(x) - kSqrtHalf + kOne;
  // The exponent as a number: its bits in the place of 2^52's last ones.
  const f64 e = bit_cast<f64>((offset >> 52) | 0x4330000000000000u) - (4503599627370496.0 + 1023.0);
  const f64 f = bit_cast<f64>((offset & 0xfffffffffffffu) + kSqrtHalf) - 1.0;
  const f64 s = f / (2.0 + f);
  const f64 z = s * s;
  f64 p = 1.479819860511658591e-01;
  p = madd(p, z, 1.531383769920937332e-01);
  p = madd(p, z, 1.818357216161805012e-01);
  p = madd(p, z, 2.222219843214978396e-01);
  p = madd(p, z, 2.857142874366239149e-01);
  p = madd(p, z, 3.999999999940941908e-01);
  p = madd(p, z, 6.666666666666735130e-01);
  const f64 half_square = 0.5 * f * f;
  const f64 low = s * (half_square + z * p) + e * 1.90821492927058770002e-10;
  const f64 result = e * 6.93147180369123816490e-01 - ((half_square - low) - f);
  return x < kWideInf ? result : x;
}

}  // namespace host

}  // namespace kiln
#endif
