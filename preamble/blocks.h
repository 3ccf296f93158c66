// Kernels in which a block of threads takes a work item together and shares memory.
#pragma once

#include "types.h"

#if !KILN_HOST
// KILN_KERNEL limited to so few registers that a multiprocessor has room for `blocks` blocks.
#if KILN_NVIDIA
#define KILN_DENSE_KERNEL(threads, blocks, name, ...) \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(__VA_ARGS__)
#else
#define KILN_DENSE_KERNEL(threads, blocks, name, ...) KILN_KERNEL(threads, name, __VA_ARGS__)
#endif
// The same, where `cluster` neighbouring blocks are a cluster (cluster.h).
#if KILN_NVIDIA
#define KILN_CLUSTER_KERNEL(threads, blocks, cluster, name, ...)                                \
  extern "C" __global__ void __cluster_dims__(cluster, 1, 1) __launch_bounds__(threads, blocks) \
      name(__VA_ARGS__)
#else
#define KILN_CLUSTER_KERNEL(threads, blocks, cluster, name, ...) \
  KILN_KERNEL(threads, name, __VA_ARGS__)
#endif
#endif

// Loops where a block of threads takes a work item together and shares memory.
#if KILN_HOST
#define KILN_FOR_EACH_BLOCK(Index, item, count) \
  for (Index item = Index(kiln_begin); item < Index(kiln_end); ++item)
// Up to `most` rows at a time: `size` of them from `group` on.
#define KILN_FOR_EACH_ROW_GROUP(Index, most, group, size)                                      \
  for (Index group = Index(kiln_begin), size = 0, left;                                        \
       group < Index(kiln_end) &&                                                              \
       (left = Index(kiln_end) - group, size = left < Index(most) ? left : Index(most), true); \
       group += size)
#define KILN_SHARED
#define KILN_SYNCHRONIZE()
#else
#define KILN_FOR_EACH_BLOCK(Index, item, count)      \
  for (Index item = Index(blockIdx.x); item < count; \
       item = ::kiln::next_work_item(item, Index(1), count))
#define KILN_SHARED __shared__
#define KILN_SYNCHRONIZE() __syncthreads()
// What the threads of a wave have written to shared memory is there for all of them. All threads of
// a block come here.
#if KILN_NVIDIA
#define KILN_SYNCHRONIZE_WAVE() __syncwarp()
#else
#define KILN_SYNCHRONIZE_WAVE()                                                            \
  (__builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront"), __builtin_amdgcn_wave_barrier(), \
   __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront"))
#endif
#endif

#if !KILN_HOST
namespace kiln {

// A cluster: neighbouring blocks that run at the same time and access each other's shared memory.
// NVIDIA GPUs have clusters from compute capability 9.0 on; other targets never call this.
#if KILN_NVIDIA && __CUDA_ARCH__ >= 900
// The address in the shared memory of `block` that corresponds to `own` in this block's.
template <class T>
KILN_FN T* in_block(T* own, u32 block) {
  u64 place;
  asm("mapa.u64 %0, %1, %2;" : "=l"(place) : "l"(own), "r"(block));
  return reinterpret_cast<T*>(place);
}
// A barrier of the cluster in two halves: threads arrive, and later wait for all to have arrived.
KILN_FN void arrive_in_cluster() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
KILN_FN void await_cluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
#else
__device__ void* place_in_block(void* own, u32 block);
template <class T>
KILN_FN T* in_block(T* own, u32 block) {
  return static_cast<T*>(place_in_block(own, block));
}
__device__ void arrive_in_cluster();
__device__ void await_cluster();
#endif

}  // namespace kiln
#endif
