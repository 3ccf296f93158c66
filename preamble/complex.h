// Operations on c64 by the names of the op table. Where f32 would cancel or overflow on the way,
// the way is in f64. Conversions are in convert.h.
#pragma once

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
// The products of two f32 are exact in f64, so only the sum and the store round.
KILN_FN c64 mul(c64 a, c64 b) {
  const f64 re = f64(a.re) * f64(b.re) - f64(a.im) * f64(b.im);
  const f64 im = f64(a.re) * f64(b.im) + f64(a.im) * f64(b.re);
  return {f32(re), f32(im)};
}
KILN_FN c64 div(c64 a, c64 b) {
  const f64 size = f64(b.re) * f64(b.re) + f64(b.im) * f64(b.im);
  const f64 re = f64(a.re) * f64(b.re) + f64(a.im) * f64(b.im);
  const f64 im = f64(a.im) * f64(b.re) - f64(a.re) * f64(b.im);
  return {f32(re / size), f32(im / size)};
}
KILN_FN c64 fma(c64 a, c64 b, c64 c) { return add(mul(a, b), c); }
KILN_FN c64 square(c64 z) { return mul(z, z); }
KILN_FN c64 reciprocal(c64 z) { return div(c64{1.0f, 0.0f}, z); }

KILN_FN f32 abs(c64 z) { return hypot(z.re, z.im); }
KILN_FN c64 sign(c64 z) {
  const f64 size = sqrt(f64(z.re) * f64(z.re) + f64(z.im) * f64(z.im));
  const bool zero = size == 0.0;
  return {zero ? z.re : f32(z.re / size), zero ? z.im : f32(z.im / size)};
}

// The branch with a real part that is not negative, cut along the negative axis. W. Kahan, "Branch
// cuts for complex elementary functions", 1987.
KILN_FN c64 sqrt(c64 z) {
  const f64 x = z.re;
  const f64 y = z.im;
  const f64 larger = sqrt((sqrt(x * x + y * y) + abs(x)) * 0.5);
  const f64 smaller = larger == 0.0 ? 0.0 : abs(y) / (2.0 * larger);
  const f64 re = x < 0.0 ? smaller : larger;
  const f64 im = x < 0.0 ? larger : smaller;
  return {f32(re), copysign(f32(im), z.im)};
}
KILN_FN c64 rsqrt(c64 z) { return reciprocal(sqrt(z)); }

KILN_FN c64 exp(c64 z) {
  const f64 size = exp(f64(z.re));
  const f64 im = z.im == 0.0f ? f64(z.im) : size * sin(f64(z.im));
  return {f32(size * cos(f64(z.im))), f32(im)};
}
KILN_FN c64 log(c64 z) {
  const f64 x = abs(f64(z.re));
  const f64 y = abs(f64(z.im));
  const f64 larger = x > y ? x : y;
  const f64 smaller = x > y ? y : x;
  // Near the unit circle, log |z| is the small log1p of what |z|^2 has beyond 1.
  const bool near = larger > 0.5 && larger < 2.0;
  const f64 beyond = (larger - 1.0) * (larger + 1.0) + smaller * smaller;
  const f64 size = near ? 0.5 * log1p(beyond) : log(sqrt(x * x + y * y));
  return {f32(size), atan2(z.im, z.re)};
}
KILN_FN c64 log2(c64 z) {
  const c64 natural = log(z);
  return {natural.re * 1.44269504f, natural.im * 1.44269504f};
}
KILN_FN c64 log10(c64 z) {
  const c64 natural = log(z);
  return {natural.re * 0.434294482f, natural.im * 0.434294482f};
}

KILN_FN c64 sinh(c64 z) {
  const f64 x = z.re;
  const f64 y = z.im;
  return {f32(sinh(x) * cos(y)), f32(cosh(x) * sin(y))};
}
KILN_FN c64 cosh(c64 z) {
  const f64 x = z.re;
  const f64 y = z.im;
  return {f32(cosh(x) * cos(y)), f32(sinh(x) * sin(y))};
}
// (sinh 2x + i sin 2y) / (cosh 2x + cos 2y), which is +-1 in f32 long before it overflows.
KILN_FN c64 tanh(c64 z) {
  const f64 x = z.re > 20.0f ? 20.0 : z.re < -20.0f ? -20.0 : f64(z.re);
  const f64 y = z.im;
  // cosh 2x + cos 2y without its cancellation at the poles.
  const f64 size = 2.0 * (sinh(x) * sinh(x) + cos(y) * cos(y));
  return {f32(sinh(2.0 * x) / size), f32(sin(2.0 * y) / size)};
}
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
KILN_FN c64 sigmoid(c64 z) {
  const c64 half = tanh(c64{z.re * 0.5f, z.im * 0.5f});
  return {0.5f * half.re + 0.5f, 0.5f * half.im};
}
// e^(b log a); 0^b is 0 and a^0 is 1.
KILN_FN c64 power(c64 a, c64 b) {
  const bool one = b.re == 0.0f && b.im == 0.0f;
  const bool zero = a.re == 0.0f && a.im == 0.0f;
  const c64 inside = exp(mul(b, log(a)));
  return {one ? 1.0f : zero ? 0.0f : inside.re, one || zero ? 0.0f : inside.im};
}

}  // namespace kiln
