// Copies from global to shared memory, on GPUs. Those of NVIDIA GPUs from sm_80 on are asynchronous
// and bypass registers: a thread sees its own copies once it has waited for them.
#pragma once

#include "access_gpu.h"
#include "types.h"

#if KILN_NVIDIA

namespace kiln {

// The cache policy of what is read once.
KILN_FN u64 read_once_policy() {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Copies 4 or 8 bytes, aligned to as many. Part of the group of copies that is open.
template <int Bytes>
KILN_FN void copy_part(u32 to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(Bytes)
               : "memory");
}
// Copies 16 bytes, aligned to 16.
KILN_FN void copy_chunk(const void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(u32(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}
// The same of what is read once: the L2 cache evicts it before what is read again, such as keys and
// values, activations, and the code of kernels.
KILN_FN void copy_chunk_once(u32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "l"(read_once_policy())
               : "memory");
}
// The address of a place in shared memory, for copy_chunk_once(). All lanes of a wave call this.
// ptxas (13.0 to 13.5) encodes copies with a cache policy wrongly where it knows an address to be
// the sum of one that the threads share and their own; past a shuffle it does not.
KILN_FN u32 address_of_once(const void* place) {
  return __shfl_sync(0xffffffffu, u32(__cvta_generic_to_shared(place)), int(threadIdx.x) % 32);
}
// Closes the open group of copies.
KILN_FN void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `Left` of the latest groups are in flight.
template <int Left>
KILN_FN void wait_copy_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
}
// The same for a number that is known once loops are unrolled; beyond 7 it waits for more than it
// must.
KILN_FN void wait_copy_groups(int left) {
  switch (left) {
    case 0: return wait_copy_groups<0>();
    case 1: return wait_copy_groups<1>();
    case 2: return wait_copy_groups<2>();
    case 3: return wait_copy_groups<3>();
    case 4: return wait_copy_groups<4>();
    case 5: return wait_copy_groups<5>();
    case 6: return wait_copy_groups<6>();
    default: return wait_copy_groups<7>();
  }
}
// A barrier (mbarrier) for copies: a phase ends when all its threads have arrived. Waiting for one
// barrier does not wait for copies that were issued later for another.
using CopyBarrier = u64;
KILN_FN void init_barrier(CopyBarrier& arrivals, u32 threads) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(u32(__cvta_generic_to_shared(&arrivals))),
               "r"(threads)
               : "memory");
}
// Arrives once all copies that this thread has issued so far are complete.
KILN_FN void arrive_after_copies(CopyBarrier& arrivals) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(
                   u32(__cvta_generic_to_shared(&arrivals)))
               : "memory");
}
// Waits for the end of the phase with this parity; the first phase has parity 0.
KILN_FN void wait_barrier(CopyBarrier& arrivals, u32 parity) {
#if __CUDA_ARCH__ >= 900
#define KILN_TRY_WAIT "mbarrier.try_wait.parity.shared.b64"
#else
#define KILN_TRY_WAIT "mbarrier.test_wait.parity.shared.b64"
#endif
  asm volatile(
      "{\n.reg .pred over;\nagain_%=:\n" KILN_TRY_WAIT
      " over, [%0], %1;\n@!over bra again_%=;\n}" ::"r"(u32(__cvta_generic_to_shared(&arrivals))),
      "r"(parity)
      : "memory");
#undef KILN_TRY_WAIT
}
// Waits for all copies, also those of the open group.
KILN_FN void wait_all_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace kiln

#endif

#if !KILN_HOST
namespace kiln {

// Copies a vector of 4 bytes or more to shared memory, where this thread sees it once it has waited
// for the group of copies that is open. Both are aligned to the vector's size, or to 16 bytes.
// Copies bypass registers on GPUs that can do that.
template <int Lanes, class T, class Index>
KILN_FN void copy_async(T* to, int place, const T* row, Index first) {
  enum : int { kBytes = int(sizeof(T)) * Lanes };
#if KILN_NVIDIA && __CUDA_ARCH__ >= 800
  if constexpr (kBytes < 16) {
    copy_part<kBytes>(u32(__cvta_generic_to_shared(to + place)), row + first);
  } else {
    constexpr int kPart = 16 / int(sizeof(T));
    for (int lane = 0; lane < Lanes; lane += kPart) {
      copy_chunk(to + place + lane, row + first + lane);
    }
  }
#else
  constexpr int kAlignment = kBytes < 16 ? kBytes : 16;
  store<Lanes, kAlignment>(to, place, load<Lanes, kAlignment>(row, first));
#endif
}
// Closes a group of such copies.
KILN_FN void end_copies() {
#if KILN_NVIDIA && __CUDA_ARCH__ >= 800
  commit_copies();
#endif
}
// Waits until at most `Left` of the latest groups are in flight.
template <int Left>
KILN_FN void wait_copies() {
#if KILN_NVIDIA && __CUDA_ARCH__ >= 800
  wait_copy_groups<Left>();
#endif
}

}  // namespace kiln
#endif
