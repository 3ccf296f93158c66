// Operands at places that data says: whether a place is there, what is read of one that is not, and
// results that are stored only where it is; and axes that end where data says.
#pragma once

#include "types.h"

namespace kiln {

// Whether a place is one of `count`.
template <class Place, class Index>
KILN_FN bool is_place(Place place, Index count) {
  return place >= Place(0) && u64(place) < u64(count);
}

// From the first place to that one; of one that is not there to the first, which is.
template <class Index, class Place>
KILN_FN Index place_offset(bool there, Place place, Index stride) {
  return there ? Index(place) * stride : Index(0);
}

// The end of an axis of `size` elements that a value bounds.
template <class End, class Index>
KILN_FN Index end_within(End end, Index size) {
  if (end <= End(0)) return Index(0);
  return u64(end) < u64(size) ? Index(end) : size;
}

template <class T>
KILN_FN T value_or_zero(bool there, T value) {
  return there ? value : T{};
}

}  // namespace kiln
