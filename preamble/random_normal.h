// Random numbers of the standard normal distribution, with the same bits on every device.
#pragma once

#include "arithmetic.h"
#include "random.h"
#include "roots.h"

namespace kiln {

// log(x) of a positive normal x up to 1, to 2^-23 of 1: x as 2^e m with m around 1, and a
// polynomial in m - 1. Every step is an exact operation or an fma, which no compiler contracts or
// reorders.
KILN_FN f32 exact_log(f32 x) {
  const i32 shifted = bit_cast<i32>(x) - 0x3f3504f3;  // sqrt(1/2)
  const i32 exponent = shifted >> 23;
  const f32 m = bit_cast<f32>(bit_cast<i32>(x) - (exponent << 23)) - 1.0f;
  f32 p = 0.06864326f;
  p = fma(p, m, -0.11612994f);
  p = fma(p, m, 0.11799859f);
  p = fma(p, m, -0.12410733f);
  p = fma(p, m, 0.14232618f);
  p = fma(p, m, -0.16668117f);
  p = fma(p, m, 0.20001453f);
  p = fma(p, m, -0.25f);
  p = fma(p, m, 0.33333322f);
  p = fma(p, m, -0.5f);
  return fma(f32(exponent), 0.693147182f, fma(m * m, p, m));
}

// The inverse of the normal distribution at (k + 1/2) / 2^32, with 31 bits of the word for k and
// one for the sign: (1 - 2p) times a polynomial in w = -log(4p (1 - p)), and in its root for the
// tails. M. Giles, "Approximating the erfinv function", GPU Computing Gems 2, 2012; the
// coefficients are ours, for tails up to 6.3 standard deviations.
KILN_FN f32 normal(u32 word) {
  const f32 p = (f32(i32(word >> 1)) + 0.5f) * 2.32830644e-10f;
  const f32 w = -exact_log(4.0f * p * (1.0f - p));
  const bool tail = w >= 5.0f;
  const f32 t = tail ? sqrt(w) - 3.0f : w - 2.5f;
  f32 q = tail ? 5.71321543e-05f : -1.24323185e-08f;
  q = fma(q, t, tail ? -0.000233275467f : 3.28559828e-08f);
  q = fma(q, t, tail ? -2.27574404e-05f : 6.59263254e-07f);
  q = fma(q, t, tail ? 0.00183523644f : -4.8970046e-06f);
  q = fma(q, t, tail ? -0.00506204832f : -7.01922642e-06f);
  q = fma(q, t, tail ? 0.00815659482f : 0.000308785674f);
  q = fma(q, t, tail ? -0.0108155599f : -0.00177164457f);
  q = fma(q, t, tail ? 0.0133407377f : -0.00590771716f);
  q = fma(q, t, tail ? 1.41658342f : 0.348802030f);
  q = fma(q, t, tail ? 4.00643444f : 2.12331343f);
  const f32 size = fma(p, -2.0f, 1.0f) * q;
  return (word & 1) != 0 ? -size : size;
}
KILN_FN f32 normal(u64 seed, u64 offset, u64 index) {
  return normal(random_word(seed, offset, index));
}

}  // namespace kiln
