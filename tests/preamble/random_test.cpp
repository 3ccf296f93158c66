// Philox against the known answers that its authors publish (Random123, kat_vectors), and the
// uniform numbers made of it.
#include <gtest/gtest.h>

#include <vector>

#include "tests/preamble/host_preamble.hpp"

namespace kiln::test {
namespace {

void expect_words(Philox actual, std::vector<u32> expected) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(actual.word[i], expected[static_cast<std::size_t>(i)]) << i;
}

TEST(Random, PhiloxGivesThePublishedAnswers) {
  expect_words(philox(Philox{{0, 0, 0, 0}}, 0, 0),
               {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  expect_words(philox(Philox{{~0U, ~0U, ~0U, ~0U}}, ~0U, ~0U),
               {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  expect_words(
      philox(Philox{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0),
      {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(Random, FourNeighboursShareABlock) {
  const Philox block = philox(Philox{{5, 0, 3, 0}}, 42, 0);
  for (u64 i = 0; i < 4; ++i) EXPECT_EQ(random_word(42, 3, 20 + i), block.word[i]);
}

TEST(Random, UniformIsInTheHalfOpenIntervalAndEven) {
  constexpr int kCount = 1 << 16;
  double sum = 0;
  int low = 0;
  for (u64 i = 0; i < kCount; ++i) {
    const f32 x = uniform(1, 0, i);
    ASSERT_GE(x, 0.0f);
    ASSERT_LT(x, 1.0f);
    sum += x;
    low += x < 0.25f ? 1 : 0;
  }
  // Five standard deviations of a mean and of a share.
  EXPECT_NEAR(sum / kCount, 0.5, 5 * 0.2887 / 256);
  EXPECT_NEAR(double(low) / kCount, 0.25, 5 * 0.4330 / 256);
}

TEST(Random, NormalHasItsMoments) {
  constexpr int kCount = 1 << 18;
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  int beyond = 0;
  for (u64 i = 0; i < kCount; ++i) {
    const double x = normal(5, 9, i);
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
    beyond += x > 1.959964 || x < -1.959964 ? 1 : 0;
  }
  // Five standard deviations of each: variances 1, 2, 96 and 0.05 * 0.95.
  EXPECT_NEAR(sum / kCount, 0, 5.0 / 512);
  EXPECT_NEAR(squares / kCount, 1, 5 * 1.4142 / 512);
  EXPECT_NEAR(fourth / kCount, 3, 5 * 9.798 / 512);
  EXPECT_NEAR(beyond / double(kCount), 0.05, 5 * 0.2179 / 512);
}

TEST(Random, LogarithmIsCloseEnoughOverItsWholeRange) {
  double largest = 0;
  for (u32 bits = 0x30000000u; bits <= 0x3f800000u; bits += 997) {
    const f32 x = bit_cast<f32>(bits);
    const double exact = std::log(static_cast<double>(x));
    largest = std::max(largest, std::fabs(exact_log(x) - exact) / std::max(1.0, -exact));
  }
  EXPECT_LT(largest, 1.2e-7);
}

}  // namespace
}  // namespace kiln::test
