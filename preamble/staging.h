// Copies from global to shared memory, on GPUs.
#pragma once

#include "access_gpu.h"
#include "copies.h"

#if !KILN_HOST
namespace kiln {

// Copies 16 bytes to shared memory, where this thread sees them after wait_copies(). They bypass
// registers on GPUs that can do that.
template <int Lanes, class T, class Index>
KILN_FN void copy_async(T* to, int place, const T* row, Index first) {
  static_assert(sizeof(T) * Lanes == 16, "copy_async: not 16 bytes");
#if KILN_NVIDIA && __CUDA_ARCH__ >= 800
  copy_chunk(to + place, row + first);
  commit_copies();
#else
  store<Lanes, 16>(to, place, load<Lanes, 16>(row, first));
#endif
}
// Waits until at most `Left` of the latest copies are in flight.
template <int Left>
KILN_FN void wait_copies() {
#if KILN_NVIDIA && __CUDA_ARCH__ >= 800
  wait_copy_groups<Left>();
#endif
}

}  // namespace kiln
#endif
