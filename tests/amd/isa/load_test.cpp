// The report of load counts what a kernel issues: code whose instructions are counted by hand.
#include "tests/amd/isa/load.hpp"

#include <gtest/gtest.h>

#include "tests/amd/isa/listing.hpp"

namespace kiln::amd {
namespace {

// 2 waves of 64; the second one leaves out the branch's block. Vector: 3 + 2, transcendental 1 + 1,
// LDS 2, memory 2 and, in the block, 1, scalar 2: the load of arguments, and the comparison.
constexpr const char* kCounted =
    "s_load_dwordx4 s[4:7], s[0:1], 0x0\n"
    "v_lshlrev_b32_e32 v1, 2, v0\n"
    "v_readfirstlane_b32 s8, v0\n"
    "s_waitcnt lgkmcnt(0)\n"
    "global_load_dword v2, v1, s[4:5]\n"
    "s_cmp_lg_u32 s8, 0\n"
    "s_cbranch_scc1 4\n"
    "v_add_u32_e32 v3, 1, v0\n"
    "v_add_u32_e32 v3, 1, v3\n"
    "v_exp_f32_e32 v3, v3\n"
    "global_store_dword v1, v0, s[6:7] offset:512\n"
    "s_waitcnt vmcnt(0)\n"
    "v_rcp_f32_e32 v2, v2\n"
    "ds_write_b32 v1, v2\n"
    "s_waitcnt lgkmcnt(0)\n"
    "ds_read_b32 v4, v1\n"
    "s_waitcnt lgkmcnt(0)\n"
    "v_mov_b32_e32 v5, v4\n"
    "global_store_dword v1, v5, s[6:7]\n"
    "s_endpgm\n";

Trace counted() {
  TestMemory memory;
  const std::uint64_t in = memory.allocate(std::vector<float>(128, 2));
  const std::uint64_t out = memory.allocate(1024);
  return run(*kernel_of("gfx90a", kCounted, 512), memory, {in, out}, 1, 128);
}

std::uint64_t issued(const Trace& trace, Unit unit) {
  return trace.units[static_cast<std::size_t>(unit)].instructions;
}

TEST(Load, counts_what_each_unit_issues) {
  const Trace trace = counted();
  EXPECT_EQ(trace.waves, 2U);
  EXPECT_EQ(issued(trace, Unit::vector), 2 * 3U + 2);
  EXPECT_EQ(issued(trace, Unit::transcendental), 2 * 1U + 1);
  EXPECT_EQ(issued(trace, Unit::lds), 2 * 2U);
  EXPECT_EQ(issued(trace, Unit::memory), 2 * 2U + 1);
  EXPECT_EQ(issued(trace, Unit::scalar), 2 * 2U);
  EXPECT_EQ(trace.bytes_read, 512U + 2 * 16);
  EXPECT_EQ(trace.bytes_written, 512U + 256);
}

TEST(Load, is_the_time_of_the_unit_that_takes_longest) {
  fusion::DeviceModel gpu{"gfx", "one", {}, 2, 1, 100, 64, 16, 32, 16, 1, false};
  const double elements = 128;
  const Load load = load_of(counted(), 64, elements, 1024, gpu);
  const auto of = [](const auto& values, Unit unit) {
    return values[static_cast<std::size_t>(unit)];
  };
  EXPECT_DOUBLE_EQ(of(load.instructions, Unit::vector), 4);  // 8 of 64 lanes each
  EXPECT_DOUBLE_EQ(of(load.instructions, Unit::transcendental), 1.5);
  EXPECT_DOUBLE_EQ(of(load.issue_ps, Unit::vector), 1000 * 4 / 128.0);
  EXPECT_DOUBLE_EQ(of(load.issue_ps, Unit::transcendental), 1000 * 1.5 / 32);
  EXPECT_DOUBLE_EQ(of(load.issue_ps, Unit::lds), 1000 * 2 / 64.0);
  EXPECT_DOUBLE_EQ(of(load.issue_ps, Unit::memory), 1000 * 2.5 / 32);
  EXPECT_DOUBLE_EQ(load.vector_ps, 1000 * (4 / 128.0 + 1.5 / 32));
  EXPECT_DOUBLE_EQ(load.longest_ps(), load.vector_ps);  // which is as long as memory's
  EXPECT_DOUBLE_EQ(load.memory_ps, 1000 * 8 / 85.0);
  gpu.transcendental_is_apart = true;
  EXPECT_DOUBLE_EQ(load_of(counted(), 64, elements, 1024, gpu).vector_ps, 1000 * 5.5 / 128);
}

}  // namespace
}  // namespace kiln::amd
