// Copies from memory into memory that the block shares, past the registers of the thread that asks
// for them: for NVIDIA GPUs from sm_80 on. A thread finds what it asked for once it has waited.
#pragma once

#if KILN_NVIDIA

namespace kiln {

// 16 bytes, aligned to as many; part of the group that is begun.
KILN_FN void copy_piece(const void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(u32(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
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
// Until all have come, also of the group that is begun.
KILN_FN void await_all_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace kiln

#endif
