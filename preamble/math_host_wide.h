// f32 functions for host compilers that need more than f32's precision on the way: computed in f64
// and rounded once, which leaves them within a thousandth of correct rounding. Branch-free, so that
// they vectorise.
#pragma once

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

KILN_FN f32 log2(f32 x) { return log_domain(x, f32(wide_log(f64(x)) * kWideLog2E)); }
KILN_FN f32 log10(f32 x) { return log_domain(x, f32(wide_log(f64(x)) * 0.434294481903251828)); }
KILN_FN f32 cbrt(f32 x) {
  const f64 third = wide_log(wide_magnitude(x)) * (kWideLog2E / 3.0);
  return with_sign(x == 0.0f ? 0.0f : f32(wide_exp2(third)), x);
}

// ---- trigonometry -------------------------------------------------------------------------------

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

// ---- hyperbolics --------------------------------------------------------------------------------

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

// ---- error functions and lgamma -----------------------------------------------------------------

// e^(x^2) erfc(x) (1 + 2x) as a polynomial in (x - 4) / (x + 4): 2^-39.8 up to where erfc(x)
// vanishes.
KILN_FN f32 erfc(f32 x) {
  const f64 wide = wide_magnitude(x);
  const f64 a = wide > 11.0 ? 11.0 : wide;
  const f64 q = (a - 4.0) / (a + 4.0);
  f64 p = -1.5728790946295349e-05;
  p = madd(p, q, -1.5813865511012906e-05);
  p = madd(p, q, 0.00016436909799893214);
  p = madd(p, q, -0.00019665776051727775);
  p = madd(p, q, -0.00076334190061399881);
  p = madd(p, q, 0.0050292478071354745);
  p = madd(p, q, -0.016196979352797628);
  p = madd(p, q, 0.037168142031428236);
  p = madd(p, q, -0.066330389332650948);
  p = madd(p, q, 0.093732774729089419);
  p = madd(p, q, -0.10103906779547622);
  p = madd(p, q, 0.068097056662815139);
  p = madd(p, q, 0.015379652184481342);
  p = madd(p, q, -0.13962111686849249);
  p = madd(p, q, 1.2329951186252113);
  const f64 tail = wide_exp2(a * a * -kWideLog2E) * p / (1.0 + 2.0 * a);
  return f32(x < 0.0f ? 2.0 - tail : tail);
}

// erfinv(x) / x as polynomials in w = -log(1 - x^2), after M. Giles, "Approximating the erfinv
// function", GPU Computing Gems, 2011: 2^-35.3 for w < 5, 2^-29.3 beyond.
KILN_FN f64 erfinv_centre(f64 w) {
  const f64 u = w - 2.5;
  f64 p = -1.9768030833899452e-11;
  p = madd(p, u, 1.2359787040738908e-10);
  p = madd(p, u, 8.0621145694207638e-10);
  p = madd(p, u, -1.0863883580510935e-08);
  p = madd(p, u, 1.387424880433626e-08);
  p = madd(p, u, 4.7870193746360496e-07);
  p = madd(p, u, -3.4176941966375393e-06);
  p = madd(p, u, -4.9960304365806199e-06);
  p = madd(p, u, 0.00021825147443935286);
  p = madd(p, u, -0.0012527079271480719);
  p = madd(p, u, -0.0041773182373903029);
  p = madd(p, u, 0.24664027674015379);
  p = madd(p, u, 1.5014093511463371);
  return p;
}
KILN_FN f32 erfinv(f32 x) {
  const f64 wide = x;
  const f64 w = -wide_log((1.0 - wide) * (1.0 + wide));
  const f64 v = __builtin_sqrt(w) - 3.0;
  f64 q = -2.9217429408478598e-05;
  q = madd(q, v, 0.00016033737626848141);
  q = madd(q, v, -0.00027801699464973851);
  q = madd(q, v, -0.00011975412533923841);
  q = madd(q, v, 0.0014754538586681748);
  q = madd(q, v, -0.0035672144472355402);
  q = madd(q, v, 0.0056876032236705832);
  q = madd(q, v, -0.0076427471530518855);
  q = madd(q, v, 0.0094453126535101444);
  q = madd(q, v, 1.0016752362033281);
  q = madd(q, v, 2.8329768013111214);
  const f32 inside = f32(wide * (w < 5.0 ? erfinv_centre(w) : q));
  const f32 a = magnitude(x);
  return a < 1.0f ? inside : a == 1.0f ? with_sign(kInf, x) : kNan;
}

// log |Gamma(x)|: a polynomial about 2 up to 2.5, Stirling's series from 8 on, the recurrence
// between and below, reflection for negative x.
KILN_FN f32 lgamma(f32 x) {
  const f64 a = wide_magnitude(x);
  const f64 d = (a < 0.5 ? a + 2.0 : a < 1.5 ? a + 1.0 : a) - 2.0;
  f64 p = -1.2212853370300674e-05;  // lgamma(2 + d) / d: 2^-41
  p = madd(p, d, 2.4466314008760447e-05);
  p = madd(p, d, -4.3637544579975518e-05);
  p = madd(p, d, 9.8182964121750523e-05);
  p = madd(p, d, -0.00022343975459787312);
  p = madd(p, d, 0.0005098625696155169);
  p = madd(p, d, -0.001192722118112618);
  p = madd(p, d, 0.0028904962530201164);
  p = madd(p, d, -0.0073855527073962649);
  p = madd(p, d, 0.02058080886471669);
  p = madd(p, d, -0.067352301019888497);
  p = madd(p, d, 0.32246703342026584);
  p = madd(p, d, 0.42278433509835817);
  const f64 below = a < 0.5 ? a * (a + 1.0) : a < 1.5 ? a : 1.0;
  const f64 between = a * (a + 1.0) * (a + 2.0) * (a + 3.0) * (a + 4.0) * (a + 5.0);
  const f64 y = a < 8.0 ? a + 6.0 : a;
  const f64 inverse = 1.0 / y;
  const f64 z = inverse * inverse;
  const f64 series = inverse * (1.0 / 12 - z * (1.0 / 360 - z * (1.0 / 1260 - z * (1.0 / 1680))));
  const f64 stirling = ((y - 0.5) * wide_log(y) - y) + (0.918938533204672742 + series);
  const f64 product = wide_log(a < 2.5 ? below : a < 8.0 ? between : 1.0);
  const f64 value = (a < 2.5 ? d * p : stirling) - product;
  // |sin(pi a)| from the distance to the nearest integer.
  const f64 rest = a - __builtin_rint(a);
  const f64 near = rest < 0.0 ? -rest : rest;
  const f64 sine = near <= 0.25 ? sin_series(kPi * near) : cos_series(kPi * (0.5 - near));
  const f64 reflected = wide_log(kPi / (a * sine)) - value;
  const bool pole = x <= 0.0f && near == 0.0;
  const f32 result = f32(x < 0.0f ? reflected : value);
  return pole || magnitude(x) == kInf ? kInf : result;
}

// f64: a first guess and one step of Halley's method, which triples its bits. erfc keeps the digits
// that 1 - |x| has left.
KILN_FN f64 erfinv(f64 x) {
  const f64 a = x < 0.0 ? -x : x;
  const f64 w = -__builtin_log((1.0 - a) * (1.0 + a));
  const f64 v = __builtin_sqrt(w) - 4.0;
  f64 q = -1.4658858703370156e-06;  // for w in [5, 37.5]: 2^-21
  q = madd(q, v, -4.9319900597478784e-07);
  q = madd(q, v, 3.3202960999626472e-05);
  q = madd(q, v, -7.382776754891067e-05);
  q = madd(q, v, 3.5244744304797432e-05);
  q = madd(q, v, -4.5880018218089365e-05);
  q = madd(q, v, 0.00033545932592714907);
  q = madd(q, v, -0.00091790710984785198);
  q = madd(q, v, 0.0012545982480853773);
  q = madd(q, v, 1.0095023960337921);
  q = madd(q, v, 3.8397842430337872);
  const f64 y = a * (w < 5.0 ? erfinv_centre(w) : q);
  const f64 miss = a < 0.5 ? __builtin_erf(y) - a : (1.0 - a) - __builtin_erfc(y);
  const f64 step = miss * 0.886226925452758014 * __builtin_exp(y * y);
  const f64 inside = y - step / (1.0 + y * step);
  const f64 result = a < 1.0 ? inside : a == 1.0 ? kWideInf : f64(kNan);
  return x < 0.0 ? -result : x == 0.0 ? x : result;
}

extern "C" f64 kiln_lgamma_r(f64 x, i32* sign) __asm__("lgamma_r");
KILN_FN f64 lgamma(f64 x) {
  i32 sign = 0;
  return kiln_lgamma_r(x, &sign);
}

// ---- two arguments ------------------------------------------------------------------------------

KILN_FN f32 hypot(f32 a, f32 b) {
  const f64 x = a;
  const f64 y = b;
  const bool infinite = (magnitude(a) == kInf) | (magnitude(b) == kInf);
  return infinite ? kInf : f32(__builtin_sqrt(x * x + y * y));
}

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
}  // namespace kiln
#endif
