// Bits do not show what is computed beside: columns and rows of products with weights, and heads,
// batches and queries of attention, against the same alone. fusion/numerics.md names what differs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "kiln/reduction.hpp"
#include "tests/src/program/run_program.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::HostArray;

/// The part of an array in C order that has `count` indices from `from` on along `axis`.
HostArray part_of(const HostArray& whole, std::size_t axis, std::int64_t from, std::int64_t count) {
  Dims shape = whole.shape;
  shape[axis] = count;
  HostArray part = HostArray::contiguous(whole.dtype, shape);
  std::int64_t inner = 1;
  for (std::size_t k = axis + 1; k < shape.size(); ++k) inner *= shape[k];
  for (std::int64_t i = 0; i < part.size(); ++i) {
    const std::int64_t outer = i / (inner * count);
    const std::int64_t within = i % (inner * count) + from * inner;
    set_bits(part, i, get_bits(whole, outer * inner * whole.shape[axis] + within));
  }
  return part;
}

class BesideBits : public testing::ProgramsOnDevices {
 protected:
  HostArray run_alone(const std::string& text, const std::vector<HostArray>& inputs,
                      const Dims& shape) const {
    std::vector<HostArray> outputs = {HostArray::contiguous(DType::f32, shape)};
    run_on(device(), parse("beside", text), inputs, outputs);
    return outputs[0];
  }

  static void expect_same(const HostArray& got, const HostArray& want, const std::string& what) {
    ASSERT_EQ(got.shape, want.shape);
    std::int64_t different = 0;
    for (std::int64_t i = 0; i < got.size(); ++i) {
      different += get_bits(got, i) == get_bits(want, i) ? 0 : 1;
    }
    EXPECT_EQ(different, 0) << what << ", of " << got.size();
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, BesideBits,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

/// Weights of `rows` rows, with as many groups of elements, and what dequantises them.
struct Weights {
  std::string text;  ///< of a weight
  DType dtype;
  std::int64_t groups;
  std::int64_t size;         ///< elements of a group
  std::vector<DType> parts;  ///< of each group: a, b
};

TEST_P(BesideBits, OfColumnsAndRowsOfProducts) {
  const Weights all[] = {
      {"(q * a + b)", DType::u4, 4, 64, {DType::bf16, DType::bf16}},
      {"q * a", DType::i4, 2, 128, {DType::f16}},
      {"(f32(q) - b) * a", DType::u8, 4, 64, {DType::f32, DType::f32}},
      {"f32(q) * a", DType::f8e4m3, 8, 32, {DType::f32}},
      {"q", DType::bf16, 1, 300, {}},
  };
  for (const Weights& weights : all) {
    constexpr std::int64_t kRows = 40;
    constexpr std::int64_t kColumns = 8;
    std::vector<HostArray> inputs = {
        testing::random_array(weights.dtype, {kRows, weights.groups, weights.size}, 1),
        testing::random_array(DType::bf16, {kColumns, 1, weights.groups, weights.size}, 2)};
    std::string text = fmt::format("sum({} * x, -1, -2)", weights.text);
    for (const DType dtype : weights.parts) {
      inputs.push_back(testing::random_array(dtype, {kRows, weights.groups, 1}, inputs.size()));
    }
    // Arguments are in the order in which the text has them.
    const char* const kOrder[] = {"q = q; x = x; ", "q = q; x = x; a = a; ",
                                  "q = q; x = x; a = a; b = b; "};
    text = kOrder[weights.parts.size()] + text;
    const auto run = [&](std::int64_t row, std::int64_t rows, std::int64_t column,
                         std::int64_t columns) {
      std::vector<HostArray> own = inputs;
      own[1] = part_of(own[1], 0, column, columns);
      own[0] = part_of(own[0], 0, row, rows);
      for (std::size_t i = 2; i < own.size(); ++i) own[i] = part_of(own[i], 0, row, rows);
      return run_alone(text, own, {columns, rows, 1, 1});
    };
    const HostArray whole = run(0, kRows, 0, kColumns);
    // GPUs compute one or two columns of weights with an offset from sums of the activations.
    const bool is_factored = GetParam() != DeviceType::cpu && weights.parts.size() == 2;
    for (const std::int64_t columns : {1, 2, 3, 5}) {
      if (is_factored && columns <= 2) continue;
      const std::int64_t column = kColumns - columns;
      expect_same(run(0, kRows, column, columns), part_of(whole, 0, column, columns),
                  fmt::format("{}: {} columns", text, columns));
    }
    // With fewer bytes of weights than of activations, GPUs take those for the weights.
    const bool all_rows = GetParam() == DeviceType::cpu;
    for (const std::int64_t rows : {1, 7, 33}) {
      if (!all_rows && rows < 33) continue;
      expect_same(run(kRows - rows, rows, 0, kColumns), part_of(whole, 1, kRows - rows, rows),
                  fmt::format("{}: {} rows", text, rows));
    }
  }
}

TEST_P(BesideBits, OfHeadsBatchesAndQueriesOfAttention) {
  const std::string text = "sum(softmax(sum(q * k, -1) * 0.125, -2) * v, -2)";
  for (const std::int64_t keys : {100, 300}) {
    const std::vector<HostArray> inputs = {
        testing::random_array(DType::f16, {2, 3, 8, 1, 64}, 1),
        testing::random_array(DType::f16, {2, 3, 1, keys, 64}, 2),
        testing::random_array(DType::f16, {2, 3, 1, keys, 64}, 3)};
    const auto run = [&](const std::vector<HostArray>& own) {
      Dims shape = own[0].shape;
      HostArray result = HostArray::contiguous(DType::f32, shape);
      return ProgramsOnDevices::run(parse_program("beside", "f32(" + text + ")"), own, {result},
                                    false)[0];
    };
    const HostArray whole = run(inputs);
    for (const std::size_t axis : {0u, 1u, 2u}) {
      std::vector<HostArray> own = inputs;
      const std::int64_t last = inputs[0].shape[axis] - 1;
      own[0] = part_of(own[0], axis, last, 1);
      for (std::size_t i = 1; i < 3; ++i) {
        if (axis < 2) own[i] = part_of(own[i], axis, last, 1);
      }
      expect_same(run(own), part_of(whole, axis, last, 1),
                  fmt::format("attention to {} keys, axis {}", keys, axis));
    }
  }
}

TEST_P(BesideBits, OfRunningResultsAcrossRows) {
  constexpr std::int64_t kBlock = 64;
  for (const Dims& shape : {Dims{3, 1, 8}, Dims{1, 200, 37}, Dims{2, 257, 3}}) {
    const HostArray x = testing::random_array(DType::bf16, shape, 4);
    const HostArray got = run_alone("cumsum(f32(x), -2)", {x}, shape);
    for (std::int64_t column = 0; column < shape[0] * shape[2]; ++column) {
      float before = 0;
      float block = 0;
      for (std::int64_t i = 0; i < shape[1]; ++i) {
        const std::int64_t at = (column / shape[2] * shape[1] + i) * shape[2] + column % shape[2];
        block += static_cast<float>(testing::number_at(x, at));
        const float result = before + block;
        ASSERT_EQ(get_bits(got, at), std::bit_cast<std::uint32_t>(result))
            << "element " << i << " of column " << column << " of " << shape[1];
        if (i % kBlock != kBlock - 1) continue;
        before = result;
        block = 0;
      }
    }
  }
}

}  // namespace
}  // namespace kiln
