// Rows on the CPU. Lanes are parts of a row, which the compiler vectorises; the last elements of a
// row, too few for a whole vector, are computed as part of a vector that overlaps the one before.
//
// Asked for by: for_each_part PartOf AllLanes WholeParts LastPart lanes_from
#pragma once

#include "access_host.h"
#include "divide.h"
#include "halves.h"
#include "reduce.h"
#include "streams.h"

#if KILN_HOST
// Loops whose number of lanes is fixed, or a multiple of a SIMD vector: otherwise, or unrolled too
// early, many lanes would be computed one by one. `part` is the part of the row that the lanes are.
#if defined(__clang__)
// clang-format off
#define KILN_FOR_EACH_LANE_OF(lane, part) \
  _Pragma("clang loop vectorize(assume_safety) interleave_count(part.interleave) unroll(disable)") \
  for (int lane = 0; lane < part.lanes; ++lane)
#define KILN_FOR_EIGHT_LANES(lane) \
  _Pragma("clang loop vectorize(assume_safety) interleave_count(1) unroll(disable)") \
  for (int lane = 0; lane < 8; ++lane)
// clang-format on
#else
#define KILN_FOR_EACH_LANE_OF(lane, part) \
  _Pragma("GCC ivdep") _Pragma("GCC unroll 1") for (int lane = 0; lane < part.lanes; ++lane)
#define KILN_FOR_EIGHT_LANES(lane) \
  _Pragma("GCC ivdep") _Pragma("GCC unroll 1") for (int lane = 0; lane < 8; ++lane)
#endif

namespace kiln {

// ---- parts of a row -----------------------------------------------------------------------------

// Floats in the widest SIMD vector.
#if defined(__AVX512F__)
enum : int { kSimd = 16 };
#elif defined(__AVX__)
enum : int { kSimd = 8 };
#else
enum : int { kSimd = 4 };
#endif

// The parts that up to `Most` elements of a row are cut into: a few SIMD vectors, which do not wait
// for each other, but no more than the shortest of these rows has. A row of up to eight elements
// may have as few as one.
template <int Most>
struct PartOf {
  enum : int {
    few = kSimd < 8 ? 8 : kSimd,
    size = Most > 64    ? 32
           : Most > 32  ? 16
           : Most < few ? Most
                        : few,
    interleave = size < kSimd ? 1 : size / kSimd,
  };
  enum : bool { copies = size > Most / 2 };
};

// All `Most` lanes; the whole parts among them; and the last part of a row, whose first `overlap`
// lanes belong to the part before. `at` is the index of the first lane. Overlapping lanes are
// computed from elements of the same row, and their results are ignored.
template <int Most>
struct AllLanes {
  enum : int { lanes = Most, most = Most, at = 0, overlap = 0 };
  enum : int { interleave = Most < kSimd ? 1 : PartOf<Most>::interleave };
  enum : bool { copies = false, last = false };
  KILN_MEMBER bool has(int) const { return true; }
};
template <int Most>
struct WholeParts {
  enum : int { most = Most, at = 0, overlap = 0, interleave = PartOf<Most>::interleave };
  enum : bool { copies = false, last = false };
  int lanes;
  KILN_MEMBER bool has(int) const { return true; }
};

// Masks for lanes from an index on, with as many bits as a float, which is what they select most
// often.
enum : int { kMaxOverlap = 32 };
#define KILN_EIGHT(word) word, word, word, word, word, word, word, word
alignas(64) constexpr u32 kFromLane[2 * kMaxOverlap] = {
    KILN_EIGHT(0u),  KILN_EIGHT(0u),  KILN_EIGHT(0u),  KILN_EIGHT(0u),
    KILN_EIGHT(~0u), KILN_EIGHT(~0u), KILN_EIGHT(~0u), KILN_EIGHT(~0u)};
#undef KILN_EIGHT

template <int Most>
struct LastPart {
  enum : int { lanes = PartOf<Most>::size, most = lanes, interleave = PartOf<Most>::interleave };
  enum : bool { copies = PartOf<Most>::copies, last = true };
  int at;
  int overlap;
  const u32* own;
  KILN_MEMBER LastPart(int from, int count)
      : at(from), overlap(lanes - count), own(kFromLane + kMaxOverlap - (lanes - count)) {}
  KILN_MEMBER bool has(int lane) const { return i32(own[lane]) < 0; }
};

// The last vector of a row may have fewer lanes.
template <int Most, class Index>
KILN_FN int lanes_from(Index first, Index size) {
  return int(size - first < Most ? size - first : Most);
}

// The body gets a part and the index of its first lane in the row.
template <int Most, class Index, class Body>
KILN_FN void for_each_part(Index first, Index size, const Body& body) {
  constexpr int kPart = PartOf<Most>::size;
  const int lanes = lanes_from<Most>(first, size);
  const int whole = lanes & -kPart;
  if constexpr (kPart < Most) {
    if (whole >= kPart) body(WholeParts<Most>{whole}, first);
  }
  if (whole != lanes) body(LastPart<Most>(whole, lanes - whole), size - Index(kPart));
}

// ---- their elements -----------------------------------------------------------------------------

template <int Count, class T>
KILN_FN void copy_both_ends(T* to, const T* from, int count) {
  T first[Count];
  T last[Count];
  __builtin_memcpy(first, from, sizeof first);
  __builtin_memcpy(last, from + count - Count, sizeof last);
  __builtin_memcpy(to, first, sizeof first);
  __builtin_memcpy(to + count - Count, last, sizeof last);
}
// From 1 to 31 elements.
template <class T>
KILN_FN void copy_few(T* to, const T* from, int count) {
  if (count >= 16)
    copy_both_ends<16>(to, from, count);
  else if (count >= 8)
    copy_both_ends<8>(to, from, count);
  else if (count >= 4)
    copy_both_ends<4>(to, from, count);
  else if (count >= 2)
    copy_both_ends<2>(to, from, count);
  else
    *to = *from;
}

// Overlapping lanes are the elements before the part. A row that is shorter has none there, and is
// copied.
template <class Part, class T, class Index>
KILN_FN auto load(const Part& part, const T* row, Index first) {
  if constexpr (Part::copies) {
    const T* const from = row + Index(first + Index(part.overlap));
    Collected<T, Part::lanes> copy;
    for (int lane = 0; lane < Part::lanes; ++lane) copy.lane[lane] = *from;
    copy_few(copy.lane + part.overlap, from, part.lanes - part.overlap);
    return copy;
  } else {
    return Row<const T>{row + first};
  }
}
template <class Part, class T, class Index, class Stride>
KILN_FN auto gather(const Part& part, const T* row, Index first, Stride stride) {
  if constexpr (Part::copies) {
    Collected<T, Part::lanes> copy;
    for (int lane = 0; lane < Part::lanes; ++lane) {
      const int own = lane < part.overlap ? part.overlap : lane;
      copy.lane[lane] = row[Stride(Index(first + Index(own))) * stride];
    }
    return copy;
  } else {
    return StridedRow<const T, Stride>{row + Stride(first) * stride, stride};
  }
}

// Each element stands for a run of neighbours. Lanes before the row, which belong to no part of it,
// are like the first one within.
template <class Part, class T, class Index, class Divisor, class Stride>
KILN_FN auto load_runs(const Part& part, const T* row, Index first, Divisor run, Stride stride) {
  Collected<T, Part::most> elements;
  int lane = Part::copies ? part.overlap : 0;
  for (int before = 0; before < lane; ++before) {
    elements.lane[before] = row[Stride(divide(Index(first + Index(lane)), run)) * stride];
  }
  while (lane < part.lanes) {
    const Index place = first + Index(lane);
    const Index at = divide(place, run);
    const Index left = (at + 1) * run.divisor - place;
    const int end = left < Index(part.lanes - lane) ? lane + int(left) : part.lanes;
    const T element = row[Stride(at) * stride];
    for (; lane < end; ++lane) elements.lane[lane] = element;
  }
  return elements;
}

// The results of the last part are collected: where outputs overwrite inputs, the elements of
// overlapping lanes have changed by then.
template <class Part, class T, class Index>
KILN_FN auto results(const Part&, T* row, Index first) {
  if constexpr (Part::last)
    return Collected<T, Part::lanes>();
  else
    return Row<T>{row + first};
}
template <class Part, class T, class Index, class Stride>
KILN_FN auto results(const Part&, T* row, Index first, Stride stride) {
  if constexpr (Part::last)
    return Collected<T, Part::lanes>();
  else
    return StridedRow<T, Stride>{row + Stride(first) * stride, stride};
}
template <class Part, class T, class Index, class Lanes>
KILN_FN void store(const Part& part, T* row, Index first, const Lanes& values) {
  if constexpr (Part::last) {
    copy_few(row + Index(first + Index(part.overlap)), values.lane + part.overlap,
             part.lanes - part.overlap);
  }
}
template <class Part, class T, class Index, class Stride, class Lanes>
KILN_FN void scatter(const Part& part, T* row, Index first, Stride stride, const Lanes& values) {
  if constexpr (Part::last) {
    for (int lane = part.overlap; lane < part.lanes; ++lane) {
      row[Stride(Index(first + Index(lane))) * stride] = values.lane[lane];
    }
  }
}

// f16 is converted before and after, where that is faster (halves.h).
template <class Part, class Index>
KILN_FN auto load_halves(const Part& part, const f16* row, Index first) {
#if KILN_STAGED_HALVES
  const auto halves = load(part, row, first);
  Collected<f32, Part::most> wide;
  int lane = 0;
  for (; lane + kHalvesAtOnce <= part.lanes; lane += kHalvesAtOnce) {
    widen(&halves[lane], wide.lane + lane);
  }
  for (; lane < part.lanes; ++lane) wide.lane[lane] = to<f32>(halves[lane]);
  return wide;
#else
  return load(part, row, first);
#endif
}
template <class Part, class Index>
KILN_FN auto half_results(const Part& part, f16* row, Index first) {
#if KILN_STAGED_HALVES
  return Collected<f32, Part::most>();
#else
  return results(part, row, first);
#endif
}
template <class Part, class Index, class Lanes>
KILN_FN void store_halves(const Part& part, f16* row, Index first, const Lanes& values) {
#if KILN_STAGED_HALVES
  if constexpr (Part::last)
    store(part, row, first, narrowed(part.lanes, values));
  else
    put(row, first, part.lanes, narrowed(part.lanes, values));
#else
  store(part, row, first, values);
#endif
}

}  // namespace kiln
#endif
