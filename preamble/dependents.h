// Programmatic dependent launch (PDL): kernels of a graph that begin before the kernels that they
// depend on have ended. NVIDIA GPUs from sm_90 on; in a kernel that was not launched so, and on
// other targets, both functions do nothing.
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
// PDL wait: returns when the kernels that this one depends on have ended and what they wrote can be
// read. Every block must call it, since kernels that depend on this one assume that those before it
// have ended too.
KILN_FN void await_prerequisites() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
KILN_FN void let_dependents_launch() {}
KILN_FN void await_prerequisites() {}
#endif

}  // namespace kiln
