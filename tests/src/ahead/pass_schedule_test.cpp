// What is decided of the passes over rows from a graph and its schedule together is recorded: that
// is what kernels are written from, and what explain prints. Needs no compiler.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ahead/compile_only.hpp"
#include "kernel/kernel_ranges.hpp"

namespace kiln {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

struct Scheduled {
  fusion::PassSchedule passes;
  std::vector<std::string> lines;
  std::string text;
};

Scheduled scheduled(const std::string& text, std::vector<ArgumentSpec> arguments,
                    std::string_view target) {
  Specification specification;
  specification.arguments = std::move(arguments);
  const std::vector<KernelSpec> specs = kernel_specs(parse("passes", text), specification);
  EXPECT_EQ(specs.size(), 1u);
  const EmittedKernel emitted = emit_kernel(specs[0], target);
  return {emitted.passes.value(),
          fusion::explain_passes(specs[0].function.graph, operand_names(specs[0].function.graph),
                                 *emitted.passes),
          emitted.request.text};
}

TEST(PassSchedule, CopiesTwoOperandsOfLongRowsPastTheRegisters) {
  const std::string text = "h = x + r; h, rms_norm(h, w, 1e-5)";
  const auto of = [&](std::string_view target) {
    return scheduled(text,
                     {{"x", DType::bf16, {512, 131'072}, {}, false},
                      {"r", DType::bf16, {512, 131'072}, {}, false},
                      {"w", DType::bf16, {131'072}, {}, false}},
                     target);
  };
  const Scheduled own = of("sm_90");
  EXPECT_TRUE(own.passes.copies_async);
  EXPECT_TRUE(own.passes.operands[0].copied);
  EXPECT_TRUE(own.passes.operands[1].copied);
  EXPECT_FALSE(own.passes.operands[2].in_smem);
  EXPECT_EQ(own.passes.min_blocks, 2);
  EXPECT_THAT(own.lines, Contains(HasSubstr("x, r copied there asynchronously")));
  EXPECT_THAT(own.lines, Contains(HasSubstr("2 blocks of 512 threads to a multiprocessor")));
  EXPECT_THAT(own.text, HasSubstr("copy_async<"));
  const Scheduled amd = of("gfx942");
  EXPECT_FALSE(amd.passes.copies_async);
  EXPECT_EQ(amd.text.find("copy_async<"), std::string::npos);
}

TEST(PassSchedule, LoadsOneOperandOfLongRowsThroughRegisters) {
  const Scheduled own =
      scheduled("softmax(x, -1)", {{"x", DType::bf16, {64, 262'144}, {}, false}}, "sm_90");
  EXPECT_TRUE(own.passes.operands[0].in_smem);
  EXPECT_FALSE(own.passes.copies_async);
  EXPECT_THAT(own.lines, Contains(HasSubstr("loaded through registers")));
}

TEST(PassSchedule, PrefetchesTheWeightsOfTheLastPass) {
  const Scheduled own = scheduled("layer_norm(x, w, b, 1e-5)",
                                  {{"x", DType::bf16, {4096, 32'768}, {}, false},
                                   {"w", DType::bf16, {32'768}, {}, false},
                                   {"b", DType::bf16, {32'768}, {}, false}},
                                  "sm_90");
  EXPECT_EQ(own.passes.prefetched, (fusion::PassSchedule::Ids{1, 2}));
  EXPECT_THAT(own.lines, Contains(HasSubstr("w, b loaded from before the first pass on")));
}

TEST(PassSchedule, SaysWhatIsKeptForLaterPasses) {
  const Scheduled own =
      scheduled("softmax(x, -1)", {{"x", DType::f32, {4096, 1024}, {}, false}}, "gfx90a");
  EXPECT_THAT(own.lines, Contains("3: max; sum; stores"));
  EXPECT_THAT(own.lines, Contains("exp kept for later passes"));
  const Scheduled host =
      scheduled("softmax(x, -1)", {{"x", DType::bf16, {4096, 64}, {}, false}}, "cpu");
  EXPECT_EQ(host.passes.row_group, 8);
  EXPECT_THAT(host.lines, Contains("each over 8 rows, before the next pass"));
}

KernelSpec softmax_of(std::int64_t rows, std::int64_t length) {
  Specification specification;
  specification.arguments = {{"x", DType::bf16, {rows, length}, {}, false}};
  return kernel_specs(parse("softmax", "softmax(x, -1)"), specification).at(0);
}

// Where the ranges that are printed end, so does the schedule.
TEST(ScheduleRanges, SayForWhichSizesAScheduleHolds) {
  const std::vector<std::string> ranges = schedule_ranges(softmax_of(4096, 1024), "sm_90");
  EXPECT_THAT(ranges, Contains("1017 <= axis 1 <= 1024"));
  EXPECT_THAT(ranges, Contains("axis 0 >= 2"));
  EXPECT_THAT(schedule_ranges(softmax_of(4096, 1000), "sm_90"), Contains("axis 1 % 8 == 0"));
  const auto schedule = [](std::int64_t rows, std::int64_t length) {
    return emit_kernel(softmax_of(rows, length), "sm_90").layout.schedule;
  };
  EXPECT_EQ(schedule(4096, 1024), schedule(2, 1024));
  EXPECT_NE(schedule(4096, 1024), schedule(4096, 1032));
  EXPECT_NE(schedule(4096, 1024), schedule(4096, 1016));
}

}  // namespace
}  // namespace kiln
