// Trigonometric functions and their inverses.
#pragma once

#include "host_wide.h"
#include "math.h"
#include "native.h"

namespace kiln {

#if KILN_HOST
namespace host {

// x = (n + s) pi/2 with |s| <= 1/2; n modulo 4. 2/pi in pieces of 29 bits, whose products with the
// 24 bits of an f32 are exact: multiples of 4 are dropped from each before they are summed.
// Infinity becomes NaN.
struct Turn {
  f64 s;
  u64 n;
};
KILN_FN Turn reduce_turn(f32 x) {
  const f64 wide = x;
  f64 s = 0.0;
  f64 n = 0.0;
  const auto add_piece = [&](f64 piece) __attribute__((always_inline)) {
    f64 product = wide * piece;
    product = product - 4.0 * __builtin_rint(product * 0.25);
    s = s + product;
    const f64 whole = __builtin_rint(s);
    s = s - whole;
    n = n + whole;
  };
  add_piece(0x1.45f306dp-1);
  add_piece(0x1.9391054p-30);
  add_piece(0x1.4fe13abp-59);
  add_piece(0x1.d1f534dp-88);
  add_piece(0x1.b81b6c5p-117);
  add_piece(0x1.5993c4p-148);
  add_piece(0x1.c820ff2p-175);
  return {s, bit_cast<u64>(n + kWideToInteger)};
}

KILN_FN f64 sin_series(f64 r) {  // |r| <= pi/4: 2^-37.5
  const f64 z = r * r;
  f64 p = 2.7179715450008696e-06;
  p = madd(p, z, -0.00019839296577093128);
  p = madd(p, z, 0.008333329256243362);
  p = madd(p, z, -0.16666666640379937);
  return madd(r * z, p, r);
}
KILN_FN f64 cos_series(f64 r) {  // |r| <= pi/4: 2^-42.9
  const f64 z = r * r;
  f64 p = -2.7204377953697356e-07;
  p = madd(p, z, 2.4799443438552497e-05);
  p = madd(p, z, -0.0013888883436295521);
  p = madd(p, z, 0.041666666618742472);
  return madd(z * z, p, 1.0 - 0.5 * z);
}

KILN_FN f32 sin(f32 x) {
  const Turn turn = reduce_turn(x);
  const f64 r = turn.s * kHalfPi;
  const f64 value = (turn.n & 1) != 0 ? cos_series(r) : sin_series(r);
  const f64 result = (turn.n & 2) != 0 ? -value : value;
  return x == 0.0f ? x : f32(result);
}
KILN_FN f32 cos(f32 x) {
  const Turn turn = reduce_turn(x);
  const f64 r = turn.s * kHalfPi;
  const f64 value = (turn.n & 1) != 0 ? sin_series(r) : cos_series(r);
  return f32(((turn.n + 1) & 2) != 0 ? -value : value);
}
KILN_FN f32 tan(f32 x) {
  const Turn turn = reduce_turn(x);
  const f64 r = turn.s * kHalfPi;
  const f64 s = sin_series(r);
  const f64 c = cos_series(r);
  const bool odd = (turn.n & 1) != 0;
  return x == 0.0f ? x : f32((odd ? -c : s) / (odd ? s : c));
}

KILN_FN f64 atan_series(f64 t) {  // t in [0, 1]: 2^-39.2
  const f64 z = t * t;
  f64 p = -0.00028006150759058823;
  p = madd(p, z, 0.0022516612129757133);
  p = madd(p, z, -0.0085019707760107723);
  p = madd(p, z, 0.020381736367168529);
  p = madd(p, z, -0.035758826217842321);
  p = madd(p, z, 0.050823476789583266);
  p = madd(p, z, -0.0638511072079887);
  p = madd(p, z, 0.076210277873088525);
  p = madd(p, z, -0.09078434218494888);
  p = madd(p, z, 0.1110968569054487);
  p = madd(p, z, -0.14285617131092815);
  p = madd(p, z, 0.19999996637745673);
  p = madd(p, z, -0.33333333292421052);
  return t + t * z * p;
}
KILN_FN f32 atan(f32 x) {
  const f64 a = wide_magnitude(x);
  const f64 inner = atan_series(a > 1.0 ? 1.0 / a : a);
  return with_sign(f32(a > 1.0 ? kHalfPi - inner : inner), x);
}
KILN_FN f32 atan2(f32 y, f32 x) {
  const f64 up = wide_magnitude(y);
  const f64 along = wide_magnitude(x);
  const f64 larger = up > along ? up : along;
  const f64 smaller = up > along ? along : up;
  const f64 ratio = larger == 0.0 ? 0.0 : smaller == larger ? 1.0 : smaller / larger;
  const f64 inner = atan_series(ratio);
  const f64 octant = up > along ? kHalfPi - inner : inner;
  const f64 result = bit_cast<u32>(x) >> 31 != 0 ? kPi - octant : octant;
  return x == x && y == y ? with_sign(f32(result), y) : kNan;
}

// asin(t) for t in [0, 1/2] given t and its square: 2^-39.9.
KILN_FN f64 asin_series(f64 t, f64 z) {
  f64 p = 0.032911697387446794;
  p = madd(p, z, 0.0019792042639821669);
  p = madd(p, z, 0.020646304907121899);
  p = madd(p, z, 0.021865740009951912);
  p = madd(p, z, 0.030426519910097552);
  p = madd(p, z, 0.044640708062054148);
  p = madd(p, z, 0.075000049811360422);
  p = madd(p, z, 0.16666666627344473);
  return t + t * z * p;
}
// Above 1/2, asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2)); beyond 1 the square root gives NaN.
KILN_FN f32 asin(f32 x) {
  const f64 a = wide_magnitude(x);
  const bool near = a <= 0.5;
  const f64 z = near ? a * a : (1.0 - a) * 0.5;
  const f64 inner = asin_series(near ? a : __builtin_sqrt(z), z);
  return with_sign(f32(near ? inner : kHalfPi - 2.0 * inner), x);
}
KILN_FN f32 acos(f32 x) {
  const f64 a = wide_magnitude(x);
  const bool near = a <= 0.5;
  const f64 z = near ? a * a : (1.0 - a) * 0.5;
  const f64 inner = asin_series(near ? a : __builtin_sqrt(z), z);
  const f64 middle = kHalfPi - (x < 0.0f ? -inner : inner);
  const f64 outer = x < 0.0f ? kPi - 2.0 * inner : 2.0 * inner;
  return f32(near ? middle : outer);
}

}  // namespace host
#endif

namespace strict {

KILN_LIBRARY_1(sin, sin)
KILN_LIBRARY_1(cos, cos)
KILN_LIBRARY_1(tan, tan)
KILN_LIBRARY_1(asin, asin)
KILN_LIBRARY_1(acos, acos)
KILN_LIBRARY_1(atan, atan)
KILN_LIBRARY_2(atan2, atan2)

}  // namespace strict
KILN_DEFAULT_1(sin)
KILN_DEFAULT_1(cos)
KILN_DEFAULT_1(tan)
KILN_DEFAULT_1(asin)
KILN_DEFAULT_1(acos)
KILN_DEFAULT_1(atan)
KILN_DEFAULT_2(atan2)
KILN_AT_LOWER_ACCURACY(asin)
KILN_AT_LOWER_ACCURACY(acos)
KILN_AT_LOWER_ACCURACY(atan)
KILN_AT_LOWER_ACCURACY(atan2)

namespace narrow {

using kiln::cos;
using kiln::sin;
using kiln::tan;

}  // namespace narrow
namespace fast {

#if !KILN_HOST
KILN_FN f32 sin(f32 x) { return native::sin(x); }
KILN_FN f32 cos(f32 x) { return native::cos(x); }
KILN_FN f32 tan(f32 x) { return native::sin(x) * native::rcp(native::cos(x)); }
KILN_FN f64 sin(f64 x) { return kiln::sin(x); }
KILN_FN f64 cos(f64 x) { return kiln::cos(x); }
KILN_FN f64 tan(f64 x) { return kiln::tan(x); }
#else
using kiln::cos;
using kiln::sin;
using kiln::tan;
#endif

}  // namespace fast

}  // namespace kiln
