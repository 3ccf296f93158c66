// Copies from memory into memory that the block shares, past the registers of the thread that asks
// for them: for NVIDIA GPUs from sm_80 on. A thread finds what it asked for once it has waited.
#pragma once

#if KILN_NVIDIA

namespace kiln {

// 16 bytes, aligned to as many, to a place in that memory; part of the group that is begun.
KILN_FN void copy_piece(u32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
KILN_FN void copy_piece(const void* to, const void* from) {
  copy_piece(u32(__cvta_generic_to_shared(to)), from);
}
// Ends the group of copies that is begun.
KILN_FN void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until no more than so many of the latest groups are still to come.
template <int Left>
KILN_FN void await_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
}
// The same of a number that is known once loops are unrolled; fewer if it is many.
KILN_FN void await_groups(int left) {
  switch (left) {
    case 0: return await_groups<0>();
    case 1: return await_groups<1>();
    case 2: return await_groups<2>();
    case 3: return await_groups<3>();
    case 4: return await_groups<4>();
    case 5: return await_groups<5>();
    case 6: return await_groups<6>();
    default: return await_groups<7>();
  }
}
// Where copies arrive: a turn ends when so many threads have said that theirs have. Who waits for
// one does not wait for others that were asked for later.
using Arrivals = u64;
KILN_FN void begin_arrivals(Arrivals& arrivals, u32 threads) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(u32(__cvta_generic_to_shared(&arrivals))),
               "r"(threads)
               : "memory");
}
// Once all copies have come that this thread has asked for so far.
KILN_FN void arrive_with_copies(Arrivals& arrivals) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(
                   u32(__cvta_generic_to_shared(&arrivals)))
               : "memory");
}
// Until the turn of this parity is over: the first one's is 0.
KILN_FN void await_arrivals(Arrivals& arrivals, u32 parity) {
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
// Until all have come, also of the group that is begun.
KILN_FN void await_all_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace kiln

#endif
