// Quotients: correctly rounded where they are seen, and as good as their function needs where only
// a cheaper method for 16 bits takes them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "fusion/graph/number.hpp"
#include "fusion/reference/bound.hpp"
#include "fusion/reference/value.hpp"
#include "kiln/error.hpp"
#include "tests/src/numerics/contract.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/numbers.hpp"

namespace kiln {
namespace {

using namespace testing;  // NOLINT: the contract's own

class DivisorContract : public Contract {
 protected:
  void expect_correctly_rounded(std::string_view divisor, std::int64_t columns);
};
class NarrowQuotient : public Contract {};

// Many dividends of one divisor, for which a reciprocal computed once is tempting: correctly
// rounded, with subnormals, infinities and the sign of zero. `divisor` is of y, whose rows have
// `columns` of the same number.
void DivisorContract::expect_correctly_rounded(std::string_view divisor, std::int64_t columns) {
  constexpr std::int64_t kDividends = 512;
  const double divisors[] = {0.9,  30,    127,  1.0 / 3, 1e-17, 1e17,   1e-19, 1e19, 1e-38, 1e38,
                             -0.9, 0x1p3, -0.0, 0,       kInf,  1e-320, kNan,  255,  3e-39, -1e-30};
  const auto rows = static_cast<std::int64_t>(std::size(divisors));
  const auto round = [](double number) { return static_cast<double>(static_cast<float>(number)); };
  std::vector<std::uint64_t> sample = testing::sample(DType::f32, kDividends, 3);
  sample.resize(kDividends, 0);
  // Half of them are of a size that needs no care.
  for (std::size_t k = kDividends / 2; k < kDividends; ++k) {
    sample[k] = (sample[k] & 0x807fffffU) | (std::uint64_t{97} + k % 60) << 23U;
  }
  HostArray x = HostArray::contiguous(DType::f32, {rows, kDividends});
  HostArray y = HostArray::contiguous(DType::f32, {rows, columns});
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t k = 0; k < columns; ++k) {
      testing::set_bits(y, i * columns + k, fusion::encode(round(divisors[i]), DType::f32));
    }
    for (std::int64_t k = 0; k < kDividends; ++k)
      testing::set_bits(x, i * kDividends + k, sample[static_cast<std::size_t>(k)]);
  }
  for_two_modes([&](const Options& options) {
    std::vector<HostArray> outputs(3, x);
    // What is not NaN is what it is, but could be a zero by choice.
    const std::string text =
        fmt::format("x / {0}, x / 0.9, where(isnan(x), 0.0, x) / {0}", divisor);
    testing::run_on(device(), parse("quotients", text, options), std::vector<HostArray>{x, y},
                    outputs);
    for (std::int64_t i = 0; i < x.size(); ++i) {
      const auto dividend = static_cast<float>(fusion::decode(testing::get_bits(x, i), DType::f32));
      const auto own = static_cast<float>(round(divisors[i / kDividends]));
      const float by[] = {own, 0.9F, own};
      for (std::size_t k = 0; k < 3; ++k) {
        const auto got =
            std::bit_cast<float>(static_cast<std::uint32_t>(testing::get_bits(outputs[k], i)));
        const float wanted = (k == 2 && std::isnan(dividend) ? 0.0F : dividend) / by[k];
        const bool same = std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(wanted);
        EXPECT_TRUE(same || (std::isnan(got) && std::isnan(wanted)))
            << dividend << " / " << by[k] << ": got " << got << ", expected " << wanted << ", "
            << mode_of(options);
      }
    }
  });
}

TEST_P(DivisorContract, EveryQuotientIsCorrectlyRounded) { expect_correctly_rounded("y", 1); }

// The divisor is a number that the kernel has computed from a row, of which each thread divides
// several elements.
TEST_P(DivisorContract, EveryQuotientByARowsMaximumIsCorrectlyRounded) {
  expect_correctly_rounded("max(y, -1)", 512);
}

// Neighbours of one magnitude, so that no vector of them holds a special value by chance: every
// bf16 by divisors of every magnitude, as an f32 and as a cast to 8 bits has it, with and without
// the bounds that the cast has too.
TEST_P(DivisorContract, EveryBf16ByDivisorsOfEveryMagnitude) {
  std::vector<float> divisors = {0.0F, -0.0F, static_cast<float>(kInf), static_cast<float>(kNan)};
  for (int exponent = -149; exponent <= 127; exponent += 6) {
    const float odd = 1.0F + 0x1p-23F * static_cast<float>(exponent * exponent * 397 % 0x800000);
    divisors.push_back(std::ldexp(exponent % 4 == 0 ? -odd : odd, exponent));
  }
  for (const float usual : {1.0F, -1.0F, 3.0F, 0.1F, -0.7F, 448.0F, 1e-3F, 0x1.fffffep0F})
    divisors.push_back(usual);
  const auto rows = static_cast<std::int64_t>(divisors.size());
  HostArray x = HostArray::contiguous(DType::bf16, {1 << 16});
  HostArray y = HostArray::contiguous(DType::f32, {rows, 1});
  for (std::int64_t i = 0; i < x.size(); ++i) set_bits(x, i, static_cast<std::uint64_t>(i));
  for (std::int64_t i = 0; i < rows; ++i)
    set_bits(y, i, std::bit_cast<std::uint32_t>(divisors[static_cast<std::size_t>(i)]));
  std::vector<HostArray> outputs = {HostArray::contiguous(DType::f32, {rows, 1 << 16}),
                                    HostArray::contiguous(DType::f8e4m3, {rows, 1 << 16}),
                                    HostArray::contiguous(DType::f8e4m3, {rows, 1 << 16})};
  const char* text = "f32(x) / y, f8e4m3(x / y), f8e4m3(clip(x / y, -448.0, 448.0))";
  run_on(device(), parse("quotients_of_bf16", text), std::vector<HostArray>{x, y}, outputs);
  int wrong = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const float divisor = divisors[static_cast<std::size_t>(row)];
    for (std::int64_t i = 0; i < x.size(); ++i) {
      const float dividend = std::bit_cast<float>(static_cast<std::uint32_t>(i) << 16);
      const float wanted = dividend / divisor;
      const std::int64_t at = row * x.size() + i;
      const auto got = std::bit_cast<float>(static_cast<std::uint32_t>(get_bits(outputs[0], at)));
      const bool is_nan = std::isnan(wanted);
      const bool same =
          is_nan ? std::isnan(got)
                 : std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(wanted);
      EXPECT_TRUE(same || ++wrong > 10) << dividend << " / " << divisor << ": " << got;
      fusion::reference::Value value;
      value.dtype = DType::f32;
      value.real = wanted;
      const std::uint64_t code =
          fusion::reference::encode(fusion::reference::convert(value, DType::f8e4m3, true));
      for (const std::size_t k : {1, 2}) {
        const std::uint64_t byte = get_bits(outputs[k], at);
        const bool fits = is_nan ? (byte & 0x7f) == 0x7f : byte == code;
        EXPECT_TRUE(fits || ++wrong > 10) << dividend << " / " << divisor << ": " << byte;
      }
    }
  }
  EXPECT_EQ(wrong, 0);
}

// Of every size, and densely where the quotient by a constant is computed another way, is subnormal
// or infinite.
TEST_P(DivisorContract, NumbersOfEverySizeByConstants) {
  constexpr double kDivisors[] = {6,      30,     0.9,   127,  57344, 1e-17,          1e17,
                                  0x1p60, 0x1p-3, 1e-18, -0.7, 1e30,  0x1.fffffep-60, 0x1.000002p0};
  constexpr std::int64_t kCount = 1 << 15;
  std::vector<std::uint64_t> bits = testing::sample(DType::f32, kCount, 5);
  bits.resize(kCount, 0);
  constexpr std::uint64_t kExponents[] = {0, 1, 23, 61, 62, 187, 188, 253, 254, 255};
  for (std::size_t i = 0; i < kCount / 2; ++i) {
    bits[i] = (bits[i] & 0x807fffffU) | kExponents[i % std::size(kExponents)] << 23U;
  }
  HostArray x = HostArray::contiguous(DType::f32, {kCount});
  for (std::int64_t i = 0; i < kCount; ++i) set_bits(x, i, bits[static_cast<std::size_t>(i)]);
  const std::string text = fmt::format("x / {}", fmt::join(kDivisors, ", x / "));
  for_two_modes([&](const Options& options) {
    std::vector<HostArray> outputs(std::size(kDivisors), x);
    run_on(device(), parse("constants", text, options), std::vector<HostArray>{x}, outputs);
    for (std::size_t d = 0; d < std::size(kDivisors); ++d) {
      int wrong = 0;
      for (std::int64_t i = 0; i < kCount; ++i) {
        const auto dividend = std::bit_cast<float>(static_cast<std::uint32_t>(get_bits(x, i)));
        const float want = dividend / static_cast<float>(kDivisors[d]);
        const auto got = std::bit_cast<float>(static_cast<std::uint32_t>(get_bits(outputs[d], i)));
        const bool same = std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(want);
        EXPECT_TRUE(same || (std::isnan(got) && std::isnan(want)) || ++wrong > 10)
            << dividend << " / " << kDivisors[d] << ": " << got << ", " << mode_of(options);
      }
      EXPECT_EQ(wrong, 0) << kDivisors[d];
    }
  });
}

TEST_P(DivisorContract, EverySmallIntegerByConstants) {
  constexpr double kDivisors[] = {255, 127.5, 32767, 3, 0.1, 1e-17, 1e17, -7, 1e-30, 0x1.fffffep0};
  for (const DType from : {DType::u8, DType::i16, DType::u16}) {
    const std::int64_t count = std::int64_t{1} << bits(from);
    HostArray x = HostArray::contiguous(from, {count});
    for (std::int64_t i = 0; i < count; ++i) testing::set_bits(x, i, static_cast<std::uint64_t>(i));
    const std::string text = fmt::format("f32(x) / {}", fmt::join(kDivisors, ", f32(x) / "));
    for_two_modes([&](const Options& options) {
      std::vector<HostArray> outputs(std::size(kDivisors),
                                     HostArray::contiguous(DType::f32, {count}));
      testing::run_on(device(), parse("integers", text, options), std::vector<HostArray>{x},
                      outputs);
      for (std::size_t d = 0; d < std::size(kDivisors); ++d) {
        std::int64_t wrong = 0;
        for (std::int64_t i = 0; i < count; ++i) {
          const auto number =
              static_cast<float>(from == DType::i16 ? static_cast<std::int16_t>(i) : i);
          const float want = number / static_cast<float>(kDivisors[d]);
          wrong += testing::get_bits(outputs[d], i) != std::bit_cast<std::uint32_t>(want) ? 1 : 0;
        }
        EXPECT_EQ(wrong, 0) << name(from) << " by " << kDivisors[d] << ", " << mode_of(options);
      }
    });
  }
}

// A quotient that only a cheaper method takes is part of the method, which may multiply by the
// reciprocal: what is stored is within the bound all the same, for every number of 16 bits.
TEST_P(NarrowQuotient, FunctionsOfThemAreWithinTheBound) {
  struct Case {
    std::string_view call;
    double (*exact)(double);
    float divisor;
  };
  const Case cases[] = {{"tanh(x / 30)", std::tanh, 30},      {"tanh(x / 0.7)", std::tanh, 0.7F},
                        {"tanh(x / 1e-3)", std::tanh, 1e-3F}, {"erf(x / 3)", std::erf, 3},
                        {"atan(x / 1.1)", std::atan, 1.1F},   {"asinh(x / 0.9)", std::asinh, 0.9F},
                        {"cbrt(x / 7)", std::cbrt, 7}};
  std::vector<std::string_view> calls;
  for (const Case& one : cases) calls.push_back(one.call);
  HostArray x = HostArray::contiguous(dtype(), {1 << 16});
  for (std::int64_t i = 0; i < x.size(); ++i) set_bits(x, i, static_cast<std::uint64_t>(i));
  std::vector<HostArray> outputs(calls.size(), x);
  run_on(device(), parse("of_quotients", fmt::format("{}", fmt::join(calls, ", "))),
         std::vector<HostArray>{x}, outputs);
  for (std::size_t k = 0; k < calls.size(); ++k) {
    double largest = 0;
    for (std::int64_t i = 0; i < x.size(); ++i) {
      double quotient = fusion::decode(get_bits(x, i), dtype()) / double{cases[k].divisor};
      if (std::isinf(static_cast<float>(quotient))) quotient = std::copysign(kInf, quotient);
      const double got = fusion::decode(get_bits(outputs[k], i), dtype());
      largest = std::max(largest, fusion::ulp_error(got, cases[k].exact(quotient), dtype()));
    }
    EXPECT_LE(largest, fusion::kStorageBound) << calls[k] << " of " << name(dtype());
  }
}

using enum DType;
const auto kSingle = ::testing::Values(f32);
const auto kNarrow = ::testing::Values(f16, bf16);

INSTANTIATE_TEST_SUITE_P(Cpu, DivisorContract, ::testing::Combine(kCpu, kSingle),
                         device_and_dtype_name);
INSTANTIATE_TEST_SUITE_P(Gpu, DivisorContract, ::testing::Combine(kGpu, kSingle),
                         device_and_dtype_name);
INSTANTIATE_TEST_SUITE_P(Cpu, NarrowQuotient, ::testing::Combine(kCpu, kNarrow),
                         device_and_dtype_name);
INSTANTIATE_TEST_SUITE_P(Gpu, NarrowQuotient, ::testing::Combine(kGpu, kNarrow),
                         device_and_dtype_name);

}  // namespace
}  // namespace kiln
