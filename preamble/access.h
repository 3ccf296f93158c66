// The lanes of a work item.
#pragma once

#include "types.h"

namespace kiln {

// The largest number of lanes, as a type. for_each_vector calls its body with it, the first
// element, and the number of lanes, which on a GPU is always the largest. Several vectors begin
// `Stride` elements after each other, so that neighbouring threads access whole cache lines at once
// though each has more than one vector.
template <int Lanes, int Vectors = 1, int Stride = 0>
struct Width {
  enum : int {
    size = Lanes * Vectors,
    each = Lanes,
    vectors = Vectors,
    stride = Stride,
    interleave = Lanes >= 128  ? 4
                 : Lanes >= 64 ? 2
                               : 1,  // SIMD vectors, on the CPU
  };
};

}  // namespace kiln
