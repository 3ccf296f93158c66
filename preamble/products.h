// Matrix times a few vectors: unpacks small integers from the words that they were loaded in, adds
// products to sums, and combines the partial results of several rows at a time.
//
// Asked for by: lanes_of InWord gathered
#pragma once

#include "access_gpu.h"
#include "access_host.h"
#include "arithmetic.h"
#include "beside.h"
#include "convert.h"
#include "host_math.h"
#include "integer.h"
#include "native.h"
#include "packed.h"
#include "reduce.h"
#include "strides.h"

#define KILN_EACH(i, count) KILN_UNROLL for (int i = 0; i < count; ++i)
// Lanes are independent; the CPU vectorises the loop.
#if KILN_HOST && defined(__clang__)
#define KILN_EACH_LANE(lane, count) \
  _Pragma("clang loop vectorize(assume_safety)") for (int lane = 0; lane < count; ++lane)
#elif KILN_HOST
#define KILN_EACH_LANE(lane, count) _Pragma("GCC ivdep") for (int lane = 0; lane < count; ++lane)
#else
#define KILN_EACH_LANE(lane, count) KILN_EACH(lane, count)
#endif

namespace kiln {

// Adds a * b without rounding it first where the hardware can do that: a sum's terms are then
// closer to exact, and its error bound holds.
#if KILN_HOST
KILN_FN f32 add_product(f32 sum, f32 a, f32 b) { return host::madd(a, b, sum); }
KILN_FN f64 add_product(f64 sum, f64 a, f64 b) { return host::madd(a, b, sum); }
#else
KILN_FN f32 add_product(f32 sum, f32 a, f32 b) { return fma(a, b, sum); }
KILN_FN f64 add_product(f64 sum, f64 a, f64 b) { return fma(a, b, sum); }
#endif

// The whole number nearest to a zero point, or 0 for one so large that subtracting it from a small
// integer would not help.
KILN_FN f32 nearest_zero_point(f32 zero_point) {
  const f32 whole = (zero_point + 12582912.0f) - 12582912.0f;
  return zero_point <= 1024.0f && zero_point >= -1024.0f ? whole : 0.0f;
}
// That of a quotient, which may be approximate.
KILN_FN f32 nearest_zero_point(f32 dividend, f32 divisor) {
#if KILN_NVIDIA
  f32 reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(divisor));
#elif KILN_AMD
  const f32 reciprocal = __builtin_amdgcn_rcpf(divisor);
#else
  const f32 reciprocal = 1.0f / divisor;
#endif
  return nearest_zero_point(dividend * reciprocal);
}

template <class T>
KILN_FN constexpr bool is_packed() {
  return is_same<T, u4>() || is_same<T, i4>() || is_same<T, f4e2m1>();
}

// A lane in its storage type.
template <class T>
KILN_FN T as_stored(T lane) {
  return lane;
}

#if KILN_HOST

template <class T, int Lanes>
struct LanesAs {
  using Type = Row<const T>;
};
template <int Lanes>
struct LanesAs<u4, Lanes> {
  using Type = Unpacked<u4, Lanes>;
};
template <int Lanes>
struct LanesAs<i4, Lanes> {
  using Type = Unpacked<i4, Lanes>;
};
template <int Lanes>
struct LanesAs<f4e2m1, Lanes> {
  using Type = Unpacked<f4e2m1, Lanes>;
};
template <class T, int Lanes>
using LanesOf = typename LanesAs<T, Lanes>::Type;

#else

// A lane of a word that holds several, the first in its lowest bits. `place` is known when the loop
// over the lanes is unrolled, so shifts and masks are constants.
template <class T>
struct InWord {
  u32 word;
  int place;
};

template <class T>
KILN_FN constexpr int lane_bits() {
  return is_packed<T>() ? 4 : int(sizeof(T)) * 8;
}

template <class T>
KILN_FN T as_stored(InWord<T> lane) {
  const u32 bits = lane.word >> lane.place * lane_bits<T>();
  if constexpr (is_packed<T>())
    return T{u8(bits & 15)};
  else if constexpr (sizeof(T) == 1)
    return bit_cast<T>(u8(bits));
  else
    return bit_cast<T>(u16(bits));
}

KILN_FN f32 number(InWord<bf16> lane) {
  return bit_cast<f32>(lane.place == 0 ? lane.word << 16 : lane.word & 0xffff0000u);
}

// A small integer as an f32. Conversion instructions of NVIDIA GPUs have a quarter of the speed of
// arithmetic, so there the bits are put below the exponent of a power of two, which is subtracted
// again. AMD converts any byte of a word at full speed.
#if KILN_NVIDIA

struct Lifted {
  f32 value;  // the number and
  f32 power;  // what it was added to
};

// (word & mask) ^ bits in one instruction; the compiler would use two for two constants.
KILN_FN u32 select_bits(u32 word, u32 mask, u32 bits) {
  u32 result;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
  return result;
}

template <class T>
KILN_FN Lifted lifted(InWord<T> lane) {
  if constexpr (is_packed<T>()) {
    const int place = lane.place & 3;
    const u32 word = lane.place < 4 ? lane.word : lane.word >> 16;
    const u32 power = u32(127 + 23 - 4 * place) << 23;
    // With its highest bit flipped, an i4 is 8 more.
    const u32 above = is_same<T, i4>() ? 8u : 0u;
    const u32 bits = power | above << 4 * place;
    return {bit_cast<f32>(select_bits(word, 15u << 4 * place, bits)), bit_cast<f32>(bits)};
  } else {
    const u32 above = is_same<T, i8>() ? 0x80u : 0u;
    const u32 word = lane.word ^ above * 0x01010101u;
    const u32 bits = __byte_perm(word, 0x4b000000u, 0x7550u | u32(lane.place));
    return {bit_cast<f32>(bits), bit_cast<f32>(0x4b000000u | above)};
  }
}

// Two 8-bit floats as two f16, which hold them all, by an instruction.
enum : bool { kHasPairs = __CUDA_ARCH__ >= 890 };
template <class T>
KILN_FN u32 pair_of_halves(u16 pair) {
  u32 halves = 0;
#if __CUDA_ARCH__ >= 890
  if constexpr (is_same<T, f8e4m3>()) {
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
  } else {
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(pair));
  }
#endif
  return halves;
}

template <class T>
KILN_FN f32 number(InWord<T> lane) {
  if constexpr (is_same<T, u4>() || is_same<T, i4>() || is_same<T, u8>() || is_same<T, i8>()) {
    const Lifted number = lifted(lane);
    return number.value - number.power;
  } else if constexpr (kHasPairs && (is_same<T, f8e4m3>() || is_same<T, f8e5m2>())) {
    const u32 halves = pair_of_halves<T>(u16(lane.word >> (lane.place & 2) * 8));
    return to<f32>(f16{u16(halves >> (lane.place & 1) * 16)});
  } else {
    return to<f32>(as_stored(lane));
  }
}

// number(lane) * scale, rounded once, in one instruction less: power * scale is exact and needed
// once for all lanes. Not finite for scales from 2^104 on, where number(lane) * scale may be; the
// caller checks for that.
template <class T>
KILN_FN f32 scaled(InWord<T> lane, f32 scale) {
  static_assert(is_same<T, u4>() || is_same<T, u8>(), "scaled: the power of two has a single bit");
  const Lifted number = lifted(lane);
  return ::fmaf(number.value, scale, -number.power * scale);
}

#else

template <class T>
KILN_FN f32 number(InWord<T> lane) {
  if constexpr (is_same<T, u4>() || is_same<T, i4>()) {
    const u32 above = is_same<T, i4>() ? 8u : 0u;
    const u32 word = lane.word ^ above * 0x11111111u;
    u32 halves = (lane.place % 2 == 0 ? word : word >> 4) & 0x0f0f0f0fu;
    // Keeps the compiler from extracting each half by an instruction of its own.
    asm("" : "+v"(halves));
    return f32((halves >> lane.place / 2 * 8) & 255u) - f32(above);
  } else if constexpr (is_same<T, u8>()) {
    return f32((lane.word >> lane.place * 8) & 255u);
  } else {
    return to<f32>(as_stored(lane));
  }
}

#endif

// number(lane) - zero_point, for a whole number of at most 2048.
template <class T>
KILN_FN f32 minus_zero_point(InWord<T> lane, f32 zero_point) {
#if KILN_NVIDIA
  const Lifted number = lifted(lane);
  return number.value - (number.power + zero_point);
#else
  return number(lane) - zero_point;
#endif
}

template <int Count>
KILN_FN void carry_scaled(Lanes<f32, Count>& all, Lanes<f32, Count>& group, f32 scale) {
  KILN_EACH(i, Count) {
    all.lane[i] = add_product(all.lane[i], group.lane[i], scale);
    group.lane[i] = 0.0f;
  }
}

template <class To, class T>
KILN_FN To to(InWord<T> lane) {
  if constexpr (is_same<To, f32>())
    return number(lane);
  else
    return to<To>(as_stored(lane));
}

template <class T, int Lanes>
struct LaneWords {
  enum : int {
    kIn = 32 / lane_bits<T>(),
    kBytes = Lanes / kIn * 4,
  };
  alignas(kBytes % 16 == 0 ? 16 : kBytes) u32 word[Lanes / kIn];
  __device__ __forceinline__ InWord<T> operator[](int lane) const {
    return {word[lane / kIn], lane % kIn};
  }
};

// Small integers and small floats are loaded in whole words; fewer of them, and wider types, as
// they are.
template <class T, int Lanes,
          bool InWords = (sizeof(T) <= 2 && !is_same<T, b8>() && Lanes * lane_bits<T>() % 32 == 0)>
struct LanesAs {
  using Type = LaneWords<T, Lanes>;
};
template <class T, int Lanes>
struct LanesAs<T, Lanes, false> {
  using Type = Vec<T, Lanes>;
};
template <int Lanes>
struct LanesAs<u4, Lanes, false> {
  using Type = Unpacked<u4, Lanes>;
};
template <int Lanes>
struct LanesAs<i4, Lanes, false> {
  using Type = Unpacked<i4, Lanes>;
};
template <int Lanes>
struct LanesAs<f4e2m1, Lanes, false> {
  using Type = Unpacked<f4e2m1, Lanes>;
};
template <class T, int Lanes>
using LanesOf = typename LanesAs<T, Lanes>::Type;

template <class T, int Lanes>
KILN_FN constexpr bool is_in_words() {
  return is_same<LanesOf<T, Lanes>, LaneWords<T, Lanes>>();
}

#endif

// Elements [first, first + Lanes) of a row, as load() has them.
template <int Lanes, int Align, class T, class Index>
KILN_FN LanesOf<T, Lanes> lanes_of(const T* row, Index first) {
#if !KILN_HOST
  if constexpr (is_in_words<T, Lanes>()) {
    LanesOf<T, Lanes> result;
    copy_bytes<int(sizeof result.word), Align>(result.word, row + first);
    return result;
  } else
#endif
    return load<Lanes, Align>(row, first);
}
template <int Lanes, int Align, class T, class Place, class Index>
KILN_FN LanesOf<T, Lanes> lanes_of(Packed<const T, Place> row, Index first) {
  if constexpr (Lanes == 1) return {element(packed(row.data, row.element + Place(first)))};
#if !KILN_HOST
  if constexpr (is_in_words<T, Lanes>()) {
    // Rows begin with whole bytes: added separately, what rows have in common is computed once.
    LanesOf<T, Lanes> result;
    copy_bytes<Lanes / 2, Align>(result.word, row.data + (row.element >> 1) + (Place(first) >> 1));
    return result;
  } else
#endif
    return load<Lanes, Align>(row, first, Lanes);
}

// A vector of elements that lie anywhere: gathered one by one, it is loaded like any other, so that
// neither what is computed of it nor its order shows where they lay. GPUs have it in registers, as
// all indices are known. Of packed elements there are two to a byte.
template <class T, int Lanes>
struct Gathered {
  enum : int { kPerUnit = is_packed<T>() ? 2 : 1, kUnits = (Lanes + kPerUnit - 1) / kPerUnit };
#if KILN_HOST
  alignas(64) T of[kUnits];
#else
  alignas(16) T of[kUnits];
#endif
  KILN_MEMBER const T* row() const { return of; }
};

// Elements [first, first + Lanes) of a row, each `place(element)` elements from its beginning. Runs
// of neighbours are loaded at once.
template <int Lanes, int Run, class T, class Index, class Place>
KILN_FN Gathered<T, Lanes> gathered(const T* row, Index first, const Place& place) {
  Gathered<T, Lanes> result;
  KILN_EACH(i, Lanes / Run) {
    const T* const from = row + place(first + Index(i * Run));
#if KILN_HOST
    __builtin_memcpy(result.of + i * Run, from, Run * sizeof(T));
#else
    copy_bytes<Run* int(sizeof(T)), Run* int(sizeof(T))>(result.of + i * Run, from);
#endif
  }
  return result;
}
template <int Lanes, int Run, class T, class Offset, class Index, class Place>
KILN_FN Gathered<T, Lanes> gathered(Packed<const T, Offset> row, Index first, const Place& place) {
  Gathered<T, Lanes> result;
  KILN_EACH(i, int(result.kUnits)) {
    const T low = element(row + place(first + Index(2 * i)));
    const T high = 2 * i + 1 < Lanes ? element(row + place(first + Index(2 * i + 1))) : T{0};
    result.of[i] = T{u8(low.bits | high.bits << 4)};
  }
  return result;
}

#if !KILN_HOST
// The same of all rows of a thread, where these are side by side: `rows` each have their elements
// [first, first + Lanes), each `place(element)` elements from the first row's beginning.
template <int Align, class T, int Lanes, int Rows, class Index, class Place>
KILN_FN void gather_rows(Gathered<T, Lanes> (&rows)[Rows], const T* from, Index first,
                         const Place& place) {
  KILN_EACH(i, Lanes) {
    Vec<T, Rows> line;
    copy_bytes<Vec<T, Rows>::kBytes, Align>(line.lane, from + place(first + Index(i)));
    KILN_EACH(r, Rows) rows[r].of[i] = line.lane[r];
  }
}
template <int Align, class T, int Lanes, int Rows, class Offset, class Index, class Place>
KILN_FN void gather_rows(Gathered<T, Lanes> (&rows)[Rows], Packed<const T, Offset> from,
                         Index first, const Place& place) {
  Vec<T, Rows / 2> line[Lanes];
  KILN_EACH(i, Lanes) {
    const Offset at = from.element + Offset(place(first + Index(i)));
    copy_bytes<Rows / 2, Align>(line[i].lane, from.data + (at >> 1));
  }
  KILN_EACH(i, int(rows[0].kUnits)) {
    KILN_EACH(r, Rows) {
      const u32 low = u32(line[2 * i].lane[r / 2].bits) >> r % 2 * 4;
      const u32 high =
          2 * i + 1 < Lanes ? u32(line[(2 * i + 1) % Lanes].lane[r / 2].bits) >> r % 2 * 4 : 0;
      rows[r].of[i] = T{u8((low & 15) | (high & 15) << 4)};
    }
  }
}
#endif

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
// Products of weights of more than 8 bits follow the tree of rows (LaneSlots below, or as
// VectorSums on the CPU): each lane of a vector has results of its own, which are combined last.
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

// ---- sums that follow the tree of rows ----------------------------------------------------------

// Each lane of a vector has results of its own (fusion/numerics.md): those of threads are combined
// first, in the highest bits of their numbers, and those of a vector's lanes last. As long as a
// thread has several lanes, of two threads each keeps one half of them.
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

// The same of lanes, as above.
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

// Whether something holds for any thread of the block.
template <int Threads>
KILN_FN bool any_in_block(bool own, Slots<u32, Threads>& slots) {
  Lanes<u32, 1> any = {{own ? 1u : 0u}};
  return reduce<Max, Threads>(any, slots) != 0;
}

#endif

}  // namespace kiln
