// Columns that blocks of NVIDIA GPUs keep in shared memory, alone or as clusters, run without one:
// in the order of their tree, bit by bit, for waves of 32 and of 64 lanes.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>

#include "fusion/reference/tree.hpp"
#include "tests/support/emulated_gpu.hpp"

namespace kiln {
namespace {

using fusion::reference::reduce_in_tree;
using testing::EmulatedCall;
using testing::EmulatedGpu;
using testing::HostArray;
using testing::random_array;

constexpr const char* kVariance = "c = f32(x) - mean(f32(x), 0); mean(c * c, 0)";
constexpr const char* kNorm = "y = f32(x); y / sqrt(mean(y * y, 0) + 0.5)";
constexpr const char* kBeside = "y = f32(x) + r; y / sqrt(mean(y * y, 0) + 0.5) + w";

// Of each column what is expected of all its elements, or of all of it.
std::vector<float> expected(const EmulatedCall& call, std::int64_t column) {
  const std::int64_t length = call.inputs[0].shape[0];
  const auto element = [&](std::size_t input, std::int64_t row) {
    const HostArray& x = call.inputs[input];
    const std::int64_t at = x.shape[1] == 1 ? row : row * x.shape[1] + column;
    return static_cast<float>(testing::number_at(x, at));
  };
  std::vector<float> y;
  for (std::int64_t i = 0; i < length; ++i) {
    y.push_back(call.inputs.size() > 1 ? element(0, i) + element(1, i) : element(0, i));
  }
  const auto count = static_cast<float>(length);
  const auto sum = [&](const std::vector<float>& terms) {
    return reduce_in_tree(terms, 0.0f, std::plus<>());
  };
  std::vector<float> squares = y;
  const bool variance = call.text == kVariance;
  const float centre = variance ? sum(y) / count : 0.0f;
  for (float& x : squares) x = (x - centre) * (x - centre);
  const float mean = sum(squares) / count;
  if (variance) return {mean};
  std::vector<float> result;
  for (std::int64_t i = 0; i < length; ++i) {
    const float quotient = y[static_cast<std::size_t>(i)] / std::sqrt(mean + 0.5f);
    result.push_back(call.inputs.size() > 1 ? quotient + element(2, i) : quotient);
  }
  return result;
}

using EmulatedColumns = testing::EmulatedTest;

TEST_F(EmulatedColumns, AreAddedUpInTheOrderOfTheirTree) {
  std::vector<EmulatedCall> all;
  const auto add = [&](const char* text, std::int64_t length, std::int64_t columns, DType dtype,
                       int blocks) {
    EmulatedCall call{text, {random_array(dtype, {length, columns}, 90)}, "sm_90"};
    if (text == kBeside) {
      call.inputs.push_back(random_array(DType::bf16, {length, columns}, 91));
      call.inputs.push_back(random_array(DType::f32, {length, 1}, 92));
    }
    call.forced.cluster_blocks = blocks;
    all.push_back(std::move(call));
  };
  for (const int blocks : {1, 2, 4, 8}) {
    add(kNorm, 1'025 + 3 * blocks, 40, DType::bf16, blocks);
    add(kVariance, 2'048, 17, DType::f32, blocks);
    add(kBeside, 4'096, 16, DType::bf16, blocks);
  }
  // More than shared memory has room for: some of it is in registers.
  add(kNorm, 7'000, 8, DType::f32, 1);
  add(kVariance, 7'168, 8, DType::f32, 1);
  add(kBeside, 8'192, 16, DType::bf16, 2);
  add(kNorm, 16'384, 40, DType::bf16, 4);
  add(kNorm, 32'767, 16, DType::bf16, 8);
  int in_registers = 0;
  for (const int wave : {32, 64}) {
    EmulatedGpu gpu(all, wave, directory_.path());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const fusion::RowSchedule& rows = gpu.layout(i).schedule.reduction;
      const std::string what = fmt::format("{} of {} rows, waves of {} lanes: {}", all[i].text,
                                           all[i].inputs[0].shape[0], wave, gpu.schedule(i));
      EXPECT_TRUE(rows.copied) << what;
      EXPECT_EQ(rows.cluster_blocks, all[i].forced.cluster_blocks) << what;
      in_registers += rows.register_vectors() != 0 ? 1 : 0;
      const HostArray got = gpu.run(i, all[i])[0];
      const std::int64_t columns = got.shape[1];
      for (std::int64_t column = 0; column < columns; ++column) {
        const std::vector<float> want = expected(all[i], column);
        for (std::size_t k = 0; k < want.size(); ++k) {
          const std::int64_t at = static_cast<std::int64_t>(k) * columns + column;
          ASSERT_EQ(testing::get_bits(got, at), std::bit_cast<std::uint32_t>(want[k]))
              << "row " << k << " of column " << column << " of " << what;
        }
      }
    }
  }
  EXPECT_GE(in_registers, 4);
}

}  // namespace
}  // namespace kiln
