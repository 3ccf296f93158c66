// Running results along an axis (scans: cumsum, cumprod, cummax): across the lanes of a thread, the
// threads of a wave and the waves of a block; the result so far is carried from one block of
// elements to the next. The operations are in reduce.h.
//
// Where a row of n elements goes block by block through t threads of w lanes, element i has an
// error of at most (w + log2(t) + t / wave + n / (t w)) u times the sum of the sizes of the terms
// up to it, u being half a unit in the last place of 1. Along an axis that is not the innermost
// one, blocks of kSumBlock elements are added up: (kSumBlock + n / kSumBlock) u.
#pragma once

#include "reduce.h"

namespace kiln {

// ---- along rows ---------------------------------------------------------------------------------

#if KILN_HOST

template <class T, int Threads>
struct ScanSlots {};

// Several parts of the lanes at once, since each element waits for the one before it.
template <class Reduction, int Width, class T>
KILN_FN void scan_parts(T (&lane)[Width], T& carried) {
  constexpr int kParts = Width < 64 ? 1 : 8;
  constexpr int kEach = Width / kParts;
  T through[kParts];
  for (int k = 0; k < kParts; ++k) through[k] = lane[k * kEach];
  for (int i = 1; i < kEach; ++i) {
    for (int k = 0; k < kParts; ++k) {
      through[k] = Reduction::combine(through[k], lane[k * kEach + i]);
      lane[k * kEach + i] = through[k];
    }
  }
  for (int k = 0; k < kParts; ++k) {
    T* const part = lane + k * kEach;
    for (int i = 0; i < kEach; ++i) part[i] = Reduction::combine(carried, part[i]);
    carried = part[kEach - 1];
  }
}

// Maxima and minima of floats are those of integers of the same order (reduce.h).
template <class Reduction, int Threads, int Width, class T>
KILN_FN void scan(T (&lane)[Width], T& carried, ScanSlots<T, Threads>&) {
  using Type = typename Accumulator<Reduction, T>::Type;
  if constexpr (is_same<Type, T>()) {
    scan_parts<Reduction>(lane, carried);
  } else {
    Type ordered[Width];
    for (int i = 0; i < Width; ++i) ordered[i] = Type::of(lane[i]);
    Type through = Type::of(carried);
    scan_parts<Reduction>(ordered, through);
    for (int i = 0; i < Width; ++i) lane[i] = ordered[i].value();
    carried = through.value();
  }
}

#else

// The word of the lane that is `Distance` lower; undefined if there is none.
template <int Distance>
KILN_FN u32 lower_word(u32 value) {
#if KILN_AMD
  return u32(__builtin_amdgcn_ds_bpermute(int((threadIdx.x - u32(Distance)) << 2), int(value)));
#else
  return __shfl_up_sync(0xffffffffu, value, Distance);
#endif
}
// The word of the last lane of `Threads`.
template <int Threads>
KILN_FN u32 last_word(u32 value) {
#if KILN_AMD
  return u32(__builtin_amdgcn_ds_bpermute(int((threadIdx.x | u32(Threads - 1)) << 2), int(value)));
#else
  return __shfl_sync(0xffffffffu, value, int((threadIdx.x | u32(Threads - 1)) & 31u));
#endif
}

struct FromLower {
  template <int Distance>
  KILN_MEMBER static u32 word(u32 value) {
    return lower_word<Distance>(value);
  }
};
struct FromLast {
  template <int Threads>
  KILN_MEMBER static u32 word(u32 value) {
    return last_word<Threads>(value);
  }
};

template <class From, int Parameter, class T>
KILN_FN T fetch(T value) {
  if constexpr (sizeof(T) % 4 == 0) {
    auto words = bit_cast<Words<int(sizeof(T) / 4)>>(value);
    _Pragma("unroll") for (int i = 0; i < int(sizeof(T) / 4); ++i) {
      words.word[i] = From::template word<Parameter>(words.word[i]);
    }
    return bit_cast<T>(words);
  } else {
    return T(From::template word<Parameter>(u32(value)));
  }
}

template <class T, int Threads>
struct ScanSlots {
  T wave[(Threads + kWave - 1) / kWave];
};

// The running result of this lane and those below it, among `Threads`.
template <class Reduction, int Threads, int Distance = 1, class T>
KILN_FN T scan_wave(T value) {
  if constexpr (Distance >= Threads) {
    return value;
  } else {
    const T lower = fetch<FromLower, Distance>(value);
    const bool has_lower = int(threadIdx.x) % Threads >= Distance;
    const T joined = Reduction::combine(lower, value);
    return scan_wave<Reduction, Threads, Distance * 2>(has_lower ? joined : value);
  }
}

// Replaces the lanes of a block of elements by running results that continue `carried`, and updates
// `carried`.
template <class Reduction, int Threads, int Width, class T>
KILN_FN void scan(T (&lane)[Width], T& carried, ScanSlots<T, Threads>& slots) {
  constexpr int kTogether = Threads < kWave ? Threads : kWave;
  _Pragma("unroll") for (int i = 1; i < Width; ++i) {
    lane[i] = Reduction::combine(lane[i - 1], lane[i]);
  }
  const T through = scan_wave<Reduction, kTogether>(lane[Width - 1]);
  const bool is_first = int(threadIdx.x) % kTogether == 0;
  const T lower = fetch<FromLower, 1>(through);
  T before = carried;
  T all = fetch<FromLast, kTogether>(through);
  if constexpr (Threads > kWave) {
    constexpr int kWaves = Threads / kWave;
    const int wave = int(threadIdx.x) % Threads / kWave;
    KILN_SYNCHRONIZE();  // the block before has been read
    if (is_first) slots.wave[wave] = all;
    KILN_SYNCHRONIZE();
    T waves = slots.wave[0];
    T below = slots.wave[0];
    _Pragma("unroll") for (int i = 1; i < kWaves; ++i) {
      if (i == wave) below = waves;
      waves = Reduction::combine(waves, slots.wave[i]);
    }
    if (wave > 0) before = Reduction::combine(before, below);
    all = waves;
  }
  if (!is_first) before = Reduction::combine(before, lower);
  _Pragma("unroll") for (int i = 0; i < Width; ++i) lane[i] = Reduction::combine(before, lane[i]);
  carried = Reduction::combine(carried, all);
}

#endif

// ---- across rows --------------------------------------------------------------------------------

// The running results of neighbouring columns: of the blocks that are over, and of this one.
template <class T, int Width>
struct Columns {
  T all[Width];
  T block[Width];
};

template <class Reduction, class T, int Width>
KILN_FN Columns<T, Width> start_columns() {
  Columns<T, Width> columns;
  KILN_UNROLL for (int i = 0; i < Width; ++i) {
    columns.all[i] = Reduction::template identity<T>();
    columns.block[i] = Reduction::template identity<T>();
  }
  return columns;
}

template <class Reduction, class T, int Width, class Index>
KILN_FN void scan_row(T (&lane)[Width], Columns<T, Width>& columns, Index row) {
  const bool ends = row % kSumBlock == kSumBlock - 1;
  KILN_UNROLL for (int i = 0; i < Width; ++i) {
    const T block = Reduction::combine(columns.block[i], lane[i]);
    lane[i] = Reduction::combine(columns.all[i], block);
    columns.all[i] = ends ? lane[i] : columns.all[i];
    columns.block[i] = ends ? Reduction::template identity<T>() : block;
  }
}

}  // namespace kiln
