// Results on the CPU that are stored only where a place is there: collected first, since lanes
// there are memory; and rows that end where data says.
#pragma once

#include "host_parts.h"

#if KILN_HOST
namespace kiln {

template <class T, int Lanes, class Index>
KILN_FN void put_where(bool there, T* row, Index first, int lanes,
                       const Collected<T, Lanes>& values) {
  if (there) put(row, first, lanes, values);
}
template <class T, int Lanes, class Index, class Stride>
KILN_FN void put_where(bool there, T* row, Index first, Stride stride, int lanes,
                       const Collected<T, Lanes>& values) {
  if (!there) return;
  for (int lane = 0; lane < lanes; ++lane) {
    row[Stride(first + Index(lane)) * stride] = values.lane[lane];
  }
}

// The vectors of a row of any length: whole ones, and a last one with fewer lanes, which is no part
// of one before.
template <int Most, class Index, class Body>
KILN_FN void for_each_bounded_part(Index first, Index size, const Body& body) {
  static_assert(LastPart<Most>::copies, "a row may have fewer elements than a part");
  const int lanes = lanes_from<Most>(first, size);
  if (lanes == Most) {
    body(AllLanes<Most>(), first);
  } else {
    body(LastPart<Most>(0, lanes), size - Index(LastPart<Most>::lanes));
  }
}

// Of a part of a row, whose first `overlap` lanes belong to the part before.
template <class Part, class T>
KILN_FN Collected<T, Part::most> part_results(const Part&, const T*) {
  Collected<T, Part::most> lanes;
  return lanes;
}
template <class Part, class T, int Lanes, class Index>
KILN_FN void put_part_where(bool there, const Part& part, T* row, Index first,
                            const Collected<T, Lanes>& values) {
  if (!there) return;
  __builtin_memcpy(row + Index(first + Index(part.overlap)), values.lane + part.overlap,
                   u64(part.lanes - part.overlap) * sizeof(T));
}
template <class Part, class T, int Lanes, class Index, class Stride>
KILN_FN void put_part_where(bool there, const Part& part, T* row, Index first, Stride stride,
                            const Collected<T, Lanes>& values) {
  if (!there) return;
  for (int lane = part.overlap; lane < part.lanes; ++lane) {
    row[Stride(Index(first + Index(lane))) * stride] = values.lane[lane];
  }
}

}  // namespace kiln
#endif
