// Threads side by side that take columns, or rows whose elements are no neighbours in memory, on
// GPUs.
#pragma once

#include "reduce.h"

#if !KILN_HOST
namespace kiln {

// Of `Beside` threads side by side, others that have the same column or row are as many threads
// further. Those in one wave exchange registers; the groups of these exchange through shared
// memory. Where a wave has no thread of a column but one, each is a group.
template <int Beside, int Threads>
struct ThreadsBeside {
  enum : int {
    kWithin = Beside >= kWave ? 1 : kWave / Beside,
    kTogether = Threads < kWithin ? Threads : kWithin,
    kGroups = Threads / kTogether,
  };
  // The number of one of these threads in the order of the tree, or of vectors: threads whose
  // numbers differ in the highest bits are combined first, and are in one wave.
  static __device__ __forceinline__ u32 thread_number(u32 thread) {
    return thread % kTogether * kGroups + thread / kTogether;
  }
};

}  // namespace kiln
#endif
