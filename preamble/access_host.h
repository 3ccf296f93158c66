// The lanes of a work item on the CPU: part of the row itself.
#pragma once

#include "access.h"

#if KILN_HOST
namespace kiln {

// On the CPU the lanes of a work item are part of the row itself: the compiler vectorises the loop
// over them, and only narrow elements that are apart are copied.
template <class T>
struct Row {
  T* start;
  inline __attribute__((always_inline)) T& operator[](int lane) const { return start[lane]; }
};

template <class T, class Stride>
struct StridedRow {
  T* start;
  Stride stride;
  inline __attribute__((always_inline)) T& operator[](int lane) const {
    return start[lane * stride];
  }
};

template <int Lanes, int Align, class T, class Index>
KILN_FN Row<const T> load(const T* row, Index first) {
  return {row + first};
}
template <int Lanes, class T, class Index, class Stride>
KILN_FN StridedRow<const T, Stride> gather(const T* row, Index first, Stride stride) {
  return {row + Stride(first) * stride, stride};
}
template <class T, int Lanes>
struct CopiedLanes {
  alignas(64) T lane[Lanes];
  inline __attribute__((always_inline)) const T& operator[](int i) const { return lane[i]; }
};
// Narrow elements are copied one by one before the loop over lanes: a compiler that vectorises it
// would put vectors together of them, which takes three times as long.
#if defined(__clang__)
#define KILN_ONE_BY_ONE _Pragma("clang loop vectorize(disable) unroll_count(8)")
#else
#define KILN_ONE_BY_ONE _Pragma("GCC unroll 8")
#endif
template <int Lanes, class T, class Index, class Stride>
KILN_FN auto gather(const T* row, Index first, Stride stride, int lanes) {
  constexpr int kFew = 16;
  if constexpr (sizeof(T) <= 2 && Lanes >= kFew) {
    CopiedLanes<T, Lanes> copied;
    const T* const from = row + Stride(first) * stride;
    KILN_ONE_BY_ONE for (int i = 0; i < lanes; ++i) copied.lane[i] = from[Stride(i) * stride];
    return copied;
  } else {
    return gather<Lanes>(row, first, stride);
  }
}

// Rows of several axes: where an element lies from the first one is in a table, which is the same
// for each part of a row.
template <int Axes, class Index, class Offset>
KILN_FN void fill_offsets(Offset* offsets, const Index (&extents)[Axes],
                          const Offset (&strides)[Axes]) {
  Index count = 1;
  for (int axis = 0; axis < Axes; ++axis) count *= extents[axis];
  Index at[Axes] = {};
  Offset offset = 0;
  for (Index i = 0; i < count; ++i) {
    offsets[i] = offset;
    for (int axis = Axes; axis-- > 0;) {
      if (++at[axis] < extents[axis]) {
        offset += strides[axis];
        break;
      }
      offset -= Offset(extents[axis] - 1) * strides[axis];
      at[axis] = 0;
    }
  }
}
template <int Lanes, class T, class Offset>
KILN_FN CopiedLanes<T, Lanes> gather_at(const T* row, const Offset* offsets, int lanes) {
  CopiedLanes<T, Lanes> copied;
  if constexpr (sizeof(T) >= 4) {
    for (int i = 0; i < lanes; ++i) copied.lane[i] = row[offsets[i]];
  } else {
    KILN_ONE_BY_ONE for (int i = 0; i < lanes; ++i) copied.lane[i] = row[offsets[i]];
  }
  return copied;
}
template <class T, class Offset, class Lanes>
KILN_FN void scatter_at(T* row, const Offset* offsets, int lanes, const Lanes& values) {
  KILN_ONE_BY_ONE for (int i = 0; i < lanes; ++i) row[offsets[i]] = values[i];
}
#undef KILN_ONE_BY_ONE
template <int Lanes, class T, class Index>
KILN_FN Row<T> results(T* row, Index first) {
  return {row + first};
}
template <int Lanes, class T, class Index, class Stride>
KILN_FN StridedRow<T, Stride> results(T* row, Index first, Stride stride) {
  return {row + Stride(first) * stride, stride};
}
// Nothing to do: the lanes were written in place.
template <int Lanes, int Align, class T, class Index>
KILN_FN void store(T*, Index, const Row<T>&) {}
template <int Lanes, class T, class Index, class Stride>
KILN_FN void scatter(T*, Index, Stride, const StridedRow<T, Stride>&) {}

// Up to this length the time for the last lanes of a row matters.
enum : int { kShortRow = 128 };
template <int Most>
struct FewerLanes : Width<Most> {
  enum : int { interleave = 1 };
};
template <int Count>
struct FixedLanes {
  constexpr operator int() const { return Count; }
};
template <int Most, class Index, class Body>
KILN_FN void for_each_vector(Index start, Index size, const Body& body) {
  const int lanes = int(size - start < Most ? size - start : Most);
  if constexpr (Most > kShortRow) {
    body(Width<Most>(), start, lanes);
  } else if (lanes == Most) {
    body(Width<Most>(), start, FixedLanes<Most>());
  } else {
    body(FewerLanes<Most>(), start, lanes);
  }
}

}  // namespace kiln
#endif
