// Blocks that share a row: a cluster of them, which runs at once and reads and writes each other's
// shared memory. NVIDIA's GPUs have clusters from compute capability 9.0 on; nothing else calls
// this.
#pragma once

#if !KILN_HOST

namespace kiln {

#if KILN_NVIDIA && __CUDA_ARCH__ >= 900
KILN_FN u32 block_of_cluster() {
  u32 block;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
  return block;
}
// What lies in the shared memory of a block where `own` lies in this one's.
template <class T>
KILN_FN T* in_block(T* own, u32 block) {
  u64 place;
  asm("mapa.u64 %0, %1, %2;" : "=l"(place) : "l"(own), "r"(block));
  return reinterpret_cast<T*>(place);
}
// A thread says that it has come so far; then it waits for all of the cluster to have said so.
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

// One place for every wave of a block's part of a row, and one for every block.
template <class T, int Threads, int Blocks>
struct ClusterSlots {
  Slots<T, Threads> own;
  T block[Blocks];
};

// As of a row that one block has. Every block gives its result to all of them, which must have
// begun.
template <class Reduction, int Threads, int Blocks, class T, int Width>
KILN_FN T reduce(Lanes<T, Width>& lanes, ClusterSlots<T, Threads, Blocks>& slots) {
  const T value = reduce<Reduction>(lanes, slots.own);
  if (threadIdx.x < Blocks) *in_block(slots.block + block_of_cluster(), threadIdx.x) = value;
  arrive_in_cluster();
  await_cluster();
  return reduce_wave<Reduction, Blocks>(slots.block[threadIdx.x % Blocks]);
}

}  // namespace kiln

#endif
