// Kernels of products that compute a norm before their rows, for GPUs that need not be here: by
// matrix instructions, whatever shares the vectors, and by ordinary ones; no scratch.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/machine_code.hpp"

namespace kiln {
namespace {

struct Normed {
  DType weights = DType::u4;
  std::int64_t rows = 4096;
  std::int64_t groups = 64;
  std::int64_t columns = 1;
};

std::vector<KernelSpec> normed_product(const Normed& of, std::string_view target) {
  const std::string text = fmt::format(
      "h = bf16(x * rsqrt(mean(x * x, -1) + 1e-5) * n);"
      "reshape(sum((q * scale + bias) * reshape(h, -1, 1, {}, 64), -1, -2), -1, {})",
      of.groups, of.rows);
  Specification specification;
  specification.arguments = {{"x", DType::f32, {of.columns, of.groups * 64}, {}, false},
                             {"n", DType::f32, {of.groups * 64}, {}, false},
                             {"q", of.weights, {of.rows, of.groups, 64}, {}, false},
                             {"scale", DType::f16, {of.rows, of.groups, 1}, {}, false},
                             {"bias", DType::f16, {of.rows, of.groups, 1}, {}, false}};
  return program_specs(parse("normed", text), specification, target);
}

void expect_one_kernel(const Normed& of, const std::string& target) {
  SCOPED_TRACE(fmt::format("{}: {} rows of {} groups of {}, {} columns", target, of.rows, of.groups,
                           name(of.weights), of.columns));
  const std::vector<KernelSpec> kernels = normed_product(of, target);
  ASSERT_EQ(kernels.size(), 1U);
  const CompiledKernel kernel = compile_for(kernels[0], target);
  EXPECT_NE(kernel.source.find("PrologueMemory<bf16"), std::string::npos);
  EXPECT_EQ(kernel.resources.scratch.value_or(0), 0);
  EXPECT_EQ(kernel.resources.spills.value_or(0), 0);
}

class AmdPrologues : public ::testing::TestWithParam<std::string> {};

TEST_P(AmdPrologues, Compile) {
  const std::vector<std::string> known = testing::targets_of(jit::ToolchainKind::hiprtc);
  if (std::ranges::find(known, GetParam()) == known.end()) {
    GTEST_SKIP() << "no hiprtc on this machine knows " << GetParam();
  }
  for (const std::int64_t columns : {1, 2, 4, 8}) {
    expect_one_kernel({DType::u4, 256, 16, columns}, GetParam());
  }
  expect_one_kernel({DType::i8, 256, 64, 1}, GetParam());
}
INSTANTIATE_TEST_SUITE_P(Gfx, AmdPrologues, ::testing::Values("gfx90a", "gfx1030"),
                         testing::target_name);

// Of one vector waves split rows; with weights of 8 bits they do not.
TEST(NvidiaPrologues, Compile) {
  if (testing::targets_of(jit::ToolchainKind::nvrtc).empty())
    GTEST_SKIP() << "there is no NVRTC on this machine";
  expect_one_kernel({DType::u4, 28672, 64, 1}, "sm_90");
  expect_one_kernel({DType::u4, 6144, 64, 1}, "sm_90");
  expect_one_kernel({DType::u4, 1024, 64, 1}, "sm_80");
  for (const std::int64_t columns : {1, 2, 3, 4, 8}) {
    expect_one_kernel({DType::u8, 256, 16, columns}, "sm_90");
  }
}

// Blocks of tiles that are not persistent would read the vectors once for each of thousands.
TEST(NvidiaPrologues, AreKernelsOfTheirOwnWhereBlocksWouldReadMuchAgain) {
  EXPECT_EQ(normed_product({DType::u4, 28672, 64, 4}, "sm_90").size(), 2U);
  EXPECT_EQ(normed_product({DType::u4, 28672, 64, 1}, "cpu").size(), 2U);
}

}  // namespace
}  // namespace kiln
