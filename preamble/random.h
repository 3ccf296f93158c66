// Random numbers that depend on a seed and a position only, with the same bits on every device:
// Philox 4x32-10. J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1,
// 2, 3", SC 2011.
#pragma once

namespace kiln {

struct Philox {
  u32 word[4];
};

// The four words at `counter` of the sequence that belongs to `key`.
KILN_FN Philox philox(Philox counter, u32 key0, u32 key1) {
  for (int round = 0; round < 10; ++round) {
    const u64 product0 = u64(0xd2511f53u) * counter.word[0];
    const u64 product1 = u64(0xcd9e8d57u) * counter.word[2];
    counter = Philox{{u32(product1 >> 32) ^ counter.word[1] ^ key0, u32(product1),
                      u32(product0 >> 32) ^ counter.word[3] ^ key1, u32(product0)}};
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return counter;
}

// The random word of element `index`, `offset` calls into the sequence of `seed`.
KILN_FN u32 random_word(u64 seed, u64 offset, u64 index) {
  const u64 block = index >> 2;
  const Philox place = {{u32(block), u32(block >> 32), u32(offset), u32(offset >> 32)}};
  const Philox words = philox(place, u32(seed), u32(seed >> 32));
  const u32 low = (index & 1) != 0 ? words.word[1] : words.word[0];
  const u32 high = (index & 1) != 0 ? words.word[3] : words.word[2];
  return (index & 2) != 0 ? high : low;
}

// Those of `Lanes` elements from `index` on. Four have one counter: where vectors are whole fours,
// `index` is a multiple of four, and each four is computed once.
template <int Lanes>
struct RandomWords {
  u32 word[Lanes];
};
template <int Lanes>
KILN_FN RandomWords<Lanes> random_words(u64 seed, u64 offset, u64 index) {
  RandomWords<Lanes> result;
  if constexpr (Lanes % 4 == 0) {
#if !KILN_HOST
    _Pragma("unroll")
#endif
        for (int i = 0; i < Lanes / 4; ++i) {
      const u64 block = (index >> 2) + i;
      const Philox place = {{u32(block), u32(block >> 32), u32(offset), u32(offset >> 32)}};
      const Philox words = philox(place, u32(seed), u32(seed >> 32));
      result.word[4 * i] = words.word[0];
      result.word[4 * i + 1] = words.word[1];
      result.word[4 * i + 2] = words.word[2];
      result.word[4 * i + 3] = words.word[3];
    }
  } else {
    for (int i = 0; i < Lanes; ++i) result.word[i] = random_word(seed, offset, index + i);
  }
  return result;
}

// In [0, 1): multiples of 2^-24, each as likely.
KILN_FN f32 uniform(u32 word) { return f32(i32(word >> 8)) * 5.96046448e-08f; }
KILN_FN f32 uniform(u64 seed, u64 offset, u64 index) {
  return uniform(random_word(seed, offset, index));
}

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
