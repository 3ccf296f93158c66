// The machine code of reductions for GPUs that need not be here: cross-lane instructions instead of
// shared memory within a wave, 16-byte accesses, no scratch, for waves of 32 and of 64 lanes.
#include <gtest/gtest.h>

#include "tests/src/numerics/forced_schedule.hpp"
#include "tests/support/machine_code.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::Machine;
using testing::targets_of;

Machine machine_code(const std::string& text, DType dtype, const Dims& shape,
                     const std::string& target) {
  return testing::machine_code(text, {{"x", dtype, shape, {}, false}}, target);
}

class AmdReductions : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::vector<std::string> known = targets_of(jit::ToolchainKind::hiprtc);
    if (std::ranges::find(known, GetParam()) == known.end()) {
      GTEST_SKIP() << "no hiprtc on this machine knows " << GetParam();
    }
  }
  static void expect_no_scratch(const Machine& machine) {
    EXPECT_EQ(machine.resources.scratch.value_or(-1), 0);
    EXPECT_EQ(machine.resources.spills.value_or(-1), 0);
  }
  static bool wave64() { return GetParam().starts_with("gfx9"); }
};

TEST_P(AmdReductions, ShortRowsNeedNoSharedMemory) {
  const Machine machine = machine_code("sum(x, -1)", DType::f32, {64, 64}, GetParam());
  expect_no_scratch(machine);
  // Of sixteen threads and their four lanes; lanes half of all apart are no move within a row.
  EXPECT_EQ(machine.count("_dpp"), 2) << machine.assembly;
  EXPECT_EQ(machine.count("ds_swizzle"), 5) << machine.assembly;
  EXPECT_EQ(machine.count("ds_(read|write|load|store)"), 0) << machine.assembly;
  EXPECT_EQ(machine.resources.lds.value_or(-1), 0);
  EXPECT_EQ(machine.count("global_load_(dwordx4|b128)"), 1) << machine.assembly;
}

TEST_P(AmdReductions, AWaveReducesWithoutSharedMemoryAndABlockWithOneWordPerThread) {
  const Machine machine = machine_code("sum(x, -1)", DType::f32, {64, 4096}, GetParam());
  expect_no_scratch(machine);
  EXPECT_EQ(machine.count("ds_swizzle"), wave64() ? 4 : 6) << machine.assembly;
  EXPECT_EQ(machine.count("ds_bpermute"), wave64() ? 3 : 0) << machine.assembly;
  EXPECT_EQ(machine.count("ds_(write|store)"), 1) << machine.assembly;
  EXPECT_EQ(machine.count("ds_(read|load)"), wave64() ? 1 : 2) << "two words\n" << machine.assembly;
  EXPECT_EQ(machine.count("global_load_(dwordx4|b128)"), 8) << machine.assembly;
}

TEST_P(AmdReductions, SoftmaxReadsItsRowOnce) {
  const Machine machine = machine_code("softmax(x, -1)", DType::bf16, {64, 4096}, GetParam());
  expect_no_scratch(machine);
  EXPECT_EQ(machine.count("global_load_(dwordx4|b128)"), 4) << machine.assembly;
  EXPECT_EQ(machine.count("global_store_(dwordx4|b128)"), 4) << machine.assembly;
}

TEST_P(AmdReductions, LongRowsHaveFourVectorsUnderWay) {
  const Machine machine = machine_code("sum(x, -1)", DType::f32, {64, 1 << 20}, GetParam());
  expect_no_scratch(machine);
  EXPECT_EQ(machine.count("global_load_(dwordx4|b128)"), 4) << machine.assembly;
}

TEST_P(AmdReductions, RowsOfOddLengthAreReadInVectors) {
  const Machine machine = machine_code("max(x, -1)", DType::bf16, {64, 4095}, GetParam());
  expect_no_scratch(machine);
  EXPECT_EQ(machine.count("global_load_(dwordx4|b128)"), 8) << machine.assembly;
  EXPECT_EQ(machine.count("global_load_"), 9) << "one element at an end\n" << machine.assembly;
}

// Neighbouring threads read neighbouring columns, and within a wave no shared memory is used.
TEST_P(AmdReductions, ColumnsAreReadInWholeVectors) {
  const Machine few = machine_code("sum(x, 0)", DType::f32, {65536, 4096}, GetParam());
  expect_no_scratch(few);
  EXPECT_EQ(few.count("global_load_(dwordx4|b128)"), 4) << few.assembly;
  EXPECT_EQ(few.count("global_store_(dwordx4|b128)"), 1) << few.assembly;
  EXPECT_GT(few.count("ds_swizzle"), 0) << few.assembly;
  EXPECT_LE(few.count("ds_swizzle"), 2 * 3) << "of a chunk, and of chunks: threads that combine "
                                               "four columns keep half of what they have\n"
                                            << few.assembly;
  const Machine many = machine_code("sum(x, 0)", DType::bf16, {64, 1 << 21}, GetParam());
  expect_no_scratch(many);
  EXPECT_EQ(many.count("global_load_(dwordx4|b128)"), 4) << many.assembly;
  EXPECT_EQ(many.count("ds_"), 0) << many.assembly;
  EXPECT_EQ(many.resources.lds.value_or(-1), 0);
}

// Groups of channels of an image: NCHW, where a weight is loaded once for each vector, and NHWC.
TEST_P(AmdReductions, GroupsOfChannelsAreReadOnceInWholeVectors) {
  const Machine rows = testing::machine_code(
      "c = x - mean(x, -1, -2); c * rsqrt(mean(c * c, -1, -2) + 1e-5) * w",
      {{"x", DType::bf16, {64, 2, 3136}, {}, false}, {"w", DType::bf16, {2, 1}, {}, false}},
      GetParam());
  expect_no_scratch(rows);
  EXPECT_EQ(rows.count("global_load_(dwordx4|b128)"), 4) << rows.assembly;
  EXPECT_EQ(rows.count("global_load_"), 8) << rows.assembly;
  EXPECT_EQ(rows.count("global_store_(dwordx4|b128)"), 4) << rows.assembly;
  const Machine columns = testing::machine_code(
      "c = x - mean(x, -1, -3); c * rsqrt(mean(c * c, -1, -3) + 1e-5) * w",
      {{"x", DType::bf16, {64, 256, 32, 2}, {}, false}, {"w", DType::bf16, {32, 2}, {}, false}},
      GetParam());
  expect_no_scratch(columns);
  EXPECT_EQ(columns.count("global_load_(dwordx4|b128)"), 5) << columns.assembly;
  EXPECT_EQ(columns.count("global_load_"), 5) << columns.assembly;
  EXPECT_EQ(columns.count("global_store_(dwordx4|b128)"), 4) << columns.assembly;
}

// Of several axes that are not one in memory.
TEST_P(AmdReductions, SegmentsOfARowAreReadOnceInWholeVectors) {
  const Machine machine = testing::machine_code(
      "softmax(x, -1, -2)", {{"x", DType::f16, {64, 8, 480}, {4096, 512, 1}, false}}, GetParam());
  expect_no_scratch(machine);
  EXPECT_EQ(machine.count("global_load_(dwordx4|b128)"), 4) << machine.assembly;
  EXPECT_EQ(machine.count("global_load_"), 4) << machine.assembly;
}

// Of two elements a byte is made before it is stored.
TEST_P(AmdReductions, PackedRowsAreStoredInWholeVectors) {
  const Machine machine =
      testing::machine_code("s = max(abs(x), -1) / 7.0 + 1e-8; i4(round(x / s)), s",
                            {{"x", DType::bf16, {64, 2048}, {}, false}}, GetParam());
  expect_no_scratch(machine);
  EXPECT_GT(machine.count("global_store_(dwordx2|b64)"), 0) << machine.assembly;
  EXPECT_EQ(machine.count("global_store_byte|global_store_b8|cmpswap"), 0) << machine.assembly;
}

INSTANTIATE_TEST_SUITE_P(Gfx, AmdReductions,
                         ::testing::Values("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"),
                         testing::target_name);

TEST(NvidiaReductions, Compile) {
  if (targets_of(jit::ToolchainKind::nvrtc).empty())
    GTEST_SKIP() << "there is no NVRTC on this machine";
  // From sm_90 on, blocks share the longest of these rows.
  testing::Share share(DeviceType::cpu, 4, testing::random_seed());
  for (const char* target : {"sm_80", "sm_90"}) {
    for (const char* text : {"softmax(x, -1)", "argmax(x, -1), any(x > 0, -1), prod(x, -1)",
                             "layer_norm(x, 1e-5)", "sum(x, 0)"}) {
      for (const std::int64_t length : {1001, 4096, 16384, 32768, 49152, 50257, 131072}) {
        if (!share.next()) continue;
        Specification specification;
        specification.arguments = {{"x", DType::bf16, {64, length}, {}, false}};
        const CompiledKernel kernel = compile_for(parse("checked", text), specification, target);
        EXPECT_FALSE(kernel.code.empty()) << text << " of " << length << " on " << target;
        EXPECT_EQ(kernel.resources.scratch.value_or(0), 0)
            << text << " of " << length << " on " << target;
      }
    }
  }
}

// Rows for which threads have no room.
TEST(NvidiaReductions, LongRowsOfSeveralOperandsAreCopiedToSharedMemory) {
  if (targets_of(jit::ToolchainKind::nvrtc).empty())
    GTEST_SKIP() << "there is no NVRTC on this machine";
  for (const char* text : {"h = x + z; h, h * rsqrt(mean(h * h, -1) + 1e-6)",
                           "x * (z - sum(x * z, -1))", "softmax(x + z, -1)"}) {
    for (const std::int64_t length : {60'001, 65'536, 131'072}) {
      Specification specification;
      specification.arguments = {{"x", DType::f32, {64, length}, {}, false},
                                 {"z", DType::f32, {64, length}, {}, false}};
      const CompiledKernel kernel = compile_for(parse("checked", text), specification, "sm_90");
      EXPECT_NE(kernel.source.find("copy_async<"), std::string::npos) << kernel.source;
      EXPECT_NE(kernel.source.find("of_cluster() / "), std::string::npos) << kernel.source;
      EXPECT_EQ(kernel.resources.scratch.value_or(0), 0) << text << " of " << length;
    }
  }
}

// Where what threads have of so many sums has no place beside rows that are kept, these are read
// again.
TEST(NvidiaReductions, OfManySumsOfLongRowsCompile) {
  if (targets_of(jit::ToolchainKind::nvrtc).empty())
    GTEST_SKIP() << "there is no NVRTC on this machine";
  constexpr std::int64_t kMost = 48 << 10;
  const std::string ten =
      "x * sum(x, -1) * sum(x * x, -1) * sum(x + 1, -1) * sum(x + 2, -1) * sum(x + 3, -1) * "
      "sum(x + 4, -1) * sum(x + 5, -1) * sum(x + 6, -1) * sum(x + 7, -1) * sum(x + 8, -1)";
  const std::string three =
      "d = x - mean(x, -1); x * (mean(d * d, -1) + mean(d * d * d, -1) + mean(exp(d), -1))";
  testing::Share share(DeviceType::cpu, 6, testing::random_seed());
  for (const auto& [text, dtype] :
       {std::pair{ten, DType::bf16}, {ten, DType::f64}, {three, DType::f32}, {three, DType::f64}}) {
    for (const std::int64_t length : {65'536, 131'075}) {
      if (!share.next()) continue;
      Specification specification;
      specification.arguments = {{"x", dtype, {64, length}, {}, false}};
      const CompiledKernel kernel = compile_for(parse("checked", text), specification, "sm_90");
      EXPECT_LE(kernel.resources.lds.value_or(0), kMost) << text << " of " << length;
    }
  }
}

// Schedules that tests of bits ask for, where blocks share a row. Where planners would choose other
// numbers of blocks, a few words may be spilled.
TEST(NvidiaReductions, OfForcedClustersCompile) {
  if (targets_of(jit::ToolchainKind::nvrtc).empty())
    GTEST_SKIP() << "there is no NVRTC on this machine";
  testing::Share share(DeviceType::cpu, 6, testing::random_seed());
  for (const char* text : {"softmax(x, -1)", "d = f32(x) - mean(f32(x), -1); mean(d * d, -1)",
                           "x / sqrt(mean(x * x, -1) + 0.5)"}) {
    for (const std::int64_t length : {32'769, 50'257, 65'536, 131'072}) {
      for (const int blocks : {2, 4, 8}) {
        if (!share.next()) continue;
        Specification specification;
        specification.arguments = {{"x", DType::bf16, {64, length}, {}, false}};
        const CompiledKernel kernel =
            compile_for(testing::with_schedule(parse("checked", text), {.cluster_blocks = blocks}),
                        specification, "sm_90");
        const bool fits = length <= blocks * std::int64_t{65'536};
        EXPECT_EQ(kernel.source.find("ClusterChunks<") != std::string::npos, fits);
        EXPECT_LE(kernel.resources.scratch.value_or(0), 32)
            << text << " of " << length << ", " << blocks << " blocks";
      }
    }
  }
}

// Columns that blocks of a cluster keep, and those that two of them read again. Some releases of
// NVRTC spill a few words (13.0 two to four, 13.5 none).
TEST(NvidiaReductions, OfColumnsInClustersCompile) {
  if (targets_of(jit::ToolchainKind::nvrtc).empty())
    GTEST_SKIP() << "there is no NVRTC on this machine";
  testing::Share share(DeviceType::cpu, 6, testing::random_seed());
  for (const char* text : {"c = x - mean(x, -2); c * rsqrt(mean(c * c, -2) + 1e-5)",
                           "softmax(x, -2)", "y = tanh(x); y / (1 + std(y, -2) + max(y, -2))"}) {
    for (const Dims& shape :
         {Dims{4096, 65536}, Dims{7001, 4096}, Dims{16384, 16384}, Dims{65536, 2048}}) {
      for (const DType dtype : {DType::bf16, DType::f32}) {
        if (!share.next()) continue;
        Specification specification;
        specification.arguments = {{"x", dtype, shape, {}, false}};
        const CompiledKernel kernel = compile_for(parse("checked", text), specification, "sm_90");
        EXPECT_NE(kernel.source.find("in_cluster<"), std::string::npos) << kernel.source;
        EXPECT_LE(kernel.resources.scratch.value_or(0), 32) << text << " of " << shape[0];
      }
    }
  }
}

// Rows of several axes that are not one in memory.
TEST(NvidiaReductions, OfSegmentsCompile) {
  if (targets_of(jit::ToolchainKind::nvrtc).empty())
    GTEST_SKIP() << "there is no NVRTC on this machine";
  testing::Share share(DeviceType::cpu, 6, testing::random_seed());
  for (const char* target : {"sm_80", "sm_90"}) {
    for (const char* text : {"softmax(x, -1, -2)", "sum(x, -1, -2)",
                             "d = x - mean(x, -1, -2); d / sqrt(mean(d * d, -1, -2) + 1)"}) {
      for (const Dims& shape :
           {Dims{64, 16, 49}, Dims{64, 8, 480}, Dims{64, 9, 3136}, Dims{64, 12, 3136}}) {
        if (!share.next()) continue;
        const std::int64_t step = shape[2] + 24;
        Specification specification;
        specification.arguments = {
            {"x", DType::bf16, shape, {shape[1] * step + 8, step, 1}, false}};
        const CompiledKernel kernel = compile_for(parse("checked", text), specification, target);
        EXPECT_EQ(kernel.resources.scratch.value_or(0), 0)
            << text << " of " << shape[1] << " times " << shape[2] << " on " << target;
      }
    }
  }
}

// Rows and columns that are stored two elements to a byte. Where several blocks are to share a
// multiprocessor's registers, a few words may be spilled.
TEST(NvidiaReductions, OfPackedRowsCompile) {
  if (targets_of(jit::ToolchainKind::nvrtc).empty())
    GTEST_SKIP() << "there is no NVRTC on this machine";
  testing::Share share(DeviceType::cpu, 6, testing::random_seed());
  for (const char* target : {"sm_80", "sm_90"}) {
    for (const char* axis : {"-1", "-2"}) {
      for (const char* text :
           {"s = max(abs(x), {0}) / 7.0 + 1e-8; i4(round(x / s)), s",
            "lo = min(x, {0}); s = (max(x, {0}) - lo) / 15.0 + 1e-8; u4(round((x - lo) / s)), s"}) {
        for (const Dims& shape : {Dims{64, 96, 64}, Dims{64, 16, 2880}, Dims{64, 2, 16384}}) {
          for (const DType dtype : {DType::bf16, DType::f32}) {
            if (!share.next()) continue;
            Specification specification;
            specification.arguments = {{"x", dtype, shape, {}, false}};
            const std::string of_axis = fmt::format(fmt::runtime(text), axis);
            const CompiledKernel kernel =
                compile_for(parse("checked", of_axis), specification, target);
            EXPECT_LE(kernel.resources.scratch.value_or(0), 32)
                << of_axis << " of " << name(dtype) << ", " << shape[1] << " times " << shape[2]
                << " on " << target;
          }
        }
      }
    }
  }
}

// Values that are kept in the places of operands are rounded, and stored as integers by a pass that
// no longer knows of what.
TEST(NvidiaReductions, ThatRoundForSeveralPassesCompile) {
  if (targets_of(jit::ToolchainKind::nvrtc).empty())
    GTEST_SKIP() << "there is no NVRTC on this machine";
  const auto compiles = [](const char* text, std::vector<ArgumentSpec> arguments) {
    Specification specification;
    specification.arguments = std::move(arguments);
    EXPECT_NO_THROW(compile_for(parse("checked", text), specification, "sm_90")) << text;
  };
  const Dims long_row{64, 65'536};
  compiles("y = round(gelu_tanh(x) * g); i8(y), y - max(y, -1)",
           {{"x", DType::bf16, long_row, {}, false}, {"g", DType::bf16, long_row, {}, false}});
  const Dims row{64, 16'384};
  compiles("y = round(gelu_tanh(x) * g); i8(y), (y - max(y, -1)) * w",
           {{"x", DType::bf16, row, {}, false},
            {"g", DType::bf16, row, {}, false},
            {"w", DType::bf16, {16'384}, {}, false}});
  compiles("y = round(gelu_tanh(x) * x); i4(y), y - max(y, -2)",
           {{"x", DType::f32, {8, 1'024, 4'096}, {}, false}});
}

// Rows whose first axis in their count is the last one in memory (schedule/rows/row_fold.hpp).
TEST(NvidiaReductions, OfFoldedRowsCompile) {
  if (targets_of(jit::ToolchainKind::nvrtc).empty())
    GTEST_SKIP() << "there is no NVRTC on this machine";
  testing::Share share(DeviceType::cpu, 6, testing::random_seed());
  for (const char* target : {"sm_80", "sm_90"}) {
    for (const char* text : {"sum(x, -1, -2)", "sum(x, -1, -2), max(x, -1, -2)",
                             "d = x - mean(x, -1, -2); mean(d * d, -1, -2)"}) {
      for (const Dims& shape :
           {Dims{64, 8, 4'096}, Dims{64, 4, 1'024}, Dims{64, 20, 1'024}, Dims{64, 32, 1'024}}) {
        for (const DType dtype : {DType::bf16, DType::f32}) {
          if (!share.next()) continue;
          Specification specification;
          specification.arguments = {
              {"x", dtype, shape, {shape[1] * shape[2], 1, shape[1]}, false}};
          const CompiledKernel kernel = compile_for(parse("checked", text), specification, target);
          EXPECT_EQ(kernel.resources.scratch.value_or(0), 0)
              << text << " of " << name(dtype) << ", " << shape[1] << " times " << shape[2]
              << " on " << target;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kiln
