// Rows on the CPU whose elements are those of several axes that are not one in memory: segments of
// equal length, each somewhere. Lanes are parts of the row, whatever the segments: they are memory
// where a part lies in one segment, and a copy elsewhere.
//
// Asked for by: contiguous_segments strided_segments
#pragma once

#include "host_indexed.h"
#include "host_parts.h"

#if KILN_HOST
namespace kiln {

struct Neighbours {};
// `start_of` gives the distance of a segment from the row's start. Elements of a segment are
// neighbours, or `stride` apart.
template <class T, class Divisor, class StartOf, class Stride>
struct Segments {
  using Element = T;
  enum : bool { kNeighbours = is_same<Stride, Neighbours>() };
  T* row;
  Divisor length;
  StartOf start_of;
  Stride stride;
};
template <class T, class Divisor, class StartOf>
KILN_FN Segments<T, Divisor, StartOf, Neighbours> contiguous_segments(T* row, Divisor length,
                                                                      const StartOf& start_of) {
  return {row, length, start_of, {}};
}
template <class T, class Divisor, class StartOf, class Stride>
KILN_FN Segments<T, Divisor, StartOf, Stride> strided_segments(T* row, Divisor length,
                                                               const StartOf& start_of,
                                                               Stride stride) {
  return {row, length, start_of, stride};
}

// Calls body(lane, count, element) for the lanes from `lane` to `end` of a part that begins with
// element `first` of the row: those of one segment at a time.
template <class Segments, class Index, class Body>
KILN_FN void for_each_segment(const Segments& row, Index first, int lane, int end,
                              const Body& body) {
  const Index place = first + Index(lane);
  Index segment = divide(place, row.length);
  Index within = place - segment * row.length.divisor;
  while (lane < end) {
    const Index left = row.length.divisor - within;
    const int count = left < Index(end - lane) ? int(left) : end - lane;
    auto* const start = row.row + row.start_of(segment);
    if constexpr (Segments::kNeighbours)
      body(lane, count, start + within);
    else
      body(lane, count, start + decltype(row.stride)(within) * row.stride);
    lane += count;
    ++segment;
    within = 0;
  }
}
template <class T>
KILN_FN void copy_elements(T* to, const T* from, int count) {
  if (count < 32)
    copy_few(to, from, count);
  else
    __builtin_memcpy(to, from, u64(count) * sizeof(T));
}

// `own` has the lanes of a part of several segments. Lanes before the row, which belong to no part
// of it, are like the first one within.
template <class Part, class T, class Divisor, class StartOf, class Stride, class Index, int Lanes>
KILN_FN Row<const T> load(const Part& part, const Segments<const T, Divisor, StartOf, Stride>& row,
                          Index first, Collected<T, Lanes>& own) {
  const T* start = own.lane;
  const int from = Part::copies ? part.overlap : 0;
  for_each_segment(row, first, from, part.lanes,
                   [&](int lane, int count, const T* element) KILN_INLINED {
                     if constexpr (is_same<Stride, Neighbours>()) {
                       if (count == part.lanes)
                         start = element;
                       else
                         copy_elements(own.lane + lane, element, count);
                     } else {
                       for (int i = 0; i < count; ++i) {
                         own.lane[lane + i] = element[Stride(i) * row.stride];
                       }
                     }
                   });
  for (int lane = 0; lane < from; ++lane) own.lane[lane] = own.lane[from];
  return {start};
}

// Of lanes of which some are of the part before: those from `overlap` on.
template <class Segments, class T, class Index>
KILN_FN void put_segments(const Segments& row, Index first, int overlap, int lanes,
                          const T* values) {
  for_each_segment(row, first, overlap, lanes, [&](int lane, int count, T* element) KILN_INLINED {
    if constexpr (Segments::kNeighbours) {
      copy_elements(element, values + lane, count);
    } else {
      for (int i = 0; i < count; ++i) {
        element[decltype(row.stride)(i) * row.stride] = values[lane + i];
      }
    }
  });
}

// Lanes of the last part are not memory, whose overlapping ones inputs may be (host_parts.h).
template <class Part, class T, class Divisor, class StartOf, class Stride, class Index, int Lanes>
KILN_FN Row<T> results(const Part& part, const Segments<T, Divisor, StartOf, Stride>& row,
                       Index first, Collected<T, Lanes>& own) {
  if constexpr (is_same<Stride, Neighbours>() && !Part::last) {
    const Index segment = divide(first, row.length);
    const Index within = first - segment * row.length.divisor;
    if (row.length.divisor - within >= Index(part.lanes)) {
      return {row.row + row.start_of(segment) + within};
    }
  }
  return {own.lane};
}
template <class Part, class T, class Divisor, class StartOf, class Stride, class Index, int Lanes>
KILN_FN void store(const Part& part, const Segments<T, Divisor, StartOf, Stride>& row, Index first,
                   Row<T> values, const Collected<T, Lanes>& own) {
  if (values.start != own.lane) return;
  put_segments(row, first, part.overlap, part.lanes, own.lane);
}

// Results that are collected, to be stored past the caches or only where a place is there.
template <int Lanes, class T, class Divisor, class StartOf, class Stride>
KILN_FN Collected<T, Lanes> collect(const Segments<T, Divisor, StartOf, Stride>& row) {
  return collect<Lanes>(row.row);
}
template <class T, class Divisor, class StartOf, class Stride, class Index, class Value, int Lanes>
KILN_FN void stream(const Segments<T, Divisor, StartOf, Stride>& row, Index first, int lanes,
                    const Collected<Value, Lanes>& values) {
  if constexpr (!is_same<T, Value>()) {
    stream(row, first, lanes, narrowed(lanes, values));
  } else if constexpr (is_same<Stride, Neighbours>()) {
    for_each_segment(row, first, 0, lanes, [&](int lane, int count, T* element) KILN_INLINED {
      stream_bytes(element, values.lane + lane, u64(count) * sizeof(T));
    });
  } else {
    put_segments(row, first, 0, lanes, values.lane);
  }
}
template <class Part, class T, class Divisor, class StartOf, class Stride>
KILN_FN Collected<T, Part::most> part_results(const Part& part,
                                              const Segments<T, Divisor, StartOf, Stride>& row) {
  return part_results(part, row.row);
}
template <class Part, class T, class Divisor, class StartOf, class Stride, class Index, int Lanes>
KILN_FN void put_part_where(bool there, const Part& part,
                            const Segments<T, Divisor, StartOf, Stride>& row, Index first,
                            const Collected<T, Lanes>& values) {
  if (there) put_segments(row, first, part.overlap, part.lanes, values.lane);
}

// f16, as in halves.h.
template <class Part, class Divisor, class StartOf, class Stride, class Index, int Lanes>
KILN_FN auto load_halves(const Part& part, const Segments<const f16, Divisor, StartOf, Stride>& row,
                         Index first, Collected<f16, Lanes>& own) {
#if KILN_STAGED_HALVES
  return load_halves<Lanes>(load(part, row, first, own).start, Index(0), part.lanes);
#else
  return load(part, row, first, own);
#endif
}
template <class Part, class Divisor, class StartOf, class Stride, class Index, int Lanes>
KILN_FN auto half_results(const Part& part, const Segments<f16, Divisor, StartOf, Stride>& row,
                          Index first, Collected<f16, Lanes>& own) {
#if KILN_STAGED_HALVES
  return Collected<f32, Lanes>();
#else
  return results(part, row, first, own);
#endif
}
template <class Part, class Divisor, class StartOf, class Stride, class Index, class Values,
          int Lanes>
KILN_FN void store_halves(const Part& part, const Segments<f16, Divisor, StartOf, Stride>& row,
                          Index first, const Values& values, const Collected<f16, Lanes>& own) {
#if KILN_STAGED_HALVES
  put_segments(row, first, part.overlap, part.lanes, narrowed(part.lanes, values).lane);
#else
  store(part, row, first, values, own);
#endif
}

}  // namespace kiln
#endif
