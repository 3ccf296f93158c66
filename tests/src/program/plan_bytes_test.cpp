// What plans move and store: no more than a kernel for each operation, and in place where they can.
#include <gtest/gtest.h>

#include "fusion/text/text.hpp"
#include "tests/src/program/plan_cases.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::call_of;
using testing::definition_of;
using testing::PlanCase;
using testing::random_case;
using testing::wrong_bytes;

// Whatever the sizes, and also where all arrays count as larger than the caches.
void expect_no_larger_than_unfused(const PlanCase& one) {
  fusion::CostModel uncached;
  uncached.cached_bytes = 0;
  const Definition definition = definition_of(one.graph, one.rounding);
  const CallTypes call = call_of(one);
  ASSERT_EQ(wrong_bytes(definition, call), "") << "seed " << one.seed;
  ASSERT_EQ(wrong_bytes(definition, call, uncached), "") << "seed " << one.seed << ", uncached";
}

TEST(ProgramPlan, MovesAndStoresNoMoreThanUnfused) {
  testing::Share share(DeviceType::cpu, 3);
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    if (!share.next()) continue;
    const std::size_t nodes = seed % 50 == 0 ? 300 : 4 + seed % 23 * 3;
    ASSERT_NO_FATAL_FAILURE(expect_no_larger_than_unfused(random_case(seed, nodes)));
  }
}

// Fused kernels need more unpacked than those of one operation each.
TEST(ProgramPlan, IsNoLargerThanUnfusedWhereItUnpacks) {
  testing::Share share(DeviceType::cpu, 3);
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    if (!share.next()) continue;
    const std::size_t nodes = 4 + seed % 23 * 3;
    ASSERT_NO_FATAL_FAILURE(expect_no_larger_than_unfused(random_case(seed, nodes, true)));
  }
}

// In one kernel with the running sum, q has to lie one number in each byte; in one of its own it
// does not.
TEST(ProgramPlan, ComparesWithUnfusedKernelsThatReadWhatTheyCanPacked) {
  const Dims shape{64, 512};
  CallTypes call;
  for (const DType dtype : {DType::f32, DType::u4}) {
    call.arguments.push_back({dtype, false, false});
    call.arrays.push_back({dtype, shape, contiguous_strides(shape)});
  }
  const std::vector<std::string> names{"x", "q"};
  const auto definition = [&](const char* text) {
    return definition_of(fusion::parse(text, names));
  };
  const std::uint64_t elements = 64 * 512;
  const Definition stored = definition("s = cumsum(x, 0); (s), s * q");
  EXPECT_EQ(unfused_workspace(stored, call), 0u);
  EXPECT_EQ(plan_program(stored, call).info.workspace_bytes, 0u);
  const Definition passed = definition("cumsum(x, 0) * q");
  const ProgramInfo info = plan_program(passed, call).info;
  EXPECT_EQ(info.workspace_bytes, elements) << "of q in bytes";
  EXPECT_EQ(info.op_by_op_workspace, 4 * elements) << "of the sum";
  EXPECT_EQ(info.op_by_op_bytes, elements * 16 + elements / 2);
}

// What a kernel stores lies where it has read something of that kind for the last time.
TEST(ProgramPlan, StoresInPlaceOfWhatIsReadForTheLastTime) {
  const Dims shape{64, 512};
  CallTypes call;
  call.arguments.push_back({DType::f32, false, false});
  call.arrays.push_back({DType::f32, shape, contiguous_strides(shape)});
  const auto room_of = [&](const char* text) {
    return plan_program(definition_of(fusion::parse(text)), call).info.workspace_bytes;
  };
  const std::uint64_t array = 64 * 512 * 4;
  EXPECT_EQ(room_of("cumsum(cumsum(cumsum(x, 0), 1), 0)"), array);
  EXPECT_EQ(room_of("cumsum(transpose(cumsum(transpose(cumsum(x, 0)), 0)), 0)"), 2 * array)
      << "in another order";
  EXPECT_EQ(room_of("y = cumsum(x, 0); cumsum(cumsum(y, 1), 0) + y"), 2 * array) << "still read";
}

// Arrays that have a part in common do not all live from when that is known.
TEST(ProgramPlan, CopiesWhatIsAPartOfSeveralArraysWhenEachIsNeeded) {
  const Dims shape{64, 512};
  CallTypes call;
  call.arguments.push_back({DType::f32, false, false});
  call.arrays.push_back({DType::f32, shape, contiguous_strides(shape)});
  std::string text = "t = x";
  for (int i = 0; i < 20; ++i) text += "; t = reshape(concat(0, t[:32], x[32:]), 0, -1) * 0.5";
  const ProgramInfo info = plan_program(definition_of(fusion::parse(text + "; t")), call).info;
  const std::uint64_t array = 64 * 512 * 4;
  EXPECT_LE(info.workspace_bytes, 2 * array);
  EXPECT_LE(info.op_by_op_workspace, 2 * array);
  EXPECT_LE(info.op_by_op_bytes, 20 * 4 * array);
}

// A value is computed again where that spares a write and a read of it; with more readers each of
// them spares less.
TEST(ProgramPlan, StoresWhatManyKernelsRead) {
  const Dims shape{256, 256, 256};
  CallTypes call;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    call.arguments.push_back({dtype, false, false});
    call.arrays.push_back({dtype, shape, contiguous_strides(shape)});
  }
  const auto plan_of = [&](const char* text) {
    return plan_program(definition_of(fusion::parse(text)), call);
  };
  EXPECT_EQ(plan_of("v = a * b; cumsum(v, 0), cumsum(v, 1)").info.workspace_bytes, 0u);
  const ProgramInfo many =
      plan_of("v = a * b; cumsum(v, 0), cumsum(v, 1), cumsum(v, 2), sum(v, 0), sum(v, 1)").info;
  EXPECT_GT(many.workspace_bytes, 0u);
  EXPECT_LT(many.bytes, many.op_by_op_bytes);
}

}  // namespace
}  // namespace kiln
