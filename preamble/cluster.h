// Blocks that share a row: a cluster, whose blocks run at the same time and access each other's
// shared memory. NVIDIA GPUs have clusters from compute capability 9.0 on; other targets never call
// this.
//
// Asked for by: ClusterSlots ClusterChunks
#pragma once

#include "chunks.h"
#include "reduce.h"

#if !KILN_HOST

namespace kiln {

#if KILN_NVIDIA && __CUDA_ARCH__ >= 900
KILN_FN u32 block_of_cluster() {
  u32 block;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
  return block;
}
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
__device__ u32 block_of_cluster();
__device__ void* place_in_block(void* own, u32 block);
template <class T>
KILN_FN T* in_block(T* own, u32 block) {
  return static_cast<T*>(place_in_block(own, block));
}
__device__ void arrive_in_cluster();
__device__ void await_cluster();
#endif

// One slot for every wave of this block, and one for every block.
template <class T, int Threads, int Blocks>
struct ClusterSlots {
  Slots<T, Threads> own;
  T block[Blocks];
};

// Like reduce() of a block. Every block writes its result to all blocks of the cluster, which must
// have started.
template <class Reduction, int Threads, int Blocks, class T, int Width>
KILN_FN T reduce(Lanes<T, Width>& lanes, ClusterSlots<T, Threads, Blocks>& slots) {
  const T value = reduce<Reduction>(lanes, slots.own);
  if (threadIdx.x < Blocks) *in_block(slots.block + block_of_cluster(), threadIdx.x) = value;
  arrive_in_cluster();
  await_cluster();
  return reduce_wave<Reduction, Blocks>(slots.block[threadIdx.x % Blocks]);
}

// The results of all chunks of a row, of which each block of a cluster keeps as many (chunks.h) and
// has a copy.
template <class Reduction, class T, int Threads, int Width, int Chunks, int Blocks>
struct ClusterChunks : ChunkResults<Reduction, T, Threads, Width, Chunks> {
  using Row = TreeThreads<Threads, Width>;
  T all[Chunks * Blocks];

  // All blocks must have started. After a barrier of the cluster the results are there.
  template <class Columns>
  KILN_MEMBER void combine(Columns& columns, u32 count) {
    for (u32 number = Row::wave(); number < count; number += Row::kWaves) {
      const T result = this->combine_chunk(columns, number);
      T* const own = all + block_of_cluster() * Chunks + number;
      if (Row::lane() < Blocks) *in_block(own, Row::lane()) = result;
    }
  }
  KILN_MEMBER T result() const { return combine_apart<Reduction, Chunks * Blocks, 1>(all); }
};

}  // namespace kiln

#endif
