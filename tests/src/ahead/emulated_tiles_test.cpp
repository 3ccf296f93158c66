// Products that matrix instructions add up, run without an NVIDIA GPU: the same bits wherever
// weights lie in memory, whichever rows and vectors are beside.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/emulated_gpu.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::EmulatedCall;
using testing::EmulatedGpu;
using testing::HostArray;
using testing::part_of;
using testing::random_array;

struct Products {
  const char* text;
  DType weights;
  DType activations;
  std::int64_t groups;
  std::int64_t size;  ///< elements of a group
  std::int64_t rows;
  std::int64_t columns;
};

constexpr const char* kPlain = "q = q; x = x; sum(f32(q) * f32(x), -1, -2)";
constexpr const char* kScaled = "q = q; x = x; a = a; sum(f32(q) * a * f32(x), -1, -2)";
constexpr const char* kBias = "q = q; x = x; a = a; b = b; sum((f32(q) * a + b) * f32(x), -1, -2)";
constexpr const char* kZeroPoint =
    "q = q; x = x; a = a; b = b; sum((f32(q) - b) * a * f32(x), -1, -2)";
constexpr const char* kTwo = "q = q; x = x; p = p; f32(sum(q * x, -1, -2) * sum(p * x, -1, -2))";

// Of rows that are whole lines and those that are few bytes; rows of a part of a step, of steps of
// eight elements, and of more steps than are combined in pairs.
constexpr Products kProducts[] = {
    {kScaled, DType::i8, DType::bf16, 3, 64, 48, 1},
    {kScaled, DType::i8, DType::f16, 5, 32, 40, 2},
    {kPlain, DType::f8e4m3, DType::f16, 1, 3000, 20, 3},
    {kPlain, DType::f8e5m2, DType::bf16, 1, 1024, 144, 1},
    {kBias, DType::u8, DType::bf16, 4, 128, 16, 8},
    {kBias, DType::u8, DType::f16, 70, 256, 16, 1},
    {kZeroPoint, DType::u4, DType::bf16, 4, 64, 64, 1},
    {kBias, DType::u4, DType::f16, 7, 32, 80, 5},
    {kPlain, DType::i4, DType::bf16, 1, 1016, 40, 2},
    {kScaled, DType::i4, DType::f16, 9, 64, 8, 4},
    {kScaled, DType::i8, DType::bf16, 4, 64, 77, 2},
    {kBias, DType::u4, DType::bf16, 3, 64, 74, 1},
    {kTwo, DType::i8, DType::bf16, 1, 512, 24, 2},
    {kTwo, DType::u4, DType::f16, 1, 640, 48, 1},
    {kTwo, DType::u8, DType::f16, 1, 200, 16, 6},
};

std::vector<HostArray> inputs_of(const Products& products) {
  const std::string text = products.text;
  std::vector<HostArray> inputs = {
      random_array(products.weights, {products.rows, products.groups, products.size}, 1),
      random_array(products.activations, {products.columns, 1, products.groups, products.size}, 2)};
  if (text.find("p = p") != text.npos) {
    inputs.push_back(random_array(products.weights, inputs[0].shape, 3));
  }
  for (const char* part : {"a = a", "b = b"}) {
    if (text.find(part) == text.npos) continue;
    inputs.push_back(
        random_array(DType::f32, {products.rows, products.groups, 1}, inputs.size() + 1));
  }
  return inputs;
}

// The same weights with neighbours along rows in memory, and scales too.
std::vector<HostArray> transposed(const std::vector<HostArray>& inputs) {
  std::vector<HostArray> result = inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (i == 1) continue;
    const Dims& shape = inputs[i].shape;
    result[i] = HostArray::strided(inputs[i].dtype, shape, {1, shape[2] * shape[0], shape[0]}, 0);
    for (std::int64_t k = 0; k < inputs[i].size(); ++k) {
      testing::set_bits(result[i], testing::place_of(result[i], k),
                        testing::get_bits(inputs[i], k));
    }
  }
  return result;
}

void expect_same(const HostArray& got, const HostArray& want, const std::string& what) {
  ASSERT_EQ(got.shape, want.shape);
  std::int64_t different = 0;
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const bool nan =
        std::isnan(testing::number_at(got, i)) && std::isnan(testing::number_at(want, i));
    const bool same = nan || testing::get_bits(got, i) == testing::get_bits(want, i);
    different += same ? 0 : 1;
  }
  EXPECT_EQ(different, 0) << what << ", of " << got.size();
}

using EmulatedTiles = testing::EmulatedTest;

TEST_F(EmulatedTiles, DoNotShowThatAMatrixIsTransposed) {
  std::vector<EmulatedCall> calls;
  std::vector<Products> drawn;
  testing::Share share(DeviceType::cpu, 3, testing::random_seed());
  for (const Products& products : kProducts) {
    if (!share.next()) continue;
    drawn.push_back(products);
    const std::vector<HostArray> inputs = inputs_of(products);
    calls.push_back({products.text, inputs, "sm_90"});
    calls.push_back({products.text, transposed(inputs), "sm_90"});
  }
  EmulatedGpu gpu(calls, 32, directory_.path(), preamble::Device::nvidia);
  for (std::size_t i = 0; i < calls.size(); i += 2) {
    const Products& products = drawn[i / 2];
    const std::string what =
        fmt::format("{} of {}[{}, {}, {}], {} columns", products.text, name(products.weights),
                    products.rows, products.groups, products.size, products.columns);
    EXPECT_NE(gpu.schedule(i).find("by matrix instructions"), std::string::npos) << what;
    EXPECT_NE(gpu.schedule(i + 1).find("beside each other"), std::string::npos)
        << what << gpu.schedule(i + 1);
    const HostArray want = gpu.run(i, calls[i])[0];
    expect_same(gpu.run(i + 1, calls[i + 1])[0], want, what);
    // Of every column one result is not finite, and computed again.
    EmulatedCall infinite = calls[i];
    EmulatedCall infinite_transposed = calls[i + 1];
    for (EmulatedCall* call : {&infinite, &infinite_transposed}) {
      for (std::int64_t column = 0; column < products.columns; ++column) {
        testing::set_bits(call->inputs[1], column * products.groups * products.size + 7,
                          testing::bits_of(INFINITY, products.activations));
      }
    }
    expect_same(gpu.run(i + 1, infinite_transposed)[0], gpu.run(i, infinite)[0],
                what + ", infinite");
  }
}

// Rows and vectors by themselves: waves share tiles in other ways, split each row, keep vectors in
// registers, in shared memory or in neither.
TEST_F(EmulatedTiles, DoNotShowRowsOrColumnsBeside) {
  constexpr Products kWhole[] = {
      {kBias, DType::u4, DType::bf16, 32, 64, 40, 8},
      {kBias, DType::u8, DType::f16, 16, 64, 48, 8},
      {kScaled, DType::i8, DType::bf16, 9, 32, 40, 8},
      {kPlain, DType::f8e4m3, DType::f16, 1, 1048, 33, 8},
      {kTwo, DType::u4, DType::f16, 1, 2048, 40, 6},
  };
  struct Part {
    std::size_t whole;
    std::int64_t rows;
    std::int64_t columns;
  };
  std::vector<EmulatedCall> calls;
  std::vector<Part> parts;
  const auto add = [&](const std::vector<HostArray>& inputs, const Part& part) {
    for (const bool across : {false, true}) {
      calls.push_back({kWhole[part.whole].text, across ? transposed(inputs) : inputs, "sm_90"});
      parts.push_back(part);
    }
  };
  for (std::size_t i = 0; i < std::size(kWhole); ++i) {
    const Products& products = kWhole[i];
    const std::vector<HostArray> inputs = inputs_of(products);
    add(inputs, {i, products.rows, products.columns});
    for (const std::int64_t columns : {1, 2, 3, 5}) {
      std::vector<HostArray> own = inputs;
      own[1] = part_of(own[1], 0, 0, columns);
      add(own, {i, products.rows, columns});
    }
    for (const std::int64_t rows : {1, 8, 32}) {
      std::vector<HostArray> own = inputs;
      for (std::size_t k = 0; k < own.size(); ++k) {
        if (k != 1) own[k] = part_of(own[k], 0, 0, rows);
      }
      own[1] = part_of(own[1], 0, 0, rows == 32 ? 1 : 4);
      add(own, {i, rows, rows == 32 ? 1 : 4});
    }
  }
  EmulatedGpu gpu(calls, 32, directory_.path(), preamble::Device::nvidia);
  HostArray whole;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Products& products = kWhole[parts[i].whole];
    const HostArray got = gpu.run(i, calls[i])[0];
    if (i == 0 || parts[i].whole != parts[i - 1].whole) whole = got;
    const HostArray want = part_of(part_of(whole, 0, 0, parts[i].columns), 1, 0, parts[i].rows);
    expect_same(got, want,
                fmt::format("{} of {}[{}, {}, {}]: {} rows, {} columns{}", products.text,
                            name(products.weights), products.rows, products.groups, products.size,
                            parts[i].rows, parts[i].columns, i % 2 == 0 ? "" : ", transposed"));
    EXPECT_NE(gpu.schedule(i).find("by matrix instructions"), std::string::npos) << gpu.schedule(i);
  }
}

}  // namespace
}  // namespace kiln
