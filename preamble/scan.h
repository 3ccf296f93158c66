// Running results along an axis (scans: cumsum, cumprod, cummax): across the lanes of a thread, the
// threads of a wave and the waves of a block; the result so far is carried from one block of
// elements to the next. The operations are in reduce.h.
//
// The order of sums and products of floats follows from the number of elements alone
// (fusion/numerics.md), however many lanes and threads there are, along rows as along columns.
// Blocks have kScanElements of them, in parts of kScanPart. Within a part, and of the parts of a
// block, running results are those of pairs, then of pairs of these, and so on: the second of two
// takes what the first one came to. So element i of a row has an error of at most
// (10 + n / kScanElements) u times the sum of the sizes of the terms up to it, u being half a unit
// in the last place of 1.
#pragma once

#include "convert.h"
#include "reduce.h"

namespace kiln {

enum : int { kScanPart = 8, kScanElements = 256 };

// Whether results show the order in which elements are combined.
template <class Reduction, class T>
KILN_FN constexpr bool shows_order() {
  if constexpr (is_same<Reduction, Sum>() || is_same<Reduction, Prod>()) return !is_integer<T>();
  return false;
}

// ---- along rows ---------------------------------------------------------------------------------

// Running results of all values. Not by a pointer to them: HIP 6.4's compiler (LLVM 21) takes what
// is stored through one for dead.
template <class Reduction, int Half = 1, int Count, class T>
KILN_FN void scan_pairs(T (&value)[Count]) {
  if constexpr (Half < Count) {
    KILN_UNROLL for (int i = Half; i < Count; i += 2 * Half) {
      KILN_UNROLL for (int k = 0; k < Half; ++k) {
        value[i + k] = Reduction::combine(value[i - 1], value[i + k]);
      }
    }
    scan_pairs<Reduction, 2 * Half>(value);
  }
}

#if KILN_HOST

template <class T, int Threads>
struct ScanSlots {};

// Lanes of a vector.
#if defined(__clang__)
#define KILN_PICK_LANES(value, ...) __builtin_shufflevector(value, value, __VA_ARGS__)
#else
#define KILN_PICK_LANES(value, ...) __builtin_shuffle(value, Indices{__VA_ARGS__})
#endif

// Running sums of eight neighbours in vectors of 32 bytes: where a lane is in the first half of a
// pair, it takes 0.
template <class T>
struct EightSums {
  enum : bool { exist = false };
};
template <>
struct EightSums<f32> {
  enum : bool { exist = true };
  typedef f32 Vector __attribute__((vector_size(32)));
  typedef i32 Indices __attribute__((vector_size(32)));
  static inline __attribute__((always_inline)) void scan(f32* lane) {
    Vector value;
    __builtin_memcpy(&value, lane, sizeof value);
    const Vector ones = KILN_PICK_LANES(value, 0, 0, 2, 2, 4, 4, 6, 6);
    value += (Vector)((Indices)ones & Indices{0, -1, 0, -1, 0, -1, 0, -1});
    const Vector pairs = KILN_PICK_LANES(value, 1, 1, 1, 1, 5, 5, 5, 5);
    value += (Vector)((Indices)pairs & Indices{0, 0, -1, -1, 0, 0, -1, -1});
    const Vector fours = KILN_PICK_LANES(value, 3, 3, 3, 3, 3, 3, 3, 3);
    value += (Vector)((Indices)fours & Indices{0, 0, 0, 0, -1, -1, -1, -1});
    __builtin_memcpy(lane, &value, sizeof value);
  }
};
template <>
struct EightSums<f64> {
  enum : bool { exist = true };
  typedef f64 Vector __attribute__((vector_size(32)));
  typedef i64 Indices __attribute__((vector_size(32)));
  static inline __attribute__((always_inline)) Vector four(const f64* lane) {
    Vector value;
    __builtin_memcpy(&value, lane, sizeof value);
    const Vector ones = KILN_PICK_LANES(value, 0, 0, 2, 2);
    value += (Vector)((Indices)ones & Indices{0, -1, 0, -1});
    const Vector pairs = KILN_PICK_LANES(value, 1, 1, 1, 1);
    return value + (Vector)((Indices)pairs & Indices{0, 0, -1, -1});
  }
  static inline __attribute__((always_inline)) void scan(f64* lane) {
    const Vector first = four(lane);
    const Vector second = four(lane + 4) + KILN_PICK_LANES(first, 3, 3, 3, 3);
    __builtin_memcpy(lane, &first, sizeof first);
    __builtin_memcpy(lane + 4, &second, sizeof second);
  }
};

// Running results of `Width` neighbours by pairs, then pairs of pairs.
template <class Reduction, int Width, class T>
KILN_FN void scan_neighbours(T* lane) {
  if constexpr (Width >= 8 && is_same<Reduction, Sum>() && EightSums<T>::exist) {
    constexpr int kVectors = Width / 8;
    for (int k = 0; k < kVectors; ++k) EightSums<T>::scan(lane + 8 * k);
    for (int half = 1; half < kVectors; half *= 2) {
      for (int k = 0; k < kVectors; ++k) {
        if ((k & half) == 0) continue;
        const T before = lane[(k & ~(half - 1)) * 8 - 1];
        for (int i = 0; i < 8; ++i) lane[8 * k + i] += before;
      }
    }
  } else {
    scan_pairs<Reduction>(*reinterpret_cast<T(*)[Width]>(lane));
  }
}

// Vectors of sixteen words, and what combines them.
typedef f32 SixteenFloats __attribute__((vector_size(64)));
typedef i32 SixteenInts __attribute__((vector_size(64)));
typedef u32 SixteenUnsigned __attribute__((vector_size(64)));
template <class Reduction, class T>
struct SixteenWords {
  enum : bool { exist = false };
};
#define KILN_SIXTEEN_WORDS(Reduction, T, Words, combined)                          \
  template <>                                                                      \
  struct SixteenWords<Reduction, T> {                                              \
    enum : bool { exist = true };                                                  \
    using Vector = Words;                                                          \
    static inline __attribute__((always_inline)) Words combine(Words a, Words b) { \
      return combined;                                                             \
    }                                                                              \
  };
KILN_SIXTEEN_WORDS(Sum, f32, SixteenFloats, a + b)
KILN_SIXTEEN_WORDS(Prod, f32, SixteenFloats, a* b)
KILN_SIXTEEN_WORDS(Max, Rising, SixteenUnsigned, a < b ? b : a)
KILN_SIXTEEN_WORDS(Max, i32, SixteenInts, a < b ? b : a)
#undef KILN_SIXTEEN_WORDS
#if defined(__clang__)
#define KILN_PICK_WORDS(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define KILN_PICK_WORDS(a, b, ...) __builtin_shuffle(a, b, SixteenInts{__VA_ARGS__})
#endif

// Words of each 16 bytes of four vectors: the first ones of all four become the first vector, the
// second ones the second one, and so on. Twice that is nothing.
template <class Vector>
KILN_FN void transpose_quads(Vector (&a)[4]) {
  Vector b[4];
  _Pragma("GCC unroll 2") for (int i = 0; i < 4; i += 2) {
    b[i] =
        KILN_PICK_WORDS(a[i], a[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
    b[i + 1] =
        KILN_PICK_WORDS(a[i], a[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  }
  _Pragma("GCC unroll 2") for (int i = 0; i < 2; ++i) {
    a[2 * i] =
        KILN_PICK_WORDS(b[i], b[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
    a[2 * i + 1] =
        KILN_PICK_WORDS(b[i], b[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  }
}

// The lanes of `b` whose bits in `which` are set, and those of `a`.
#define KILN_PICK_SECOND(a, b, which)                                                              \
  KILN_PICK_WORDS(a, b, (which) >> 0 & 1 ? 16 : 0, (which) >> 1 & 1 ? 17 : 1,                      \
                  (which) >> 2 & 1 ? 18 : 2, (which) >> 3 & 1 ? 19 : 3, (which) >> 4 & 1 ? 20 : 4, \
                  (which) >> 5 & 1 ? 21 : 5, (which) >> 6 & 1 ? 22 : 6, (which) >> 7 & 1 ? 23 : 7, \
                  (which) >> 8 & 1 ? 24 : 8, (which) >> 9 & 1 ? 25 : 9,                            \
                  (which) >> 10 & 1 ? 26 : 10, (which) >> 11 & 1 ? 27 : 11,                        \
                  (which) >> 12 & 1 ? 28 : 12, (which) >> 13 & 1 ? 29 : 13,                        \
                  (which) >> 14 & 1 ? 30 : 14, (which) >> 15 & 1 ? 31 : 15)

// Running results of sixteen neighbours, by pairs, then pairs of pairs.
template <class Words, class Vector>
KILN_FN Vector scan_sixteen(Vector value) {
  const Vector ones =
      KILN_PICK_WORDS(value, value, 0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14);
  value = KILN_PICK_SECOND(value, Words::combine(ones, value), 0xaaaa);
  const Vector pairs =
      KILN_PICK_WORDS(value, value, 1, 1, 1, 1, 5, 5, 5, 5, 9, 9, 9, 9, 13, 13, 13, 13);
  value = KILN_PICK_SECOND(value, Words::combine(pairs, value), 0xcccc);
  const Vector fours =
      KILN_PICK_WORDS(value, value, 3, 3, 3, 3, 3, 3, 3, 3, 11, 11, 11, 11, 11, 11, 11, 11);
  value = KILN_PICK_SECOND(value, Words::combine(fours, value), 0xf0f0);
  const Vector eights =
      KILN_PICK_WORDS(value, value, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7);
  return KILN_PICK_SECOND(value, Words::combine(eights, value), 0xff00);
}

// A block of elements, of which eight parts are in four vectors. In each 16 bytes of a vector these
// have an element of parts 0, 2, 4 and 6, or of the others: elements 0 to 3 in the even ones, 4 to
// 7 in the odd ones.
template <class Reduction, int Width, class T>
KILN_FN void scan_block_of_words(T (&lane)[Width], T& carried) {
  using Words = SixteenWords<Reduction, T>;
  using Vector = typename Words::Vector;
  constexpr int kParts = Width / kScanPart;
  constexpr int kEights = kParts / 8;
  constexpr int kSixteens = (kEights + 1) / 2;
  Vector quads[kEights][4];
  Vector through[kSixteens];
  __builtin_memcpy(quads, lane, sizeof quads);
  _Pragma("GCC unroll 4") for (int k = 0; k < kEights; ++k) {
    Vector(&quad)[4] = quads[k];
    transpose_quads(quad);
    quad[1] = Words::combine(quad[0], quad[1]);
    quad[3] = Words::combine(quad[2], quad[3]);
    quad[2] = Words::combine(quad[1], quad[2]);
    quad[3] = Words::combine(quad[1], quad[3]);
    const Vector fours =
        KILN_PICK_WORDS(quad[3], quad[3], 0, 1, 2, 3, 0, 1, 2, 3, 8, 9, 10, 11, 8, 9, 10, 11);
    _Pragma("GCC unroll 4") for (int n = 0; n < 4; ++n) {
      quad[n] = KILN_PICK_SECOND(quad[n], Words::combine(fours, quad[n]), 0xf0f0);
    }
  }
  _Pragma("GCC unroll 2") for (int n = 0; n < kSixteens; ++n) {
    const Vector& first = quads[2 * n][3];
    const Vector& second = quads[2 * n + 1 < kEights ? 2 * n + 1 : 2 * n][3];
    through[n] = scan_sixteen<Words>(
        KILN_PICK_WORDS(first, second, 4, 12, 5, 13, 6, 14, 7, 15, 20, 28, 21, 29, 22, 30, 23, 31));
  }
  static_assert(kSixteens <= 2, "scan_block_of_words: at most two vectors of parts");
  if constexpr (kSixteens == 2) {
    const Vector first = KILN_PICK_WORDS(through[0], through[0], 15, 15, 15, 15, 15, 15, 15, 15, 15,
                                         15, 15, 15, 15, 15, 15, 15);
    through[1] = Words::combine(first, through[1]);
  }
  T block[16];
  __builtin_memcpy(block, &through[kSixteens - 1], sizeof block);
  T all[16];
  for (int i = 0; i < 16; ++i) all[i] = carried;
  Vector begin;
  __builtin_memcpy(&begin, all, sizeof begin);
  Vector last = begin;
  _Pragma("GCC unroll 2") for (int n = 0; n < kSixteens; ++n) {
    // What is before each part: what is before the block, and the parts before it.
    const Vector shifted = KILN_PICK_WORDS(last, through[n], 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,
                                           25, 26, 27, 28, 29, 30);
    last = through[n];
    Vector before = Words::combine(begin, shifted);
    if (n == 0) before = KILN_PICK_SECOND(before, begin, 1);
    _Pragma("GCC unroll 2") for (int half = 0; half < 2 && 2 * n + half < kEights; ++half) {
      const Vector own = half == 0 ? KILN_PICK_WORDS(before, before, 0, 2, 4, 6, 0, 2, 4, 6, 1, 3,
                                                     5, 7, 1, 3, 5, 7)
                                   : KILN_PICK_WORDS(before, before, 8, 10, 12, 14, 8, 10, 12, 14,
                                                     9, 11, 13, 15, 9, 11, 13, 15);
      Vector(&quad)[4] = quads[2 * n + half];
      _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i) quad[i] = Words::combine(own, quad[i]);
      transpose_quads(quad);
    }
  }
  __builtin_memcpy(lane, quads, sizeof quads);
  carried = Reduction::combine(carried, block[(kParts - 1) % 16]);
}
#undef KILN_PICK_SECOND
#undef KILN_PICK_WORDS

// A block of elements.
template <class Reduction, int Width, class T>
KILN_FN void scan_block(T (&lane)[Width], T& carried) {
  constexpr int kPart = Width < kScanPart ? Width : int(kScanPart);
  constexpr int kParts = Width / kPart;
  T through[kParts];
  for (int k = 0; k < kParts; ++k) {
    scan_neighbours<Reduction, kPart>(lane + k * kPart);
    through[k] = lane[k * kPart + kPart - 1];
  }
  scan_neighbours<Reduction, kParts>(through);
  for (int k = 0; k < kParts; ++k) {
    const T before = k == 0 ? carried : Reduction::combine(carried, through[k - 1]);
    for (int i = 0; i < kPart; ++i) {
      lane[k * kPart + i] = Reduction::combine(before, lane[k * kPart + i]);
    }
  }
  carried = Reduction::combine(carried, through[kParts - 1]);
}

// Where the order does not matter: several parts of the lanes at once, since each element waits for
// the one before it.
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

template <class Reduction, int Width, class T>
KILN_FN void scan_lanes(T (&lane)[Width], T& carried) {
  if constexpr (SixteenWords<Reduction, T>::exist && Width >= 8 * kScanPart) {
    scan_block_of_words<Reduction>(lane, carried);
  } else if constexpr (shows_order<Reduction, T>()) {
    scan_block<Reduction>(lane, carried);
  } else {
    scan_parts<Reduction>(lane, carried);
  }
}

// Maxima and minima of floats are those of integers of the same order (reduce.h).
template <class Reduction, int Threads, int Width, class T>
KILN_FN void scan(T (&lane)[Width], T& carried, ScanSlots<T, Threads>&, int lanes) {
  using Type = typename Accumulator<Reduction, T>::Type;
  for (int i = lanes; i < Width; ++i) lane[i] = Reduction::template identity<T>();
  if constexpr (is_same<Type, T>()) {
    scan_lanes<Reduction>(lane, carried);
  } else {
    KILN_LANES Type ordered[Width];
    for (int i = 0; i < Width; ++i) ordered[i] = Type::of(lane[i]);
    Type through = Type::of(carried);
    scan_lanes<Reduction>(ordered, through);
    for (int i = 0; i < Width; ++i) lane[i] = ordered[i].value();
    carried = through.value();
  }
}

#else

// The word that lane `from` of the wave has.
KILN_FN u32 word_of(u32 value, u32 from) {
#if KILN_AMD
  return u32(__builtin_amdgcn_ds_bpermute(int(from << 2), int(value)));
#else
  return __shfl_sync(0xffffffffu, value, int(from & 31u));
#endif
}
template <class T>
KILN_FN T value_of(T value, u32 from) {
  if constexpr (sizeof(T) % 4 == 0) {
    auto words = bit_cast<Words<int(sizeof(T) / 4)>>(value);
    _Pragma("unroll") for (int i = 0; i < int(sizeof(T) / 4); ++i) {
      words.word[i] = word_of(words.word[i], from);
    }
    return bit_cast<T>(words);
  } else {
    return T(word_of(u32(value), from));
  }
}

// How `Threads` threads of `Width` lanes share the blocks of a row. A unit is what a wave has of a
// block.
template <int Threads, int Width>
struct ScanThreads {
  enum : int {
    kTogether = Threads < kWave ? Threads : kWave,
    kOfPart = int(kScanPart) / Width,  // threads
    kOfBlock = int(kScanElements) / Width,
    kOfUnit = kOfBlock < kTogether ? kOfBlock : kTogether,
    kUnits = Threads / kOfUnit,
    kUnitsOfBlock = kOfBlock / kOfUnit < kUnits ? kOfBlock / kOfUnit : kUnits,
    kBlocks = kUnits / kUnitsOfBlock,
  };
  static_assert(Width <= kScanPart, "ScanThreads: a thread has a part of a row, or less");
  static __device__ __forceinline__ u32 thread() { return threadIdx.x % Threads; }
  // The lane of a wave that has a thread of this one's unit.
  static __device__ __forceinline__ u32 lane_of(u32 in_unit) {
    return (threadIdx.x & ~u32(kOfUnit - 1)) + in_unit;
  }
};

template <class T, int Threads>
struct ScanSlots {
  T unit[(Threads + 31) / 32];
};

// Running results within a part that several threads have, then of the last lanes of the parts of a
// unit: those `Distance` threads apart, then twice that, below `End`.
template <class Reduction, int Distance, int End, int Width, class T>
KILN_FN void scan_threads(T (&lane)[Width], u32 thread, u32 unit) {
  if constexpr (Distance < End) {
    const bool second = (thread & u32(Distance)) != 0;
    const T before = value_of(lane[Width - 1], unit + (thread & ~u32(Distance - 1)) - 1u);
    _Pragma("unroll") for (int i = 0; i < Width; ++i) {
      const T joined = Reduction::combine(before, lane[i]);
      lane[i] = second ? joined : lane[i];
    }
    scan_threads<Reduction, Distance * 2, End>(lane, thread, unit);
  }
}

// Replaces the lanes of a block of elements by running results that continue `carried`, and updates
// `carried`.
template <class Reduction, int Threads, int Width, class T>
KILN_FN void scan(T (&lane)[Width], T& carried, ScanSlots<T, Threads>& slots) {
  using Row = ScanThreads<Threads, Width>;
  constexpr int kOfPart = Row::kOfPart < Row::kOfUnit ? int(Row::kOfPart) : int(Row::kOfUnit);
  const u32 thread = Row::thread() % u32(Row::kOfUnit);
  const u32 unit_lane = Row::lane_of(0);
  scan_pairs<Reduction>(lane);
  scan_threads<Reduction, 1, kOfPart>(lane, thread, unit_lane);
  T through[1] = {lane[Width - 1]};
  scan_threads<Reduction, kOfPart, Row::kOfUnit>(through, thread, unit_lane);
  const bool has_parts = thread >= u32(kOfPart);
  T before = value_of(through[0], unit_lane + (thread & ~u32(kOfPart - 1)) - 1u);

  // What each unit came to.
  T units[Row::kUnits];
  if constexpr (Threads > kWave) {
    KILN_SYNCHRONIZE();  // the units before have been read
    if (thread == u32(Row::kOfUnit - 1)) slots.unit[Row::thread() / Row::kOfUnit] = through[0];
    KILN_SYNCHRONIZE();
    _Pragma("unroll") for (int k = 0; k < Row::kUnits; ++k) units[k] = slots.unit[k];
  } else {
    const u32 first = threadIdx.x & ~u32(Threads - 1);
    _Pragma("unroll") for (int k = 0; k < Row::kUnits; ++k) {
      units[k] = value_of(through[0], first + u32((k + 1) * Row::kOfUnit - 1));
    }
  }
  const u32 own = Row::thread() / u32(Row::kOfUnit);
  bool has_before = has_parts;
  _Pragma("unroll") for (int half = 1; half < Row::kUnitsOfBlock; half *= 2) {
    // Each second one of a pair takes what the first one came to.
    _Pragma("unroll") for (int k = half; k < Row::kUnits; k += 2 * half) {
      const bool second = own / u32(half) == u32(k / half);
      const T joined = has_before ? Reduction::combine(units[k - 1], before) : units[k - 1];
      before = second ? joined : before;
      has_before = has_before || second;
      units[k + half - 1] = Reduction::combine(units[k - 1], units[k + half - 1]);
    }
  }
  T blocks = carried;
  _Pragma("unroll") for (int k = 0; k < Row::kBlocks; ++k) {
    if (own / u32(Row::kUnitsOfBlock) == u32(k)) blocks = carried;
    carried = Reduction::combine(carried, units[(k + 1) * Row::kUnitsOfBlock - 1]);
  }
  before = has_before ? Reduction::combine(blocks, before) : blocks;
  _Pragma("unroll") for (int i = 0; i < Width; ++i) lane[i] = Reduction::combine(before, lane[i]);
}

#endif

// ---- across rows --------------------------------------------------------------------------------

// The running results of neighbouring columns, which go on element by element.
template <class Reduction, class T, int Width, bool InOrder = shows_order<Reduction, T>()>
struct Columns {
  T all[Width];
};

// What waits for the second one of its pair, of each number of elements, and of parts: of one, of
// two, of four.
template <class Reduction, class T, int Width>
struct Columns<Reduction, T, Width, true> {
  T elements[3][Width];
  T parts[5][Width];
  T blocks[Width];  // the blocks that are over
  T before[Width];  // and the parts of this one that are
  static_assert(kScanPart == 1 << 3 && kScanElements == kScanPart << 5, "Columns: pairs of all");
};

template <class Reduction, class T, int Width>
KILN_FN Columns<Reduction, T, Width> start_columns() {
  Columns<Reduction, T, Width> columns;
  KILN_UNROLL for (int i = 0; i < Width; ++i) {
    const T identity = Reduction::template identity<T>();
    if constexpr (shows_order<Reduction, T>()) {
      columns.blocks[i] = identity;
      columns.before[i] = identity;
    } else {
      columns.all[i] = identity;
    }
  }
  return columns;
}

// scan_pairs() one value at a time: `lane` becomes the running results of value `at`.
template <class Reduction, int Level = 0, int Levels, int Width, class T>
KILN_FN void scan_next_of_pairs(T (&lane)[Width], T (&waiting)[Levels][Width], u32 at) {
  if constexpr (Level < Levels) {
    constexpr u32 kBelow = (1u << Level) - 1u;
    if ((at >> Level & 1u) != 0) {
      KILN_UNROLL for (int i = 0; i < Width; ++i) {
        lane[i] = Reduction::combine(waiting[Level][i], lane[i]);
      }
    } else if ((at & kBelow) == kBelow) {
      KILN_UNROLL for (int i = 0; i < Width; ++i) waiting[Level][i] = lane[i];
    }
    scan_next_of_pairs<Reduction, Level + 1>(lane, waiting, at);
  }
}

template <class Reduction, class T, int Width, class Index>
KILN_FN void scan_row(T (&lane)[Width], Columns<Reduction, T, Width>& columns, Index row) {
  if constexpr (!shows_order<Reduction, T>()) {
    KILN_UNROLL for (int i = 0; i < Width; ++i) {
      columns.all[i] = Reduction::combine(columns.all[i], lane[i]);
      lane[i] = columns.all[i];
    }
  } else {
    const u32 at = u32(row % kScanElements);
    scan_next_of_pairs<Reduction>(lane, columns.elements, at % kScanPart);
    KILN_LANES T part[Width];
    KILN_UNROLL for (int i = 0; i < Width; ++i) {
      part[i] = lane[i];
      lane[i] = Reduction::combine(columns.before[i], lane[i]);
    }
    if (at % kScanPart == kScanPart - 1) {
      scan_next_of_pairs<Reduction>(part, columns.parts, at / kScanPart);
      KILN_UNROLL for (int i = 0; i < Width; ++i) {
        columns.before[i] = Reduction::combine(columns.blocks[i], part[i]);
      }
      if (at == kScanElements - 1) {
        KILN_UNROLL for (int i = 0; i < Width; ++i) columns.blocks[i] = columns.before[i];
      }
    }
  }
}

}  // namespace kiln
