// Cases of memory instructions: loads and stores of every width, and atomics.
#include <fmt/format.h>

#include "tests/amd/isa/instruction_cases.hpp"

namespace kiln::amd {
namespace {

constexpr Case kMemory[] = {
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
    {k9,
     "ds_write_b32 v20, v1\ns_waitcnt vmcnt(0) lgkmcnt(0)\nds_read_u8 v8, v20 "
     "offset:1\nds_read_u16 v9, v20 offset:2",
     {0x8899aabb},
     {0xaa, 0x8899}},
    {k9,
     "ds_write_b32 v20, v1\ns_waitcnt vmcnt(0) lgkmcnt(0)\nds_read_i8 v8, v20 "
     "offset:1\nds_read_i16 v9, v20 offset:2",
     {0x8899aabb},
     {0xffffffaa, 0xffff8899}},
    {k9,
     "ds_write_b32 v20, v1\ns_waitcnt vmcnt(0) lgkmcnt(0)\nds_read_u8_d16 v8, "
     "v20\nds_read_u8_d16_hi v9, v20",
     {0x8899aabb},
     {0x5a5a00bb, 0x00bb5a5a}},
    {k9,
     "ds_write_b32 v20, v1\ns_waitcnt vmcnt(0) lgkmcnt(0)\nds_read_i8_d16 v8, "
     "v20\nds_read_i8_d16_hi v9, v20",
     {0x8899aabb},
     {0x5a5affbb, 0xffbb5a5a}},
    {k9,
     "ds_write_b32 v20, v1\ns_waitcnt vmcnt(0) lgkmcnt(0)\nds_read_u16_d16 v8, "
     "v20\nds_read_u16_d16_hi v9, v20",
     {0x8899aabb},
     {0x5a5aaabb, 0xaabb5a5a}},
    {k9,
     "ds_write_b64 v20, v[1:2]\ns_waitcnt vmcnt(0) lgkmcnt(0)\nds_read_b64 v[8:9], v20",
     {1, 2},
     {1, 2}},
    {k9,
     "ds_write_b96 v20, v[1:3]\ns_waitcnt vmcnt(0) lgkmcnt(0)\nds_read_b96 v[8:10], v20",
     {1, 2, 3},
     {1, 2, 3}},
    {k9,
     "ds_write_b128 v20, v[1:4]\ns_waitcnt vmcnt(0) lgkmcnt(0)\nds_read_b128 v[8:11], v20",
     {1, 2, 3, 4},
     {1, 2, 3}},
    {k9,
     "ds_write_b32 v20, v20\nds_write_b8 v20, v1 offset:1\nds_write_b16 v20, v1 "
     "offset:2\ns_waitcnt vmcnt(0) lgkmcnt(0)\nds_read_b32 v8, v20",
     {0x8899aabb},
     {0xaabbbb00}},
    {k9,
     "ds_write_b32 v20, v20\nds_write_b8_d16_hi v20, v1 offset:1\nds_write_b16_d16_hi v20, v1 "
     "offset:2\ns_waitcnt vmcnt(0) lgkmcnt(0)\nds_read_b32 v8, v20",
     {0x8899aabb},
     {0x88999900}},
    {k9,
     "ds_write2_b64 v20, v[1:2], v[3:4] offset0:1 offset1:3\ns_waitcnt vmcnt(0) "
     "lgkmcnt(0)\nds_read2_b32 v[8:9], v20 offset0:2 offset1:7",
     {1, 2, 3, 4},
     {1, 4}},
    {k9,
     "ds_write_b64 v20, v[1:2] offset:8\ns_waitcnt vmcnt(0) lgkmcnt(0)\nds_read2_b64 v[8:11], v20 "
     "offset0:1 offset1:1",
     {1, 2},
     {1, 2, 1}},
    {"gfx1100",
     "ds_store_b32 v20, v1\ns_waitcnt vmcnt(0) lgkmcnt(0)\nds_load_b32 v8, v20",
     {5},
     {5}},
    {"gfx1100",
     "ds_store_2addr_b32 v20, v1, v2 offset0:1 offset1:3\ns_waitcnt vmcnt(0) "
     "lgkmcnt(0)\nds_load_2addr_b32 v[8:9], v20 offset0:1 offset1:3",
     {5, 6},
     {5, 6}},
    {k9,
     "global_store_dword v20, v1, s[4:5]\ns_waitcnt vmcnt(0) lgkmcnt(0)\nglobal_load_ubyte v8, "
     "v20, s[4:5] offset:1\nglobal_load_ushort v9, v20, s[4:5] offset:2",
     {0x8899aabb},
     {0xaa, 0x8899}},
    {k9,
     "global_store_dword v20, v1, s[4:5]\ns_waitcnt vmcnt(0) lgkmcnt(0)\nglobal_load_sbyte v8, "
     "v20, s[4:5] offset:1\nglobal_load_sshort v9, v20, s[4:5] offset:2",
     {0x8899aabb},
     {0xffffffaa, 0xffff8899}},
    {k9,
     "global_store_dword v20, v1, s[4:5]\ns_waitcnt vmcnt(0) lgkmcnt(0)\nglobal_load_ubyte_d16 v8, "
     "v20, s[4:5]\nglobal_load_ubyte_d16_hi v9, v20, s[4:5]",
     {0x8899aabb},
     {0x5a5a00bb, 0x00bb5a5a}},
    {k9,
     "global_store_dword v20, v1, s[4:5]\ns_waitcnt vmcnt(0) lgkmcnt(0)\nglobal_load_sbyte_d16 v8, "
     "v20, s[4:5]\nglobal_load_sbyte_d16_hi v9, v20, s[4:5]",
     {0x8899aabb},
     {0x5a5affbb, 0xffbb5a5a}},
    {k9,
     "global_store_dword v20, v1, s[4:5]\ns_waitcnt vmcnt(0) lgkmcnt(0)\nglobal_load_short_d16 v8, "
     "v20, s[4:5]\nglobal_load_short_d16_hi v9, v20, s[4:5]",
     {0x8899aabb},
     {0x5a5aaabb, 0xaabb5a5a}},
    {k9,
     "global_store_dwordx2 v20, v[1:2], s[4:5]\ns_waitcnt vmcnt(0) lgkmcnt(0)\nglobal_load_dwordx2 "
     "v[8:9], v20, s[4:5]",
     {1, 2},
     {1, 2}},
    {k9,
     "global_store_dwordx3 v20, v[1:3], s[4:5]\ns_waitcnt vmcnt(0) lgkmcnt(0)\nglobal_load_dwordx3 "
     "v[8:10], v20, s[4:5]",
     {1, 2, 3},
     {1, 2, 3}},
    {k9,
     "global_store_dword v20, v20, s[4:5]\nglobal_store_byte v20, v1, s[4:5] "
     "offset:1\nglobal_store_short v20, v1, s[4:5] offset:2\ns_waitcnt vmcnt(0) "
     "lgkmcnt(0)\nglobal_load_dword v8, v20, s[4:5]",
     {0x8899aabb},
     {0xaabbbb00}},
    {k9,
     "global_store_dword v20, v20, s[4:5]\nglobal_store_byte_d16_hi v20, v1, s[4:5] "
     "offset:1\nglobal_store_short_d16_hi v20, v1, s[4:5] offset:2\ns_waitcnt vmcnt(0) "
     "lgkmcnt(0)\nglobal_load_dword v8, v20, s[4:5]",
     {0x8899aabb},
     {0x88999900}},
    {k9,
     "v_mov_b32_e32 v6, s4\nv_mov_b32_e32 v7, s5\nflat_store_dword v[6:7], v1\ns_waitcnt vmcnt(0) "
     "lgkmcnt(0)\nflat_load_dword v8, v[6:7]",
     {5},
     {5}},
    // Pointers to anything that point to LDS.
    {k9,
     "ds_write_b32 v20, v1\ns_waitcnt lgkmcnt(0)\ns_mov_b64 s[8:9], src_shared_base\n"
     "v_mov_b32_e32 v6, v20\nv_mov_b32_e32 v7, s9\nflat_load_dword v8, v[6:7]\n"
     "flat_load_ushort v9, v[6:7] offset:2",
     {0x8899aabb},
     {0x8899aabb, 0x8899}},
    {k9,
     "s_getreg_b32 s9, hwreg(HW_REG_SH_MEM_BASES, 16, 16)\ns_lshl_b32 s9, s9, 16\n"
     "v_mov_b32_e32 v6, v20\nv_mov_b32_e32 v7, s9\nflat_store_dword v[6:7], v1 offset:4\n"
     "flat_atomic_add v8, v[6:7], v2 offset:4 glc\ns_waitcnt vmcnt(0) lgkmcnt(0)\n"
     "ds_read_b32 v9, v20 offset:4",
     {5, 6},
     {5, 11}},
    {k9,
     "s_load_dwordx4 s[8:11], s[0:1], 0x0\ns_waitcnt vmcnt(0) lgkmcnt(0)\ns_sub_u32 s8, s8, "
     "s4\nv_mov_b32_e32 v8, s8\nv_mov_b32_e32 v9, s10",
     {},
     {0, 0}},
    {k9,
     "s_load_dwordx8 s[8:15], s[0:1], 0x0\ns_waitcnt vmcnt(0) lgkmcnt(0)\ns_sub_u32 s8, s9, "
     "s5\nv_mov_b32_e32 v8, s8\nv_mov_b32_e32 v9, s15",
     {},
     {0, 0}},
    {k9,
     "s_load_dwordx16 s[8:23], s[0:1], 0x0\ns_waitcnt vmcnt(0) lgkmcnt(0)\ns_sub_u32 s8, s8, "
     "s4\nv_mov_b32_e32 v8, s8\nv_mov_b32_e32 v9, s23",
     {},
     {0, 0}},
};

using u32 = std::uint32_t;
using u64 = std::uint64_t;

// `global` and `lds` are what the instructions are called; null where there is none.
struct AtomicCase {
  const char* global;
  const char* lds;
  bool is_wide;
  u64 before;
  u64 data;
  u64 after;
};
constexpr AtomicCase kAtomics[] = {
    {"swap", "wrxchg_rtn_b32", false, 5, 6, 6},
    {"add", "add_rtn_u32", false, 0xffffffff, 2, 1},
    {"sub", "sub_rtn_u32", false, 1, 2, 0xffffffff},
    {"smin", "min_rtn_i32", false, 0xffffffff, 1, 0xffffffff},
    {"umin", "min_rtn_u32", false, 0xffffffff, 1, 1},
    {"smax", "max_rtn_i32", false, 0xffffffff, 1, 1},
    {"umax", "max_rtn_u32", false, 0xffffffff, 1, 0xffffffff},
    {"and", "and_rtn_b32", false, 0xc, 0xa, 0x8},
    {"or", "or_rtn_b32", false, 0xc, 0xa, 0xe},
    {"xor", "xor_rtn_b32", false, 0xc, 0xa, 0x6},
    {"inc", "inc_rtn_u32", false, 5, 6, 6},
    {"inc", "inc_rtn_u32", false, 6, 6, 0},
    {"dec", "dec_rtn_u32", false, 5, 6, 4},
    {"dec", "dec_rtn_u32", false, 0, 6, 6},
    {"dec", "dec_rtn_u32", false, 7, 6, 6},
    {"add_f32", "add_rtn_f32", false, 0x3f800000, 0x40000000, 0x40400000},
    {nullptr, "min_rtn_f32", false, 0x3f800000, 0xc0000000, 0xc0000000},
    {nullptr, "max_rtn_f32", false, 0x3f800000, 0xc0000000, 0x3f800000},
    {"pk_add_f16", "pk_add_rtn_f16", false, 0x40003c00, 0x3c003c00, 0x42004000},
    {"swap_x2", "wrxchg_rtn_b64", true, 5, u64{6} << 32, u64{6} << 32},
    {"add_x2", "add_rtn_u64", true, 0xffffffff, 2, 0x100000001},
    {"sub_x2", "sub_rtn_u64", true, 1, 2, ~u64{0}},
    {"smin_x2", "min_rtn_i64", true, ~u64{0}, 1, ~u64{0}},
    {"umin_x2", "min_rtn_u64", true, ~u64{0}, 1, 1},
    {"smax_x2", "max_rtn_i64", true, ~u64{0}, 1, 1},
    {"umax_x2", "max_rtn_u64", true, ~u64{0}, 1, ~u64{0}},
    {"add_f64", "add_rtn_f64", true, 0x3ff0000000000000, 0x4000000000000000, 0x4008000000000000},
    {"min_f64", "min_rtn_f64", true, 0x3ff0000000000000, 0xc000000000000000, 0xc000000000000000},
    {"max_f64", "max_rtn_f64", true, 0x3ff0000000000000, 0xc000000000000000, 0x3ff0000000000000},
};

constexpr const char* kWaitForAll = "\ns_waitcnt vmcnt(0) lgkmcnt(0)\n";

// The old value goes to v8 (and v9), what is there then to the registers behind. `compared` is what
// the data takes the place of, if that is there.
MadeCase made_case(const AtomicCase& one, bool in_lds, const u64* compared) {
  const auto registers = [&](int first) {
    return one.is_wide ? fmt::format("v[{}:{}]", first, first + 1) : fmt::format("v{}", first);
  };
  const int words = one.is_wide ? 2 : 1;
  const std::string old = registers(8);
  const std::string now = registers(8 + words);
  MadeCase made;
  made.target = k9;
  // v1 (and v2) what is there, then the data, then what is compared.
  for (const u64 word : {one.before, one.data, compared != nullptr ? *compared : 0}) {
    made.sources.push_back(static_cast<u32>(word));
    if (one.is_wide) made.sources.push_back(static_cast<u32>(word >> 32));
  }
  const std::string data = registers(1 + words);
  const std::string expected = registers(1 + 2 * words);
  const std::string both = fmt::format("v[{}:{}]", 1 + words, 3 * words);
  if (in_lds) {
    made.lines = fmt::format("ds_write_{} v20, {}{}", one.is_wide ? "b64" : "b32", registers(1),
                             kWaitForAll);
    made.lines += fmt::format("ds_{} {}, v20, {}", one.lds, old,
                              compared != nullptr ? expected + ", " + data : data);
    made.lines +=
        fmt::format("{}ds_read_{} {}, v20", kWaitForAll, one.is_wide ? "b64" : "b32", now);
  } else {
    const char* const width = one.is_wide ? "dwordx2" : "dword";
    made.lines = fmt::format("global_store_{} v20, {}, s[4:5]{}", width, registers(1), kWaitForAll);
    made.lines += fmt::format("global_atomic_{} {}, v20, {}, s[4:5] glc", one.global, old,
                              compared != nullptr ? both : data);
    made.lines += fmt::format("{}global_load_{} {}, v20, s[4:5]", kWaitForAll, width, now);
  }
  for (const u64 word : {one.before, one.after}) {
    made.expected.push_back(static_cast<u32>(word));
    if (one.is_wide) made.expected.push_back(static_cast<u32>(word >> 32));
  }
  return made;
}

}  // namespace

std::span<const Case> memory_cases() { return kMemory; }

std::vector<MadeCase> atomic_cases() {
  std::vector<MadeCase> made;
  for (const AtomicCase& one : kAtomics) {
    if (one.global != nullptr) made.push_back(made_case(one, false, nullptr));
    made.push_back(made_case(one, true, nullptr));
  }
  for (const u64 compared : {u64{5}, u64{7}}) {
    const u64 after = compared == 5 ? 6 : 5;
    for (const bool in_lds : {false, true}) {
      made.push_back(
          made_case({"cmpswap", "cmpst_rtn_b32", false, 5, 6, after}, in_lds, &compared));
      made.push_back(
          made_case({"cmpswap_x2", "cmpst_rtn_b64", true, 5, 6, after}, in_lds, &compared));
    }
  }
  return made;
}

}  // namespace kiln::amd
