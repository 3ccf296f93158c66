// c64 and bitcast through whole kernels, for every layout: what complex numbers take part in agrees
// with the reference, and what has no meaning on them is refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <map>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/reference/bound.hpp"
#include "fusion/reference/value.hpp"
#include "fusion/text/text.hpp"
#include "kiln/error.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/special_complex_rows.hpp"

namespace kiln {
namespace {

using testing::HostArray;
using testing::TestInput;

std::complex<double> complex_of(std::uint64_t bits) {
  return {std::bit_cast<float>(static_cast<std::uint32_t>(bits)),
          std::bit_cast<float>(static_cast<std::uint32_t>(bits >> 32))};
}

// Around the unit circle, where no function overflows.
HostArray numbers(HostArray array, int seed) {
  for (std::int64_t n = 0; n < array.size(); ++n) {
    const auto re = static_cast<float>(1.5 * std::sin(0.37 * static_cast<double>(n + seed) + 0.1));
    const auto im = static_cast<float>(1.1 * std::cos(0.71 * static_cast<double>(n + seed) + 0.2));
    testing::set_bits(
        array, testing::place_of(array, n),
        std::bit_cast<std::uint32_t>(re) | std::uint64_t{std::bit_cast<std::uint32_t>(im)} << 32);
  }
  return array;
}

std::uint64_t bits_of(std::complex<double> z) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(z.real())) |
         std::uint64_t{std::bit_cast<std::uint32_t>(static_cast<float>(z.imag()))} << 32;
}

void expect_row(const testing::ComplexRow& row, std::uint64_t bits, DType dtype) {
  const fusion::reference::Value got = fusion::reference::decode(dtype, bits);
  const bool is_bool = dtype == DType::boolean;
  const std::complex<long double> actual(is_bool ? static_cast<long double>(got.integer) : got.real,
                                         got.imag);
  const std::complex<long double> expected(row.expected);
  const auto same_sign = [&](long double a, long double b) {
    return row.any_signs || std::isnan(b) || std::signbit(a) == std::signbit(b);
  };
  EXPECT_TRUE(fusion::complex_error(actual, expected) <= 0.51 &&
              same_sign(actual.real(), expected.real()) &&
              same_sign(actual.imag(), expected.imag()))
      << row.call << " of " << row.operands.front() << " and " << row.operands.back() << " is "
      << actual << ", not " << expected;
}

class ComplexOnDevice : public testing::OnDevice {
 protected:
  void compare(const std::string& text, const std::vector<TestInput>& inputs,
               std::vector<HostArray> outputs, double bound) const {
    const Function function = parse("complex", text);
    std::vector<HostArray> expected = outputs;
    testing::run_on({GetParam(), 0}, function, inputs, outputs);
    testing::run_on_reference(function, inputs, expected);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      for (std::int64_t n = 0; n < outputs[i].size(); ++n) {
        const std::int64_t place = testing::place_of(outputs[i], n);
        const std::uint64_t got = testing::get_bits(outputs[i], place);
        const std::uint64_t wanted = testing::get_bits(expected[i], place);
        if (got == wanted) continue;
        const std::complex<double> exact = complex_of(wanted);
        const double unit = std::ldexp(std::abs(exact), -23);
        ASSERT_LE(std::abs(complex_of(got) - exact), bound * unit)
            << text << ", output " << i << ", element " << n << ": got " << complex_of(got)
            << ", expected " << exact;
      }
    }
  }
};

TEST_P(ComplexOnDevice, EveryOpAgreesWithTheReferenceForEveryLayout) {
  const Dims shape = {6, 37};
  const HostArray layouts[] = {HostArray::contiguous(DType::c64, shape),
                               HostArray::strided(DType::c64, shape, {41, 1}, 1),
                               HostArray::strided(DType::c64, shape, {1, 6}),
                               HostArray::strided(DType::c64, shape, {37, -1})};
  const std::string text =
      "neg(x), conj(x), square(x), sqrt(x), rsqrt(x), reciprocal(x), exp(x), log(x), sin(x), "
      "cos(x), tanh(x), sigmoid(x), sign(x), x + y, x - y, x * y, x / y, fma(x, y, x), "
      "where(real(x) > 0, x, y), x * 2 + 1, x * s";
  for (const HostArray& layout : layouts) {
    const std::size_t count = 21;
    compare(text,
            {numbers(layout, 0), numbers(HostArray::contiguous(DType::c64, {37}), 5), Scalar(0.5)},
            std::vector<HostArray>(count, layout), 2);
  }
}

TEST_P(ComplexOnDevice, PartsSizesAndPredicatesAreReal) {
  const HostArray x = numbers(HostArray::contiguous(DType::c64, {333}), 0);
  const HostArray f32s = HostArray::contiguous(DType::f32, {333});
  compare("real(x), imag(x), abs(x), abs(x) * 2 + imag(conj(x)), f32(x)", {x},
          std::vector<HostArray>(5, f32s), 2);
  const HostArray flags = HostArray::contiguous(DType::boolean, {333});
  compare("isnan(x), isinf(x), isfinite(x), x == conj(x), x != x, not x, bool(x)", {x},
          std::vector<HostArray>(7, flags), 0);
}

// A kernel for each call; on the device and in the reference interpreter.
TEST_P(ComplexOnDevice, SpecialValuesAreThoseOfTheTable) {
  std::map<std::string_view, std::vector<testing::ComplexRow>> by_call;
  for (const testing::ComplexRow& row : testing::complex_rows()) by_call[row.call].push_back(row);
  for (const auto& [call, rows] : by_call) {
    const Function function = parse("special", call);
    std::vector<HostArray> inputs;
    for (std::size_t k = 0; k < function.arity(); ++k) {
      inputs.push_back(HostArray::contiguous(DType::c64, {std::ssize(rows)}));
      for (std::int64_t i = 0; i < std::ssize(rows); ++i)
        testing::set_bits(inputs[k], i, bits_of(rows[static_cast<std::size_t>(i)].operands[k]));
    }
    const std::vector<fusion::ArgumentType> types(inputs.size(), {DType::c64, false, false});
    const fusion::TypedGraph typed =
        fusion::infer(fusion::parse(call), types, {}, Rounding::once, "special");
    const DType dtype = typed.nodes[typed.outputs[0]].dtype;
    std::vector<HostArray> outputs = {HostArray::contiguous(dtype, inputs[0].shape)};
    std::vector<HostArray> expected = outputs;
    const std::vector<TestInput> arguments(inputs.begin(), inputs.end());
    testing::run_on({GetParam(), 0}, function, arguments, outputs);
    testing::run_on_reference(function, arguments, expected);
    for (std::int64_t i = 0; i < std::ssize(rows); ++i) {
      expect_row(rows[static_cast<std::size_t>(i)], testing::get_bits(outputs[0], i), dtype);
      expect_row(rows[static_cast<std::size_t>(i)], testing::get_bits(expected[0], i), dtype);
    }
  }
}

TEST_P(ComplexOnDevice, BitcastsKeepEveryBit) {
  const HostArray x = numbers(HostArray::contiguous(DType::c64, {333}), 0);
  compare("bitcast(bitcast(x, u64), c64), bitcast(bitcast(x, f64), c64)", {x},
          std::vector<HostArray>(2, x), 0);
  struct Pair {
    DType from;
    DType to;
  };
  constexpr Pair kPairs[] = {{DType::f32, DType::u32},   {DType::u32, DType::f32},
                             {DType::f64, DType::i64},   {DType::f16, DType::u16},
                             {DType::u16, DType::bf16},  {DType::u8, DType::i8},
                             {DType::u8, DType::f8e4m3}, {DType::f8e5m2, DType::u8},
                             {DType::u4, DType::f4e2m1}, {DType::i4, DType::u4}};
  for (const Pair& pair : kPairs) {
    const Function function = parse("bits", fmt::format("bitcast(x, {})", name(pair.to)));
    HostArray input = HostArray::contiguous(pair.from, {1001});
    const std::vector<std::uint64_t> values = testing::sample(pair.from, 1001, 3);
    for (std::int64_t n = 0; n < 1001; ++n)
      testing::set_bits(input, n, values[static_cast<std::size_t>(n)]);
    std::vector<HostArray> outputs = {HostArray::contiguous(pair.to, {1001})};
    testing::run_on({GetParam(), 0}, function, std::vector<TestInput>{input}, outputs);
    for (std::int64_t n = 0; n < 1001; ++n) {
      ASSERT_EQ(testing::get_bits(outputs[0], n), testing::get_bits(input, n))
          << name(pair.from) << " to " << name(pair.to) << ", " << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, ComplexOnDevice, ::testing::Values(DeviceType::cpu),
                         testing::device_type_name);
INSTANTIATE_TEST_SUITE_P(Gpu, ComplexOnDevice, ::testing::Values(DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST(Complex, WhatHasNoMeaningIsRefused) {
  for (const std::string text : {"x < y", "floor(x)", "erf(x)", "x // y", "maximum(x, y)", "x % y",
                                 "atan2(x, y)", "copysign(x, y)", "clip(x, y, y)"}) {
    std::vector<HostArray> outputs = {HostArray::contiguous(DType::c64, {4})};
    const HostArray x = numbers(HostArray::contiguous(DType::c64, {4}), 0);
    try {
      const Function function = parse("f", text);
      const std::vector<TestInput> inputs(function.arity(), x);
      testing::run_on(Device{}, function, inputs, outputs);
      ADD_FAILURE() << text << ": no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("expected real numbers, got c64"), std::string::npos)
          << text << ": " << error.what();
    }
  }
}

}  // namespace
}  // namespace kiln
