// Operations on c64 by the names of the op table, on the way in f64: products of two f32 are exact
// there, nothing of f32's range overflows, and what is left of a sum that cancels is right. Special
// values are those of C99, Annex G, but for products, which are the plain formula's, as in NumPy.
// Conversions are in convert.h.
//
// Asked for by: c64
#pragma once

#include "arithmetic.h"
#include "convert.h"
#include "exp.h"
#include "hyperbolics.h"
#include "integer.h"
#include "log.h"
#include "roots.h"
#include "signs.h"
#include "trigonometry.h"

namespace kiln {

KILN_FN bool operator==(c64 a, c64 b) { return a.re == b.re && a.im == b.im; }
KILN_FN bool operator!=(c64 a, c64 b) { return !(a == b); }

KILN_FN f32 real(c64 z) { return z.re; }
KILN_FN f32 imag(c64 z) { return z.im; }
KILN_FN c64 conj(c64 z) { return {z.re, -z.im}; }
KILN_FN bool isnan(c64 z) { return isnan(z.re) || isnan(z.im); }
KILN_FN bool isinf(c64 z) { return isinf(z.re) || isinf(z.im); }
KILN_FN bool isfinite(c64 z) { return isfinite(z.re) && isfinite(z.im); }

KILN_FN c64 neg(c64 z) { return {-z.re, -z.im}; }
KILN_FN c64 add(c64 a, c64 b) { return {a.re + b.re, a.im + b.im}; }
KILN_FN c64 sub(c64 a, c64 b) { return {a.re - b.re, a.im - b.im}; }

namespace wide {

struct Complex {
  f64 re;
  f64 im;
};

KILN_FN Complex from(c64 z) { return {f64(z.re), f64(z.im)}; }
KILN_FN c64 rounded(Complex z) { return {f32(z.re), f32(z.im)}; }

// A product in which zero stays zero beside what is infinite or no number. A NaN counts as
// positive: its sign is nobody's promise.
KILN_FN f64 times(f64 a, f64 b) {
  const f64 sign_of_a = copysign(1.0, isnan(a) ? 0.0 : a);
  const f64 sign_of_b = copysign(1.0, isnan(b) ? 0.0 : b);
  return a == 0.0 || b == 0.0 ? 0.0 * sign_of_a * sign_of_b : a * b;
}
KILN_FN f64 infinity() { return bit_cast<f64>(0x7ff0000000000000ull); }

KILN_FN Complex mul(Complex a, Complex b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

// 1 for an infinity and 0 for what is finite, with its sign.
KILN_FN f64 direction(f64 x) { return copysign(isinf(x) ? 1.0 : 0.0, x); }

// Infinities and zeros as the program in C99, G.5.1, has them.
KILN_FN Complex div(Complex a, Complex b) {
  const f64 size = b.re * b.re + b.im * b.im;
  const Complex q = {(a.re * b.re + a.im * b.im) / size, (a.im * b.re - a.re * b.im) / size};
  if (!isnan(q.re) || !isnan(q.im)) return q;
  const bool zero = size == 0.0 && (!isnan(a.re) || !isnan(a.im));
  if (zero) return {copysign(infinity(), b.re) * a.re, copysign(infinity(), b.re) * a.im};
  const bool above = (isinf(a.re) || isinf(a.im)) && isfinite(b.re) && isfinite(b.im);
  const bool below = (isinf(b.re) || isinf(b.im)) && isfinite(a.re) && isfinite(a.im);
  if (!above && !below) return q;
  const Complex n = above ? Complex{direction(a.re), direction(a.im)} : a;
  const Complex d = below ? Complex{direction(b.re), direction(b.im)} : b;
  const f64 scale = above ? infinity() : 0.0;
  return {scale * (n.re * d.re + n.im * d.im), scale * (n.im * d.re - n.re * d.im)};
}

KILN_FN f64 abs(Complex z) {
  return isinf(z.re) || isinf(z.im) ? infinity() : kiln::sqrt(z.re * z.re + z.im * z.im);
}

// The branch with a real part that is not negative, cut along the negative axis. W. Kahan, "Branch
// cuts for complex elementary functions", 1987.
KILN_FN Complex sqrt(Complex z) {
  const f64 larger = kiln::sqrt((abs(z) + kiln::abs(z.re)) * 0.5);
  const f64 smaller = larger == 0.0 ? 0.0 : kiln::abs(z.im) / (2.0 * larger);
  const bool left = z.re < 0.0;
  const bool endless = isinf(z.im);
  return {endless ? infinity()
          : left  ? smaller
                  : larger,
          endless ? z.im : copysign(left ? larger : smaller, z.im)};
}

// An infinity or a zero without an angle stays one.
KILN_FN Complex exp(Complex z) {
  const f64 size = kiln::exp(z.re);
  const bool endless = isinf(z.re);
  return {endless && !isfinite(z.im) ? size : size * cos(z.im),
          endless || z.im == 0.0 ? times(size, sin(z.im)) : size * sin(z.im)};
}

KILN_FN Complex log(Complex z) {
  const f64 x = kiln::abs(z.re);
  const f64 y = kiln::abs(z.im);
  const f64 larger = x > y ? x : y;
  const f64 smaller = x > y ? y : x;
  // Near the unit circle, log |z| is the small log1p of what |z|^2 has beyond 1.
  const bool near = larger > 0.5 && larger < 2.0;
  const f64 beyond = (larger - 1.0) * (larger + 1.0) + smaller * smaller;
  return {near ? 0.5 * log1p(beyond) : kiln::log(abs(z)), atan2(z.im, z.re)};
}

KILN_FN Complex scaled(Complex z, f64 factor) { return {z.re * factor, z.im * factor}; }

KILN_FN Complex sinh(Complex z) {
  const f64 size = kiln::sinh(z.re);
  const bool no_angle = isinf(z.re) && !isfinite(z.im);
  return {no_angle ? size : times(size, cos(z.im)), times(kiln::cosh(z.re), sin(z.im))};
}
KILN_FN Complex cosh(Complex z) {
  const f64 size = kiln::cosh(z.re);
  const bool no_angle = isinf(z.re) && !isfinite(z.im);
  return {no_angle ? size : size * cos(z.im), times(kiln::sinh(z.re), sin(z.im))};
}
// (sinh 2x + i sin 2y) / (cosh 2x + cos 2y), which is +-1 in f32 long before it overflows.
KILN_FN Complex tanh(Complex z) {
  const f64 x = z.re > 20.0 ? 20.0 : z.re < -20.0 ? -20.0 : z.re;
  const f64 s = kiln::sinh(x);
  const f64 c = isinf(z.re) ? 0.0 : cos(z.im);
  // cosh 2x + cos 2y without its cancellation at the poles.
  const f64 size = 2.0 * (s * s + c * c);
  const f64 turn = sin(2.0 * z.im);
  return {z.re == 0.0 ? z.re : kiln::sinh(2.0 * x) / size, z.im == 0.0   ? z.im
                                                           : isinf(z.re) ? copysign(0.0, turn)
                                                                         : turn / size};
}
// e^(z/2) / (2 cosh(z/2)), in which no sum cancels; above and below divided by e^(x/2), or for a
// negative x by e^(-x/2).
KILN_FN Complex sigmoid(Complex z) {
  const f64 e = kiln::exp(-kiln::abs(z.re));
  const f64 c = cos(0.5 * z.im);
  const f64 s = sin(0.5 * z.im);
  const f64 rest = -expm1(-kiln::abs(z.re));  // 1 - e
  const f64 even = (1.0 + e) * c;
  const f64 odd = rest * s;
  const f64 size = even * even + odd * odd;
  const bool positive = z.re >= 0.0;
  const f64 re = positive ? even * c + odd * s : e * (even * c - odd * s);
  if (isinf(z.re)) return {positive ? 1.0 : 0.0, times(0.0, z.im)};
  return {re / size, 2.0 * e * c * s / size};
}

}  // namespace wide

KILN_FN c64 mul(c64 a, c64 b) { return wide::rounded(wide::mul(wide::from(a), wide::from(b))); }
KILN_FN c64 div(c64 a, c64 b) { return wide::rounded(wide::div(wide::from(a), wide::from(b))); }
KILN_FN c64 fma(c64 a, c64 b, c64 c) {
  const wide::Complex product = wide::mul(wide::from(a), wide::from(b));
  return {f32(product.re + f64(c.re)), f32(product.im + f64(c.im))};
}
KILN_FN c64 square(c64 z) { return mul(z, z); }
KILN_FN c64 reciprocal(c64 z) { return div(c64{1.0f, 0.0f}, z); }

KILN_FN f32 abs(c64 z) { return f32(wide::abs(wide::from(z))); }
KILN_FN c64 sign(c64 z) {
  const f64 size = wide::abs(wide::from(z));
  const bool zero = size == 0.0;
  return {zero ? z.re : f32(z.re / size), zero ? z.im : f32(z.im / size)};
}

KILN_FN c64 sqrt(c64 z) { return wide::rounded(wide::sqrt(wide::from(z))); }
KILN_FN c64 rsqrt(c64 z) {
  return wide::rounded(wide::div(wide::Complex{1.0, 0.0}, wide::sqrt(wide::from(z))));
}
KILN_FN c64 exp(c64 z) { return wide::rounded(wide::exp(wide::from(z))); }
KILN_FN c64 log(c64 z) { return wide::rounded(wide::log(wide::from(z))); }
KILN_FN c64 log2(c64 z) {
  return wide::rounded(wide::scaled(wide::log(wide::from(z)), 1.4426950408889634));
}
KILN_FN c64 log10(c64 z) {
  return wide::rounded(wide::scaled(wide::log(wide::from(z)), 0.43429448190325183));
}
KILN_FN c64 sinh(c64 z) { return wide::rounded(wide::sinh(wide::from(z))); }
KILN_FN c64 cosh(c64 z) { return wide::rounded(wide::cosh(wide::from(z))); }
KILN_FN c64 tanh(c64 z) { return wide::rounded(wide::tanh(wide::from(z))); }
// sin z = -i sinh iz, and so on.
KILN_FN c64 sin(c64 z) {
  const c64 turned = sinh(c64{-z.im, z.re});
  return {turned.im, -turned.re};
}
KILN_FN c64 cos(c64 z) { return cosh(c64{-z.im, z.re}); }
KILN_FN c64 tan(c64 z) {
  const c64 turned = tanh(c64{-z.im, z.re});
  return {turned.im, -turned.re};
}
KILN_FN c64 sigmoid(c64 z) { return wide::rounded(wide::sigmoid(wide::from(z))); }
// e^(b log a). a^0 is 1, and 0^b is 0 where b's real part is positive and NaN elsewhere.
KILN_FN c64 power(c64 a, c64 b) {
  const f32 nan = bit_cast<f32>(0x7fc00000u);
  if (b.re == 0.0f && b.im == 0.0f) return {1.0f, 0.0f};
  if (a.re == 0.0f && a.im == 0.0f) return b.re > 0.0f ? c64{0.0f, 0.0f} : c64{nan, nan};
  return wide::rounded(wide::exp(wide::mul(wide::from(b), wide::log(wide::from(a)))));
}

}  // namespace kiln
