// What single instructions compute: cases with known answers.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/amd/isa/listing.hpp"
#include "tests/amd/isa/numbers.hpp"

namespace kiln::amd {
namespace {

using u32 = std::uint32_t;

struct Case {
  const char* target;
  const char* instruction;    ///< reads v1, v2..., writes v8 (and v9)
  std::vector<u32> sources;   ///< of v1, v2...
  std::vector<u32> expected;  ///< of v8 and v9
};

// The bits of what one thread computes.
std::vector<u32> result_of(const Case& entry) {
  TestMemory memory;
  const std::uint64_t out = memory.allocate(entry.expected.size() * 4);
  std::string lines = "s_load_dwordx2 s[4:5], s[0:1], 0x0\n";
  for (std::size_t i = 0; i < entry.sources.size(); ++i) {
    lines += fmt::format("v_mov_b32_e32 v{}, {:#x}\n", i + 1, entry.sources[i]);
  }
  lines += "v_mov_b32_e32 v8, 0x5a5a5a5a\nv_mov_b32_e32 v9, 0x5a5a5a5a\n";
  const std::string wait =
      isa_of(entry.target).major >= 12 ? "s_wait_kmcnt 0x0\n" : "s_waitcnt vmcnt(0) lgkmcnt(0)\n";
  lines += "v_mov_b32_e32 v20, 0\n" + wait;
  lines += entry.instruction;
  lines += "\n" + wait;
  for (std::size_t i = 0; i < entry.expected.size(); ++i) {
    lines += fmt::format("global_store_dword v20, v{}, s[4:5] offset:{}\n", i + 8, i * 4);
  }
  lines += "s_endpgm\n";
  run(*kernel_of(entry.target, lines, 64), memory, {out});
  std::vector<u32> result(entry.expected.size());
  std::memcpy(result.data(), reinterpret_cast<const void*>(out), result.size() * 4);
  return result;
}

constexpr const char* k9 = "gfx90a";
constexpr const char* k10 = "gfx1030";

const Case kFloats[] = {
    {k9, "v_add_f32_e32 v8, v1, v2", {0x3f800000, 0x33800000}, {0x3f800000}},  // ties to even
    {k9, "v_add_f32_e32 v8, 1.0, v1", {0x40000000}, {0x40400000}},
    {k9, "v_add_f32_e64 v8, -v1, |v2|", {0x3f800000, 0xc0000000}, {0x3f800000}},
    {k9, "v_add_f32_e32 v8, v1, v2", {0x7f800000, 0xff800000}, {0x7fc00000}},
    {k9,
     "v_add_f32_e32 v8, v1, v2",
     {0x00000001, 0x00000001},
     {0x00000002}},  // subnormals are kept
    {k9, "v_mul_f32_e32 v8, v1, v2", {0x80000000, 0x3f800000}, {0x80000000}},
    {k9, "v_mul_f32_e64 v8, v1, v2 clamp", {0x40000000, 0x3f800000}, {0x3f800000}},
    {k9, "v_mul_f32_e64 v8, v1, v2 clamp", {0x7fc00000, 0x3f800000}, {0}},
    {k9, "v_mul_f32_e64 v8, v1, v2 mul:4", {0x40000000, 0x3f800000}, {0x41000000}},
    {k9, "v_fma_f32 v8, v1, v2, v3", {0x3f800001, 0x3f800001, 0xbf800002}, {0x28800000}},
    {k9, "v_fma_f32 v8, v1, v2, 0", {0x80000000, 0x3f800000}, {0}},
    {k9, "v_fmac_f32_e32 v8, v1, v2", {0x3f800000, 0}, {0x5a5a5a5a}},
    {k9, "v_max_f32_e32 v8, v1, v2", {0x7fc00000, 0x3f800000}, {0x3f800000}},
    {k9, "v_max_f32_e32 v8, v1, v2", {0x3f800000, 0x7f800001}, {0x7fc00001}},  // it signals
    {k9, "v_max_f32_e32 v8, v1, v1", {0xff800001}, {0xffc00001}},
    {k9, "v_min_f64 v[8:9], v[1:2], v[3:4]", {1, 0x7ff00000, 0, 0x3ff00000}, {1, 0x7ff80000}},
    {k9, "v_max_f16_e32 v8, v1, v2", {0x7c01, 0x3c00}, {0x7e01}},
    {k9, "v_max_f32_e32 v8, v1, v2", {0x80000000, 0}, {0}},
    {k9, "v_min_f32_e32 v8, v1, v2", {0, 0x80000000}, {0x80000000}},
    {"gfx1201", "v_maximum_f32 v8, v1, v2", {0x7fc00001, 0x3f800000}, {0x7fc00001}},
    {"gfx1201", "v_maximum_f32 v8, v1, v2", {0x3f800000, 0x7f800001}, {0x7fc00001}},
    {k9, "v_med3_f32 v8, v1, v2, v3", {0x40400000, 0x3f800000, 0x40000000}, {0x40000000}},
    {k9, "v_rndne_f32_e32 v8, v1", {0x40200000}, {0x40000000}},
    {k9, "v_rndne_f32_e32 v8, v1", {0xbf000000}, {0x80000000}},
    {k9, "v_fract_f32_e32 v8, v1", {0xbe800000}, {0x3f400000}},
    {k9, "v_fract_f32_e32 v8, v1", {0x80000001}, {0x3f7fffff}},
    {k9, "v_ldexp_f32 v8, v1, v2", {0x3f800001, 0xffffff6b}, {0x00000001}},
    {k9, "v_frexp_mant_f32_e32 v8, v1", {0x00000001}, {0x3f000000}},
    {k9, "v_frexp_exp_i32_f32_e32 v8, v1", {0x00000001}, {0xffffff6c}},
    {k9, "v_frexp_exp_i32_f32_e32 v8, v1", {0x7f800000}, {0}},
    {k9, "v_exp_f32_e32 v8, v1", {0xc3000000}, {0}},  // 2^-128 is flushed
    {k9, "v_exp_f32_e32 v8, v1", {0x40400000}, {0x41000000}},
    {k9, "v_log_f32_e32 v8, v1", {0x00000001}, {0xff800000}},
    {k9, "v_log_f32_e32 v8, v1", {0xbf800000}, {0x7fc00000}},
    {k9, "v_rcp_f32_e32 v8, v1", {0x80000000}, {0xff800000}},
    {k9, "v_rsq_f32_e32 v8, v1", {0x40800000}, {0x3f000000}},
    {k9, "v_sqrt_f32_e32 v8, v1", {0xbf800000}, {0x7fc00000}},
    {k9, "v_sin_f32_e32 v8, v1", {0x3e800000}, {0x3f800000}},
    {k9, "v_mad_f32 v8, v1, v2, v3", {0x00000001, 0x3f800000, 0}, {0}},  // flushes
    {k9, "v_mul_legacy_f32_e32 v8, v1, v2", {0, 0x7f800000}, {0}},
    {k9, "v_add_f64 v[8:9], v[1:2], v[3:4]", {0, 0x3ff00000, 1, 0}, {0, 0x3ff00000}},
    {k9, "v_add_f64 v[8:9], v[1:2], 0.5", {0, 0x3ff00000}, {0, 0x3ff80000}},
    {k9, "v_mul_f64 v[8:9], -v[1:2], |v[3:4]|", {0, 0x3ff00000, 0, 0xc0000000}, {0, 0xc0000000}},
    {k9, "v_fma_f64 v[8:9], v[1:2], v[3:4], 1.0", {0, 0x40000000, 0, 0x40080000}, {0, 0x401c0000}},
    {k9, "v_trig_preop_f64 v[8:9], v[1:2], 0", {0, 0x3ff00000}, {0x6dc9c882, 0x3fe45f30}},
    {k9, "v_add_f16_e32 v8, v1, v2", {0x3c00, 0x1000}, {0x3c00}},
    {k10, "v_add_f16_e32 v8, v1, v2", {0x3c00, 0x3c00}, {0x5a5a4000}},  // gfx10 keeps the rest
    {k9, "v_fma_f16 v8, v1, v2, v3", {0x3c01, 0x3c01, 0xbc02}, {0x5a5a0010}},
    {k9, "v_mul_f16_e32 v8, v1, v2", {0x0001, 0x3800}, {0}},
    {k9, "v_pk_add_f16 v8, v1, v2 op_sel_hi:[1,0]", {0x40003c00, 0x3c00}, {0x42004000}},
    {k9, "v_pk_mul_f16 v8, v1, v2 neg_lo:[1,0]", {0x40003c00, 0x3c003c00}, {0x4000bc00}},
    {k9,
     "v_pk_fma_f32 v[8:9], v[1:2], v[3:4], 1.0 op_sel_hi:[0,1,0] neg_lo:[1,0,0]",
     {0x40000000, 0, 0x3f800000, 0x40400000},
     {0xbf800000, 0x40e00000}},
    {k9, "v_pk_mov_b32 v[8:9], v[1:2], v[3:4] op_sel:[1,0]", {1, 2, 3, 4}, {2, 3}},
    {k9,
     "v_fma_mix_f32 v8, v1, v2, 0 op_sel:[1,0,0] op_sel_hi:[1,0,0]",
     {0x40003c00, 0x40400000},
     {0x40c00000}},
    {k9, "v_fma_mixhi_f16 v8, v1, v2, 1.0", {0x40000000, 0x40400000}, {0x47005a5a}},
    {k9, "v_div_fixup_f32 v8, v1, v2, v3", {0x3f800000, 0, 0xbf800000}, {0xff800000}},
    {k9, "v_div_fixup_f32 v8, v1, v2, v3", {0x3f800000, 0, 0}, {0xffc00000}},
    {k9, "v_div_fixup_f32 v8, v1, v2, v3", {0x3f800000, 0xc0000000, 0x40000000}, {0xbf800000}},
    {k9, "v_div_scale_f32 v8, vcc, v1, v1, v2", {0x00000001, 0x3f800000}, {0x15000000}},
    {k9, "v_div_scale_f32 v8, vcc, v2, v1, v2", {0x3f800000, 0x40000000}, {0x40000000}},
};

const Case kConversions[] = {
    {k9, "v_cvt_f16_f32_e32 v8, v1", {0x477ff000}, {0x7c00}},
    {k9, "v_cvt_f16_f32_e32 v8, v1", {0x477fefff}, {0x7bff}},
    {k9, "v_cvt_f16_f32_e32 v8, v1", {0x33000001}, {0x0001}},
    {k9, "v_cvt_f16_f32_e32 v8, v1", {0x33000000}, {0x0000}},
    {k9, "v_cvt_f32_f16_e32 v8, v1", {0x0001}, {0x33800000}},
    {k9,
     "v_cvt_f32_f16_sdwa v8, v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1",
     {0x3c000000},
     {0x3f800000}},
    {k9, "v_cvt_pkrtz_f16_f32_e64 v8, v1, v2", {0x3f801fff, 0xbf801fff}, {0xbc003c00}},
    {k9, "v_cvt_i32_f32_e32 v8, v1", {0x7fc00000}, {0}},
    {k9, "v_cvt_i32_f32_e32 v8, v1", {0xcf000001}, {0x80000000}},
    {k9, "v_cvt_u32_f32_e32 v8, v1", {0xbf800000}, {0}},
    {k9, "v_cvt_u32_f32_e32 v8, v1", {0x4f800000}, {0xffffffff}},
    {k9, "v_cvt_i32_f64_e32 v8, v[1:2]", {0, 0x41e00000}, {0x7fffffff}},
    {k9, "v_cvt_f32_i32_e32 v8, v1", {0x01000001}, {0x4b800000}},
    {k9, "v_cvt_f32_u32_e32 v8, v1", {0xffffffff}, {0x4f800000}},
    {k9, "v_cvt_f64_f32_e32 v[8:9], v1", {0x00000001}, {0, 0x36a00000}},
    {k9, "v_cvt_f32_f64_e32 v8, v[1:2]", {0x10000000, 0x3ff00000}, {0x3f800000}},
    {k9, "v_cvt_f32_ubyte2_e32 v8, v1", {0x00ff0000}, {0x437f0000}},
    {k9, "v_cvt_pk_u8_f32 v8, v1, 1, v2", {0x43ff0000, 0x12345678}, {0x1234ff78}},
    {"gfx942", "v_cvt_f32_fp8_sdwa v8, v1 src0_sel:BYTE_1", {0x4000}, {0x3f800000}},
    {"gfx942", "v_cvt_f32_fp8_sdwa v8, v1 src0_sel:BYTE_0", {0x80}, {0x7fc00000}},
    {"gfx1201", "v_cvt_f32_fp8 v8, v1", {0x38}, {0x3f800000}},
    {"gfx942", "v_cvt_pk_f32_fp8 v[8:9], v1", {0x4840}, {0x3f800000, 0x40000000}},
    {"gfx1201",
     "v_cvt_pk_fp8_f32 v8, v1, v2 op_sel:[0,0,1]",
     {0x3f800000, 0x40000000},
     {0x40385a5a}},
    {"gfx950", "v_cvt_pk_bf16_f32 v8, v1, v2", {0x3f808000, 0x3f818000}, {0x3f823f80}},
};

const Case kIntegers[] = {
    {k9, "v_add_u32_e32 v8, v1, v2", {0xffffffff, 2}, {1}},
    {k9, "v_subrev_u32_e32 v8, v1, v2", {1, 3}, {2}},
    {k9, "v_mul_lo_u32 v8, v1, v2", {0x10001, 0x10001}, {0x20001}},
    {k9, "v_mul_hi_u32 v8, v1, v2", {0x80000000, 6}, {3}},
    {k9, "v_mul_hi_i32 v8, v1, v2", {0xffffffff, 1}, {0xffffffff}},
    {k9, "v_mul_i32_i24_e32 v8, v1, v2", {0x00ffffff, 5}, {0xfffffffb}},
    {k9,
     "v_mad_u64_u32 v[8:9], s[6:7], v1, v2, v[3:4]",
     {0xffffffff, 0xffffffff, 1, 0},
     {2, 0xfffffffe}},
    {k9, "v_lshlrev_b32_e32 v8, 33, v1", {3}, {6}},
    {k9, "v_ashrrev_i32_e32 v8, 4, v1", {0x80000000}, {0xf8000000}},
    {k9, "v_lshlrev_b64 v[8:9], 4, v[1:2]", {0xf0000000, 1}, {0, 0x1f}},
    {k9, "v_ashrrev_i64 v[8:9], 4, v[1:2]", {0, 0x80000000}, {0, 0xf8000000}},
    {k9, "v_bfe_u32 v8, v1, 8, 8", {0x12345678}, {0x56}},
    {k9, "v_bfe_i32 v8, v1, 0, 8", {0x000000ff}, {0xffffffff}},
    {k9, "v_bfi_b32 v8, v1, v2, v3", {0xffff, 0x1111, 0x22222222}, {0x22221111}},
    {k9, "v_alignbit_b32 v8, v1, v2, 16", {0x1111, 0x22220000}, {0x11112222}},
    {k9, "v_perm_b32 v8, v1, v2, v3", {0x33221100, 0x77665544, 0x0c0d0400}, {0x00ff0044}},
    {k9, "v_ffbh_u32_e32 v8, v1", {0x00010000}, {15}},
    {k9, "v_ffbh_u32_e32 v8, v1", {0}, {0xffffffff}},
    {k9, "v_ffbh_i32_e32 v8, v1", {0xfffffff0}, {28}},
    {k9, "v_bcnt_u32_b32 v8, v1, 3", {0xff}, {11}},
    {k9, "v_bfrev_b32_e32 v8, v1", {1}, {0x80000000}},
    {k9, "v_add3_u32 v8, v1, v2, -1", {1, 2}, {2}},
    {k9, "v_lshl_or_b32 v8, v1, 4, v2", {1, 3}, {0x13}},
    {k9, "v_and_or_b32 v8, v1, v2, v3", {0xff, 0x0f, 0xf00}, {0xf0f}},
    {k9, "v_xor3_b32 v8, v1, v2, v3", {1, 3, 7}, {5}},
    {k9, "v_max_i16_e32 v8, v1, v2", {0xffff, 1}, {1}},
    {k9, "v_min_u16_e32 v8, v1, v2", {0xffff, 1}, {1}},
    {k9, "v_mul_lo_u16_e32 v8, v1, v2", {0x101, 0x101}, {0x0201}},
    {k10, "v_mul_lo_u16 v8, v1, v2", {0x101, 0x101}, {0x5a5a0201}},
    {k9, "v_ashrrev_i16_e32 v8, 4, v1", {0x8000}, {0xf800}},
    {k9, "v_pk_lshlrev_b16 v8, v1, v2", {0x00010004, 0x00010001}, {0x00020010}},
    {k9,
     "v_add_u16_sdwa v8, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_1 "
     "src1_sel:DWORD",
     {0x0300, 4},
     {0x00075a5a}},
    {k9,
     "v_lshlrev_b32_sdwa v8, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD "
     "src1_sel:WORD_1",
     {8, 0x00120000},
     {0x1200}},
    {k9,
     "v_and_b32_sdwa v8, sext(v1), v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_0 "
     "src1_sel:DWORD",
     {0x80, 0xffff},
     {0xff80}},
    {k9, "v_mad_legacy_u16 v8, v1, v2, v3", {2, 3, 4}, {10}},
    {k9, "v_dot4_i32_i8 v8, v1, v2, v3", {0xff020304, 0x01010101, 10}, {18}},
    {k9, "v_sad_u8 v8, v1, v2, v3", {0x01020304, 0x04030201, 1}, {9}},
    {k9, "v_mbcnt_lo_u32_b32 v8, v1, 7", {0xffffffff}, {7}},
    {k9, "v_accvgpr_write_b32 a0, v1\nv_accvgpr_read_b32 v8, a0", {42}, {42}},
    {"gfx1100",
     "v_dual_mov_b32 v8, v1 :: v_dual_add_f32 v9, v1, v2",
     {0x3f800000, 0x40000000},
     {0x3f800000, 0x40400000}},
    {"gfx1100", "v_dual_mov_b32 v8, v9 :: v_dual_mov_b32 v9, v8", {}, {0x5a5a5a5a, 0x5a5a5a5a}},
    {"gfx950", "v_bitop3_b32 v8, v1, v2, v3 bitop3:0xc8", {0xc, 0xa, 0x3}, {0xa}},
    {"gfx942", "v_lshl_add_u64 v[8:9], v[1:2], 3, v[3:4]", {1, 0x80000000, 1, 0}, {9, 0}},
};

const Case kFlow[] = {
    {k9,
     "v_cmp_lt_f32_e32 vcc, v1, v2\nv_cndmask_b32_e32 v8, 3, v1, vcc",
     {0x3f800000, 0x40000000},
     {0x3f800000}},
    {k9,
     "v_cmp_nlt_f32_e32 vcc, v1, v2\nv_cndmask_b32_e64 v8, 0, 1, vcc",
     {0x7fc00000, 0x40000000},
     {1}},
    {k9,
     "v_cmp_class_f32_e64 s[6:7], v1, v2\nv_cndmask_b32_e64 v8, 0, 1, s[6:7]",
     {0x80000001, 0x10},
     {1}},
    {k9,
     "v_cmp_lt_i16_sdwa s[6:7], sext(v1), v2 src0_sel:BYTE_0 src1_sel:DWORD\n"
     "v_cndmask_b32_e64 v8, 0, 1, s[6:7]",
     {0x80, 0},
     {1}},
    {k10, "v_cmpx_eq_u32_e32 1, v1\nv_mov_b32_e32 v8, 7\ns_mov_b32 exec_lo, 1", {2}, {0x5a5a5a5a}},
    {k9,
     "v_add_co_u32_e32 v8, vcc, v1, v2\nv_addc_co_u32_e32 v9, vcc, v1, v2, vcc",
     {0xffffffff, 1},
     {0, 1}},
    {k9,
     "v_sub_co_u32_e32 v8, vcc, v1, v2\nv_subbrev_co_u32_e32 v9, vcc, 0, v2, vcc",
     {1, 2},
     {0xffffffff, 1}},
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
    {"gfx1100",
     "s_mov_b32 m0, 1\nv_movrels_b32_e32 v8, v1\nv_movreld_b32_e32 v8, v1",
     {5, 6},
     {6, 5}},
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
    {k9,
     "v_mov_b32_e32 v3, 4\nds_write_b32 v3, v1\nds_write_b8 v3, v2 offset:1\n"
     "s_waitcnt lgkmcnt(0)\nds_read_u16 v8, v3 offset:0\nds_read_i8 v9, v3",
     {0x11223380, 0x44},
     {0x4480, 0xffffff80}},
    {k9,
     "v_mov_b32_e32 v3, 0\nds_write2_b32 v3, v1, v2 offset0:1 offset1:3\n"
     "s_waitcnt lgkmcnt(0)\nds_read_b32 v8, v3 offset:4\nds_read_b32 v9, v3 offset:12",
     {5, 6},
     {5, 6}},
    {k9,
     "v_mov_b32_e32 v3, 0\nds_write_b32 v3, v1\ns_waitcnt lgkmcnt(0)\n"
     "ds_add_rtn_u32 v8, v3, v2\ns_waitcnt lgkmcnt(0)\nds_read_b32 v9, v3",
     {5, 6},
     {5, 11}},
};

class Instructions : public ::testing::TestWithParam<std::span<const Case>> {};

TEST_P(Instructions, compute_what_the_documents_say) {
  for (const Case& entry : GetParam()) {
    try {
      EXPECT_EQ(result_of(entry), entry.expected) << entry.target << ": " << entry.instruction;
    } catch (const Fault& fault) {
      ADD_FAILURE() << fault.what();
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<std::span<const Case>>& info) {
  constexpr const char* kNames[] = {"floats", "conversions", "integers", "flow_and_lds"};
  return kNames[info.index];
}

INSTANTIATE_TEST_SUITE_P(Of, Instructions,
                         ::testing::Values(std::span<const Case>(kFloats),
                                           std::span<const Case>(kConversions),
                                           std::span<const Case>(kIntegers),
                                           std::span<const Case>(kFlow)),
                         name_of);

// Between each half and the next one there are a value nearer to it, the middle, and a nearer one
// to the next, which beyond the largest would be 65536.
TEST(Halves, are_rounded_in_every_mode) {
  for (u32 half = 0; half < 0x7c00; ++half) {
    const double below = static_cast<double>(half_to_float(half));
    const double above = half == 0x7bff ? 65536 : static_cast<double>(half_to_float(half + 1));
    const double middle = (below + above) / 2;
    const u32 even = half + (half & 1);
    EXPECT_EQ(half_of(below), half);
    EXPECT_EQ(half_of(-below, Round::zero), half | 0x8000);
    EXPECT_EQ(half_of(std::nextafter(middle, below)), half);
    EXPECT_EQ(half_of(middle), even);
    EXPECT_EQ(half_of(-middle), even | 0x8000);
    EXPECT_EQ(half_of(std::nextafter(middle, above)), half + 1);
    EXPECT_EQ(half_of(middle, Round::up), half + 1);
    EXPECT_EQ(half_of(middle, Round::down), half);
    EXPECT_EQ(half_of(-middle, Round::down), (half + 1) | 0x8000);
    EXPECT_EQ(half_of(-middle, Round::up), half | 0x8000);
    EXPECT_EQ(half_of(middle, Round::zero), half);
  }
  EXPECT_EQ(half_of(0x1p-1074), 0U);
  EXPECT_EQ(half_of(0x1p-1074, Round::up), 1U);
  EXPECT_EQ(half_of(1e300), 0x7c00U);
}

// What each lane of a whole wave gets: `lines` reads v0, the lane, and writes v8.
std::vector<u32> lanes_of(const std::string& target, const std::string& lines) {
  TestMemory memory;
  const u32 lanes = isa_of(target).major >= 10 ? 32 : 64;
  const std::uint64_t out = memory.allocate(lanes * 4);
  run(*kernel_of(target,
                 "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n"
                 "v_lshlrev_b32_e32 v20, 2, v0\nv_mov_b32_e32 v8, -1\n" +
                     lines +
                     "\ns_waitcnt lgkmcnt(0)\nglobal_store_dword v20, v8, s[4:5]\ns_endpgm\n",
                 256),
      memory, {out}, 1, lanes);
  std::vector<u32> result(lanes);
  std::memcpy(result.data(), reinterpret_cast<const void*>(out), lanes * 4);
  return result;
}

struct Movement {
  const char* target;
  const char* lines;
  u32 (*from)(u32 lane);
};

constexpr u32 kNone = 0xffffffff;
const Movement kMovements[] = {
    {k9, "v_mov_b32_dpp v8, v0 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
     [](u32 lane) { return lane ^ 1; }},
    {k9, "v_mov_b32_dpp v8, v0 row_half_mirror row_mask:0xf bank_mask:0xf",
     [](u32 lane) { return lane ^ 7; }},
    {k9, "v_mov_b32_dpp v8, v0 row_mirror row_mask:0xf bank_mask:0xf",
     [](u32 lane) { return lane ^ 15; }},
    {k9, "v_mov_b32_dpp v8, v0 row_shr:1 row_mask:0xf bank_mask:0xf",
     [](u32 lane) { return lane % 16 == 0 ? kNone : lane - 1; }},
    {k9, "v_mov_b32_dpp v8, v0 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1",
     [](u32 lane) { return lane % 16 == 0 ? 0 : lane - 1; }},
    {k9, "v_mov_b32_dpp v8, v0 row_bcast:15 row_mask:0xa bank_mask:0xf",
     [](u32 lane) { return lane / 16 % 2 == 0 ? kNone : lane / 16 * 16 - 1; }},
    {k9, "v_mov_b32_dpp v8, v0 row_bcast:31 row_mask:0xc bank_mask:0xf",
     [](u32 lane) { return lane < 32 ? kNone : 31; }},
    {k9, "v_mov_b32_dpp v8, v0 row_ror:4 row_mask:0xf bank_mask:0xf",
     [](u32 lane) { return lane / 16 * 16 + (lane + 12) % 16; }},
    {k10, "v_mov_b32_dpp v8, v0 row_xmask:3 row_mask:0xf bank_mask:0xf",
     [](u32 lane) { return lane ^ 3; }},
    {k10, "v_mov_b32_dpp v8, v0 row_share:5 row_mask:0xf bank_mask:0xf",
     [](u32 lane) { return lane / 16 * 16 + 5; }},
    {k10, "s_mov_b32 s6, 0x76543210\ns_mov_b32 s7, 0xfedcba98\nv_permlanex16_b32 v8, v0, s6, s7",
     [](u32 lane) { return lane ^ 16; }},
    {k9, "ds_swizzle_b32 v8, v0 offset:swizzle(SWAP,16)", [](u32 lane) { return lane ^ 16; }},
    {k9, "ds_swizzle_b32 v8, v0 offset:swizzle(REVERSE,8)", [](u32 lane) { return lane ^ 7; }},
    {k9, "ds_swizzle_b32 v8, v0 offset:swizzle(BROADCAST,4,1)",
     [](u32 lane) { return lane / 4 * 4 + 1; }},
    {k9, "ds_swizzle_b32 v8, v0 offset:swizzle(QUAD_PERM,3,2,1,0)",
     [](u32 lane) { return lane ^ 3; }},
    {k9, "v_xor_b32_e32 v1, 5, v0\nv_lshlrev_b32_e32 v1, 2, v1\nds_bpermute_b32 v8, v1, v0",
     [](u32 lane) { return lane ^ 5; }},
    {k9, "v_add_u32_e32 v1, 1, v0\nv_lshlrev_b32_e32 v1, 2, v1\nds_permute_b32 v8, v1, v0",
     [](u32 lane) { return (lane + 63) % 64; }},
    {k9,
     "v_mov_b32_e32 v1, v0\ns_mov_b64 exec, 3\nv_mov_b32_dpp v1, v1 row_shl:1 row_mask:0xf "
     "bank_mask:0xf\ns_mov_b64 exec, -1\nv_mov_b32_e32 v8, v1",
     [](u32 lane) { return lane == 0 ? 1 : lane; }},
    {k9, "v_mbcnt_lo_u32_b32 v1, -1, 0\nv_mbcnt_hi_u32_b32 v8, -1, v1",
     [](u32 lane) { return lane; }},
};

TEST(Lanes, read_each_other_as_the_documents_say) {
  for (const Movement& movement : kMovements) {
    std::vector<u32> result;
    try {
      result = lanes_of(movement.target, movement.lines);
    } catch (const Fault& fault) {
      ADD_FAILURE() << fault.what();
      continue;
    }
    std::vector<u32> expected;
    for (u32 lane = 0; lane < result.size(); ++lane) expected.push_back(movement.from(lane));
    EXPECT_EQ(result, expected) << movement.lines;
  }
}

}  // namespace
}  // namespace kiln::amd
