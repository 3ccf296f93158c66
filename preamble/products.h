// Matrix times a few vectors: how the vectors of a row are taken in turns, and how the partial
// results of several rows at a time are combined. product_tree.h has those of weights of more than
// 8 bits.
#pragma once

#include "beside.h"
#include "product_lanes.h"

namespace kiln {

template <int Count>
KILN_FN bool all_finite(const f32 (&value)[Count]) {
  bool finite = true;
  KILN_EACH(i, Count) finite = finite && isfinite(value[i]);
  return finite;
}

// Where some results are not finite, all are computed again, and others then stay what they were.
template <class T, int Count>
struct FirstResults {
  T of[Count];
  KILN_MEMBER explicit FirstResults(const T (&value)[Count]) {
    KILN_EACH(i, Count) of[i] = value[i];
  }
  KILN_MEMBER void restore_finite(T (&value)[Count]) const {
    KILN_EACH(i, Count) value[i] = isfinite(of[i]) ? of[i] : value[i];
  }
};
template <class T>
KILN_FN void replace_unless_finite(T& result, T other) {
  result = isfinite(result) ? result : other;
}

// Rows past the end repeat the last row; they are not stored.
template <class Index>
KILN_FN Index row_or_last(Index row, Index count) {
  return row < count ? row : count - 1;
}

// A thread adds the products of a vector of W elements to one sum per lane (A of them) and those to
// the total, so a sum of n elements by t threads has an error of at most
//   (W / A + n / (W t) + log2(A t) + 1) u
// times the sum of the sizes of its terms, u being half a unit in the last place of 1; on GPUs t is
// the number of threads that a row can have, whose vectors fewer threads take in turns. The CPU
// adds a sum to its total after 64 terms; where it computes with whole vectors (product_vectors.h),
// A is 16.
//
// Where the terms are small integers n with a scale s and a bias b for each group, times x, GPUs
// sum (n - p) x and x, and scale the two sums once for each group, by s and by b + p s. The whole
// number p nearest to -b / s keeps the two from cancelling: |s (n - p)| + |b + p s| is at most
// three times |s n + b|, so the error is at most three times the bound above. A sum that is not
// finite is recomputed term by term.
//
// Where x are integers too (product_integers.h), the products of a vector are added up exactly, so
// W / A is 1 there.

// ---- the vectors of a row, in turns -------------------------------------------------------------

// The turn whose vectors are taken as number `turn`: pairs half of all apart come one after the
// other.
template <int Turns>
KILN_FN u32 reversed_turn(u32 turn) {
  u32 result = 0;
  KILN_UNROLL for (int bit = 1; bit < Turns; bit *= 2) {
    result = result * 2 + (turn & 1u);
    turn >>= 1;
  }
  return result;
}
#if KILN_HOST
#define KILN_EACH_TURN(turn, turns) for (u32 turn = 0; turn < turns; ++turn)
#else
#define KILN_EACH_TURN(turn, turns) _Pragma("unroll 1") for (u32 turn = 0; turn < turns; ++turn)
#endif

// Two partial results of each lane.
template <class Reduction, class T>
KILN_FN T combine_results(T a, T b) {
  return Reduction::combine(a, b);
}
template <class Reduction, class T, int Width>
KILN_FN Lanes<T, Width> combine_results(const Lanes<T, Width>& a, const Lanes<T, Width>& b) {
  Lanes<T, Width> result;
  KILN_EACH(i, Width) result.lane[i] = Reduction::combine(a.lane[i], b.lane[i]);
  return result;
}

// What a thread has after some turns: of each power of two of these the results, if their number
// has it. With the last turn all are combined.
template <class T, int Count, int Results>
struct Turns {
  static constexpr int levels(int count) { return count <= 2 ? 1 : 1 + levels((count + 1) / 2); }
  enum : int { kLevels = levels(Count) };
  T of[kLevels][Results];
#if KILN_HOST
  template <class Reduction>
  KILN_MEMBER void add(u32 turn, T (&value)[Results]) {
    int level = 0;
    for (; (turn >> level & 1u) != 0; ++level) {
      KILN_EACH(i, Results) value[i] = combine_results<Reduction>(of[level][i], value[i]);
    }
    if (level == kLevels) return;  // the last one
    KILN_EACH(i, Results) of[level][i] = value[i];
  }
#else
  template <class Reduction>
  KILN_MEMBER void add(u32 turn, T (&value)[Results]) {
    bool complete = true;
    KILN_EACH(level, int(kLevels)) {
      const bool combines = complete && (turn >> level & 1u) != 0;
      KILN_EACH(i, Results) {
        if (combines) value[i] = combine_results<Reduction>(of[level][i], value[i]);
        if (complete && !combines) of[level][i] = value[i];
      }
      complete = combines;
    }
  }
#endif
};

#if KILN_HOST

// A thread has whole rows.
#define KILN_FOR_VECTORS_OF_TURN(Index, threads, turns, turn, vector, count) \
  for (Index vector = ::kiln::reversed_turn<turns>(turn); vector < count; vector += turns)

template <class T, int Threads, int Count>
struct ManySlots {};
template <class Reduction, int Threads, class T, int Count>
KILN_FN void reduce_all(T (&)[Count], ManySlots<T, Threads, Count>&) {}

#else

// What the threads of a row have is combined in pairs, half of all apart first, be they in one wave
// or in several, or be it that one thread takes the vectors of several of them in turns. Threads
// are numbered as the vectors that they take: eight neighbours of a wave read whole lines of 128
// bytes, the next eight lines that are far from these, so that a wave has pairs that are far apart.
template <int Threads>
struct ProductThreads {
  enum : int {
    kTogether = Threads < kWave ? Threads : kWave,
    kWaves = Threads / kTogether,
    kNear = kWaves == 1 ? kTogether : 8,
    kApart = kTogether / kNear,
    kShared = kApart < kWaves ? kApart : kWaves,  // as many lanes share the results of waves
  };
  static_assert((Threads & (Threads - 1)) == 0, "ProductThreads: a power of two");
  static __device__ __forceinline__ u32 lane() { return threadIdx.x % kTogether; }
  static __device__ __forceinline__ u32 wave() { return threadIdx.x % Threads / kTogether; }
  static __device__ __forceinline__ u32 thread() {
    return lane() % kNear + kNear * (wave() + kWaves * (lane() / kNear));
  }
};

template <class Index, int Threads, int Turns>
KILN_FN Index first_of_turn(u32 turn) {
  return ProductThreads<Threads>::thread() + reversed_turn<Turns>(turn) * u32(Threads);
}
#define KILN_FOR_VECTORS_OF_TURN(Index, threads, turns, turn, vector, count)              \
  for (Index vector = ::kiln::first_of_turn<Index, threads, turns>(turn); vector < count; \
       vector += Index(threads) * turns)

template <class T, int Threads, int Count>
struct ManySlots {
  using Row = ProductThreads<Threads>;
  T wave[Row::kWaves][Row::kNear][Count];
};

// Combines what lanes have that differ in the bits of their numbers from `Mask` down to `End`.
template <class Reduction, int Mask, int End, class T>
KILN_FN T combine_lanes(T value) {
  if constexpr (Mask < End) {
    return value;
  } else {
    return combine_lanes<Reduction, Mask / 2, End>(
        Reduction::combine(value, exchange<Mask, false>(value)));
  }
}
// Combines result `i` of every `Step`th wave from `wave` on, `Count` of them.
template <class Reduction, int Count, int Step, class Slots>
KILN_FN auto combine_slots(const Slots& slots, u32 wave, int near, int i) {
  if constexpr (Count == 1) {
    return slots[wave][near][i];
  } else {
    return Reduction::combine(
        combine_slots<Reduction, Count / 2, Step * 2>(slots, wave, near, i),
        combine_slots<Reduction, Count / 2, Step * 2>(slots, wave + Step, near, i));
  }
}

// LLVM 14 (HIP 5.2) puts neighbouring results into pairs of registers (gfx90a), and forgets to move
// the second ones of some past the branch around what computes results again.
template <class T, int Count>
KILN_FN void keep_apart(T (&value)[Count]) {
#if KILN_AMD
  if constexpr (is_same<T, f32>()) {
    KILN_EACH(i, Count) asm("" : "+v"(value[i]));
  }
#endif
}

// Every thread of the rows gets the results, after one barrier for all of them.
template <class Reduction, int Threads, class T, int Count>
KILN_FN void reduce_all(T (&value)[Count], ManySlots<T, Threads, Count>& slots) {
  using Row = ProductThreads<Threads>;
  constexpr int kEnd = Row::kWaves == 1 ? 1 : int(Row::kNear);
  KILN_EACH(i, Count) value[i] = combine_lanes<Reduction, Row::kTogether / 2, kEnd>(value[i]);
  if constexpr (Row::kWaves > 1) {
    const u32 lane = Row::lane();
    if (lane < Row::kNear) {
      KILN_EACH(i, Count) slots.wave[Row::wave()][lane][i] = value[i];
    }
    KILN_SYNCHRONIZE();
    KILN_EACH(i, Count) {
      value[i] = combine_lanes<Reduction, Row::kNear * Row::kShared / 2, 1>(
          combine_slots<Reduction, Row::kWaves / Row::kShared, Row::kShared>(
              slots.wave, lane / Row::kNear % Row::kShared, int(lane) % Row::kNear, i));
    }
  }
  keep_apart(value);
}

// ---- rows that are side by side in memory -------------------------------------------------------

// Threads side by side take neighbouring rows, so that they read whole lines together; those of a
// row are `Beside` threads from each other. They are numbered as the vectors that they take, and
// combined in the same order as other threads of a row.
template <int Beside, int Threads>
struct RowsBeside : ThreadsBeside<Beside, Threads> {
  static __device__ __forceinline__ u32 column() { return threadIdx.x % Beside; }
  static __device__ __forceinline__ u32 place() { return threadIdx.x / Beside; }
  static __device__ __forceinline__ u32 thread() {
    return ThreadsBeside<Beside, Threads>::thread_number(place());
  }
};
template <int Beside, class Index>
KILN_FN Index row_beside(Index item) {
  return item * Beside + Index(threadIdx.x % Beside);
}
template <int Beside>
KILN_FN bool is_first_beside() {
  return threadIdx.x < Beside;
}
// The number of a thread's rows divides that of all: those past the end repeat the last ones.
template <int Rows, class Index>
KILN_FN Index rows_or_last(Index row, Index count) {
  return row < count ? row : count - Rows;
}
#define KILN_FOR_VECTORS_BESIDE(Index, beside, threads, turns, turn, vector, count) \
  for (Index vector = ::kiln::RowsBeside<beside, threads>::thread() +               \
                      ::kiln::reversed_turn<turns>(turn) * u32(threads);            \
       vector < count; vector += Index(threads) * turns)

template <class T, int Beside, int Threads, int Count>
struct SlotsBeside {
  enum : int { kGroups = ThreadsBeside<Beside, Threads>::kGroups };
  T group[kGroups][Beside][Count];
  T all[Beside][Count];
};

// Every thread of the rows gets the results: one thread combines what groups have of each.
template <class Reduction, int Beside, int Threads, class T, int Count>
KILN_FN void reduce_beside(T (&value)[Count], SlotsBeside<T, Beside, Threads, Count>& slots) {
  using Row = RowsBeside<Beside, Threads>;
  KILN_EACH(i, Count) {
    value[i] = combine_lanes<Reduction, Beside * Row::kTogether / 2, Beside>(value[i]);
  }
  if constexpr (Row::kGroups > 1) {
    if (Row::place() % Row::kTogether == 0) {
      KILN_EACH(i, Count) slots.group[Row::place() / Row::kTogether][Row::column()][i] = value[i];
    }
    KILN_SYNCHRONIZE();
    for (u32 own = threadIdx.x; own < u32(Beside * Count); own += Beside * Threads) {
      slots.all[own / Count][own % Count] =
          combine_slots<Reduction, Row::kGroups, 1>(slots.group, 0, int(own / Count), own % Count);
    }
    KILN_SYNCHRONIZE();
    KILN_EACH(i, Count) value[i] = slots.all[Row::column()][i];
  }
  keep_apart(value);
}

// Whether something holds for any thread of the block.
template <int Threads>
KILN_FN bool any_in_block(bool own, Slots<u32, Threads>& slots) {
  Lanes<u32, 1> any = {{own ? 1u : 0u}};
  return reduce<Max, Threads>(any, slots) != 0;
}

#endif

}  // namespace kiln
