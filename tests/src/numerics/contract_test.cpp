// What numerics promises beside the table of contract_table_test.cpp: payloads of NaN, the bits of
// constants, launches of nothing, complex numbers.
#include "tests/src/numerics/contract.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "fusion/graph/number.hpp"
#include "kiln/error.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using namespace testing;  // NOLINT: the contract's own

class NanContract : public Contract {};
class ConstantContract : public Contract {};
class EmptyContract : public Contract {};
class ComplexContract : public Contract {};

// The payload of the first, where the dtype is computed in itself.
TEST_P(NanContract, OfMaximumAndMinimum) {
  const std::uint64_t nan = fusion::encode(kNan, dtype());
  const std::uint64_t one = fusion::encode(1, dtype());
  const std::uint64_t given[][3] = {
      {nan | 1, nan | 2, nan | 1}, {nan | 3, one, nan | 3}, {one, nan | 4, nan | 4}};
  HostArray x = HostArray::contiguous(dtype(), {3});
  HostArray y = x;
  for (std::int64_t i = 0; i < 3; ++i) {
    testing::set_bits(x, i, given[i][0]);
    testing::set_bits(y, i, given[i][1]);
  }
  for_each_mode([&](const Options& options) {
    std::vector<HostArray> outputs(2, x);
    testing::run_on(device(), parse("nan", "maximum(x, y), minimum(x, y)", options),
                    std::vector<HostArray>{x, y}, outputs);
    for (std::int64_t i = 0; i < 3; ++i) {
      for (const HostArray& output : outputs)
        EXPECT_EQ(testing::get_bits(output, i), given[i][2]) << i << ", " << mode_of(options);
    }
  });
}

// A number that C++ code writes comes out of the kernel with the bits of its dtype.
TEST_P(ConstantContract, EveryBitSurvivesTheText) {
  std::mt19937_64 random(17);
  std::vector<std::uint64_t> wanted = testing::sample(dtype(), 64, 5);
  const std::uint64_t any[] = {number_bits(kLargest, dtype()), number_bits(kLowest, dtype()),
                               number_bits(kLeast, dtype())};
  if (dtype() != DType::boolean) wanted.insert(wanted.end(), std::begin(any), std::end(any));
  while (wanted.size() < 128) wanted.push_back(random() & mask_of(dtype()));
  if (dtype() == DType::boolean)
    for (std::uint64_t& bits : wanted) bits &= 1;
  const auto literal = [&](std::uint64_t bits) -> Value {
    if (is_floating(dtype())) return fusion::decode(bits, dtype());
    if (dtype() == DType::boolean) return bits != 0;
    if (dtype() == DType::u64) return bits;
    const int unused = 64 - kiln::bits(dtype());
    return kind(dtype()) == Kind::signed_integer
               ? static_cast<std::int64_t>(bits << unused) >> unused
               : static_cast<std::int64_t>(bits);
  };
  testing::Share share(device().type, 2, static_cast<std::uint64_t>(dtype()));
  for_two_modes([&](const Options& options) {
    if (!share.next()) return;
    const Function function = fuse(
        "constants",
        [&](Value place) {
          Value chosen = cast(literal(wanted[0]), dtype());
          for (std::size_t i = 1; i < wanted.size(); ++i)
            chosen = where(place == static_cast<std::int64_t>(i), literal(wanted[i]), chosen);
          return chosen;
        },
        options);
    HostArray place = HostArray::contiguous(DType::i32, {std::int64_t(wanted.size())});
    for (std::size_t i = 0; i < wanted.size(); ++i)
      testing::set_bits(place, static_cast<std::int64_t>(i), i);
    std::vector<HostArray> outputs = {HostArray::contiguous(dtype(), place.shape)};
    testing::run_on(device(), function, std::vector<HostArray>{place}, outputs);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const std::uint64_t got = testing::get_bits(outputs[0], static_cast<std::int64_t>(i));
      const bool nan = is_floating(dtype()) && std::isnan(fusion::decode(wanted[i], dtype()));
      if (nan && std::isnan(fusion::decode(got, dtype()))) continue;
      EXPECT_EQ(got, wanted[i]) << name(dtype()) << ' ' << i << ", " << mode_of(options);
    }
  });
}

// A launch of nothing is a success and touches nothing, wherever its pointers point.
TEST_P(EmptyContract, ALaunchOfNothingTouchesNothing) {
  const Stream stream{device(), nullptr};
  const Function function = parse("empty", "x, where(isnan(x), y, x)");
  for (const Dims& shape : {Dims{0}, Dims{3, 0}, Dims{0, 5, 2}}) {
    const View nowhere(nullptr, dtype(), shape, device());
    EXPECT_NO_THROW(function(stream, {nowhere, nowhere}, {nowhere, nowhere})) << name(dtype());
    jit::backend(device()).synchronize(stream);
    HostArray array = HostArray::contiguous(dtype(), {16});
    const std::vector<std::byte> before = array.bytes;
    jit::Backend& backend = jit::backend(device());
    const testing::DeviceBuffer memory(backend, before);
    const View beside(memory.data(), dtype(), shape, device());
    function(stream, {beside, beside}, {beside, beside});
    EXPECT_EQ(memory.read(), before);
  }
}

// Complex numbers are numbers but for order and remainders.
TEST_P(ComplexContract, OfBoolAndSign) {
  struct Case {
    float re, im;
    bool truth;
  };
  const Case cases[] = {{0, 0, false}, {-0.0f, -0.0f, false}, {0, 1, true},
                        {1, 0, true},  {NAN, 0, true},        {0, NAN, true}};
  HostArray x = HostArray::contiguous(DType::c64, {6});
  for (std::int64_t i = 0; i < 6; ++i) {
    testing::set_bits(x, i,
                      std::bit_cast<std::uint32_t>(cases[i].re) |
                          std::uint64_t{std::bit_cast<std::uint32_t>(cases[i].im)} << 32);
  }
  for_each_mode([&](const Options& options) {
    const Function function = parse("complex", "bool(x), logical_not(x), sign(x)", options);
    std::vector<HostArray> outputs = {HostArray::contiguous(DType::boolean, {6}),
                                      HostArray::contiguous(DType::boolean, {6}),
                                      HostArray::contiguous(DType::c64, {6})};
    testing::run_on(device(), function, std::vector<HostArray>{x}, outputs);
    for (std::int64_t i = 0; i < 6; ++i) {
      EXPECT_EQ(testing::get_bits(outputs[0], i), cases[i].truth) << i << mode_of(options);
      EXPECT_EQ(testing::get_bits(outputs[1], i), !cases[i].truth) << i << mode_of(options);
    }
    EXPECT_EQ(testing::get_bits(outputs[2], 0), 0u) << mode_of(options);
  });
}

using enum DType;
const auto kRealOrBool =
    ::testing::Values(boolean, u8, u16, u32, u64, i8, i16, i32, i64, f16, bf16, f32, f64);
const auto kAll =
    ::testing::Values(boolean, u8, u16, u32, u64, i8, i16, i32, i64, f16, bf16, f32, f64, c64,
                      f8e4m3, f8e5m2, f8e4m3fnuz, f8e5m2fnuz, u4, i4, f4e2m1);
const auto kItself = ::testing::Values(f32, f64);

INSTANTIATE_TEST_SUITE_P(Cpu, NanContract, ::testing::Combine(kCpu, kItself),
                         device_and_dtype_name);
INSTANTIATE_TEST_SUITE_P(Gpu, NanContract, ::testing::Combine(kGpu, kItself),
                         device_and_dtype_name);
INSTANTIATE_TEST_SUITE_P(Cpu, ConstantContract, ::testing::Combine(kCpu, kRealOrBool),
                         device_and_dtype_name);
INSTANTIATE_TEST_SUITE_P(Gpu, ConstantContract, ::testing::Combine(kGpu, kRealOrBool),
                         device_and_dtype_name);
INSTANTIATE_TEST_SUITE_P(Cpu, EmptyContract, ::testing::Combine(kCpu, kAll), device_and_dtype_name);
INSTANTIATE_TEST_SUITE_P(Gpu, EmptyContract, ::testing::Combine(kGpu, kAll), device_and_dtype_name);
INSTANTIATE_TEST_SUITE_P(Cpu, ComplexContract, ::testing::Combine(kCpu, ::testing::Values(c64)),
                         device_and_dtype_name);
INSTANTIATE_TEST_SUITE_P(Gpu, ComplexContract, ::testing::Combine(kGpu, ::testing::Values(c64)),
                         device_and_dtype_name);

}  // namespace
}  // namespace kiln
