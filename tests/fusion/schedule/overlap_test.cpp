// Overlap of strided views, against walking every byte.
#include "fusion/schedule/overlap.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/support/settings.hpp"

namespace kiln::fusion {
namespace {

std::set<std::uint64_t> bytes_of(const ByteView& view) {
  std::set<std::uint64_t> bytes;
  std::int64_t total = 1;
  for (const std::int64_t size : view.shape) total *= size;
  for (std::int64_t i = 0; i < total; ++i) {
    std::int64_t rest = i;
    std::int64_t at = static_cast<std::int64_t>(view.address);
    for (std::size_t k = view.shape.size(); k-- > 0;) {
      at += rest % view.shape[k] * view.strides[k];
      rest /= view.shape[k];
    }
    for (std::int64_t b = 0; b < view.element_bytes; ++b)
      bytes.insert(static_cast<std::uint64_t>(at + b));
  }
  return bytes;
}

TEST(Overlap, InterleavedColumnsAreApart) {
  EXPECT_FALSE(overlaps({1000, 4, {100}, {8}}, {1004, 4, {100}, {8}}));
  EXPECT_TRUE(overlaps({1000, 4, {100}, {8}}, {1002, 4, {100}, {8}}));
  EXPECT_FALSE(overlaps({1000, 4, {1 << 20, 64}, {512, 4}}, {1256, 4, {1 << 20, 64}, {512, 4}}));
}

TEST(Overlap, NothingOverlapsAnEmptyView) {
  EXPECT_FALSE(overlaps({0, 4, {0}, {4}}, {0, 4, {8}, {4}}));
}

TEST(Overlap, AgreesWithWalkingEveryByte) {
  const std::uint64_t seed = testing::random_seed();
  SCOPED_TRACE("KILN_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(static_cast<unsigned>(seed));
  int overlapping = 0;
  for (int draw = 0; draw < 5000; ++draw) {
    const auto view = [&] {
      ByteView result;
      result.address = 10'000 + random() % 64;
      result.element_bytes = 1 << random() % 4;
      const std::size_t rank = random() % 4;
      result.shape = Dims(rank);
      result.strides = Dims(rank);
      for (std::size_t k = 0; k < rank; ++k) {
        result.shape[k] = static_cast<std::int64_t>(random() % 5);
        result.strides[k] = static_cast<std::int64_t>(random() % 41) - 20;
      }
      return result;
    };
    const ByteView a = view();
    const ByteView b = view();
    const std::set<std::uint64_t> bytes = bytes_of(a);
    bool expected = false;
    for (const std::uint64_t byte : bytes_of(b)) expected = expected || bytes.contains(byte);
    overlapping += expected ? 1 : 0;
    ASSERT_EQ(overlaps(a, b), expected) << "draw " << draw;
  }
  EXPECT_GT(overlapping, 500);
}

// Of 2^39 indices of the one array, none meets one of the other: i (2^40 - 1) = j 2^40 + 1 needs an
// i that is 2^40 - 1. Trying them one after the other takes hours.
TEST(Overlap, WhatNoIndexCanReachIsDecidedWithoutTryingAll) {
  constexpr std::int64_t kApart = std::int64_t{1} << 40;
  constexpr std::int64_t kMany = std::int64_t{1} << 39;
  EXPECT_FALSE(overlaps({0, 1, {kMany}, {kApart - 1}}, {1, 1, {kMany}, {kApart}}));
  EXPECT_TRUE(overlaps({0, 1, {2 * kMany}, {kApart - 1}}, {1, 1, {2 * kMany}, {kApart}}));
}

TEST(OverlapsItself, AgreesWithWalkingEveryElement) {
  const std::uint64_t seed = testing::random_seed();
  SCOPED_TRACE("KILN_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(static_cast<unsigned>(seed));
  int overlapping = 0;
  for (int draw = 0; draw < 5000; ++draw) {
    ByteView view;
    view.address = 10'000;
    view.element_bytes = 1 << random() % 3;
    const std::size_t rank = random() % 4;
    view.shape = Dims(rank);
    view.strides = Dims(rank);
    std::int64_t bytes = view.element_bytes;
    for (std::size_t k = 0; k < rank; ++k) {
      view.shape[k] = static_cast<std::int64_t>(random() % 5);
      view.strides[k] = static_cast<std::int64_t>(random() % 41) - 20;
      bytes *= view.shape[k];
    }
    const bool expected = static_cast<std::int64_t>(bytes_of(view).size()) < bytes;
    overlapping += expected ? 1 : 0;
    ASSERT_EQ(overlaps_itself(view), expected) << "draw " << draw;
  }
  EXPECT_GT(overlapping, 500);
  EXPECT_LT(overlapping, 4500);
}

}  // namespace
}  // namespace kiln::fusion
