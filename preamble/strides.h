// Loads and stores on GPUs of elements apart from each other, in words, of unaligned rows, and of
// elements that each stand for a run of a row.
#pragma once

#include "access_gpu.h"
#include "convert.h"
#include "divide.h"

#if !KILN_HOST
namespace kiln {

// Like load(), in 32-bit words. A bf16 in the upper half of a word is an f32 after one instruction
// if NVIDIA's compiler sees the word, else after two; but words take more registers.
template <int Lanes, int Align, class T, class Index>
KILN_FN Vec<T, Lanes> load_words(const T* row, Index first) {
  if constexpr (is_same<T, bf16>() && Lanes % 2 == 0) {
    Words<Lanes / 2> words;
    copy_bytes<Vec<T, Lanes>::kBytes, Align>(words.word, row + first);
    Vec<T, Lanes> result;
    _Pragma("unroll") for (int i = 0; i < Lanes; ++i) {
      result.lane[i].bits = u16(words.word[i / 2] >> (i % 2 * 16));
    }
    return result;
  } else {
    return load<Lanes, Align>(row, first);
  }
}

// Lanes [First, First + Count) of a vector of f32, which has several places in memory.
template <int First, int Count, int Lanes>
KILN_FN void load_part(Vec<f32, Lanes>& to, const void* from) {
  copy_bytes<Count* int(sizeof(f32)), (Count < 4 ? Count : 4) * int(sizeof(f32))>(to.lane + First,
                                                                                  from);
}
template <int First, int Count, int Lanes>
KILN_FN void store_part(const Vec<f32, Lanes>& from, void* to) {
  copy_bytes<Count* int(sizeof(f32)), (Count < 4 ? Count : 4) * int(sizeof(f32))>(
      to, from.lane + First);
}

// Like load(), where neighbours are `stride` elements apart.
template <int Lanes, class T, class Index, class Stride>
KILN_FN Vec<T, Lanes> gather(const T* row, Index first, Stride stride) {
  Vec<T, Lanes> result;
  _Pragma("unroll") for (int lane = 0; lane < Lanes; ++lane) {
    result.lane[lane] = row[Stride(first + lane) * stride];
  }
  return result;
}

// The same at the end of a row, past which the last element is read again.
template <int Lanes, class T, class Index, class Stride>
KILN_FN Vec<T, Lanes> gather_within(const T* row, Index first, Stride stride, Index length) {
  Vec<T, Lanes> result;
  _Pragma("unroll") for (int lane = 0; lane < Lanes; ++lane) {
    const Index at = first + Index(lane) < length ? first + Index(lane) : length - 1;
    result.lane[lane] = row[Stride(at) * stride];
  }
  return result;
}

// 32 bits of the 64 that two words are, from bit `bits` on, which is less than 32.
KILN_FN u32 funnel_right(u32 low, u32 high, u32 bits) {
#if KILN_AMD
  return __builtin_amdgcn_alignbit(high, low, bits);
#else
  return __funnelshift_r(low, high, bits);
#endif
}

// Like load(), for a row that is aligned where `first` is not a multiple of Lanes: takes the
// elements out of the two aligned vectors that they straddle. The second may be past the end of the
// row, unless `inner`, which saves a branch that other loads would wait for.
template <int Lanes, class T, class Index>
KILN_FN Vec<T, Lanes> load_unaligned(const T* row, Index first, Index size, bool inner) {
  using Vector = Vec<T, Lanes>;
  constexpr int kWords = Vector::kBytes / 4;
  const u32 past = u32(first) % Lanes;
  if (!inner && first - past + 2 * Lanes > size) return gather<Lanes>(row, first, Index(1));
  const auto low = bit_cast<Words<kWords>>(load<Lanes, Vector::kBytes>(row, first - past));
  const auto high = bit_cast<Words<kWords>>(load<Lanes, Vector::kBytes>(row, first - past + Lanes));
  u32 word[2 * kWords];
  _Pragma("unroll") for (int i = 0; i < kWords; ++i) {
    word[i] = low.word[i];
    word[kWords + i] = high.word[i];
  }
  const u32 bytes = past * u32(sizeof(T));
  _Pragma("unroll") for (int step = kWords / 2; step > 0; step /= 2) {
    const bool by_step = (bytes & u32(step * 4)) != 0;
    _Pragma("unroll") for (int i = 0; i + step < 2 * kWords; ++i) {
      word[i] = by_step ? word[i + step] : word[i];
    }
  }
  Words<kWords> result;
  _Pragma("unroll") for (int i = 0; i < kWords; ++i) {
    result.word[i] = sizeof(T) < 4 ? funnel_right(word[i], word[i + 1], bytes % 4 * 8) : word[i];
  }
  return bit_cast<Vector>(result);
}

// Like load(), where each element stands for a run of neighbours. Runs are no shorter than Lanes,
// so that a vector has elements of two at most; where they are `Whole`, of one.
template <int Lanes, bool Whole, class T, class Index, class Divisor, class Stride>
KILN_FN Vec<T, Lanes> load_runs(const T* row, Index first, Divisor run, Stride stride) {
  const Index at = divide(first, run);
  const Index left = (at + 1) * run.divisor - first;
  const T element = row[Stride(at) * stride];
  T next = element;
  if constexpr (!Whole && Lanes > 1) next = row[Stride(left < Lanes ? at + 1 : at) * stride];
  Vec<T, Lanes> result;
  _Pragma("unroll") for (int lane = 0; lane < Lanes; ++lane) {
    result.lane[lane] = Whole || Index(lane) < left ? element : next;
  }
  return result;
}

template <int Lanes, class T, class Index, class Stride>
KILN_FN void scatter(T* row, Index first, Stride stride, const Vec<T, Lanes>& value) {
  _Pragma("unroll") for (int lane = 0; lane < Lanes; ++lane) {
    row[Stride(first + lane) * stride] = value.lane[lane];
  }
}

// The first `count` lanes.
template <int Lanes, class T, class Index, class Stride>
KILN_FN void scatter_first(T* row, Index first, Stride stride, const Vec<T, Lanes>& value,
                           int count) {
  _Pragma("unroll") for (int lane = 0; lane < Lanes; ++lane) {
    if (lane < count) row[Stride(first + lane) * stride] = value.lane[lane];
  }
}

}  // namespace kiln
#endif
