// Kernels with one thing wrong: each is refused, and without what is wrong it is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/amd/isa/listing.hpp"

namespace kiln::amd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string start_for(const std::string& target) {
  return std::string("s_load_dwordx4 s[4:7], s[0:1], 0x0\n") +
         (isa_of(target).major >= 12 ? "s_wait_kmcnt 0x0" : "s_waitcnt lgkmcnt(0)") +
         "\nv_lshlrev_b32_e32 v1, 2, v0\n";
}

// What running it says: 128 threads, of which the first argument holds a dword each, that are
// written, and the second as many that are not.
std::string outcome(const std::string& lines, const Options& options = {},
                    const std::string& target = "gfx90a") {
  TestMemory memory;
  const std::uint64_t in = memory.allocate(std::vector<std::uint32_t>(128, 7));
  const std::uint64_t out = memory.allocate(128 * 4);
  Options limited = options;
  limited.most_instructions = 10'000;
  try {
    run(*kernel_of(target, start_for(target) + lines + "\ns_endpgm\n", 512), memory, {in, out}, 1,
        128, limited);
    return "accepted";
  } catch (const Fault& fault) {
    return fault.what();
  }
}

struct Planted {
  const char* name;
  const char* wrong;
  const char* right;
  const char* said;
  const char* target = "gfx90a";
};

const Planted kPlanted[] = {
    {"load_out_of_bounds", "global_load_dword v2, v1, s[4:5] offset:4",
     "global_load_dword v2, v1, s[4:5]", "in no allocation"},
    {"store_out_of_bounds", "v_mov_b32_e32 v2, 1\nglobal_store_dword v1, v2, s[6:7] offset:-4",
     "v_mov_b32_e32 v2, 1\nglobal_store_dword v1, v2, s[6:7]", "in no allocation"},
    {"missing_wait", "global_load_dword v2, v1, s[4:5]\nv_add_u32_e32 v2, 1, v2",
     "global_load_dword v2, v1, s[4:5]\ns_waitcnt vmcnt(0)\nv_add_u32_e32 v2, 1, v2",
     "has not been waited for"},
    {"wait_for_too_few",
     "global_load_dword v2, v1, s[4:5]\nglobal_load_dword v3, v1, s[4:5]\ns_waitcnt vmcnt(1)\n"
     "v_mov_b32_e32 v4, v3",
     "global_load_dword v2, v1, s[4:5]\nglobal_load_dword v3, v1, s[4:5]\ns_waitcnt vmcnt(1)\n"
     "v_mov_b32_e32 v4, v2",
     "v3 is to be filled by a load"},
    {"filled_by_loads_that_do_not_return_in_order",
     "global_load_dword v2, v1, s[4:5]\nds_read_b32 v2, v1",
     "global_load_short_d16 v2, v1, s[4:5]\nglobal_load_short_d16_hi v2, v1, s[4:5]",
     "v2 is to be filled by a load"},
    {"used_after_one_of_two_loads",
     "global_load_short_d16 v2, v1, s[4:5]\nglobal_load_short_d16_hi v2, v1, s[4:5]\n"
     "s_waitcnt vmcnt(1)\nv_mov_b32_e32 v4, v2",
     "global_load_short_d16 v2, v1, s[4:5]\nglobal_load_short_d16_hi v2, v1, s[4:5]\n"
     "s_waitcnt vmcnt(0)\nv_mov_b32_e32 v4, v2",
     "v2 is to be filled by a load"},
    {"read_of_the_half_beside_one_that_a_load_fills",
     "v_mov_b32_e32 v2, v0\nglobal_load_d16_hi_b16 v2, v1, s[4:5]\nv_mov_b16_e32 v3.l, v2.l",
     "v_mov_b32_e32 v2, v0\nglobal_load_d16_hi_b16 v2, v1, s[4:5]\ns_waitcnt vmcnt(0)\n"
     "v_mov_b16_e32 v3.l, v2.l",
     "v2 is to be filled by a load", "gfx1100"},
    {"write_of_the_half_beside_one_that_a_load_fills",
     "global_load_d16_b16 v2, v1, s[4:5]\nv_mov_b16_e32 v2.h, 0",
     "v_mov_b16_e32 v2.h, 0\nglobal_load_d16_b16 v2, v1, s[4:5]", "v2 is to be filled by a load",
     "gfx1100"},
    {"filled_by_loads_of_gfx12_that_write_in_any_order",
     "global_load_d16_b16 v2, v1, s[4:5]\nglobal_load_b32 v2, v1, s[4:5]",
     "global_load_d16_b16 v2, v1, s[4:5]\nglobal_load_d16_hi_b16 v2, v1, s[4:5]",
     "v2 is to be filled by a load", "gfx1201"},
    {"missing_wait_of_a_scalar_load",
     "s_load_dword s8, s[4:5], 0x0\ns_waitcnt lgkmcnt(1)\ns_add_u32 s8, s8, 1",
     "s_load_dword s8, s[4:5], 0x0\ns_waitcnt lgkmcnt(0)\ns_add_u32 s8, s8, 1",
     "has not been waited for"},
    {"overwritten_before_the_load_came", "global_load_dword v2, v1, s[4:5]\nv_mov_b32_e32 v2, 0",
     "global_load_dword v2, v1, s[4:5]\nv_mov_b32_e32 v3, 0", "has not been waited for"},
    {"race_on_lds",
     "ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\nv_xor_b32_e32 v2, 0x100, v1\n"
     "ds_read_b32 v3, v2\ns_waitcnt lgkmcnt(0)",
     "ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\ns_barrier\nv_xor_b32_e32 v2, 0x100, v1\n"
     "ds_read_b32 v3, v2\ns_waitcnt lgkmcnt(0)",
     "a race"},
    {"barrier_before_lds_is_written",
     "ds_write_b32 v1, v0\ns_barrier\nds_read_b32 v3, v1\ns_waitcnt lgkmcnt(0)",
     "ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\ns_barrier\nds_read_b32 v3, v1\n"
     "s_waitcnt lgkmcnt(0)",
     "a write to LDS has not been waited for"},
    {"race_on_memory", "v_and_b32_e32 v1, 0xfc, v1\nglobal_store_dword v1, v0, s[6:7]",
     "global_store_dword v1, v0, s[6:7]", "a race"},
    // Right is what lanes without a row do: they load one that its owner replaces in place.
    {"load_of_what_another_wave_stores",
     "v_xor_b32_e32 v2, 0x100, v1\nglobal_store_dword v1, v0, s[4:5]\n"
     "global_load_dword v3, v2, s[4:5]",
     "v_xor_b32_e32 v2, 0x100, v1\nglobal_load_dword v3, v1, s[4:5]\ns_waitcnt vmcnt(0)\n"
     "global_store_dword v1, v0, s[4:5]\nglobal_load_dword v4, v2, s[4:5]",
     "a race"},
    {"lanes_that_store_different_values",
     "v_and_b32_e32 v1, 0x1f8, v1\nglobal_store_dword v1, v0, s[6:7]",
     "v_and_b32_e32 v1, 0x1f8, v1\nv_lshrrev_b32_e32 v2, 3, v1\n"
     "global_store_dword v1, v2, s[6:7]",
     "two lanes store different values"},
    {"register_never_written", "global_store_dword v1, v5, s[6:7]",
     "v_mov_b32_e32 v5, 1\nglobal_store_dword v1, v5, s[6:7]", "nobody has written"},
    {"high_half_of_an_addend_never_written",
     "v_mov_b32_e32 v4, v1\nv_mad_u64_u32 v[4:5], s[8:9], 1, 0, v[4:5]\n"
     "global_store_dword v1, v5, s[6:7]",
     "v_mov_b32_e32 v4, v1\nv_mad_u64_u32 v[4:5], s[8:9], 1, 0, v[4:5]\n"
     "global_store_dword v1, v4, s[6:7]",
     "nobody has written"},
    {"high_word_of_a_move_never_written",
     "s_mov_b32 s8, 1\nv_mov_b64_e32 v[4:5], s[8:9]\nglobal_store_dword v1, v5, s[6:7]",
     "s_mov_b32 s8, 1\nv_mov_b64_e32 v[4:5], s[8:9]\nglobal_store_dword v1, v4, s[6:7]",
     "nobody has written"},
    {"memory_never_written",
     "global_load_dword v2, v1, s[6:7]\ns_waitcnt vmcnt(0)\nglobal_store_dword v1, v2, s[6:7]",
     "global_load_dword v2, v1, s[4:5]\ns_waitcnt vmcnt(0)\nglobal_store_dword v1, v2, s[6:7]",
     "nobody has written"},
    {"lds_never_written",
     "ds_read_b32 v2, v1\ns_waitcnt lgkmcnt(0)\nglobal_store_dword v1, v2, s[6:7]",
     "ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\nds_read_b32 v2, v1\ns_waitcnt lgkmcnt(0)\n"
     "global_store_dword v1, v2, s[6:7]",
     "nobody has written"},
    {"address_never_written", "global_load_dword v2, v5, s[4:5]",
     "v_mov_b32_e32 v5, 0\nglobal_load_dword v2, v5, s[4:5]", "an address that nobody"},
    {"branch_on_what_nobody_wrote",
     "v_cmp_eq_u32_e32 vcc, v5, v0\ns_cbranch_vccz 1\ns_nop 0\ns_nop 0",
     "v_cmp_eq_u32_e32 vcc, v1, v0\ns_cbranch_vccz 1\ns_nop 0\ns_nop 0", "a branch on VCC"},
    {"mask_of_what_nobody_wrote", "v_cmp_eq_u32_e32 vcc, v5, v0\ns_and_saveexec_b64 s[8:9], vcc",
     "v_cmp_eq_u32_e32 vcc, v1, v0\ns_and_saveexec_b64 s[8:9], vcc", "EXEC is made of"},
    {"barrier_that_one_wave_misses",
     "v_readfirstlane_b32 s8, v0\ns_cmp_eq_u32 s8, 0\ns_cbranch_scc1 1\ns_barrier\ns_nop 0",
     "v_readfirstlane_b32 s8, v0\ns_cmp_eq_u32 s8, 0\ns_cbranch_scc1 1\ns_nop 0\ns_barrier",
     "never comes to this barrier"},
    {"misaligned_lds", "v_or_b32_e32 v1, 2, v1\nds_write_b32 v1, v0",
     "v_or_b32_e32 v1, 2, v1\nds_write_b16 v1, v0", "misaligned"},
    {"lds_beyond_what_is_declared", "ds_write_b32 v1, v0 offset:4", "ds_write_b32 v1, v0",
     "of which the block has 512 bytes"},
    {"pointer_to_anything_beyond_lds",
     "s_mov_b64 s[8:9], src_shared_base\nv_mov_b32_e32 v2, v1\nv_mov_b32_e32 v3, s9\n"
     "flat_store_dword v[2:3], v0 offset:4",
     "s_mov_b64 s[8:9], src_shared_base\nv_mov_b32_e32 v2, v1\nv_mov_b32_e32 v3, s9\n"
     "flat_store_dword v[2:3], v0",
     "of which the block has 512 bytes"},
    {"barrier_before_a_pointer_to_anything_has_written_lds",
     "s_mov_b64 s[8:9], src_shared_base\nv_mov_b32_e32 v2, v1\nv_mov_b32_e32 v3, s9\n"
     "flat_store_dword v[2:3], v0\ns_waitcnt vmcnt(0)\ns_barrier",
     "s_mov_b64 s[8:9], src_shared_base\nv_mov_b32_e32 v2, v1\nv_mov_b32_e32 v3, s9\n"
     "flat_store_dword v[2:3], v0\ns_waitcnt vmcnt(0) lgkmcnt(0)\ns_barrier",
     "a write to LDS has not been waited for"},
    {"race_on_lds_by_a_pointer_to_anything",
     "s_mov_b64 s[8:9], src_shared_base\nv_xor_b32_e32 v2, 0x100, v1\nv_mov_b32_e32 v3, s9\n"
     "ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\nflat_load_dword v4, v[2:3]",
     "s_mov_b64 s[8:9], src_shared_base\nv_xor_b32_e32 v2, 0x100, v1\nv_mov_b32_e32 v3, s9\n"
     "ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\ns_barrier\nflat_load_dword v4, v[2:3]",
     "a race"},
    {"register_beyond_those_declared", "v_mov_b32_e32 v32, 0", "v_mov_b32_e32 v31, 0",
     "a register beyond"},
    // Each generation has counters of its own.
    {"wait_for_another_counter_of_gfx10",
     "ds_write_b32 v1, v0\nds_read_b32 v2, v1\ns_waitcnt vmcnt(0)\nv_mov_b32_e32 v3, v2",
     "ds_write_b32 v1, v0\nds_read_b32 v2, v1\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v3, v2",
     "v2 is to be filled by a load", "gfx1030"},
    {"wait_for_stores_of_gfx10",
     "global_load_dword v2, v1, s[4:5]\ns_waitcnt_vscnt null, 0x0\nv_mov_b32_e32 v3, v2",
     "global_load_dword v2, v1, s[4:5]\ns_waitcnt vmcnt(0)\nv_mov_b32_e32 v3, v2",
     "v2 is to be filled by a load", "gfx1030"},
    {"wait_for_one_of_two_counters_of_a_flat_load",
     "v_mov_b32_e32 v2, s4\nv_mov_b32_e32 v3, s5\nflat_load_dword v4, v[2:3]\n"
     "s_waitcnt vmcnt(0)\nv_mov_b32_e32 v5, v4",
     "v_mov_b32_e32 v2, s4\nv_mov_b32_e32 v3, s5\nflat_load_dword v4, v[2:3]\n"
     "s_waitcnt vmcnt(0) lgkmcnt(0)\nv_mov_b32_e32 v5, v4",
     "v4 is to be filled by a load"},
    {"missing_wait_of_gfx11", "global_load_b32 v2, v1, s[4:5]\nv_mov_b32_e32 v3, v2",
     "global_load_b32 v2, v1, s[4:5]\ns_waitcnt vmcnt(0)\nv_mov_b32_e32 v3, v2",
     "v2 is to be filled by a load", "gfx1100"},
    {"wait_for_another_counter_of_gfx12",
     "global_load_b32 v2, v1, s[4:5]\ns_wait_dscnt 0x0\nv_mov_b32_e32 v3, v2",
     "global_load_b32 v2, v1, s[4:5]\ns_wait_loadcnt 0x0\nv_mov_b32_e32 v3, v2",
     "v2 is to be filled by a load", "gfx1201"},
    {"wait_for_too_few_of_gfx12",
     "ds_store_b32 v1, v0\nglobal_load_b32 v2, v1, s[4:5]\nds_load_b32 v3, v1\n"
     "s_wait_loadcnt_dscnt 0x1\nv_mov_b32_e32 v4, v3",
     "ds_store_b32 v1, v0\nglobal_load_b32 v2, v1, s[4:5]\nds_load_b32 v3, v1\n"
     "s_wait_loadcnt_dscnt 0x100\nv_mov_b32_e32 v4, v3",
     "v3 is to be filled by a load", "gfx1201"},
    {"missing_wait_of_a_scalar_load_of_gfx12",
     "s_load_b32 s8, s[4:5], 0x0\ns_wait_dscnt 0x0\ns_add_co_u32 s8, s8, 1",
     "s_load_b32 s8, s[4:5], 0x0\ns_wait_kmcnt 0x0\ns_add_co_u32 s8, s8, 1",
     "has not been waited for", "gfx1201"},
    {"end_between_the_halves_of_a_barrier", "s_barrier_signal -1",
     "s_barrier_signal -1\ns_barrier_wait 0xffff", "the wave ends between", "gfx1201"},
    {"store_to_lds_that_another_wave_reads",
     "ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\ns_barrier\nv_xor_b32_e32 v2, 0x100, v1\n"
     "ds_read_b32 v3, v2\ns_waitcnt lgkmcnt(0)\nds_write_b32 v1, v0",
     "ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\ns_barrier\nv_xor_b32_e32 v2, 0x100, v1\n"
     "ds_read_b32 v3, v2\ns_waitcnt lgkmcnt(0)\ns_barrier\nds_write_b32 v1, v0",
     "a race"},
    {"scalar_register_never_written", "v_mov_b32_e32 v5, s20\nglobal_store_dword v1, v5, s[6:7]",
     "v_mov_b32_e32 v5, s4\nglobal_store_dword v1, v5, s[6:7]", "nobody has written"},
    {"branch_on_scc_that_nobody_set", "s_cbranch_scc1 1\ns_nop 0\ns_nop 0",
     "s_cmp_eq_u32 s4, s5\ns_cbranch_scc1 1\ns_nop 0\ns_nop 0", "a branch on SCC"},
    {"jump_to_what_nobody_wrote", "s_setpc_b64 s[20:21]",
     "s_getpc_b64 s[20:21]\ns_add_u32 s20, s20, 12\ns_addc_u32 s21, s21, 0\ns_setpc_b64 s[20:21]",
     "a jump to an address that nobody has written"},
    {"atomic_on_what_nobody_wrote", "global_atomic_add v1, v0, s[6:7]",
     "global_atomic_add v1, v0, s[4:5]", "an atomic on memory that nobody has written"},
    {"atomic_misaligned", "v_or_b32_e32 v1, 2, v1\nglobal_atomic_add v1, v0, s[4:5]",
     "global_atomic_add v1, v0, s[4:5]", "misaligned"},
    {"scalar_load_misaligned", "s_load_dword s8, s[4:5], 0x2", "s_load_dword s8, s[4:5], 0x4",
     "misaligned"},
    {"scratch_beyond_what_is_declared",
     "v_mov_b32_e32 v2, 0\nv_mov_b32_e32 v3, 0x20000\nflat_load_dword v4, v[2:3]",
     "v_mov_b32_e32 v2, s4\nv_mov_b32_e32 v3, s5\nflat_load_dword v4, v[2:3]",
     "of which a lane has 0 bytes"},
    {"scalar_register_beyond_those_declared", "s_mov_b32 s96, 0", "s_mov_b32 s95, 0",
     "a register beyond"},
    {"loop_without_an_end", "s_branch 65535", "s_branch 0", "a loop without an end"},
    {"unknown_instruction", "v_unheard_of_f32 v1, v2", "s_nop 0", "is not known"},
    {"unknown_modifier", "v_add_u32_e32 v1, 1, v1 turbo", "v_add_u32_e32 v1, 1, v1",
     "is not known"},
    {"changed_rounding", "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 5", "s_nop 0",
     "is not known"},
    {"branch_out_of_the_code", "s_branch 1", "s_branch 0", "a branch to where no instruction is"},
};

class PlantedFault : public ::testing::TestWithParam<Planted> {};

TEST_P(PlantedFault, is_caught_and_its_absence_is_not) {
  const Planted& planted = GetParam();
  EXPECT_THAT(outcome(planted.wrong, {}, planted.target),
              AllOf(HasSubstr(std::string("listed (") + planted.target + "): "),
                    HasSubstr(planted.said), HasSubstr("wave")));
  EXPECT_EQ(outcome(planted.right, {}, planted.target), "accepted");
}

INSTANTIATE_TEST_SUITE_P(Kernel, PlantedFault, ::testing::ValuesIn(kPlanted),
                         [](const auto& info) { return info.param.name; });

// As LLVM 21 left a block of a kernel whose scalar registers are in the lanes of v30; the copy of
// v12 reaches the lanes alone that come from above.
struct Join {
  const char* name;
  const char* target;
  const char* head;
  bool early;
};

class JoinOfPaths : public ::testing::TestWithParam<Join> {};

TEST_P(JoinOfPaths, restores_exec_before_vector_registers_are_touched) {
  const bool wave32 = isa_of(GetParam().target).major >= 10;
  const std::string lines =
      fmt::format("s_and_saveexec_{0} s[6:7], vcc\n", wave32 ? "b32" : "b64") +
      "s_cbranch_execz 1\nv_mov_b32_e32 v2, 1\n" + GetParam().head + "\ns_endpgm\n";
  std::string listing = lines;
  if (wave32) {
    for (const auto& [wide, narrow] : {std::pair("s[6:7]", "s6"), {"vcc", "vcc_lo"}}) {
      listing.replace(listing.find(wide), std::string_view(wide).size(), narrow);
    }
  }
  const auto kernel = kernel_of(GetParam().target, listing);
  const auto check = [&] { coverage_of(kernel->kernels()[0]); };
  if (!GetParam().early) {
    EXPECT_NO_THROW(check()) << listing;
    return;
  }
  EXPECT_THAT(check, ::testing::ThrowsMessage<Fault>(AllOf(
                         HasSubstr(" at 0x10: EXEC is restored only after it"), HasSubstr("s_or"))))
      << listing;
}

const Join kJoins[] = {
    {"copy_among_spills", "gfx1100",
     "v_writelane_b32 v30, s84, 16\nv_mov_b32_e32 v22, v12\nv_writelane_b32 v30, s85, 17\n"
     "s_or_b32 exec_lo, exec_lo, s6",
     true},
    {"copy_before_the_mask_is_read", "gfx90a",
     "s_nop 0\nv_accvgpr_write_b32 a1, v12\nv_readlane_b32 s6, v30, 0\nv_readlane_b32 s7, v30, 1\n"
     "s_or_b64 exec, exec, s[6:7]",
     true},
    {"store_before_the_mask_is_read", "gfx1030",
     "s_mov_b32 s4, s5\nbuffer_store_dword v12, off, s[0:3], 0 offset:4\n"
     "s_or_b32 exec_lo, exec_lo, s6",
     true},
    {"spills_alone", "gfx1100",
     "v_writelane_b32 v30, s84, 16\ns_mov_b32 s4, s5\nv_readlane_b32 s6, v30, 3\n"
     "s_or_b32 exec_lo, exec_lo, s6\nv_mov_b32_e32 v22, v12",
     false},
    {"other_path_first", "gfx1030",
     "s_or_saveexec_b32 s6, s6\nv_mov_b32_e32 v3, 2\ns_xor_b32 exec_lo, exec_lo, s6\n"
     "s_or_b32 exec_lo, exec_lo, s6",
     false},
    {"code_of_its_own_before_an_outer_join", "gfx90a",
     "v_mov_b32_e32 v3, 2\ns_cbranch_execz 0\ns_or_b64 exec, exec, s[6:7]", false},
};

INSTANTIATE_TEST_SUITE_P(Kernel, JoinOfPaths, ::testing::ValuesIn(kJoins),
                         [](const auto& info) { return info.param.name; });

// A counter counts so far, and an instruction that it has no room for waits for the oldest one:
// compilers know.
TEST(Waits, are_for_as_many_loads_as_a_counter_counts) {
  struct Counted {
    const char* target;
    const char* load;  ///< of v2, for instance
    int most;
  };
  constexpr Counted kCounted[] = {{"gfx90a", "global_load_dword {}, v1, s[4:5]\n", 63},
                                  {"gfx1030", "global_load_dword {}, v1, s[4:5]\n", 63},
                                  {"gfx90a", "ds_read_b32 {}, v1\n", 15},
                                  {"gfx1201", "ds_load_b32 {}, v1\n", 63}};
  for (const Counted& counted : kCounted) {
    const auto outcome_after = [&](int younger) {
      std::string lines = fmt::format(fmt::runtime(counted.load), "v2");
      for (int i = 0; i < younger; ++i) lines += fmt::format(fmt::runtime(counted.load), "v3");
      return outcome(lines + "v_mov_b32_e32 v4, v2", {}, counted.target);
    };
    EXPECT_THAT(outcome_after(counted.most - 1), HasSubstr("v2 is to be filled by a load"))
        << counted.target << ' ' << counted.load;
    EXPECT_EQ(outcome_after(counted.most), "accepted") << counted.target << ' ' << counted.load;
  }
}

// The modes that a descriptor asks for and that are not modelled.
TEST(Fault, names_the_mode_that_is_not_modelled) {
  struct Mode {
    const char* name;
    std::uint32_t bits;  ///< that differ from the usual ones
  };
  constexpr Mode kModes[] = {{"FLOAT_ROUND_MODE_32 = 3", 3 << 12},
                             {"FLOAT_ROUND_MODE_16_64 = 1", 1 << 14},
                             {"FLOAT_DENORM_MODE_32 = 0", 3 << 16},
                             {"FLOAT_DENORM_MODE_16_64 = 2", 1 << 18},
                             {"ENABLE_DX10_CLAMP = 0", 1 << 21},
                             {"ENABLE_IEEE_MODE = 0", 1 << 23},
                             {"FP16_OVFL = 1", 1 << 26}};
  const TestMemory memory;
  const auto outcome_with = [&](const std::string& target, std::uint32_t bits) -> std::string {
    try {
      run(*kernel_of(target, "s_endpgm\n", 0, kUsualModes ^ bits), memory, {});
      return "accepted";
    } catch (const Fault& fault) {
      return fault.what();
    }
  };
  for (const Mode& mode : kModes) {
    EXPECT_THAT(outcome_with("gfx90a", mode.bits),
                AllOf(HasSubstr("listed (gfx90a): "), HasSubstr(mode.name)));
  }
  EXPECT_EQ(outcome_with("gfx90a", 0), "accepted");
  // These bits mean something else there.
  EXPECT_EQ(outcome_with("gfx1201", 1 << 21 | 1 << 23), "accepted");
}

TEST(Fault, says_kernel_instruction_address_block_wave_and_lane) {
  EXPECT_THAT(outcome("v_add_u32_e32 v1, 0x1000, v1\nglobal_load_dword v2, v1, s[4:5]"),
              AllOf(HasSubstr("listed (gfx90a): global_load_dword v2, v1, s[4:5] at 0x10: "),
                    HasSubstr("(block 0,0,0, wave "), HasSubstr(", lane 0)")));
}

// A 16-bit result leaves the other half of its register as it was; what reads that half alone, or
// masks the other one away, may go on.
TEST(Unwritten, halves_may_stay_so_where_nobody_looks) {
  const std::string half = "v_lshrrev_b16 v3, 2, v0\n";
  const std::string store = "\nglobal_store_dword v1, v4, s[6:7]";
  for (const char* reader :
       {"v_cvt_f32_ubyte1_e32 v4, v3", "v_and_b32_e32 v4, 15, v3", "v_bfe_u32 v4, v3, 4, 8",
        "v_lshlrev_b32_e32 v4, 16, v3", "v_and_or_b32 v4, 0xffff, v3, v0",
        "v_perm_b32 v4, v3, v0, 0xc0c0504", "v_cvt_f32_f16_e32 v4, v3",
        "v_or_b32_sdwa v4, v3, v0 dst_sel:BYTE_1 dst_unused:UNUSED_PAD src0_sel:DWORD "
        "src1_sel:DWORD",
        "v_or_b32_sdwa v4, v3, v0 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD "
        "src1_sel:BYTE_0\nv_and_b32_e32 v4, 0xffff, v4",
        "v_lshrrev_b32_e32 v4, 8, v3\nv_and_b32_e32 v4, 0xff, v4", "v_lshlrev_b32_e32 v4, v3, v0",
        "v_lshlrev_b32_e32 v4, 8, v3\nv_mov_b32_e32 v5, v4\nv_lshlrev_b32_e32 v4, 8, v5",
        "v_mul_lo_u32 v4, v3, v0\nv_sub_nc_u32_e32 v4, v0, v4\nv_and_b32_e32 v4, 0xffff, v4",
        "v_mad_u32_u24 v4, v3, v0, v3\nv_add3_u32 v4, v4, v3, v0\nv_lshlrev_b32_e32 v4, 16, v4",
        "v_add_co_u32 v4, vcc_lo, v3, v0\nv_and_b32_e32 v4, 0xffff, v4",
        "v_lshl_add_u32 v4, v3, 16, v0", "v_lshl_add_u32 v4, v0, v3, v0",
        "v_add_lshl_u32 v4, v3, v0, 16",
        "v_cmp_class_f16_e32 vcc_lo, v3, v3\nv_cndmask_b32_e32 v4, v0, v1, vcc_lo"}) {
    EXPECT_EQ(outcome(half + reader + store, {}, "gfx1030"), "accepted") << reader;
  }
  for (const char* reader :
       {"v_cvt_f32_ubyte2_e32 v4, v3", "v_and_b32_e32 v4, 0x1ffff, v3", "v_bfe_u32 v4, v3, 12, 8",
        "v_lshlrev_b32_e32 v4, 15, v3", "v_lshrrev_b32_e32 v4, 8, v3\nv_and_b32_e32 v4, 0x1ff, v4",
        "v_lshrrev_b32_e32 v4, 8, v3\nv_add_nc_u32_e32 v4, v4, v0", "v_add_nc_u32_e32 v4, v3, v0",
        "v_mul_lo_u32 v4, v3, v0\nv_and_b32_e32 v4, 0x1ffff, v4", "v_lshl_add_u32 v4, v3, 15, v0",
        "v_add_lshl_u32 v4, v3, v0, 15",
        "v_add_co_u32 v4, vcc_lo, v3, v0\nv_cndmask_b32_e32 v4, v0, v1, vcc_lo"}) {
    EXPECT_THAT(outcome(half + reader + store, {}, "gfx1030"), HasSubstr("nobody has written"))
        << reader;
  }
}

// A byte of LDS that is written, alone in its dword: it may be moved and computed with in wider
// parts, as long as it alone comes out.
TEST(Unwritten, bytes_stay_so_beside_one_that_is_written) {
  const std::string to_store = "\nglobal_store_byte v1, v4, s[6:7]";
  const std::string fill =
      "ds_write_b8 v1, v0\ns_waitcnt lgkmcnt(0)\nds_read_b32 v3, v1\n"
      "v_mov_b32_e32 v4, 0\ns_waitcnt lgkmcnt(0)\n";
  const auto outcome_of = [&](const char* reader) { return outcome(fill + reader + to_store); };
  for (const char* reader :
       {"v_mov_b32_e32 v4, v3", "v_add_u16_e32 v4, v3, v3", "v_mul_lo_u16_e32 v4, v3, v0",
        "ds_write_b32 v1, v3\nds_read_u8 v4, v1\ns_waitcnt lgkmcnt(0)",
        "v_lshlrev_b16_e32 v4, 8, v3\nv_lshrrev_b16_e32 v4, 8, v4",
        "v_xor_b32_sdwa v4, v3, v0 dst_sel:BYTE_2 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_0 "
        "src1_sel:DWORD\nv_lshrrev_b32_e32 v4, 16, v4",
        "v_add_u16_sdwa v4, v3, v3 dst_sel:BYTE_1 dst_unused:UNUSED_PAD src0_sel:DWORD "
        "src1_sel:DWORD\nv_lshrrev_b32_e32 v4, 8, v4",
        "v_xor_b32_sdwa v5, v3, v0 dst_sel:BYTE_3 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_0 "
        "src1_sel:DWORD\nv_lshrrev_b32_e32 v4, 24, v5",
        "v_cvt_f32_u32_sdwa v4, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_0",
        "v_pk_add_u16 v5, v3, v3 op_sel_hi:[0,0]\nv_lshrrev_b32_e32 v4, 16, v5",
        "v_pk_lshlrev_b16 v5, 8, v3\nv_lshrrev_b16_e32 v4, 8, v5",
        "v_bitop3_b32 v4, v3, v0, v0 bitop3:0x6c"}) {
    EXPECT_EQ(outcome_of(reader), "accepted") << reader;
  }
  for (const char* reader :
       {"v_lshrrev_b32_e32 v4, 8, v3", "v_lshrrev_b16_e32 v4, 1, v3", "v_lshrrev_b16_e32 v4, 8, v3",
        "ds_write_b32 v1, v3\nds_read_u8 v4, v1 offset:1\ns_waitcnt lgkmcnt(0)",
        "v_xor_b32_sdwa v4, v3, v0 dst_sel:BYTE_2 dst_unused:UNUSED_PAD src0_sel:BYTE_1 "
        "src1_sel:DWORD\nv_lshrrev_b32_e32 v4, 16, v4",
        "v_xor_b32_sdwa v5, v3, v0 dst_sel:BYTE_3 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_0 "
        "src1_sel:DWORD\nv_lshrrev_b32_e32 v4, 16, v5",
        "v_xor_b32_sdwa v4, v3, v0 dst_sel:BYTE_0 dst_unused:UNUSED_SEXT src0_sel:BYTE_1 "
        "src1_sel:DWORD\nv_lshrrev_b32_e32 v4, 24, v4",
        "v_lshlrev_b32_e32 v4, 16, v3\nv_ashrrev_i32_e32 v4, 28, v4",
        "v_cvt_f32_u32_sdwa v4, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_0",
        "v_pk_add_u16 v5, v3, v3\nv_lshrrev_b32_e32 v4, 16, v5", "v_pk_lshrrev_b16 v4, 1, v3",
        "v_lshrrev_b32_e32 v3, 8, v3\nv_bitop3_b32 v4, v3, v0, v0 bitop3:0x6c"}) {
    EXPECT_THAT(outcome_of(reader), HasSubstr("nobody has written")) << reader;
  }
}

// The same of a register of the wave that the lane's word went to.
TEST(Unwritten, bits_of_scalar_registers_go_where_instructions_move_them) {
  const std::string half = "v_lshrrev_b16 v3, 2, v0\nv_readfirstlane_b32 s8, v3\ns_mov_b32 s9, 1\n";
  const std::string store = "\nv_mov_b32_e32 v4, s8\nglobal_store_dword v1, v4, s[6:7]";
  for (const char* reader :
       {"s_lshl_b32 s8, s8, 16", "s_lshl_b64 s[8:9], s[8:9], 16", "s_lshl_b32 s8, s9, s8",
        "s_lshr_b32 s8, s8, 8\ns_and_b32 s8, s8, 0xff", "s_bfe_u32 s8, s8, 0x80008",
        "s_bfe_i32 s8, s8, 0x80008", "s_bfe_u64 s[8:9], s[8:9], 0x80008", "s_sext_i32_i16 s8, s8",
        "s_sext_i32_i8 s8, s8", "s_pack_ll_b32_b16 s8, s8, s8", "s_pack_lh_b32_b16 s8, s8, s9",
        "s_brev_b32 s8, s8\ns_lshr_b32 s8, s8, 16",
        "s_mul_i32 s8, s8, s8\ns_sub_u32 s8, s9, s8\ns_and_b32 s8, s8, 0xffff"}) {
    EXPECT_EQ(outcome(half + reader + store, {}, "gfx1030"), "accepted") << reader;
  }
  for (const char* reader :
       {"s_nop 0", "s_lshl_b32 s8, s8, 15", "s_lshr_b32 s8, s8, 1", "s_ashr_i32 s8, s8, 20",
        "s_lshr_b32 s8, s8, 8", "s_bfe_u32 s8, s8, 0x80009", "s_bfe_i32 s8, s8, 0x80009",
        "s_bfe_u32 s8, s9, s8", "s_pack_lh_b32_b16 s8, s8, s8", "s_brev_b32 s8, s8",
        "s_add_i32 s8, s8, 1", "s_add_u32 s8, s8, 1\ns_cselect_b32 s8, s9, s9",
        "s_mul_i32 s8, s8, s8\ns_and_b32 s8, s8, 0x1ffff", "s_lshl1_add_u32 s8, s8, s9"}) {
    EXPECT_THAT(outcome(half + reader + store, {}, "gfx1030"), HasSubstr("nobody has written"))
        << reader;
  }
}

// Two blocks replace a byte each of the same dwords, or each the byte that the other one loads.
TEST(Race, is_one_of_bytes_and_not_of_the_dwords_that_hold_them) {
  const auto outcome_of = [](const std::string& stored) -> std::string {
    TestMemory memory;
    const std::uint64_t data = memory.allocate(std::vector<std::uint32_t>(64, 7));
    try {
      run(*kernel_of("gfx90a", start_for("gfx90a") + "v_add_u32_e32 v2, s2, v1\n" +
                                   "global_load_ubyte v3, v2, s[4:5]\ns_waitcnt vmcnt(0)\n" +
                                   stored + "\nglobal_store_byte v2, v3, s[4:5]\ns_endpgm\n"),
          memory, {data}, 2, 64);
      return "accepted";
    } catch (const Fault& fault) {
      return fault.what();
    }
  };
  EXPECT_EQ(outcome_of("s_nop 0"), "accepted");
  EXPECT_THAT(outcome_of("s_xor_b32 s2, s2, 1\nv_add_u32_e32 v2, s2, v1"), HasSubstr("a race"));
}

TEST(Options, switch_checks_off) {
  Options options;
  options.check_waits = options.check_races = false;
  EXPECT_EQ(outcome("global_load_dword v2, v1, s[4:5]\nv_add_u32_e32 v2, 1, v2", options),
            "accepted");
  EXPECT_EQ(outcome("v_and_b32_e32 v1, 0xfc, v1\nglobal_store_dword v1, v0, s[6:7]", options),
            "accepted");
}

TEST(SplitBarrier, waits_for_the_signals_of_all_waves) {
  constexpr const char* kSynchronised =
      "ds_store_b32 v1, v0\ns_wait_dscnt 0x0\ns_barrier_signal -1\ns_barrier_wait 0xffff\n"
      "v_xor_b32_e32 v2, 0x100, v1\nds_load_b32 v3, v2\ns_wait_dscnt 0x0";
  const std::string target = "gfx1201";
  const std::string kLoad = "s_wait_kmcnt 0x0\n";
  TestMemory memory;
  const auto object = kernel_of(
      target, kLoad + "v_lshlrev_b32_e32 v1, 2, v0\n" + kSynchronised + "\ns_endpgm\n", 512);
  EXPECT_NO_THROW(run(*object, memory, {}, 1, 128));
  const auto alone = kernel_of(target, "s_barrier_wait 0xffff\ns_endpgm\n");
  EXPECT_THROW(run(*alone, memory, {}, 1, 32), Fault);
}

}  // namespace
}  // namespace kiln::amd
