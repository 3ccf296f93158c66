// Matrix times a few vectors, where sums follow the tree of rows (fusion/numerics.md): each lane of
// a vector has results of its own. Those of threads are combined first, in the highest bits of
// their numbers, and those of a vector's lanes last. As long as a thread has several lanes, of two
// threads each keeps one half of them. On the CPU these are VectorSums (product_vectors.h).
#pragma once

#include "products.h"

#if !KILN_HOST
namespace kiln {

template <class Reduction, int Mask, int End, int Kept, class T, int Width, int Results>
KILN_FN void scatter_lanes(Lanes<T, Width> (&sums)[Results]) {
  if constexpr (Mask >= End) {
    if constexpr (Kept > 1) {
      const bool upper = (threadIdx.x & Mask) != 0;
      KILN_EACH(i, Results) {
        KILN_EACH(l, Kept / 2) {
          T kept = sums[i].lane[l];
          T given = sums[i].lane[l + Kept / 2];
          if (upper) {  // as in scatter_across() (reduce.h)
            kept = sums[i].lane[l + Kept / 2];
            given = sums[i].lane[l];
          }
          sums[i].lane[l] = Reduction::combine(kept, exchange<Mask, false>(given));
        }
      }
      scatter_lanes<Reduction, Mask / 2, End, Kept / 2>(sums);
    } else {
      KILN_EACH(i, Results) {
        sums[i].lane[0] = combine_lanes<Reduction, Mask, End>(sums[i].lane[0]);
      }
    }
  }
}

// Then the lanes of a vector, which are in `Split` threads, from `Mask` down, and `Kept` in each.
template <class Reduction, int Mask, int Split, int Kept, class T, int Width>
KILN_FN T combine_scattered(Lanes<T, Width>& sum) {
  if constexpr (Split == 1) {
    return fold<Reduction, Kept>(sum);
  } else {
    KILN_EACH(l, Kept) {
      sum.lane[l] = Reduction::combine(sum.lane[l], exchange<Mask, false>(sum.lane[l]));
    }
    return combine_scattered<Reduction, Mask / 2, Split / 2, Kept>(sum);
  }
}

template <class T, int Threads, int Results, int Width>
struct LaneSlots {
  using Row = ProductThreads<Threads>;
  enum : int {
    kEnd = Row::kWaves == 1 ? 1 : int(Row::kNear),
    kApart = Row::kTogether / kEnd,
    kSplit = Width < kApart ? Width : kApart,
    kKept = Width / kSplit,
  };
  // Threads that have the same have one place.
  static __device__ __forceinline__ int place() {
    const int lane = int(Row::lane());
    return lane / (Row::kTogether / kSplit) * kEnd + lane % kEnd;
  }
  T wave[Row::kWaves][kSplit * kEnd][Results * kKept];
  T all[Results];
};

// Every thread of the rows gets the results. Waves take turns in combining what all have of one.
template <class Reduction, int Threads, class T, int Results, int Width>
KILN_FN void reduce_lanes(T (&value)[Results], Lanes<T, Width> (&sums)[Results],
                          LaneSlots<T, Threads, Results, Width>& slots) {
  using Slots = LaneSlots<T, Threads, Results, Width>;
  using Row = ProductThreads<Threads>;
  constexpr int kTop = Row::kTogether / 2;
  constexpr int kSplit = Slots::kSplit;
  constexpr int kKept = Slots::kKept;
  scatter_lanes<Reduction, kTop, Slots::kEnd, Width>(sums);
  if constexpr (Row::kWaves == 1) {
    KILN_EACH(i, Results) value[i] = combine_scattered<Reduction, kTop, kSplit, kKept>(sums[i]);
  } else {
    const int place = Slots::place();
    KILN_EACH(i, Results) {
      KILN_EACH(l, kKept) slots.wave[Row::wave()][place][i * kKept + l] = sums[i].lane[l];
    }
    KILN_SYNCHRONIZE();
    for (int i = int(Row::wave()); i < Results; i += Row::kWaves) {
      Lanes<T, kKept> sum;
      KILN_EACH(l, kKept) {
        sum.lane[l] = combine_lanes<Reduction, Row::kNear / 2, 1>(
            combine_slots<Reduction, Row::kWaves, 1>(slots.wave, 0, place, i * kKept + l));
      }
      const T all = combine_scattered<Reduction, kTop, kSplit, kKept>(sum);
      if (Row::lane() == 0) slots.all[i] = all;
    }
    KILN_SYNCHRONIZE();
    KILN_EACH(i, Results) value[i] = slots.all[i];
  }
  keep_apart(value);
}

// The same of rows that are side by side in memory.
template <class T, int Beside, int Threads, int Results, int Width>
struct LaneSlotsBeside {
  using Row = RowsBeside<Beside, Threads>;
  enum : int {
    kSplit = Width < int(Row::kTogether) ? Width : int(Row::kTogether),
    kKept = Width / kSplit,
    kApart = Row::kTogether / kSplit,  // threads that have the same
  };
  T group[Row::kGroups][kSplit * Beside][Results * kKept];
  T all[Beside][Results];
};
template <class Reduction, int Beside, int Threads, class T, int Results, int Width>
KILN_FN void reduce_lanes_beside(T (&value)[Results], Lanes<T, Width> (&sums)[Results],
                                 LaneSlotsBeside<T, Beside, Threads, Results, Width>& slots) {
  using Slots = LaneSlotsBeside<T, Beside, Threads, Results, Width>;
  using Row = RowsBeside<Beside, Threads>;
  constexpr int kTop = Beside * Row::kTogether / 2;
  constexpr int kKept = Slots::kKept;
  scatter_lanes<Reduction, kTop, Beside, Width>(sums);
  if constexpr (Row::kGroups == 1) {
    KILN_EACH(i, Results) {
      value[i] = combine_scattered<Reduction, kTop, Slots::kSplit, kKept>(sums[i]);
    }
  } else {
    const u32 place = Row::place() % Row::kTogether;
    if (place % Slots::kApart == 0) {
      const u32 own = place / Slots::kApart * Beside + Row::column();
      KILN_EACH(i, Results) {
        KILN_EACH(l, kKept) {
          slots.group[Row::place() / Row::kTogether][own][i * kKept + l] = sums[i].lane[l];
        }
      }
    }
    KILN_SYNCHRONIZE();
    for (u32 own = threadIdx.x; own < u32(Beside * Results); own += Beside * Threads) {
      const int i = int(own % Results);
      Lanes<T, Width> sum;
      KILN_EACH(l, Width) {
        sum.lane[l] = combine_slots<Reduction, Row::kGroups, 1>(
            slots.group, 0, l / kKept * Beside + int(own / Results), i * kKept + l % kKept);
      }
      slots.all[own / Results][i] = fold<Reduction, Width>(sum);
    }
    KILN_SYNCHRONIZE();
    KILN_EACH(i, Results) value[i] = slots.all[Row::column()][i];
  }
  keep_apart(value);
}

}  // namespace kiln
#endif
