// Large results on the CPU, which are stored past the caches in whole vectors: every element
// arrives, and nothing beside them is written, at any offset and between padded rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "kiln/function.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

using testing::HostArray;

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

/// Small whole numbers, whose sums and differences are exact.
HostArray small_numbers(std::int64_t rows, std::int64_t columns, std::int64_t factor) {
  HostArray array = HostArray::contiguous(DType::f32, {rows, columns});
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const auto value = static_cast<float>(i * factor % 1009);
    std::memcpy(array.bytes.data() + i * 4, &value, 4);
  }
  return array;
}

float element(const HostArray& array, std::int64_t row, std::int64_t column) {
  float value = 0;
  const std::int64_t place = row * array.strides[0] + column * array.strides[1];
  std::memcpy(&value, array.bytes.data() + array.first + place * 4, 4);
  return value;
}

// Tiles of which the last ones are parts, between padded rows.
TEST(StreamedKernel, TurnsTransposedOperandsRound) {
  const HostArray result = rows_of(DType::f32, 1483, 5, 0);
  const std::int64_t rows = result.shape[0];
  const HostArray x = small_numbers(rows, 1483, 7);
  HostArray y = small_numbers(1483, rows, 11);
  y.shape = {rows, 1483};
  y.strides = {1, rows};
  std::vector<HostArray> outputs = {result};
  testing::run_on(kCpu, parse("turned", "x + y"), {x, y}, outputs);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < 1483; ++column) {
      ASSERT_EQ(element(outputs[0], row, column), element(x, row, column) + element(y, row, column))
          << row << ", " << column;
    }
    ASSERT_EQ(outputs[0].bytes[outputs[0].first + static_cast<std::size_t>(row * 1488 + 1483) * 4],
              kUntouched);
  }
}

TEST(StreamedKernel, StoresRowsThatWereReduced) {
  const HostArray result = rows_of(DType::f32, 1483, 5, 0);
  const std::int64_t rows = result.shape[0];
  const HostArray x = small_numbers(rows, 1483, 7);
  std::vector<HostArray> outputs = {result, result};
  testing::run_on(kCpu, parse("centred", "x - max(x, -1), x + sum(x, -1)"), {x}, outputs);
  for (std::int64_t row = 0; row < rows; ++row) {
    float largest = 0;
    float sum = 0;
    for (std::int64_t column = 0; column < 1483; ++column) {
      largest = std::max(largest, element(x, row, column));
      sum += element(x, row, column);
    }
    for (std::int64_t column = 0; column < 1483; ++column) {
      ASSERT_EQ(element(outputs[0], row, column), element(x, row, column) - largest) << row;
      ASSERT_EQ(element(outputs[1], row, column), element(x, row, column) + sum) << row;
    }
  }
}

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
