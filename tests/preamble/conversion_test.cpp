// Casts between every two dtypes, against the reference interpreter's own conversions.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>

#include "tests/preamble/host_preamble.hpp"

namespace kiln::test {
namespace {

namespace reference = fusion::reference;

bool is_nan(DType dtype, std::uint64_t pattern) {
  return is_floating(dtype) && std::isnan(reference::decode(dtype, pattern).real);
}

// Expects to<To>(x) to have the bits of the reference's cast; any NaN will do for a NaN.
template <class To, class From>
void expect_cast(From from) {
  // to<T> of a T is the value itself, without a look at it.
  if constexpr (std::is_same_v<To, From>) return;
  const reference::Value input = reference::decode(kDTypeOf<From>, to_pattern(from));
  const std::uint64_t expected = reference::encode(reference::convert(input, kDTypeOf<To>, true));
  const std::uint64_t actual = to_pattern(to<To>(from));
  if (is_nan(kDTypeOf<To>, expected) && is_nan(kDTypeOf<To>, actual)) return;
  ASSERT_EQ(actual, expected) << name(kDTypeOf<From>) << " " << std::hex << to_pattern(from)
                              << " to " << name(kDTypeOf<To>);
}

template <class From>
std::vector<From> inputs() {
  std::vector<From> values;
  for (const std::uint64_t p : patterns(bits(kDTypeOf<From>)))
    values.push_back(from_pattern<From>(p));
  for (const double x : boundary_numbers()) {
    const auto value =
        reference::convert(reference::from_real(DType::f64, x), kDTypeOf<From>, true);
    values.push_back(from_pattern<From>(reference::encode(value)));
  }
  return values;
}

template <class From, class... To>
void expect_casts_from() {
  for (const From x : inputs<From>()) {
    (expect_cast<To>(x), ...);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

template <class From>
class CastFrom : public ::testing::Test {};
using AllTypes = ::testing::Types<b8, u8, u16, u32, u64, i8, i16, i32, i64, f16, bf16, f32, f64,
                                  f8e4m3, f8e5m2, f8e4m3fnuz, f8e5m2fnuz, u4, i4, f4e2m1>;
TYPED_TEST_SUITE(CastFrom, AllTypes, TypeName);

TYPED_TEST(CastFrom, IsTheReferencesCastToEveryType) {
  expect_casts_from<TypeParam, b8, u8, u16, u32, u64, i8, i16, i32, i64, f16, bf16, f32, f64,
                    f8e4m3, f8e5m2, f8e4m3fnuz, f8e5m2fnuz, u4, i4, f4e2m1>();
}

template <class T>
class NarrowFloat : public ::testing::Test {};
using NarrowFloats = ::testing::Types<f16, bf16, f8e4m3, f8e5m2, f8e4m3fnuz, f8e5m2fnuz, f4e2m1>;
TYPED_TEST_SUITE(NarrowFloat, NarrowFloats, TypeName);

template <class T>
constexpr std::uint64_t kCodes = std::uint64_t{1} << bits(kDTypeOf<T>);

TYPED_TEST(NarrowFloat, EveryCodeIsItsValueInF32AndComesBack) {
  for (std::uint64_t code = 0; code < kCodes<TypeParam>; ++code) {
    const auto stored = from_pattern<TypeParam>(code);
    const auto expected = static_cast<float>(reference::decode(kDTypeOf<TypeParam>, code).real);
    const float value = to<f32>(stored);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << code;
      ASSERT_TRUE(std::isnan(to<f32>(to<TypeParam>(value)))) << code;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(expected))
          << code;
      // The infinities of f8e5m2 saturate on their way back.
      const bool saturates = std::isinf(value) && sizeof(TypeParam) == 1;
      ASSERT_EQ(to_pattern(to<TypeParam>(value)), saturates ? code - 1 : code);
    }
  }
}

// Halfway between two neighbours the even one is taken; one step of f32 or f64 to either side
// decides.
TYPED_TEST(NarrowFloat, TiesGoToEvenFromF32AndF64) {
  for (std::uint64_t code = 0; code + 1 < kCodes<TypeParam> / 2; ++code) {
    const long double low = reference::decode(kDTypeOf<TypeParam>, code).real;
    const long double high = reference::decode(kDTypeOf<TypeParam>, code + 1).real;
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    const auto tie = static_cast<double>((low + high) / 2);
    for (const double sign : {1.0, -1.0}) {
      const double wide = sign * tie;
      expect_cast<TypeParam>(wide);
      expect_cast<TypeParam>(std::nextafter(wide, HUGE_VAL));
      expect_cast<TypeParam>(std::nextafter(wide, -HUGE_VAL));
      const auto single = static_cast<float>(wide);
      expect_cast<TypeParam>(single);
      expect_cast<TypeParam>(std::nextafter(single, HUGE_VALF));
      expect_cast<TypeParam>(std::nextafter(single, -HUGE_VALF));
      ASSERT_FALSE(::testing::Test::HasFatalFailure()) << code;
    }
  }
}

TYPED_TEST(NarrowFloat, RoundsAStrideOfAllF32) {
  for (std::uint64_t p = 0; p < std::uint64_t{1} << 32; p += 16411) {
    expect_cast<TypeParam>(from_pattern<f32>(p));
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
  }
}

// An i64 just beside a tie must not be rounded to the tie on its way through f64 or f32.
TEST(Cast, RoundsLongIntegersOnce) {
  for (int high = 8; high < 63; ++high) {
    const i64 tie = (i64{1} << high) + (i64{1} << (high - 8));
    for (const i64 x :
         {tie - 1, tie, tie + 1, tie + (i64{1} << (high - 7)), -tie, -tie - 1, -tie + 1}) {
      expect_cast<bf16>(x);
      expect_cast<f16>(x);
      expect_cast<bf16>(static_cast<u64>(x));
    }
  }
}

TEST(Cast, SaturatesTruncatesAndTakesNanToZero) {
  EXPECT_EQ(to<i8>(1e9f), 127);
  EXPECT_EQ(to<i8>(-1e9f), -128);
  EXPECT_EQ(to<u8>(-1.0f), 0);
  EXPECT_EQ(to<i32>(-2.9f), -2);
  EXPECT_EQ(to<i32>(HUGE_VALF), 2147483647);
  EXPECT_EQ(to<i64>(-HUGE_VAL), std::numeric_limits<i64>::min());
  EXPECT_EQ(to<u64>(HUGE_VALF), std::numeric_limits<u64>::max());
  EXPECT_EQ(to<i32>(std::nanf("")), 0);
  EXPECT_EQ(to<u64>(std::nan("")), 0U);
  EXPECT_TRUE(to<bool>(std::nanf("")));
  EXPECT_FALSE(to<bool>(-0.0f));
  EXPECT_EQ(to<i8>(i32{300}), 44);
  EXPECT_EQ(to<f16>(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to<f8e4m3>(HUGE_VALF).bits, 0x7e);
  EXPECT_EQ(to<f8e5m2>(1e9f).bits, 0x7b);
  EXPECT_EQ(to<f8e4m3fnuz>(-0.0f).bits, 0x00);
  EXPECT_EQ(to<f8e5m2fnuz>(std::nanf("")).bits, 0x80);
}

}  // namespace
}  // namespace kiln::test
