// The machine code of attention for GPUs that need not be here: 16 bytes of keys and values in a
// load, each element once for a group of queries, no scratch, waves of 32 and of 64 lanes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/machine_code.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

using testing::Machine;

constexpr const char* kAttention = "sum(softmax(sum(q * k, -1) * 0.088, -2) * v, -2)";

// A tile of 64 keys of four queries: a part of the keys has one or two.
std::vector<ArgumentSpec> decode(DType dtype, std::int64_t depth, std::int64_t group = 4) {
  return {{"q", dtype, {2, 8, group, 1, depth}, {}, false},
          {"k", dtype, {2, 8, 1, 128, depth}, {}, false},
          {"v", dtype, {2, 8, 1, 128, depth}, {}, false}};
}

class AmdAttention : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::vector<std::string> known = testing::targets_of(jit::ToolchainKind::hiprtc);
    if (std::ranges::find(known, GetParam()) == known.end()) {
      GTEST_SKIP() << "no hiprtc on this machine knows " << GetParam();
    }
  }
};

TEST_P(AmdAttention, ReadsKeysAndValuesOnceInSixteenBytes) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Machine machine = testing::machine_code(kAttention, decode(dtype, 128), GetParam());
    EXPECT_EQ(machine.resources.scratch.value_or(-1), 0) << name(dtype);
    EXPECT_EQ(machine.resources.spills.value_or(-1), 0) << name(dtype);
    // A block of 128 threads, of which 16 share a key, and so 8 keys for each thread, 8 values and
    // the four queries.
    EXPECT_EQ(machine.count("global_load_(dwordx4|b128)"), 8 + 8 + 4) << machine.assembly;
    EXPECT_EQ(machine.count("global_load_(ushort|u16|d16|short)"), 0) << machine.assembly;
  }
}

TEST_P(AmdAttention, NeedsNoScratchForLargeGroupsAndHeads) {
  for (const auto& [depth, group] : {std::pair{256, 8}, {64, 8}, {80, 7}, {32, 1}}) {
    const Machine machine =
        testing::machine_code(kAttention, decode(DType::f16, depth, group), GetParam());
    EXPECT_EQ(machine.resources.scratch.value_or(-1), 0) << depth << ", " << group;
  }
}

// Keys and values are loaded as where their number is an extent. LLVM moves one of the loads of
// values to where its key is known to be there, and takes it apart.
TEST_P(AmdAttention, LoadsAsMuchWhereKeysEndWhereDataSays) {
  std::vector<ArgumentSpec> arguments = decode(DType::bf16, 128);
  arguments.insert(arguments.begin() + 2, {"n", DType::i32, {2, 1, 1, 1, 1}, {}, false});
  const Machine machine = testing::machine_code(
      "t = sum(q * k[:, :, :, :n], -1); sum(softmax(t * 0.1, -2) * v[:, :, :, :n], -2)", arguments,
      GetParam());
  EXPECT_EQ(machine.resources.scratch.value_or(-1), 0);
  EXPECT_EQ(machine.resources.spills.value_or(-1), 0);
  EXPECT_GE(machine.count("global_load_(dwordx4|b128)"), 8 + 7 + 4) << machine.assembly;
  EXPECT_LE(machine.count("global_load_(ushort|u16|d16|short)"), 8) << machine.assembly;
}

// Rows of tokens whose places data says are loaded as those of an array of them.
TEST_P(AmdAttention, LoadsAsMuchWhereTokensLieWhereDataSays) {
  const std::vector<ArgumentSpec> arguments = {{"k", DType::bf16, {4096, 128}, {}, false},
                                               {"p", DType::i32, {2, 8, 1, 128}, {}, false},
                                               {"v", DType::bf16, {4096, 128}, {}, false},
                                               {"q", DType::bf16, {2, 8, 4, 1, 128}, {}, false}};
  const Machine machine = testing::machine_code(
      "keys = take(k, p); values = take(v, p); "
      "sum(softmax(sum(q * keys, -1) * 0.088, -2) * values, -2)",
      arguments, GetParam());
  EXPECT_EQ(machine.resources.scratch.value_or(-1), 0);
  EXPECT_EQ(machine.resources.spills.value_or(-1), 0);
  EXPECT_EQ(machine.count("global_load_(dwordx4|b128)"), 8 + 8 + 4) << machine.assembly;
  EXPECT_EQ(machine.count("global_load_(ushort|u16|d16|short)"), 0) << machine.assembly;
}

INSTANTIATE_TEST_SUITE_P(Gfx, AmdAttention,
                         ::testing::Values("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100",
                                           "gfx1201"),
                         testing::target_name);

TEST(NvidiaAttention, Compiles) {
  if (testing::targets_of(jit::ToolchainKind::nvrtc).empty()) {
    GTEST_SKIP() << "there is no NVRTC on this machine";
  }
  for (const char* target : {"sm_80", "sm_90"}) {
    for (const std::int64_t depth : {64, 128, 256}) {
      Specification specification;
      specification.arguments = decode(DType::bf16, depth, depth == 64 ? 8 : 4);
      const CompiledKernel kernel =
          compile_for(parse("checked", kAttention), specification, target);
      EXPECT_EQ(kernel.resources.scratch.value_or(0), 0) << target << ", " << depth;
    }
  }
}

}  // namespace
}  // namespace kiln
