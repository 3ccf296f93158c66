// Large results on the CPU, which are stored past the caches in whole vectors: every element
// arrives, and nothing beside them is written, at any offset and between padded rows.
#include <gtest/gtest.h>

#include <tuple>

#include "kiln/function.hpp"
#include "tests/support/devices.hpp"

namespace kiln {
namespace {

using testing::HostArray;

const auto* const private_cache = ::testing::AddGlobalTestEnvironment(new testing::PrivateCache);

constexpr Device kCpu{DeviceType::cpu, 0};
constexpr std::byte kUntouched{0x5a};

/// Rows of `columns` elements, `padding` elements apart, from element `offset` on.
HostArray rows_of(DType dtype, std::int64_t columns, std::int64_t padding, std::int64_t offset) {
  const std::int64_t width = bits(dtype) / 8;
  const std::int64_t rows = (9 << 20) / (columns * width) + 1;
  HostArray array;
  array.dtype = dtype;
  array.shape = {rows, columns};
  array.strides = {columns + padding, 1};
  array.bytes.assign(static_cast<std::size_t>((offset + rows * (columns + padding)) * width),
                     kUntouched);
  array.first = static_cast<std::size_t>(offset * width);
  return array;
}

using Parameters = std::tuple<DType, std::int64_t, std::int64_t, std::int64_t>;
class Streamed : public ::testing::TestWithParam<Parameters> {};

TEST_P(Streamed, EveryElementArrivesAndNothingElseIsWritten) {
  const auto& [dtype, columns, padding, offset] = GetParam();
  const auto width = static_cast<std::size_t>(bits(dtype) / 8);
  HostArray input = HostArray::contiguous(dtype, rows_of(dtype, columns, padding, offset).shape);
  for (std::size_t i = 0; i < input.bytes.size(); ++i) {
    input.bytes[i] = static_cast<std::byte>(i % 127 % 59);  // no float of these bytes is NaN
  }
  const Function function = parse("streamed", "x");
  std::vector<HostArray> outputs = {rows_of(dtype, columns, padding, offset)};
  testing::run_on(kCpu, function, {input}, outputs);

  HostArray expected = rows_of(dtype, columns, padding, offset);
  const auto row = static_cast<std::size_t>(columns) * width;
  const auto step = static_cast<std::size_t>(columns + padding) * width;
  for (std::size_t r = 0; r < static_cast<std::size_t>(expected.shape[0]); ++r) {
    std::memcpy(expected.bytes.data() + expected.first + r * step, input.bytes.data() + r * row,
                row);
  }
  EXPECT_TRUE(outputs[0].bytes == expected.bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Cpu, Streamed,
    ::testing::Values(Parameters{DType::f32, 4096, 0, 0}, Parameters{DType::f32, 1027, 0, 1},
                      Parameters{DType::f32, 1500, 3, 5}, Parameters{DType::bf16, 2049, 1, 3},
                      Parameters{DType::u8, 1111, 7, 9}, Parameters{DType::i64, 777, 0, 2},
                      Parameters{DType::f32, 5, 1, 3}));

TEST(StreamedKernel, SaysSoAndOnlyForLargeResults) {
  const Function function = parse("twice", "x + x");
  const auto variant = [&](std::int64_t size) {
    std::vector<float> memory(2 * static_cast<std::size_t>(size));
    const View x(memory.data(), DType::f32, {size});
    const View y(memory.data() + size, DType::f32, {size});
    return function.prepare({kCpu, nullptr}, std::vector<Argument>{x}, std::vector<View>{y})
        .variant;
  };
  EXPECT_NE(variant(4 << 20).find("streamed"), std::string::npos);
  EXPECT_EQ(variant(4 << 10).find("streamed"), std::string::npos);
}

}  // namespace
}  // namespace kiln
