// Reductions with reshapes before and after them: norms of groups of channels, windows of pixels,
// norms that are quantised by groups. How many kernels they take, how these read what repeats
// within rows, and what they give.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ahead/compile_only.hpp"
#include "kernel/target.hpp"
#include "tests/src/program/run_program.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::HostArray;

/// A norm of `groups` groups of channels, in NCHW.
std::string group_norm(int groups, const Dims& x) {
  return fmt::format(
      "p = reshape(x, 0, {}, {}); c = p - mean(p, -1); n = c * rsqrt(mean(c * c, -1) + 1e-5); "
      "y = reshape(n, 0, {}, {}, {}); silu(y * w + b)",
      groups, x[1] / groups * x[2] * x[3], x[1], x[2], x[3]);
}

ArgumentSpec argument(const char* name, DType dtype, const Dims& shape) {
  return {.name = name, .dtype = dtype, .shape = shape, .strides = contiguous_strides(shape)};
}

Specification types_of_group_norm(const Dims& x, DType dtype) {
  Specification types;
  types.arguments = {argument("x", dtype, x), argument("w", dtype, {x[1], 1, 1}),
                     argument("b", dtype, {x[1], 1, 1})};
  return types;
}

TEST(ReshapedRows, AreOneKernelWithWhatIsComputedOfThem) {
  const auto kernels = [](const std::string& text, const Specification& types) {
    return program_specs(parse("f", text), types).size();
  };
  const Dims x{4, 64, 56, 56};
  EXPECT_EQ(kernels(group_norm(32, x), types_of_group_norm(x, DType::bf16)), 1U);
  Specification rows;
  rows.arguments = {argument("x", DType::bf16, {64, 4096}), argument("w", DType::bf16, {4096})};
  EXPECT_EQ(kernels("y = reshape(rms_norm(x, w, 1e-6), 0, 32, 128); y * sigmoid(y)", rows), 1U);
}

// Weights of channels, in the kernel of a group: they keep it from none of what rows can do.
TEST(ReshapedRows, ReadWeightsOfRunsBesideWholeVectors) {
  struct Case {
    Dims x;
    int groups;
    bool whole;  ///< no vector has elements of two channels
  };
  for (const auto& [x, groups, whole] :
       {Case{{4, 64, 56, 56}, 32, true}, Case{{64, 96, 7, 7}, 32, false}}) {
    for (const std::string_view target : {"sm_90", "gfx90a"}) {
      const std::vector<KernelSpec> kernels =
          program_specs(parse("f", group_norm(groups, x)), types_of_group_norm(x, DType::bf16));
      ASSERT_EQ(kernels.size(), 1U);
      const fusion::Layout layout = emit_kernel(kernels[0], resolve_target(target)).layout;
      const fusion::Schedule& schedule = layout.schedule;
      EXPECT_EQ(schedule.reduction.axes, 1) << target;
      EXPECT_EQ(schedule.width, 8) << target;
      EXPECT_GT(schedule.reduction.vectors, 0) << target;
      for (const std::size_t weight : {1, 2}) {
        EXPECT_EQ(schedule.operands[weight].access, fusion::Access::runs);
        EXPECT_EQ(schedule.operands[weight].whole_runs, whole);
        EXPECT_EQ(layout.runs[weight].length, x[2] * x[3]);
      }
    }
  }
}

/// The same of an image whose channels are last.
std::string group_norm_of_pixels(int groups, const Dims& x) {
  return fmt::format(
      "p = reshape(x, 0, {}, {}, {}); c = p - mean(p, -1, -3); "
      "n = c * rsqrt(mean(c * c, -1, -3) + 1e-5); y = reshape(n, 0, {}, {}, {}); silu(y * w + b)",
      x[1] * x[2], groups, x[3] / groups, x[1], x[2], x[3]);
}

// Channels of a group that are less than a sector: neighbouring threads read those of other groups.
TEST(ReshapedRows, JoinColumnsOfAFewChannels) {
  struct Case {
    Dims x;
    int groups;
    int joined;
  };
  for (const auto& [x, groups, joined] :
       {Case{{8, 16, 16, 64}, 32, 2}, Case{{8, 14, 14, 128}, 16, 8}, Case{{8, 8, 8, 96}, 32, 1},
        Case{{8, 8, 8, 512}, 32, 1}}) {
    Specification types;
    types.arguments = {argument("x", DType::bf16, x), argument("w", DType::bf16, {x[3]}),
                       argument("b", DType::bf16, {x[3]})};
    const std::vector<KernelSpec> kernels =
        program_specs(parse("f", group_norm_of_pixels(groups, x)), types);
    ASSERT_EQ(kernels.size(), 1U);
    for (const std::string_view target : {"sm_90", "gfx90a"}) {
      const fusion::Layout layout = emit_kernel(kernels[0], resolve_target(target)).layout;
      const fusion::RowSchedule& rows = layout.schedule.reduction;
      EXPECT_EQ(rows.joined, joined) << x[3] << ", " << target;
      EXPECT_EQ(layout.reduced, x[1] * x[2] * x[3] / groups);
      if (joined == 1) continue;
      EXPECT_GT(rows.columns, 0);
      EXPECT_GT(rows.vectors, 0) << "kept on chip";
      EXPECT_EQ(layout.schedule.operands[0].alignment, 16);
    }
  }
}

class ReshapedRowsOnDevices : public testing::ProgramsOnDevices {
 protected:
  static HostArray array(DType dtype, const Dims& shape) {
    return testing::random_array(dtype, shape, static_cast<std::uint64_t>(shape[shape.size() - 1]));
  }
  void check_group_norm(int groups, const Dims& x, DType dtype) {
    HostArray every_other = array(dtype, {2 * x[1], 1, 1});
    every_other.shape[0] = x[1];
    every_other.strides[0] = 2;
    check(group_norm(groups, x), {array(dtype, x), every_other, array(DType::f32, {x[1], 1, 1})},
          1e-4);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, ReshapedRowsOnDevices,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST_P(ReshapedRowsOnDevices, OfGroupsOfChannels) {
  check_group_norm(4, {3, 8, 4, 4}, DType::f16);    // vectors within channels
  check_group_norm(2, {5, 6, 7, 7}, DType::bf16);   // vectors of two channels, unaligned rows
  check_group_norm(2, {2, 4, 41, 17}, DType::f32);  // several vectors for each thread
}

TEST_P(ReshapedRowsOnDevices, OfGroupsOfTheLastChannels) {
  const auto check_pixels = [&](int groups, const Dims& x, DType dtype) {
    check(group_norm_of_pixels(groups, x),
          {array(dtype, x), array(dtype, {x[3]}), array(DType::f32, {x[3]})}, 1e-4);
  };
  check_pixels(8, {3, 5, 7, 16}, DType::bf16);   // several groups in a vector
  check_pixels(4, {2, 6, 6, 32}, DType::f16);    // a vector, or several threads, for each
  check_pixels(8, {2, 40, 30, 32}, DType::f32);  // more pixels than a block keeps
  check("p = reshape(x, 0, 12, 5, 2); p - max(p, -1, -3)", {array(DType::f32, {3, 4, 3, 10})},
        1e-6);
}

TEST_P(ReshapedRowsOnDevices, OfFewOrManyPixels) {
  check_group_norm(2, {2, 8, 2, 2}, DType::bf16);  // channels shorter than a vector
  check_group_norm(3, {2, 6, 3, 1}, DType::f16);
  check_group_norm(2, {1, 4, 130, 131}, DType::bf16);  // too long for registers
}

TEST_P(ReshapedRowsOnDevices, OfOtherShapesAfterRows) {
  check("y = reshape(rms_norm(x, w, 1e-6), 0, 3, 32); y / (max(abs(y), -1) + 1.0)",
        {array(DType::bf16, {7, 96}), array(DType::f32, {96})}, 1e-4);
  check("y = reshape(softmax(x, -1), 6, 5, 2); z = y * w; reshape(z, 12, 5), max(z, -1)",
        {array(DType::f32, {12, 5}), array(DType::f32, {5, 2})}, 1e-4);
}

TEST_P(ReshapedRowsOnDevices, OfWindows) {
  const auto windows = [](const char* op, const Dims& x, int rows, int columns) {
    return fmt::format(
        "p = reshape(x, 0, 0, {0}, {1}, {2}, {3}); reshape({4}(p, -1, -3), 0, {5}, "
        "{0}, {2})",
        x[2] / rows, rows, x[3] / columns, columns, op, x[1]);
  };
  for (const char* op : {"mean", "max"}) {
    check(windows(op, {3, 4, 6, 10}, 2, 2), {array(DType::bf16, {3, 4, 6, 10})}, 1e-6);
  }
  check(windows("sum", {2, 3, 9, 8}, 3, 4), {array(DType::f32, {2, 3, 9, 8})}, 1e-6);
  check("p = reshape(x, 0, 3, 2, 4, 2); min(p, -1, -3), mean(p, -1, -3)",
        {array(DType::f16, {5, 6, 8})}, 1e-6);
}

}  // namespace
}  // namespace kiln
