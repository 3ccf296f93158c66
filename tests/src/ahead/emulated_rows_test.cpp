// The kernels that reduce on GPUs, run without one: right for rows of every length and start, and
// the same bits for waves of 32 and of 64 lanes and for blocks in any order.
#include <gtest/gtest.h>

#include <bit>
#include <functional>

#include "fusion/reference/tree.hpp"
#include "tests/support/emulated_gpu.hpp"

namespace kiln {
namespace {

using testing::EmulatedCall;
using testing::EmulatedGpu;
using testing::HostArray;
using testing::random_array;

// Rows that begin `start` elements into memory and as many apart as they and that are long.
HostArray rows_from(std::int64_t start, std::int64_t length, DType dtype) {
  HostArray x = random_array(dtype, {3, length + start}, 41);
  x.shape = {3, length};
  x.strides = {length + start, 1};
  x.first = static_cast<std::size_t>(start * bits(dtype) / 8);
  return x;
}

// Threads that have nothing but -infinity, rows that have, and one with +infinity.
HostArray infinities(std::int64_t length) {
  HostArray x = random_array(DType::f32, {4, length}, 50);
  const std::uint64_t infinity = testing::bits_of(INFINITY, DType::f32);
  for (std::int64_t i = 0; i < 2 * length; ++i) {
    if (i != 77) testing::set_bits(x, i, testing::bits_of(-INFINITY, DType::f32));
  }
  testing::set_bits(x, 2 * length + 5, infinity);
  return x;
}

// A mean that is a hundred deviations.
HostArray far_from_zero(std::int64_t length) {
  HostArray x = random_array(DType::f32, {3, length}, 51, 1);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    testing::set_bits(x, i, testing::bits_of(testing::number_at(x, i) + 100, DType::f32));
  }
  return x;
}

std::vector<EmulatedCall> calls() {
  constexpr const char* kPasses =
      "argmax(x, -1), argmin(x, -1), sum(x, -1), max(x, -1), x * max(x, -1) - mean(x, -1)";
  constexpr const char* kNorm = "layer_norm(x, w, b, 1e-5)";
  std::vector<EmulatedCall> calls;
  // NVIDIA's kernels have the layouts of their own policy; here they run as AMD's do.
  for (const std::string target : {"gfx90a", "sm_90"}) {
    const auto add = [&](const char* text, std::vector<HostArray> inputs) {
      calls.push_back({text, std::move(inputs), target});
    };
    for (const std::int64_t length : {5, 64, 1000, 4096, 12289}) {
      add(kPasses, {random_array(DType::f32, {9, length}, 40)});
    }
    for (const std::int64_t start : {1, 3}) {
      for (const std::int64_t length : {101, 2051, 70001}) {
        add(kPasses, {rows_from(start, length, DType::f32)});
      }
      add("softmax(x, -1) * w",
          {rows_from(start, 4095, DType::bf16), random_array(DType::f32, {4095}, 42)});
      add(kNorm, {rows_from(start, 2049, DType::f16), random_array(DType::f16, {2049}, 58),
                  random_array(DType::f16, {2049}, 59)});
      add("x * rsqrt(mean(square(x), -1)) * w + i",
          {rows_from(start, 515, DType::f32), random_array(DType::f32, {515}, 60),
           random_array(DType::u8, {515}, 61)});
    }
    for (const std::int64_t length : {1000, 16384, 33000}) {
      add("softmax(x, -1)", {random_array(DType::f16, {3, length}, 43)});
      add(kNorm,
          {random_array(DType::bf16, {3, length}, 44), random_array(DType::bf16, {length}, 45),
           random_array(DType::bf16, {length}, 46)});
    }
    for (const std::int64_t length : {16384, 20001}) {
      add("softmax(x, -1)", {infinities(length)});
      add("var(x, -1), max(x, -1)", {far_from_zero(length)});
      add("exp(x - max(x, -1)) * 2.0, sum(exp(x - max(x, -1)), -1)",
          {random_array(DType::f32, {3, length}, 52)});
    }
    add("logsumexp(x, -1)", {random_array(DType::f32, {2, 140000}, 47)});
    // Blocks of rows that begin alike within vectors share weights.
    for (const std::int64_t length : {300, 1001}) {
      const auto rows_of = [&](std::int64_t rows, DType dtype) {
        return random_array(dtype, {rows, length}, 75);
      };
      add(kNorm, {rows_of(75, DType::bf16), rows_of(1, DType::bf16), rows_of(1, DType::bf16)});
      add("x * rsqrt(mean(square(x), -1)) * w + i",
          {rows_of(9, DType::f32), rows_of(1, DType::f32), rows_of(1, DType::u8)});
    }
    for (const std::int64_t length : {64, 512, 4095}) {
      add("logsumexp(x, -1), log_softmax(x, -1)", {random_array(DType::bf16, {9, length}, 73)});
      add("x / (1.0 + max(abs(x), -1)), where(x > 0.0, x, 0.0) / sum(x, -1)",
          {random_array(DType::f32, {9, length}, 74)});
    }
    // Weights that are asked for ahead of their turn.
    add(kNorm, {random_array(DType::bf16, {1, 30000}, 62), random_array(DType::bf16, {30000}, 63),
                random_array(DType::bf16, {30000}, 64)});
    add(kNorm, {random_array(DType::f16, {1, 32768}, 70), random_array(DType::f16, {32768}, 71),
                random_array(DType::f16, {32768}, 72)});
    add(kNorm, {random_array(DType::f32, {1, 32764}, 65), random_array(DType::f32, {32764}, 66),
                random_array(DType::f32, {32764}, 67)});
    // Rows of which two blocks of a multiprocessor keep most in shared memory.
    add("x * rsqrt(mean(square(x), -1)) * w",
        {random_array(DType::bf16, {2, 65536}, 68), random_array(DType::bf16, {65536}, 69)});
    // Rows that several blocks share, where there are clusters.
    add(kNorm, {random_array(DType::bf16, {2, 72001}, 53), random_array(DType::bf16, {72001}, 54),
                random_array(DType::bf16, {72001}, 55)});
    add("softmax(x, -1)", {infinities(33000)});
    add(kPasses, {random_array(DType::f32, {2, 40000}, 57)});
  }
  return calls;
}

using EmulatedRows = testing::EmulatedTest;

TEST_F(EmulatedRows, AreRightAndHaveTheSameBitsForEveryWaveAndOrderOfBlocks) {
  const std::vector<EmulatedCall> all = calls();
  EmulatedGpu of_32(all, 32, directory_.path());
  EmulatedGpu of_64(all, 64, directory_.path());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string what =
        fmt::format("{} on {}: {}", all[i].text, all[i].target, of_32.schedule(i));
    const std::vector<HostArray> got = of_32.run(i, all[i]);
    const std::vector<HostArray> wide = of_64.run(i, all[i]);
    const std::vector<HostArray> again = of_32.run(i, all[i], true);
    const std::vector<HostArray> want = testing::reference_of(all[i].text, all[i].inputs);
    ASSERT_EQ(got.size(), want.size()) << what;
    for (std::size_t k = 0; k < got.size(); ++k) {
      EXPECT_TRUE(got[k].bytes == wide[k].bytes)
          << "waves of 64 lanes: output " << k << " of " << what;
      EXPECT_TRUE(got[k].bytes == again[k].bytes)
          << "another order: output " << k << " of " << what;
      double largest = 0;
      for (std::int64_t e = 0; e < want[k].size(); ++e) {
        largest = std::max(largest, std::fabs(testing::number_at(want[k], e)));
      }
      const double unit = testing::rounding_of(got[k].dtype);
      testing::expect_close(got[k], want[k], 2 * unit, (8 * unit + 1e-6) * largest, what);
    }
  }
}

// The sums of `rows`, of terms in f32.
std::vector<std::uint64_t> sums_in_tree(const HostArray& rows) {
  std::vector<std::uint64_t> sums;
  for (std::int64_t row = 0; row < rows.shape[0]; ++row) {
    std::vector<float> terms;
    for (std::int64_t i = 0; i < rows.shape[1]; ++i) {
      terms.push_back(static_cast<float>(testing::number_at(rows, row * rows.strides[0] + i)));
    }
    const float sum = fusion::reference::reduce_in_tree(terms, 0.0f, std::plus<>());
    sums.push_back(std::bit_cast<std::uint32_t>(sum));
  }
  return sums;
}

// Rows in registers of less than a wave, of one and of several, beside results of elements, and
// read once more by each pass; and rows of several chunks.
std::vector<EmulatedCall> calls_in_tree() {
  constexpr const char* kAlone = "sum(f32(x), -1)";
  constexpr const char* kBeside = "sum(f32(x), -1), max(x, -1), x / (1 + sum(f32(x) * f32(x), -1))";
  constexpr const char* kStored = "sum(f32(x), -1), x + sum(f32(x), -1)";
  std::vector<EmulatedCall> calls;
  for (const std::string target : {"gfx90a", "sm_90"}) {
    const auto add = [&](const char* text, std::vector<HostArray> inputs) {
      calls.push_back({text, std::move(inputs), target});
    };
    for (const DType dtype : {DType::bf16, DType::f32}) {
      for (const std::int64_t length : {0, 1, 2, 3, 7, 64, 255, 256, 257, 512, 1000, 1024, 2048,
                                        4095, 4096, 4097, 8192, 10240, 16384}) {
        for (const char* text : {kAlone, kBeside, kStored}) {
          add(text, {random_array(dtype, {3, length}, 80)});
        }
      }
      for (const std::int64_t length : {130, 263, 515, 1001, 2047, 4096, 8185, 12001}) {
        for (const std::int64_t start : {1, 2, 7}) {
          add(start == 2 ? kStored : kBeside, {rows_from(start, length, dtype)});
        }
      }
    }
    for (const std::int64_t length : {16385, 24584, 32768, 32769, 40000, 65544, 70001}) {
      add(kAlone, {random_array(DType::bf16, {2, length}, 85)});
      add(kAlone, {rows_from(3, length, DType::f32)});
    }
    for (const std::int64_t length : {520, 700, 1040, 4096}) {
      add(kStored, {random_array(DType::f8e4m3, {3, length}, 81)});
      add(kStored, {rows_from(3, length + 5, DType::f8e4m3)});
    }
  }
  for (const std::int64_t length : {8000, 8192}) {  // too long to be kept
    const auto rows = [&](std::uint64_t seed) {
      return random_array(DType::f64, {2, length}, seed);
    };
    calls.push_back({"sum(f32(x), -1), (x + sum(f32(x), -1)) * y - z",
                     {rows(82), rows(83), rows(84)},
                     "gfx90a"});
  }
  return calls;
}

TEST_F(EmulatedRows, AreAddedUpInTheOrderOfTheirTree) {
  const std::vector<EmulatedCall> all = calls_in_tree();
  for (const int wave : {32, 64}) {
    EmulatedGpu gpu(all, wave, directory_.path());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string what = fmt::format("{} on {}, waves of {} lanes: {}", all[i].text,
                                           all[i].target, wave, gpu.schedule(i));
      const std::vector<std::uint64_t> want = sums_in_tree(all[i].inputs[0]);
      const HostArray got = gpu.run(i, all[i])[0];
      for (std::int64_t row = 0; row < got.size(); ++row) {
        ASSERT_EQ(testing::get_bits(got, row), want[static_cast<std::size_t>(row)])
            << "row " << row << " of " << what;
      }
    }
  }
}

}  // namespace
}  // namespace kiln
