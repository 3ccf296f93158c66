// Random numbers that depend on a seed and a position only, with the same bits on every device:
// Philox 4x32-10. J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1,
// 2, 3", SC 2011.
#pragma once

#include "types.h"

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

}  // namespace kiln
