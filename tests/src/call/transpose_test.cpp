// Operands that lie otherwise than in C order: the same bits as on arrays that do. Transposed ones
// (t), which are read through tiles: every width of element, whole and partial tiles of every
// shape, several transposed operands and axes around them. Unaligned ones (u), and runs that are no
// whole vectors: neighbours are interleaved over threads, or counted over all axes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <tuple>
#include <vector>

#include "kiln/function.hpp"
#include "tests/support/arrays.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

using testing::HostArray;

struct Case {
  const char* expression;
  DType dtype;
  Dims shape;
  std::vector<std::size_t>
      order;  ///< the axes of the transposed operands, outermost in memory first
};

std::string name_of(const ::testing::TestParamInfo<std::tuple<DeviceType, Case>>& info) {
  const Case& item = std::get<1>(info.param);
  return fmt::format("{}_{}_{}", testing::device_type_name({std::get<0>(info.param), 0}),
                     name(item.dtype), info.index);
}

std::size_t bytes_of(DType dtype) { return static_cast<std::size_t>(bits(dtype)) / 8; }

/// Small whole numbers, which every dtype here holds, one for each position and operand.
HostArray numbers(const Case& item, const Dims& strides, int operand, std::int64_t lead = 0) {
  HostArray array = HostArray::strided(item.dtype, item.shape, strides, lead);
  const std::size_t width = bytes_of(item.dtype);
  Dims at(item.shape.size(), 0);
  for (std::int64_t n = 0; n < array.size(); ++n) {
    std::int64_t rest = n;
    std::int64_t place = 0;
    for (std::size_t k = item.shape.size(); k-- > 0;) {
      place += rest % item.shape[k] * strides[k];
      rest /= item.shape[k];
    }
    const auto value = static_cast<unsigned char>((n * 7 + operand * 3) % 61);
    // As an integer in the low byte, or as the top byte of a float, which is a finite number too.
    const bool floating = is_floating(item.dtype);
    std::byte* to = array.bytes.data() + array.first + static_cast<std::size_t>(place) * width;
    std::memset(to, 0, width);
    to[floating ? width - 1 : 0] = static_cast<std::byte>(value);
  }
  return array;
}

Dims permuted_strides(const Case& item) {
  Dims strides(item.shape.size(), 0);
  std::int64_t step = 1;
  for (std::size_t k = item.order.size(); k-- > 0;) {
    strides[item.order[k]] = step;
    step *= item.shape[item.order[k]];
  }
  return strides;
}

// Rows with an element between them, and one in front of the first.
Dims padded_strides(const Case& item) {
  Dims strides(item.shape.size(), 0);
  std::int64_t step = 1;
  for (std::size_t k = strides.size(); k-- > 0;) {
    strides[k] = step;
    step *= item.shape[k] + (k + 1 == strides.size() ? 1 : 0);
  }
  return strides;
}

class Transposed : public ::testing::TestWithParam<std::tuple<DeviceType, Case>> {};

TEST_P(Transposed, GivesTheBitsOfArraysInCOrder) {
  const auto& [type, item] = GetParam();
  if (!testing::has_device(type)) GTEST_SKIP() << jit::why_absent(type);
  const Function function = parse("transposed", item.expression);
  std::vector<HostArray> plain;
  std::vector<HostArray> mixed;
  int operand = 0;
  for (const std::string& argument : argument_names(function)) {
    plain.push_back(numbers(item, contiguous_strides(item.shape), operand));
    mixed.push_back(argument[0] == 't'   ? numbers(item, permuted_strides(item), operand)
                    : argument[0] == 'u' ? numbers(item, padded_strides(item), operand, 1)
                                         : plain.back());
    ++operand;
  }
  std::vector<HostArray> expected(function.output_count(),
                                  HostArray::contiguous(item.dtype, item.shape));
  std::vector<HostArray> outputs = expected;
  testing::run_on({type, 0}, function, plain, expected);
  testing::run_on({type, 0}, function, mixed, outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_TRUE(outputs[i].bytes == expected[i].bytes) << item.expression << ", output " << i;
  }
}

const Case kCases[] = {
    {"x + t", DType::f32, {128, 192}, {1, 0}},
    {"x + t", DType::f32, {131, 95}, {1, 0}},
    {"x + t", DType::bf16, {200, 136}, {1, 0}},
    {"x + t", DType::f16, {65, 127}, {1, 0}},
    {"x + t", DType::u8, {256, 160}, {1, 0}},
    {"x + t", DType::i64, {96, 70}, {1, 0}},
    {"x * t", DType::f64, {64, 129}, {1, 0}},
    {"t1 + t2", DType::f32, {100, 164}, {1, 0}},
    {"t1 + t2 * t3 - x + t4 * t5 - t6 - t7 - t8 - t9", DType::f32, {77, 99}, {1, 0}},
    {"x + t", DType::f32, {5, 70, 64}, {0, 2, 1}},
    {"x + t", DType::u16, {40, 3, 72}, {2, 1, 0}},
    {"x + t", DType::i32, {3, 40, 2, 50}, {0, 3, 2, 1}},
    {"a = x + t; b = x * t", DType::f32, {128, 100}, {1, 0}},
    // Few channels, before and behind the pixels; odd extents on either side.
    {"x + t", DType::bf16, {3, 1024, 32}, {0, 2, 1}},
    {"x + t", DType::bf16, {3, 32, 1024}, {0, 2, 1}},
    {"x + t", DType::f16, {5, 64, 96}, {0, 2, 1}},
    {"x + t", DType::f16, {9, 64, 77}, {0, 2, 1}},
    {"x + t", DType::f16, {9, 77, 64}, {0, 2, 1}},
    {"x + t", DType::bf16, {3, 96, 49}, {0, 2, 1}},
    {"x + t * u", DType::f16, {3, 130, 35}, {0, 2, 1}},
    {"x + t", DType::u8, {4, 49, 320}, {0, 2, 1}},
    {"x + t", DType::i8, {2, 130, 66}, {0, 2, 1}},
    {"t1 + t2 * x", DType::bf16, {2, 300, 50}, {0, 2, 1}},
    // Tiles that are equal parts of short extents.
    {"t", DType::f16, {3, 320, 49}, {0, 2, 1}},
    {"x + t", DType::bf16, {5, 96, 77}, {0, 2, 1}},
    {"x + t", DType::f32, {2, 96, 77}, {0, 2, 1}},
    {"t + x", DType::f32, {2, 196, 500}, {0, 2, 1}},
    {"t", DType::u8, {2, 300, 100}, {0, 2, 1}},
    {"t", DType::u8, {2, 100, 336}, {0, 2, 1}},
    {"t1 + t2", DType::f64, {2, 70, 100}, {0, 2, 1}},
    {"t1 + t2 * t3", DType::f64, {64, 100}, {1, 0}},
    // Runs that are permuted as wholes.
    {"x + t", DType::bf16, {3, 4, 20, 49}, {0, 2, 1, 3}},
    {"x + t", DType::f32, {3, 8, 16, 7}, {0, 2, 1, 3}},
    {"t", DType::u8, {5, 6, 11, 30}, {0, 2, 1, 3}},
    // Unaligned rows, long and short.
    {"x + u", DType::bf16, {3, 9001}, {1, 0}},
    {"x + u", DType::f16, {40, 77}, {1, 0}},
    {"u1 - u2 * x", DType::u8, {7, 5000}, {1, 0}},
    {"x - u", DType::f32, {9, 4, 10}, {1, 0}},
    {"u + x", DType::i64, {33, 31}, {1, 0}},
    {"u", DType::bf16, {70001}, {0}},
    {"u + t", DType::u16, {5, 6, 70}, {0, 2, 1}},
};

INSTANTIATE_TEST_SUITE_P(Devices, Transposed,
                         ::testing::Combine(::testing::Values(DeviceType::cpu, DeviceType::hip,
                                                              DeviceType::cuda),
                                            ::testing::ValuesIn(kCases)),
                         name_of);

class StraddledRows : public ::testing::TestWithParam<DeviceType> {
 protected:
  static HostArray f16_of(const Dims& shape, const std::function<int(std::int64_t)>& number) {
    HostArray array = HostArray::contiguous(DType::f16, shape);
    for (std::int64_t i = 0; i < array.size(); ++i) {
      set_bits(array, i, testing::bits_of(number(i), DType::f16));
    }
    return array;
  }
  void expect(std::string_view text, const std::vector<HostArray>& arguments,
              const HostArray& expected) const {
    std::vector<HostArray> outputs = {HostArray::contiguous(DType::f16, expected.shape)};
    testing::run_on({GetParam(), 0}, parse("straddled", std::string(text)), arguments, outputs);
    EXPECT_TRUE(outputs[0].bytes == expected.bytes) << text;
  }
};

// Vectors in which rows end, with one element for each row beside them.
TEST_P(StraddledRows, HaveTheElementOfEachRow) {
  if (!testing::has_device(GetParam())) GTEST_SKIP() << jit::why_absent(GetParam());
  const auto x = [](std::int64_t i) { return static_cast<int>(i % 61); };
  const auto w = [](std::int64_t i) { return static_cast<int>(i * 5 % 17); };
  expect("x * w", {f16_of({3, 40, 49}, x), f16_of({40, 1}, w)},
         f16_of({3, 40, 49}, [&](std::int64_t i) { return x(i) * w(i / 49 % 40); }));
  HostArray channels_last = f16_of({3, 49, 320}, x);
  channels_last.shape = {3, 320, 49};
  channels_last.strides = {49 * 320, 1, 320};
  expect("x * w", {channels_last, f16_of({320, 1}, w)}, f16_of({3, 320, 49}, [&](std::int64_t i) {
           const std::int64_t channel = i / 49 % 320;
           return x((i / (49 * 320) * 49 + i % 49) * 320 + channel) * w(channel);
         }));
}

// Vectors of the output have more elements than those of the operand that is read through tiles,
// whose lines are short; rows of the output with and without a gap after them.
TEST_P(StraddledRows, OfBytesFromTransposedWords) {
  if (!testing::has_device(GetParam())) GTEST_SKIP() << jit::why_absent(GetParam());
  for (const auto& [columns, row] : {std::pair{77, 77}, {85, 96}, {49, 64}}) {
    constexpr std::int64_t kRows = 400;
    HostArray x =
        f16_of({columns, kRows}, [](std::int64_t i) { return static_cast<int>(i % 113); });
    x.shape = {kRows, columns};
    x.strides = {1, kRows};
    std::vector<HostArray> outputs = {HostArray::strided(DType::i8, {kRows, columns}, {row, 1})};
    testing::run_on({GetParam(), 0}, parse("bytes", "i8(x)"), {x}, outputs);
    int wrong = 0;
    for (std::int64_t i = 0; i < kRows; ++i) {
      for (std::int64_t k = 0; k < columns; ++k) {
        const auto at = outputs[0].first + static_cast<std::size_t>(i * row + k);
        wrong += static_cast<int>(outputs[0].bytes[at]) != (k * kRows + i) % 113;
      }
    }
    EXPECT_EQ(wrong, 0) << "rows of " << columns << " bytes, " << row << " apart";
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, StraddledRows,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST(TransposedKernel, SaysThatItReadsThroughTiles) {
  std::vector<float> x(64 * 80);
  std::vector<float> out(64 * 80);
  const Stream stream{{DeviceType::cpu, 0}, nullptr};
  const View transposed(x.data(), DType::f32, {64, 80}, {1, 64}, stream.device);
  const View result(out.data(), DType::f32, {64, 80});
  const Function copy = parse("copy_transposed", "x");
  const KernelInfo info =
      copy.prepare(stream, std::vector<Argument>{transposed}, std::vector<View>{result});
  EXPECT_NE(info.variant.find("in tiles of 64 by 64"), std::string::npos) << info.variant;
  EXPECT_NE(info.variant.find("x: transposed"), std::string::npos) << info.variant;
}

}  // namespace
}  // namespace kiln
