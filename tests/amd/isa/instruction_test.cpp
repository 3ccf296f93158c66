// What single instructions compute: the cases of instruction_cases.hpp, and what needs many values
// or many lanes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/amd/isa/instruction_cases.hpp"
#include "tests/amd/isa/lanewise.hpp"
#include "tests/amd/isa/listing.hpp"
#include "tests/amd/isa/numbers.hpp"

namespace kiln::amd {
namespace {

// The bits of what one thread computes.
std::vector<u32> result_of(const MadeCase& one) {
  TestMemory memory;
  const std::uint64_t out = memory.allocate(64);
  std::string lines = "s_load_dwordx2 s[4:5], s[0:1], 0x0\n";
  for (std::size_t i = 0; i < one.sources.size(); ++i) {
    lines += fmt::format("v_mov_b32_e32 v{}, {:#x}\n", i + 1, one.sources[i]);
  }
  lines +=
      "v_mov_b32_e32 v8, 0x5a5a5a5a\nv_mov_b32_e32 v9, 0x5a5a5a5a\nv_mov_b32_e32 v10, 0x5a5a5a5a\n";
  const std::string wait =
      isa_of(one.target).major >= 12 ? "s_wait_kmcnt 0x0\n" : "s_waitcnt vmcnt(0) lgkmcnt(0)\n";
  lines += "v_mov_b32_e32 v20, 0\n" + wait;
  lines += one.lines;
  lines += "\n" + wait;
  for (std::size_t i = 0; i < one.expected.size(); ++i) {
    lines += fmt::format("global_store_dword v20, v{}, s[4:5] offset:{}\n", i + 8, i * 4);
  }
  lines += "s_endpgm\n";
  run(*kernel_of(one.target, lines, 64), memory, {out});
  std::vector<u32> result(one.expected.size());
  std::memcpy(result.data(), reinterpret_cast<const void*>(out), result.size() * 4);
  return result;
}

std::vector<MadeCase> made_of(std::span<const Case> cases) {
  std::vector<MadeCase> made;
  for (const Case& one : cases) {
    made.push_back({one.target, one.lines, one.sources.vector(), one.expected.vector()});
  }
  return made;
}

struct Subject {
  const char* name;
  std::vector<MadeCase> (*cases)();
};
const Subject kSubjects[] = {
    {"floats", [] { return made_of(float_cases()); }},
    {"conversions", [] { return made_of(conversion_cases()); }},
    {"integers", [] { return made_of(integer_cases()); }},
    {"moves", [] { return made_of(move_cases()); }},
    {"comparisons", &comparison_cases},
    {"scalars", &scalar_cases},
    {"flow", [] { return made_of(flow_cases()); }},
    {"memory", [] { return made_of(memory_cases()); }},
    {"atomics", &atomic_cases},
};

class Instructions : public ::testing::TestWithParam<Subject> {};

TEST_P(Instructions, compute_what_the_documents_say) {
  for (const MadeCase& one : GetParam().cases()) {
    try {
      EXPECT_EQ(result_of(one), one.expected) << one.target << ": " << one.lines;
    } catch (const Fault& fault) {
      ADD_FAILURE() << fault.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Instructions, ::testing::ValuesIn(kSubjects),
                         [](const auto& info) { return info.param.name; });

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
    {k10, "s_mov_b32 s6, 0x67452301\ns_mov_b32 s7, 0xefcdab89\nv_permlane16_b32 v8, v0, s6, s7",
     [](u32 lane) { return lane ^ 1; }},
    {"gfx1100", "v_permlane64_b32 v8, v0", [](u32 lane) { return lane; }},  // of waves of 64
    {"gfx950", "v_mov_b32_e32 v8, v0\nv_add_u32_e32 v9, 64, v0\nv_permlane32_swap_b32_e32 v8, v9",
     [](u32 lane) { return lane < 32 ? lane : lane + 32; }},
    {"gfx950", "v_mov_b32_e32 v8, v0\nv_add_u32_e32 v9, 64, v0\nv_permlane16_swap_b32_e32 v8, v9",
     [](u32 lane) { return lane / 16 % 2 == 0 ? lane : lane + 48; }},
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

// The mnemonics of some lines.
void collect(const std::string& lines, std::set<std::string>& mnemonics) {
  std::string listing;
  for (const char c : "\n" + lines) {
    listing += c;
    if (c == '\n') listing += "0: ";
  }
  for (const Instruction& instruction : parse_listing(listing, 0)) {
    mnemonics.insert(instruction.mnemonic);
    for (const Instruction& second : instruction.paired) {
      mnemonics.insert("v_" + second.mnemonic.substr(std::string_view("v_dual_").size()));
    }
  }
}

TEST(EveryInstruction, has_a_case) {
  std::set<std::string> mnemonics = {"s_endpgm"};  // every case ends so
  for (const Subject& subject : kSubjects) {
    for (const MadeCase& one : subject.cases()) collect(one.lines, mnemonics);
  }
  for (const Movement& movement : kMovements) collect(movement.lines, mnemonics);
  EXPECT_GT(mnemonics.size(), 400U);
  const auto expect_one_of = [&](const std::vector<std::string>& names) {
    EXPECT_TRUE(std::ranges::any_of(names, [&](const std::string& name) {
      return mnemonics.contains(name);
    })) << names.front();
  };
  std::size_t known = 0;
  for (const auto rows :
       {float_rows(), division_rows(), integer_rows(), conversion_rows(), move_rows()}) {
    for (const VectorRow& row : rows) {
      std::vector<std::string> names(1);
      for (const char c : row.names) {
        if (c == ' ') {
          names.emplace_back();
        } else {
          names.back() += c;
        }
      }
      expect_one_of(names);
      ++known;
    }
  }
  for (const std::vector<std::string>& names : scalar_names()) {
    expect_one_of(names);
    ++known;
  }
  std::printf("%zu instructions, %zu mnemonics in cases\n", known, mnemonics.size());
}

}  // namespace
}  // namespace kiln::amd
