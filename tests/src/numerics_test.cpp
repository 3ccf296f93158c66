// The error bounds, on the kernels that a user gets: every function is measured on every device
// that is here, the table is printed, and no bound may be exceeded or looser than twice what was
// found.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "fusion/number.hpp"
#include "jit/backend.hpp"
#include "numerics/inputs.hpp"
#include "numerics/measure.hpp"
#include "tests/support/devices.hpp"

#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

namespace kiln::numerics {
namespace {

const auto* const private_cache =
    ::testing::AddGlobalTestEnvironment(new kiln::testing::PrivateCache);

// The table's bounds of the host's library are those of one release; a newer one may be better.
// AMD's were not measured at all.
bool can_be_loose(const Measurement& row, DeviceType device) {
  if (!row.library) return true;
  if (device == DeviceType::hip) return false;
#if defined(__GLIBC__)
  if (device == DeviceType::cpu) return std::string_view(gnu_get_libc_version()) == "2.36";
#endif
  return device != DeviceType::cpu;
}

class Numerics : public ::testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (!kiln::testing::has_device(GetParam())) GTEST_SKIP() << jit::why_absent(GetParam());
  }

  static void expect_bounds(const Request& request) {
    const Device device{GetParam(), 0};
    for (const Measurement& row : measure(device, request)) {
      std::string worst;
      for (const std::uint64_t bits : row.worst)
        worst += fmt::format(" {:#x} ({})", bits, fusion::decode(bits, row.dtype));
      fmt::print("{:<14}{:<5}{:>12} inputs {:>9.4f} ULP of {:<5} at{}\n", row.function,
                 name(row.dtype), row.inputs, row.largest, row.bound.value_or(-1), worst);
      EXPECT_FALSE(row.exceeded()) << row.function << " of " << name(row.dtype) << worst << ": "
                                   << row.largest << " ULP, bound " << *row.bound;
      if (can_be_loose(row, GetParam())) {
        EXPECT_FALSE(row.loose()) << row.function << " of " << name(row.dtype) << ": bound "
                                  << *row.bound << ", largest error found " << row.largest;
      }
    }
  }
};

TEST_P(Numerics, SixteenBitResultsAreWithinTheBoundForEveryInputAndManyPairs) {
  Request request;
  request.dtypes = {DType::f16, DType::bf16};
  request.pairs = 512;
  expect_bounds(request);
}

TEST_P(Numerics, StrictSixteenBitResultsToo) {
  Request request;
  request.dtypes = {DType::f16, DType::bf16};
  request.accuracy = Accuracy::strict;
  request.pairs = 256;
  expect_bounds(request);
}

TEST_P(Numerics, WideResultsAreWithinBoundsThatAreNotLoose) {
  Request request;
  request.dtypes = {DType::f32, DType::f64};
  request.pairs = 900;
  expect_bounds(request);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Numerics, ::testing::Values(DeviceType::cpu));
INSTANTIATE_TEST_SUITE_P(Gpu, Numerics, ::testing::Values(DeviceType::hip, DeviceType::cuda));

TEST(Inputs, ASampleHoldsEachNumberOnceWithTheSpecialsAndEveryPowerOfTwoOfSixteenBits) {
  const std::vector<std::uint64_t> values = sample(DType::bf16, 2048);
  const std::set<std::uint64_t> set(values.begin(), values.end());
  EXPECT_EQ(values.size(), 2048U);
  EXPECT_EQ(set.size(), values.size());
  for (int exponent = -133; exponent <= 127; ++exponent) {
    const double power = std::ldexp(1.0, exponent);
    EXPECT_TRUE(set.contains(fusion::encode(power, DType::bf16))) << exponent;
    EXPECT_TRUE(set.contains(fusion::encode(-power, DType::bf16))) << exponent;
  }
  for (const double x : {0.0, -0.0, HUGE_VAL, -HUGE_VAL, std::nan("")})
    EXPECT_TRUE(set.contains(fusion::encode(x, DType::bf16))) << x;
}

TEST(Inputs, TuplesAreAllOfThem) {
  const Inputs pairs = Inputs::tuples({7, 8, 9}, 2);
  ASSERT_EQ(pairs.count(), 9U);
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen;
  for (std::uint64_t i = 0; i < pairs.count(); ++i)
    seen.emplace(pairs.operand(0, i), pairs.operand(1, i));
  EXPECT_EQ(seen.size(), 9U);
  EXPECT_TRUE(Inputs::all(DType::f16).complete());
  EXPECT_FALSE(Inputs::every(DType::f32, 3, {}).complete());
}

}  // namespace
}  // namespace kiln::numerics
