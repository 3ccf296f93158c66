// Reductions of columns, on GPUs.
#pragma once

#include "reduce.h"

#if !KILN_HOST
namespace kiln {

// Threads of a column are `Columns` threads from each other. Those in one wave exchange registers;
// the waves, or all threads where a wave is only columns, exchange through shared memory, with one
// slot for each lane of each.
template <int Columns, int Threads>
struct ColumnExchange {
  enum : int {
    kWithin = Columns >= kWave ? 1 : kWave / Columns,
    kTogether = Threads < kWithin ? Threads : kWithin,
    kGroups = Threads / kTogether,
  };
};
template <int Bytes, int Columns, int Threads, int Rows, int Width>
struct ColumnSlots {
  enum : int { kGroups = ColumnExchange<Columns, Threads>::kGroups };
  alignas(16) u8 byte[kGroups == 1 ? 16 : kGroups * Columns * Rows * Width * Bytes];
};

template <class Reduction, int Mask, int End, class T>
KILN_FN T reduce_across(T value) {
  if constexpr (Mask >= End) {
    return value;
  } else {
    return reduce_across<Reduction, Mask * 2, End>(
        Reduction::combine(value, exchange<Mask, false>(value)));
  }
}

template <class Reduction, int Stride, int Count, class T>
KILN_FN T combine_slots(const T* slots) {
  if constexpr (Count == 1) {
    return *slots;
  } else {
    return Reduction::combine(
        combine_slots<Reduction, Stride, Count / 2>(slots),
        combine_slots<Reduction, Stride, Count / 2>(slots + Count / 2 * Stride));
  }
}

// Every thread of a column gets its result, combined in the same order as that of a row.
template <class Reduction, int Columns, int Threads, class T, int Width, class Slots>
KILN_FN void reduce_columns(Lanes<T, Width>& lanes, Slots& slots) {
  using Exchange = ColumnExchange<Columns, Threads>;
  KILN_UNROLL for (int i = 0; i < Width; ++i) {
    lanes.lane[i] = reduce_across<Reduction, Columns, Columns * Exchange::kTogether>(lanes.lane[i]);
  }
  if constexpr (Exchange::kGroups > 1) {
    constexpr int kStride = Columns * Width;
    T* const own = reinterpret_cast<T*>(slots.byte) +
                   threadIdx.x / (Columns * Threads) * (Exchange::kGroups * kStride) +
                   threadIdx.x % Columns;
    const int thread = int(thread_of<Columns, Threads>());
    KILN_SYNCHRONIZE();  // all have read the slots of the reduction before
    if (thread % Exchange::kTogether == 0) {
      KILN_UNROLL for (int i = 0; i < Width; ++i) {
        own[thread / Exchange::kTogether * kStride + i * Columns] = lanes.lane[i];
      }
    }
    KILN_SYNCHRONIZE();
    KILN_UNROLL for (int i = 0; i < Width; ++i) {
      lanes.lane[i] = combine_slots<Reduction, kStride, Exchange::kGroups>(own + i * Columns);
    }
  }
}

// Joins the results of `Joined` neighbouring columns that are one row: each of them gets the row's.
// Threads that are side by side have neighbouring vectors.
template <class Reduction, int Joined, class T, int Width>
KILN_FN void join_columns(Lanes<T, Width>& lanes) {
  KILN_UNROLL for (int apart = 1; apart < Joined && apart < Width; apart *= 2) {
    const Lanes<T, Width> own = lanes;
    KILN_UNROLL for (int i = 0; i < Width; ++i) {
      lanes.lane[i] = Reduction::combine(own.lane[i], own.lane[i ^ apart]);
    }
  }
  if constexpr (Joined > Width) {
    KILN_UNROLL for (int i = 0; i < Width; ++i) {
      lanes.lane[i] = reduce_across<Reduction, 1, Joined / Width>(lanes.lane[i]);
    }
  }
}

}  // namespace kiln
#endif
