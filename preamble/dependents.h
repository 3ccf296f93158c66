// Programmatic dependent launch (PDL): kernels of a graph that begin before the kernels that they
// depend on have ended. NVIDIA GPUs from sm_90 on; in a kernel that was not launched so, and on
// other targets, these functions do nothing.
#pragma once

#include "types.h"

namespace kiln {

#if KILN_NVIDIA && __CUDA_ARCH__ >= 900
// PDL trigger: once every block has called this or ended, dependent kernels may begin. An H200
// takes such a call from one block every 1.2 ns, so many small blocks do better just to end: with a
// call in each of 131,072 blocks of 2 KiB, rms_norm took 160 us instead of 128.
KILN_FN void let_dependents_launch() {
  constexpr u32 kMostBlocks = 2048;
  if (gridDim.x <= kMostBlocks) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
// Before the PDL wait: has the first block ask for what all rows share to be brought into the L2
// cache, from where it is loaded after it. All kernels see each other's stores there, so that this
// is right whatever the kernels before write. More bytes than a few rows have would be in the way
// of what is loaded first.
KILN_FN void prefetch_into_l2(const void* row, u64 bytes) {
  constexpr u32 kLine = 128;
  constexpr u32 kMostBytes = 64 << 10;
  if (blockIdx.x != 0) return;
  for (u32 at = threadIdx.x * kLine; at < bytes && at < kMostBytes; at += blockDim.x * kLine) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"((const u8*)row + at));
  }
}
// PDL wait: returns when the kernels that this one depends on have ended and what they wrote can be
// read. Every block must call it, since kernels that depend on this one assume that those before it
// have ended too.
KILN_FN void await_prerequisites() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
KILN_FN void let_dependents_launch() {}
KILN_FN void prefetch_into_l2(const void*, u64) {}
KILN_FN void await_prerequisites() {}
#endif

}  // namespace kiln
