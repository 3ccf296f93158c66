// NaN, infinities, zeros, subnormals and extremes: tables of what each function must give there,
// written down by hand rather than computed.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/preamble/host_preamble.hpp"

namespace kiln::test {
namespace {

constexpr f32 kInf = std::numeric_limits<f32>::infinity();
constexpr f32 kNan = std::numeric_limits<f32>::quiet_NaN();
constexpr f32 kMax = std::numeric_limits<f32>::max();
constexpr f32 kTiny = std::numeric_limits<f32>::denorm_min();

void expect_same(f32 actual, f32 expected, const char* what) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << what << " is " << actual;
  } else {
    EXPECT_EQ(to_pattern(actual), to_pattern(expected))
        << what << " is " << actual << ", not " << expected;
  }
}

#define KILN_GIVES(call, expected) expect_same(kiln::call, expected, #call)

TEST(Special, NanComesOutOfEveryFunction) {
  for (const f32 x : {kNan, -kNan, bit_cast<f32>(0x7fc12345U)}) {
    const f32 results[] = {kiln::abs(x),
                           kiln::neg(x),
                           kiln::sign(x),
                           kiln::sqrt(x),
                           kiln::rsqrt(x),
                           kiln::cbrt(x),
                           kiln::exp(x),
                           kiln::exp2(x),
                           kiln::expm1(x),
                           kiln::log(x),
                           kiln::log2(x),
                           kiln::log10(x),
                           kiln::log1p(x),
                           kiln::sin(x),
                           kiln::cos(x),
                           kiln::tan(x),
                           kiln::asin(x),
                           kiln::acos(x),
                           kiln::atan(x),
                           kiln::sinh(x),
                           kiln::cosh(x),
                           kiln::tanh(x),
                           kiln::asinh(x),
                           kiln::acosh(x),
                           kiln::atanh(x),
                           kiln::sigmoid(x),
                           kiln::erf(x),
                           kiln::erfc(x),
                           kiln::ndtr(x),
                           kiln::erfinv(x),
                           kiln::lgamma(x),
                           kiln::floor(x),
                           kiln::round(x),
                           kiln::maximum(x, 1.0f),
                           kiln::maximum(1.0f, x),
                           kiln::minimum(x, 1.0f),
                           kiln::minimum(1.0f, x),
                           kiln::fmax(x, x),
                           kiln::clip(x, 0.0f, 1.0f),
                           kiln::atan2(x, 1.0f),
                           kiln::atan2(1.0f, x),
                           kiln::hypot(x, 1.0f),
                           kiln::logaddexp(x, 1.0f),
                           kiln::logaddexp(1.0f, x),
                           kiln::power(x, 2.0f),
                           kiln::power(2.0f, x),
                           kiln::nextafter(x, 1.0f),
                           kiln::remainder(x, 1.0f),
                           kiln::floor_divide(1.0f, x)};
    for (std::size_t i = 0; i < std::size(results); ++i)
      EXPECT_TRUE(std::isnan(results[i])) << "function " << i;
  }
}

TEST(Special, MaximumAndMinimumTakeNanAndOrderZeros) {
  const f32 first = bit_cast<f32>(0x7fc00001U);
  const f32 second = bit_cast<f32>(0x7fc00002U);
  EXPECT_EQ(to_pattern(kiln::maximum(first, second)), to_pattern(first));
  EXPECT_EQ(to_pattern(kiln::minimum(first, second)), to_pattern(first));
  EXPECT_EQ(to_pattern(kiln::maximum(1.0f, second)), to_pattern(second));
  KILN_GIVES(maximum(-0.0f, 0.0f), 0.0f);
  KILN_GIVES(maximum(0.0f, -0.0f), 0.0f);
  KILN_GIVES(minimum(-0.0f, 0.0f), -0.0f);
  KILN_GIVES(minimum(0.0f, -0.0f), -0.0f);
  KILN_GIVES(fmax(kNan, 1.0f), 1.0f);
  KILN_GIVES(fmax(1.0f, kNan), 1.0f);
  KILN_GIVES(fmin(kNan, -kInf), -kInf);
  KILN_GIVES(fmin(0.0f, -0.0f), -0.0f);
  KILN_GIVES(maximum(-kInf, -kMax), -kMax);
}

TEST(Special, ExponentialsAndLogarithmsAtTheirEnds) {
  KILN_GIVES(exp(-kInf), 0.0f);
  KILN_GIVES(exp(kInf), kInf);
  KILN_GIVES(exp(-0.0f), 1.0f);
  KILN_GIVES(exp(88.8f), kInf);
  KILN_GIVES(exp(-103.5f), kTiny);
  KILN_GIVES(exp(-104.5f), 0.0f);
  KILN_GIVES(exp2(-149.0f), kTiny);
  KILN_GIVES(exp2(10.0f), 1024.0f);
  KILN_GIVES(exp2(128.0f), kInf);
  KILN_GIVES(expm1(-0.0f), -0.0f);
  KILN_GIVES(expm1(kTiny), kTiny);
  KILN_GIVES(expm1(-kInf), -1.0f);
  KILN_GIVES(expm1(kInf), kInf);
  KILN_GIVES(log(0.0f), -kInf);
  KILN_GIVES(log(-0.0f), -kInf);
  KILN_GIVES(log(1.0f), 0.0f);
  KILN_GIVES(log(-1.0f), kNan);
  KILN_GIVES(log(-kInf), kNan);
  KILN_GIVES(log(kInf), kInf);
  KILN_GIVES(log2(8.0f), 3.0f);
  KILN_GIVES(log2(kTiny), -149.0f);
  KILN_GIVES(log10(1000.0f), 3.0f);
  KILN_GIVES(log1p(-0.0f), -0.0f);
  KILN_GIVES(log1p(-1.0f), -kInf);
  KILN_GIVES(log1p(-1.5f), kNan);
  KILN_GIVES(log1p(kTiny), kTiny);
  KILN_GIVES(logaddexp(-kInf, -kInf), -kInf);
  KILN_GIVES(logaddexp(kInf, kInf), kInf);
  KILN_GIVES(logaddexp(kInf, -kInf), kInf);
  KILN_GIVES(logaddexp(-kInf, 3.0f), 3.0f);
}

TEST(Special, SigmoidAndTanhSaturate) {
  KILN_GIVES(sigmoid(kInf), 1.0f);
  KILN_GIVES(sigmoid(-kInf), 0.0f);
  KILN_GIVES(sigmoid(0.0f), 0.5f);
  KILN_GIVES(sigmoid(kMax), 1.0f);
  KILN_GIVES(sigmoid(-kMax), 0.0f);
  EXPECT_GT(kiln::sigmoid(-100.0f), 0.0f);
  KILN_GIVES(tanh(kInf), 1.0f);
  KILN_GIVES(tanh(-kMax), -1.0f);
  KILN_GIVES(tanh(-0.0f), -0.0f);
  KILN_GIVES(tanh(kTiny), kTiny);
  KILN_GIVES(erf(kInf), 1.0f);
  KILN_GIVES(erf(-5.0f), -1.0f);
  KILN_GIVES(erf(-0.0f), -0.0f);
  KILN_GIVES(erfc(kInf), 0.0f);
  KILN_GIVES(erfc(-kInf), 2.0f);
  KILN_GIVES(ndtr(kInf), 1.0f);
  KILN_GIVES(ndtr(-kInf), 0.0f);
  KILN_GIVES(ndtr(0.0f), 0.5f);
  KILN_GIVES(erfinv(1.0f), kInf);
  KILN_GIVES(erfinv(-1.0f), -kInf);
  KILN_GIVES(erfinv(1.5f), kNan);
  KILN_GIVES(erfinv(-0.0f), -0.0f);
}

TEST(Special, TrigonometryOfZerosAndInfinities) {
  KILN_GIVES(sin(-0.0f), -0.0f);
  KILN_GIVES(sin(kTiny), kTiny);
  KILN_GIVES(sin(kInf), kNan);
  KILN_GIVES(cos(0.0f), 1.0f);
  KILN_GIVES(cos(-kInf), kNan);
  KILN_GIVES(tan(-0.0f), -0.0f);
  KILN_GIVES(atan(kInf), 1.57079633f);
  KILN_GIVES(asin(-0.0f), -0.0f);
  KILN_GIVES(asin(1.5f), kNan);
  KILN_GIVES(acos(1.0f), 0.0f);
  KILN_GIVES(acos(-1.0f), 3.14159274f);
  KILN_GIVES(atan2(0.0f, -0.0f), 3.14159274f);
  KILN_GIVES(atan2(-0.0f, 0.0f), -0.0f);
  KILN_GIVES(atan2(kInf, kInf), 0.785398163f);
  KILN_GIVES(atan2(-kInf, 1.0f), -1.57079633f);
  KILN_GIVES(acosh(0.5f), kNan);
  KILN_GIVES(acosh(kInf), kInf);
  KILN_GIVES(atanh(1.0f), kInf);
  KILN_GIVES(atanh(-2.0f), kNan);
  KILN_GIVES(asinh(-kInf), -kInf);
  KILN_GIVES(sinh(-kMax), -kInf);
  KILN_GIVES(cosh(-kInf), kInf);
}

TEST(Special, RootsAndPowers) {
  KILN_GIVES(sqrt(-0.0f), -0.0f);
  KILN_GIVES(sqrt(-1.0f), kNan);
  KILN_GIVES(rsqrt(0.0f), kInf);
  KILN_GIVES(rsqrt(kInf), 0.0f);
  KILN_GIVES(cbrt(-27.0f), -3.0f);
  KILN_GIVES(cbrt(-0.0f), -0.0f);
  KILN_GIVES(cbrt(-kInf), -kInf);
  KILN_GIVES(power(0.0f, 0.0f), 1.0f);
  KILN_GIVES(power(kNan, 0.0f), 1.0f);
  KILN_GIVES(power(1.0f, kNan), 1.0f);
  KILN_GIVES(power(-1.0f, kInf), 1.0f);
  KILN_GIVES(power(-2.0f, 3.0f), -8.0f);
  KILN_GIVES(power(-2.0f, 2.0f), 4.0f);
  KILN_GIVES(power(-2.0f, 0.5f), kNan);
  KILN_GIVES(power(-0.0f, -1.0f), -kInf);
  KILN_GIVES(power(-0.0f, 3.0f), -0.0f);
  KILN_GIVES(power(0.5f, kInf), 0.0f);
  KILN_GIVES(power(-kInf, -3.0f), -0.0f);
  KILN_GIVES(power(2.0f, -149.0f), kTiny);
  KILN_GIVES(hypot(kInf, kNan), kInf);
  KILN_GIVES(hypot(3e38f, 0.0f), 3e38f);
  KILN_GIVES(lgamma(1.0f), 0.0f);
  KILN_GIVES(lgamma(2.0f), 0.0f);
  KILN_GIVES(lgamma(-3.0f), kInf);
  KILN_GIVES(lgamma(-kInf), kInf);
}

TEST(Special, DivisionAndRemainderOfFloats) {
  KILN_GIVES(floor_divide(-7.0f, 2.0f), -4.0f);
  KILN_GIVES(floor_divide(1.0f, 0.1f), 9.0f);
  KILN_GIVES(floor_divide(1.0f, 0.0f), kInf);
  KILN_GIVES(floor_divide(-1e-30f, 1e30f), -1.0f);
  KILN_GIVES(remainder(-7.0f, 2.0f), 1.0f);
  KILN_GIVES(remainder(7.0f, -2.0f), -1.0f);
  KILN_GIVES(remainder(-6.0f, 2.0f), 0.0f);
  KILN_GIVES(remainder(6.0f, -2.0f), -0.0f);
  KILN_GIVES(remainder(-1.0f, kInf), kInf);
  KILN_GIVES(fmod(-7.0f, 2.0f), -1.0f);
  KILN_GIVES(fmod(1.0f, 0.0f), kNan);
}

TEST(Special, RoundingSignAndNeighbours) {
  KILN_GIVES(round(0.5f), 0.0f);
  KILN_GIVES(round(2.5f), 2.0f);
  KILN_GIVES(round(-1.5f), -2.0f);
  KILN_GIVES(round(-0.25f), -0.0f);
  KILN_GIVES(floor(-0.0f), -0.0f);
  KILN_GIVES(ceil(-0.5f), -0.0f);
  KILN_GIVES(trunc(-kInf), -kInf);
  KILN_GIVES(sign(-0.0f), -0.0f);
  KILN_GIVES(sign(-kTiny), -1.0f);
  KILN_GIVES(nextafter(0.0f, -1.0f), -kTiny);
  KILN_GIVES(nextafter(kMax, kInf), kInf);
  KILN_GIVES(nextafter(-kTiny, 1.0f), -0.0f);
  KILN_GIVES(nextafter(1.0f, 1.0f), 1.0f);
  KILN_GIVES(copysign(kNan, -1.0f), kNan);
  KILN_GIVES(clip(5.0f, 0.0f, 1.0f), 1.0f);
  EXPECT_TRUE(kiln::isinf(-kInf));
  EXPECT_FALSE(kiln::isfinite(kNan));
  EXPECT_TRUE(kiln::isnan(kNan));
  EXPECT_TRUE(kiln::isfinite(kTiny));
}

// Codes in the order of the values are neighbours, counted from the smallest one; the zeros are one
// value.
template <class T>
void expect_neighbours(u32 infinity) {
  const auto at = [](u32 code) { return to<f32>(from_pattern<T>(code)); };
  for (u32 code = 0; code < 0x10000; ++code) {
    const f32 x = at(code);
    for (const bool up : {true, false}) {
      const f32 result = kiln::nextafter<T>(x, up ? kInf : -kInf);
      const u32 size = code & 0x7fff;
      const bool negative = code > 0x7fff;
      if (size > infinity) {
        EXPECT_TRUE(std::isnan(result)) << code;
        continue;
      }
      u32 wanted = size == 0 ? (up ? 1u : 0x8001u) : up != negative ? code + 1 : code - 1;
      if (size == infinity && up != negative) wanted = code;
      ASSERT_EQ(u32(to<T>(result).bits), wanted) << code << (up ? " up" : " down");
      ASSERT_EQ(to_pattern(result), to_pattern(at(wanted)));
    }
  }
  EXPECT_TRUE(std::isnan(kiln::nextafter<T>(1.0f, kNan)));
  EXPECT_EQ(to_pattern(kiln::nextafter<T>(0.0f, -0.0f)), to_pattern(-0.0f));
  EXPECT_EQ(kiln::nextafter<T>(1.0f, 1.0f), 1.0f);
}
TEST(Special, EveryF16HasItsNeighbours) { expect_neighbours<f16>(0x7c00); }
TEST(Special, EveryBf16HasItsNeighbours) { expect_neighbours<bf16>(0x7f80); }

}  // namespace
}  // namespace kiln::test
