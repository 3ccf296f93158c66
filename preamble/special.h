// Error functions and the logarithm of the gamma function.
#pragma once

#include "host_exp.h"
#include "host_wide.h"
#include "math.h"
#include "trigonometry.h"

namespace kiln {

#if KILN_HOST
namespace host {

KILN_FN f32 erf(f32 x) {
  const f32 a = magnitude(x);
  const f32 z = x * x;
  f32 p = -8.58256408e-06f;  // erf(x) / x - 1 up to 1.125: 2^-32.2
  p = madd(p, z, 0.000108632426f);
  p = madd(p, z, -0.000842528534f);
  p = madd(p, z, 0.00521677407f);
  p = madd(p, z, -0.0268638488f);
  p = madd(p, z, 0.112837546f);
  p = madd(p, z, -0.376126379f);
  p = madd(p, z, 0.128379166f);
  const f32 near = madd(a, p, a);
  // From there to where it vanishes beside 1, erfc: 2^-27.9, absolute.
  const f32 u = ((a > 3.9375f ? 3.9375f : a) - 2.53125f) * 0.711111111f;
  f32 q = -8.61465232e-05f;
  q = madd(q, u, -0.000102169528f);
  q = madd(q, u, 0.000853027799f);
  q = madd(q, u, -0.000418370764f);
  q = madd(q, u, -0.00250612036f);
  q = madd(q, u, 0.00514807599f);
  q = madd(q, u, -0.00291976845f);
  q = madd(q, u, -0.00663358718f);
  q = madd(q, u, 0.0206630044f);
  q = madd(q, u, -0.0307950731f);
  q = madd(q, u, 0.0301406812f);
  q = madd(q, u, -0.0203872621f);
  q = madd(q, u, 0.00931726675f);
  q = madd(q, u, -0.00261748885f);
  q = madd(q, u, 0.00034395259f);
  return with_sign(a < 1.125f ? near : 1.0f - q, x);
}

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

}  // namespace host
#endif

namespace strict {

KILN_LIBRARY_1(erf, erf)
KILN_LIBRARY_1(erfc, erfc)
#if KILN_HOST
// C has no erfinv, and its lgamma writes a global variable.
KILN_FN f32 erfinv(f32 x) { return host::erfinv(x); }
KILN_FN f64 erfinv(f64 x) { return host::erfinv(x); }
KILN_FN f32 lgamma(f32 x) { return host::lgamma(x); }
KILN_FN f64 lgamma(f64 x) { return host::lgamma(x); }
#else
KILN_LIBRARY_1(erfinv, erfinv)
KILN_LIBRARY_1(lgamma, lgamma)
#endif

}  // namespace strict
KILN_DEFAULT_1(erf)
KILN_DEFAULT_1(erfc)
KILN_DEFAULT_1(erfinv)
KILN_DEFAULT_1(lgamma)
KILN_AT_LOWER_ACCURACY(erf)
KILN_AT_LOWER_ACCURACY(erfc)
KILN_AT_LOWER_ACCURACY(erfinv)
KILN_AT_LOWER_ACCURACY(lgamma)

}  // namespace kiln
