// Cases of scalar instructions.
#include <fmt/format.h>

#include "tests/amd/isa/instruction_cases.hpp"

namespace kiln::amd {
namespace {

constexpr Case kFlow[] = {
    {k9,
     "v_readfirstlane_b32 s6, v1\ns_add_u32 s6, s6, -1\ns_addc_u32 s7, 5, 0\n"
     "v_mov_b32_e32 v8, s6\nv_mov_b32_e32 v9, s7",
     {3},
     {2, 6}},
    {k9,
     "s_mov_b32 s6, 0\ns_cmp_eq_u32 s6, 0\ns_cbranch_scc1 1\nv_mov_b32_e32 v8, 1\ns_nop 0",
     {},
     {0x5a5a5a5a}},
    {"gfx1201",
     "s_mov_b32 s6, 0x7fc00000\ns_cmp_u_f32 s6, 1.0\ns_cselect_b32 s7, 1, 5\n"
     "s_cmp_o_f32 s6, s6\ns_cselect_b32 s8, 1, 5\nv_mov_b32_e32 v8, s7\nv_mov_b32_e32 v9, s8",
     {},
     {1, 5}},
    {"gfx1201",
     "s_mov_b32 s6, 0xc0000000\ns_cmp_nge_f32 s6, 1.0\ns_cselect_b32 s7, 1, 5\n"
     "s_mov_b32 s8, 0x5a5abc00\ns_cmp_lt_f16 s8, 0\ns_cselect_b32 s8, 1, 5\n"
     "v_mov_b32_e32 v8, s7\nv_mov_b32_e32 v9, s8",
     {},
     {1, 1}},
    {"gfx1201",
     "s_mov_b32 s6, 0x80000000\ns_min_num_f32 s7, 0, s6\ns_mov_b32 s8, 0x7fc00001\n"
     "s_maximum_f32 s8, s8, 1.0\nv_mov_b32_e32 v8, s7\nv_mov_b32_e32 v9, s8",
     {},
     {0x80000000, 0x7fc00001}},
    {"gfx1201",
     "s_mov_b32 s6, 0x40000000\ns_fmac_f32 s6, 0.5, 4.0\ns_fmamk_f32 s7, s6, 0x3f000000, 1.0\n"
     "v_mov_b32_e32 v8, s6\nv_mov_b32_e32 v9, s7",
     {},
     {0x40800000, 0x40400000}},
    {"gfx1201",
     "s_mov_b32 s6, 0xffff3c00\ns_add_f16 s7, s6, 1.0\ns_mov_b32 s6, 0x40003c00\n"
     "s_cvt_hi_f32_f16 s8, s6\nv_mov_b32_e32 v8, s7\nv_mov_b32_e32 v9, s8",
     {},
     {0x4000, 0x40000000}},
    {"gfx1201",
     "s_mov_b32 s6, 0xcf000001\ns_cvt_i32_f32 s7, s6\ns_cvt_pk_rtz_f16_f32 s8, 1.0, s6\n"
     "v_mov_b32_e32 v8, s7\nv_mov_b32_e32 v9, s8",
     {},
     {0x80000000, 0xfbff3c00}},
    {"gfx1201",
     "s_mov_b32 s6, 0xc0800000\nv_s_rsq_f32 s7, -s6\ns_mov_b32 s8, 0xcafe4400\n"
     "v_s_sqrt_f16 s8, s8\nv_mov_b32_e32 v8, s7\nv_mov_b32_e32 v9, s8",
     {},
     {0x3f000000, 0x4000}},
    {"gfx942",
     "s_mov_b32 s6, 3\ns_add_u32 s6, s6, lit(0xffffffff)\ns_addc_u32 s7, 0, lit(0x5)\n"
     "v_mov_b32_e32 v8, s6\nv_mov_b32_e32 v9, s7",
     {},
     {2, 6}},
    {k9, "s_movk_i32 s6, 0x8000\nv_mov_b32_e32 v8, s6", {}, {0xffff8000}},
    {k9,
     "s_mov_b32 s6, 0\ns_mov_b32 s7, 0x00010100\ns_bcnt1_i32_b64 s8, s[6:7]\n"
     "v_mov_b32_e32 v8, s8",
     {},
     {2}},
    {k9, "s_mov_b64 s[6:7], 7\ns_bcnt0_i32_b64 s8, s[6:7]\nv_mov_b32_e32 v8, s8", {}, {61}},
    {k9, "s_mov_b32 s6, 7\ns_bcnt0_i32_b32 s8, s6\nv_mov_b32_e32 v8, s8", {}, {29}},
    {k9,
     "s_mov_b64 s[6:7], 0\ns_bcnt1_i32_b64 s8, s[6:7]\ns_cselect_b32 s8, 1, 5\n"
     "v_mov_b32_e32 v8, s8",
     {},
     {5}},
    {k9,
     "s_mov_b32 s6, 0\ns_mov_b32 s7, 0x00010100\ns_ff1_i32_b64 s8, s[6:7]\n"
     "v_mov_b32_e32 v8, s8",
     {},
     {40}},
    {k9,
     "s_mov_b32 s6, 0\ns_mov_b32 s7, 0x00010100\ns_flbit_i32_b64 s8, s[6:7]\n"
     "v_mov_b32_e32 v8, s8",
     {},
     {15}},
    {k9, "s_mov_b64 s[6:7], -2\ns_flbit_i32_i64 s8, s[6:7]\nv_mov_b32_e32 v8, s8", {}, {63}},
    {k9, "s_mov_b64 s[6:7], 0\ns_flbit_i32_b64 s8, s[6:7]\nv_mov_b32_e32 v8, s8", {}, {0xffffffff}},
    {k9, "s_mov_b64 s[6:7], 1\ns_brev_b64 s[8:9], s[6:7]\nv_mov_b32_e32 v8, s9", {}, {0x80000000}},
    {k9, "s_mov_b32 s6, 5\ns_bfe_u32 s7, 0xff0, 0x80004\nv_mov_b32_e32 v8, s7", {}, {0xff}},
    {k9,
     "s_mov_b64 s[6:7], exec\ns_andn2_b64 exec, exec, s[6:7]\nv_mov_b32_e32 v8, 1\n"
     "s_mov_b64 exec, s[6:7]",
     {},
     {0x5a5a5a5a}},
    {k9,
     "s_getpc_b64 s[6:7]\ns_add_u32 s6, s6, 12\ns_addc_u32 s7, s7, 0\ns_setpc_b64 s[6:7]\n"
     "v_mov_b32_e32 v8, 1",
     {},
     {1}},
    {k9, "v_writelane_b32 v3, 9, 2\nv_readlane_b32 s6, v3, 2\nv_mov_b32_e32 v8, s6", {}, {9}},
    {k9, "s_barrier\nv_mov_b32_e32 v8, 1", {}, {1}},
    {"gfx1201", "s_barrier_signal -1\ns_barrier_wait 0xffff\nv_mov_b32_e32 v8, 1", {}, {1}},
    {k9, "s_branch 1\nv_mov_b32_e32 v8, 1\ns_nop 0", {}, {0x5a5a5a5a}},
    {k9, "s_cmp_eq_u32 0, 0\ns_cbranch_scc0 1\nv_mov_b32_e32 v8, 1\ns_nop 0", {}, {1}},
    {k9, "s_cmp_eq_u32 0, 1\ns_cbranch_scc0 1\nv_mov_b32_e32 v8, 1\ns_nop 0", {}, {0x5a5a5a5a}},
    {k9, "s_mov_b64 vcc, 0\ns_cbranch_vccz 1\nv_mov_b32_e32 v8, 1\ns_nop 0", {}, {0x5a5a5a5a}},
    {k9, "s_mov_b64 vcc, 0\ns_cbranch_vccnz 1\nv_mov_b32_e32 v8, 1\ns_nop 0", {}, {1}},
    {k9, "s_mov_b64 vcc, 2\ns_cbranch_vccnz 1\nv_mov_b32_e32 v8, 1\ns_nop 0", {}, {0x5a5a5a5a}},
    {k9, "s_cbranch_execz 1\nv_mov_b32_e32 v8, 1\ns_nop 0", {}, {1}},
    {k9, "s_cbranch_execnz 1\nv_mov_b32_e32 v8, 1\ns_nop 0", {}, {0x5a5a5a5a}},
    {k9,
     "s_getpc_b64 s[6:7]\ns_add_u32 s6, s6, 16\ns_addc_u32 s7, s7, 0\ns_swappc_b64 s[10:11], "
     "s[6:7]\nv_mov_b32_e32 v8, 1\ns_sub_u32 s12, s6, s10\nv_mov_b32_e32 v9, s12",
     {},
     {0x5a5a5a5a, 4}},
    {k9,
     "s_call_b64 s[10:11], 1\nv_mov_b32_e32 v8, 1\ns_getpc_b64 s[6:7]\ns_sub_u32 s12, s6, "
     "s10\nv_mov_b32_e32 v9, s12",
     {},
     {0x5a5a5a5a, 8}},
    {k9, "s_getreg_b32 s6, hwreg(HW_REG_SH_MEM_BASES, 0, 16)\nv_mov_b32_e32 v8, s6", {}, {2}},
};

// ---- Arithmetic: a is s[6:7], b is s[10:11], the result s[12:13], which holds 0x5a5a5a5a twice

using u32 = std::uint32_t;
using u64 = std::uint64_t;

struct Arithmetic {
  const char* lines;
  u64 a;
  u64 b;
  bool scc_before;
  u64 result;
  bool scc;
};

constexpr u64 r32(u32 low) { return u64{0x5a5a5a5a} << 32 | low; }
constexpr u64 kUntouched = 0x5a5a5a5a5a5a5a5a;

constexpr Arithmetic kArithmetic[] = {
    {"s_add_u32 s12, s6, s10", 0xffffffff, 1, false, r32(0), true},
    {"s_sub_u32 s12, s6, s10", 1, 2, false, r32(0xffffffff), true},
    {"s_addc_u32 s12, s6, s10", 0xffffffff, 0, true, r32(0), true},
    {"s_addc_u32 s12, s6, s10", 1, 2, false, r32(3), false},
    {"s_subb_u32 s12, s6, s10", 5, 5, true, r32(0xffffffff), true},
    {"s_add_i32 s12, s6, s10", 0x7fffffff, 1, false, r32(0x80000000), true},
    {"s_add_i32 s12, s6, s10", 0xffffffff, 1, true, r32(0), false},
    {"s_sub_i32 s12, s6, s10", 0x80000000, 1, false, r32(0x7fffffff), true},
    {"s_mov_b32 s12, s6\ns_addk_i32 s12, 0xffff", 5, 0, true, r32(4), false},
    {"s_mul_i32 s12, s6, s10", 0x10001, 0x10001, true, r32(0x20001), true},
    {"s_mov_b32 s12, s6\ns_mulk_i32 s12, 0xfffe", 3, 0, false, r32(0xfffffffa), false},
    {"s_mul_hi_u32 s12, s6, s10", 0x80000000, 6, true, r32(3), true},
    {"s_mul_hi_i32 s12, s6, s10", 0xffffffff, 1, true, r32(0xffffffff), true},
    {"s_add_nc_u64 s[12:13], s[6:7], s[10:11]", 0xffffffff, 1, false, u64{1} << 32, false},
    {"s_sub_nc_u64 s[12:13], s[6:7], s[10:11]", u64{1} << 32, 1, false, 0xffffffff, false},
    {"s_mul_u64 s[12:13], s[6:7], s[10:11]", 0xffffffff, 0xffffffff, true, 0xfffffffe00000001,
     true},
    {"s_min_u32 s12, s6, s10", 0xffffffff, 1, true, r32(1), false},
    {"s_min_u32 s12, s6, s10", 1, 2, false, r32(1), true},
    {"s_max_u32 s12, s6, s10", 0xffffffff, 1, false, r32(0xffffffff), true},
    {"s_min_i32 s12, s6, s10", 0xffffffff, 1, false, r32(0xffffffff), true},
    {"s_max_i32 s12, s6, s10", 0xffffffff, 1, true, r32(1), false},
    {"s_lshl1_add_u32 s12, s6, s10", 0x80000000, 1, false, r32(1), true},
    {"s_lshl2_add_u32 s12, s6, s10", 1, 3, true, r32(7), false},
    {"s_lshl3_add_u32 s12, s6, s10", 1, 3, true, r32(11), false},
    {"s_lshl4_add_u32 s12, s6, s10", 1, 3, true, r32(19), false},
    {"s_lshl_b32 s12, s6, s10", 1, 33, false, r32(2), true},
    {"s_lshr_b32 s12, s6, s10", 0x80000000, 31, false, r32(1), true},
    {"s_ashr_i32 s12, s6, s10", 0x80000000, 31, false, r32(0xffffffff), true},
    {"s_lshl_b64 s[12:13], s[6:7], s10", 1, 32, false, u64{1} << 32, true},
    {"s_lshr_b64 s[12:13], s[6:7], s10", u64{1} << 32, 32, false, 1, true},
    {"s_lshr_b64 s[12:13], s[6:7], s10", 1, 1, true, 0, false},
    {"s_ashr_i64 s[12:13], s[6:7], s10", u64{1} << 63, 63, false, ~u64{0}, true},
    {"s_bfe_u32 s12, s6, s10", 0x12345678, 0x80008, false, r32(0x56), true},
    {"s_bfe_i32 s12, s6, s10", 0xff, 0x80000, false, r32(0xffffffff), true},
    {"s_bfe_u64 s[12:13], s[6:7], s10", 0x123456789abcdef0, 0x100020, false, 0x5678, true},
    {"s_bfe_i64 s[12:13], s[6:7], s10", u64{0x80} << 32, 0x80020, false, ~u64{0x7f}, true},
    {"s_bfm_b32 s12, s6, s10", 4, 8, true, r32(0xf00), true},
    {"s_bfm_b64 s[12:13], s6, s10", 4, 40, true, u64{0xf} << 40, true},
    {"s_pack_ll_b32_b16 s12, s6, s10", 0x12345678, 0x9abcdef0, true, r32(0xdef05678), true},
    {"s_pack_lh_b32_b16 s12, s6, s10", 0x12345678, 0x9abcdef0, true, r32(0x9abc5678), true},
    {"s_pack_hh_b32_b16 s12, s6, s10", 0x12345678, 0x9abcdef0, true, r32(0x9abc1234), true},
    {"s_abs_i32 s12, s6", 0xffffffff, 0, false, r32(1), true},
    {"s_abs_i32 s12, s6", 0, 0, true, r32(0), false},
    {"s_brev_b32 s12, s6", 1, 0, true, r32(0x80000000), true},
    {"s_brev_b64 s[12:13], s[6:7]", 1, 0, true, u64{1} << 63, true},
    {"s_bcnt0_i32_b32 s12, s6", 7, 0, false, r32(29), true},
    {"s_bcnt1_i32_b32 s12, s6", 7, 0, false, r32(3), true},
    {"s_bcnt0_i32_b64 s12, s[6:7]", 7, 0, false, r32(61), true},
    {"s_bcnt1_i32_b64 s12, s[6:7]", u64{7} << 40, 0, false, r32(3), true},
    {"s_ff1_i32_b32 s12, s6", 0x10, 0, true, r32(4), true},
    {"s_ff1_i32_b32 s12, s6", 0, 0, true, r32(0xffffffff), true},
    {"s_ff1_i32_b64 s12, s[6:7]", u64{1} << 40, 0, true, r32(40), true},
    {"s_flbit_i32_b32 s12, s6", 0x10000, 0, true, r32(15), true},
    {"s_flbit_i32 s12, s6", 0xfffffff0, 0, true, r32(28), true},
    {"s_flbit_i32 s12, s6", 0xffffffff, 0, true, r32(0xffffffff), true},
    {"s_flbit_i32_b64 s12, s[6:7]", u64{1} << 40, 0, true, r32(23), true},
    {"s_flbit_i32_i64 s12, s[6:7]", ~u64{1}, 0, true, r32(63), true},
    {"s_sext_i32_i8 s12, s6", 0x180, 0, true, r32(0xffffff80), true},
    {"s_sext_i32_i16 s12, s6", 0x18000, 0, true, r32(0xffff8000), true},
    {"s_mov_b32 s12, s6\ns_bitset0_b32 s12, s10", 0xff, 4, true, r32(0xef), true},
    {"s_mov_b32 s12, s6\ns_bitset1_b32 s12, s10", 0, 4, true, r32(0x10), true},
    {"s_mov_b32 s12, s6", 7, 0, true, r32(7), true},
    {"s_mov_b64 s[12:13], s[6:7]", ~u64{1}, 0, false, ~u64{1}, false},
    {"s_movk_i32 s12, 0x8000", 0, 0, true, r32(0xffff8000), true},
    {"s_cmov_b32 s12, s6", 7, 0, true, r32(7), true},
    {"s_cmov_b32 s12, s6", 7, 0, false, kUntouched, false},
    {"s_cmov_b64 s[12:13], s[6:7]", ~u64{1}, 0, true, ~u64{1}, true},
    {"s_cmov_b64 s[12:13], s[6:7]", ~u64{1}, 0, false, kUntouched, false},
    {"s_cmovk_i32 s12, 0xffff", 0, 0, true, r32(0xffffffff), true},
    {"s_cselect_b32 s12, s6, s10", 1, 2, true, r32(1), true},
    {"s_cselect_b32 s12, s6, s10", 1, 2, false, r32(2), false},
    {"s_cselect_b64 s[12:13], s[6:7], s[10:11]", 1, ~u64{0}, false, ~u64{0}, false},
    {"s_not_b32 s12, s6", 0xffff0000, 0, false, r32(0xffff), true},
    {"s_not_b64 s[12:13], s[6:7]", ~u64{0}, 0, true, 0, false},
    {"s_bitcmp0_b32 s6, s10", 0x10, 5, false, kUntouched, true},
    {"s_bitcmp1_b32 s6, s10", 0x10, 36, false, kUntouched, true},
    {"s_bitcmp0_b64 s[6:7], s10", u64{1} << 40, 40, true, kUntouched, false},
    {"s_bitcmp1_b64 s[6:7], s10", u64{1} << 40, 40, false, kUntouched, true},
};

// ---- Bit by bit: of two words, and of one and EXEC, which becomes the result

struct Logic {
  const char* name;
  u64 (*of)(u64, u64);
  bool of_exec_alone = false;
};
constexpr Logic kLogic[] = {
    {"s_and", [](u64 a, u64 b) { return a & b; }},
    {"s_or", [](u64 a, u64 b) { return a | b; }},
    {"s_xor", [](u64 a, u64 b) { return a ^ b; }},
    {"s_andn2", [](u64 a, u64 b) { return a & ~b; }},
    {"s_orn2", [](u64 a, u64 b) { return a | ~b; }},
    {"s_nand", [](u64 a, u64 b) { return ~(a & b); }},
    {"s_nor", [](u64 a, u64 b) { return ~(a | b); }},
    {"s_xnor", [](u64 a, u64 b) { return ~(a ^ b); }},
    {"s_andn1", [](u64 a, u64 b) { return ~a & b; }, true},
    {"s_orn1", [](u64 a, u64 b) { return ~a | b; }, true},
};

MadeCase made_case(const char* target, const std::string& lines, u64 a, u64 b, bool scc_before,
                   u64 result, bool scc) {
  MadeCase made;
  made.target = target;
  made.lines = fmt::format(
      "s_mov_b32 s6, {:#x}\ns_mov_b32 s7, {:#x}\ns_mov_b32 s10, {:#x}\ns_mov_b32 s11, {:#x}\n"
      "s_mov_b32 s12, 0x5a5a5a5a\ns_mov_b32 s13, s12\ns_cmp_eq_u32 0, {}\n",
      static_cast<u32>(a), a >> 32, static_cast<u32>(b), b >> 32, scc_before ? 0 : 1);
  made.lines += lines;
  made.lines +=
      "\ns_cselect_b32 s14, 1, 0\nv_mov_b32_e32 v8, s12\nv_mov_b32_e32 v9, s13\n"
      "v_mov_b32_e32 v10, s14";
  made.expected = {static_cast<u32>(result), static_cast<u32>(result >> 32), scc ? 1U : 0U};
  return made;
}

void add_logic(std::vector<MadeCase>& made) {
  constexpr u64 a = 0xff00ff000000000c;
  constexpr u64 b = 0xf0f0f0f00000000a;
  for (const Logic& logic : kLogic) {
    const std::string name = logic.name;
    if (!logic.of_exec_alone) {
      const u64 wide = logic.of(a, b);
      made.push_back(
          made_case(k9, name + "_b64 s[12:13], s[6:7], s[10:11]", a, b, false, wide, true));
      made.push_back(made_case(k9, name + "_b32 s12, s6, s10", a, b, false,
                               r32(static_cast<u32>(wide)), true));
    }
    // EXEC is 1, as there is one thread.
    const u64 saved = logic.of(3, 1);
    made.push_back(made_case(k9,
                             name + "_saveexec_b64 s[8:9], s[6:7]\ns_mov_b64 s[12:13], exec\n"
                                    "s_mov_b64 exec, s[8:9]",
                             3, 0, saved == 0, saved, saved != 0));
    made.push_back(made_case(k10,
                             name + "_saveexec_b32 s8, s6\ns_mov_b32 s12, exec_lo\n"
                                    "s_mov_b32 exec_lo, s8",
                             3, 0, saved == 0, r32(static_cast<u32>(saved)), saved != 0));
  }
}

// Relations by name, and whether they say yes to less, equal, greater.
void add_comparisons(std::vector<MadeCase>& made) {
  struct Pair {
    const char* type;
    u64 a;
    u64 b;
    char is;
  };
  constexpr Pair kPairs[] = {{"i32", 0xffffffff, 1, 'l'},
                             {"i32", 7, 7, 'e'},
                             {"i32", 1, 0xffffffff, 'g'},
                             {"u32", 1, 0xffffffff, 'l'},
                             {"u32", 7, 7, 'e'},
                             {"u32", 0xffffffff, 1, 'g'},
                             {"u64", 1, u64{1} << 32, 'l'},
                             {"u64", ~u64{0}, ~u64{0}, 'e'},
                             {"u64", u64{1} << 32, 1, 'g'}};
  constexpr std::pair<const char*, std::string_view> kRelations[] = {
      {"lt", "l"}, {"eq", "e"}, {"le", "le"}, {"gt", "g"}, {"lg", "lg"}, {"ge", "ge"}};
  for (const Pair& pair : kPairs) {
    for (const auto& [name, yes] : kRelations) {
      const bool scc = yes.find(pair.is) != yes.npos;
      const bool wide = std::string_view(pair.type) == "u64";
      const char* const operands = wide ? "s[6:7], s[10:11]" : "s6, s10";
      made.push_back(made_case(k9, fmt::format("s_cmp_{}_{} {}", name, pair.type, operands), pair.a,
                               pair.b, !scc, kUntouched, scc));
      if (wide) continue;
      // The constant has 16 bits, with a sign or without.
      const bool is_signed = pair.type[0] == 'i';
      const u64 a = pair.b == 0xffffffff && !is_signed ? 1 : pair.a;
      made.push_back(
          made_case(k9, fmt::format("s_cmpk_{}_{} s6, {:#x}", name, pair.type, pair.b & 0xffff), a,
                    0, !scc, kUntouched, scc));
    }
  }
}

}  // namespace

std::span<const Case> flow_cases() { return kFlow; }

std::vector<MadeCase> scalar_cases() {
  std::vector<MadeCase> made;
  for (const Arithmetic& one : kArithmetic) {
    made.push_back(made_case(k9, one.lines, one.a, one.b, one.scc_before, one.result, one.scc));
  }
  add_logic(made);
  add_comparisons(made);
  return made;
}

}  // namespace kiln::amd
