// The error bounds, on the kernels that a user gets: every function is measured on every device
// that is here, the table is printed, and no bound may be exceeded or, where as much is measured as
// the bounds are of, looser than twice what was found.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "fusion/graph/composition.hpp"
#include "fusion/graph/number.hpp"
#include "jit/device/backend.hpp"
#include "numerics/exact_compositions.hpp"
#include "numerics/inputs.hpp"
#include "numerics/measure.hpp"
#include "numerics/subjects.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/settings.hpp"

#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

namespace kiln::numerics {
namespace {

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

constexpr std::size_t kPairsOfBounds = 900;  // of so many numbers, at least

class Numerics : public kiln::testing::OnDevice {
 protected:
  static void expect_bounds(const Request& request) {
    const Device device{GetParam(), 0};
    for (const Measurement& row : measure(device, request)) {
      std::string worst;
      for (const std::uint64_t bits : row.worst)
        worst += fmt::format(" {:#x} ({})", bits, fusion::decode(bits, row.dtype));
      fmt::print("{:<14}{:<5}{:>12} inputs {:>9.4f} ULP of {:<5} at{}\n", row.function,
                 name(row.dtype), row.inputs, row.largest, row.bound.value_or(-1), worst);
      if (row.fast)
        fmt::print("{:<14}{:<5} under fast {:.2e}\n", row.function, name(row.dtype), *row.fast);
      EXPECT_FALSE(row.exceeded()) << row.function << " of " << name(row.dtype) << worst << ": "
                                   << row.largest << " ULP, bound " << *row.bound;
      if (request.accuracy != Accuracy::fast && request.pairs >= kPairsOfBounds &&
          can_be_loose(row, GetParam())) {
        EXPECT_FALSE(row.loose()) << row.function << " of " << name(row.dtype) << ": bound "
                                  << *row.bound << ", largest error found " << row.largest;
      }
    }
  }

  // Every third function where one dtype stands for another, from number `first` on.
  static std::vector<std::string> functions_from(std::uint64_t first) {
    testing::Share share(GetParam(), 3, first);
    std::vector<std::string> names;
    for (const Subject& subject : all_subjects()) {
      if (share.next()) names.push_back(subject.name);
    }
    return names;
  }

  static void expect_sixteen_bit_bounds(std::size_t pairs) {
    testing::Share share(GetParam(), 2);  // the compiler's own functions, of strict, change least
    for (const Accuracy accuracy : {Accuracy::storage, Accuracy::strict}) {
      if (!share.next()) continue;
      for (const DType dtype : {DType::f16, DType::bf16}) {
        Request request;
        request.functions = functions_from(dtype == DType::f16 ? 0 : 1);
        request.dtypes = {dtype};
        request.accuracy = accuracy;
        request.pairs = pairs;
        expect_bounds(request);
      }
    }
  }
};

TEST_P(Numerics, SixteenBitResultsAreWithinTheBoundForEveryInputAndPairsOf256Values) {
  expect_sixteen_bit_bounds(256);
}

TEST_P(Numerics, SixteenBitResultsAreWithinTheBoundForEveryInputAndAllPairsOf2048Values) {
  expect_sixteen_bit_bounds(2048);
}

TEST_P(Numerics, WideResultsAreWithinBoundsThatAreNotLoose) {
  Request request;
  request.dtypes = {DType::f32, DType::f64, DType::c64};
  request.pairs = kPairsOfBounds;
  expect_bounds(request);
}

TEST_P(Numerics, FastResultsAreAsNearAsIsPromised) {
  Request request;
  request.accuracy = Accuracy::fast;
  request.pairs = 64;
  request.stride = GetParam() == DeviceType::cpu ? 1000003 : 200003;
  expect_bounds(request);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Numerics, ::testing::Values(DeviceType::cpu),
                         testing::device_type_name);
INSTANTIATE_TEST_SUITE_P(Gpu, Numerics, ::testing::Values(DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

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

TEST(Inputs, ASampleOfComplexNumbersPairsTheSpecialsAndMeetsTheUnitCircle) {
  const std::vector<std::uint64_t> values = sample(DType::c64, 4096);
  const std::set<std::uint64_t> set(values.begin(), values.end());
  EXPECT_EQ(set.size(), 4096U);
  for (const double re : {0.0, -0.0, HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    for (const double im : {0.0, -0.0, HUGE_VAL, -HUGE_VAL, std::nan("")}) {
      EXPECT_TRUE(
          set.contains(fusion::encode(re, DType::f32) | fusion::encode(im, DType::f32) << 32))
          << re << " " << im;
    }
  }
  const auto near_circle = std::ranges::count_if(values, [](std::uint64_t bits) {
    const double re = fusion::decode(bits & 0xffffffff, DType::f32);
    const double im = fusion::decode(bits >> 32, DType::f32);
    return std::fabs(std::hypot(re, im) - 1) < 1e-7;
  });
  EXPECT_GT(near_circle, 500);
}

TEST(Exact, CompositionsOfAllNamesHaveADefinition) {
  for (const fusion::Composition& composition : fusion::all_compositions())
    EXPECT_NE(exact_composition(composition.name), nullptr) << composition.name;
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
