// Grids are right at every limit, without a device.
#include "jit/device/launch_geometry.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

constexpr GridLimits kAmd{
    .max_blocks = 2'147'483'647, .max_threads = 4'294'967'295, .max_block = 1024};
constexpr GridLimits kNvidia{.max_blocks = 2'147'483'647,
                             .max_threads = std::numeric_limits<std::uint64_t>::max(),
                             .max_block = 1024};

TEST(LaunchGeometry, CoversEveryWorkItem) {
  for (std::uint64_t items : {1ULL, 255ULL, 256ULL, 257ULL, 1'000'000'007ULL}) {
    for (std::uint32_t block : {1U, 64U, 256U, 1000U, 1024U}) {
      if (items / block >= kAmd.max_blocks) continue;
      const std::uint64_t blocks = grid_blocks({.work_items = items, .block = block}, kAmd);
      EXPECT_GE(blocks * block, items);
      EXPECT_LT((blocks - 1) * block, items);
    }
  }
}

TEST(LaunchGeometry, StaysBelowTwoToTheThirtyTwoThreadsOnHip) {
  for (std::uint32_t block : {2U, 3U, 64U, 1000U, 1024U}) {
    for (std::uint64_t items : {1ULL << 32, (1ULL << 32) - 1, ~0ULL}) {
      const std::uint64_t blocks = grid_blocks({.work_items = items, .block = block}, kAmd);
      EXPECT_GE(blocks, 1U);
      EXPECT_LT(blocks * block, 1ULL << 32);
      EXPECT_GE((blocks + 1) * block, (1ULL << 32) - 1) << "a larger grid would have fitted";
    }
  }
}

TEST(LaunchGeometry, StaysWithinTheDriversGrid) {
  const auto items = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(grid_blocks({.work_items = items, .block = 1024}, kNvidia), 2'147'483'647U);
}

TEST(LaunchGeometry, RespectsTheCallersBound) {
  EXPECT_EQ(grid_blocks({.work_items = 1'000'000, .block = 256, .max_blocks = 17}, kAmd), 17U);
  EXPECT_EQ(grid_blocks({.work_items = 300, .block = 256, .max_blocks = 17}, kAmd), 2U);
}

TEST(LaunchGeometry, RefusesABlockThatTheDeviceDoesNotHave) {
  EXPECT_THROW(grid_blocks({.work_items = 1, .block = 0}, kAmd), Error);
  EXPECT_THROW(grid_blocks({.work_items = 1, .block = 1025}, kAmd), Error);
}

TEST(LaunchGeometry, AnExactGridIsLaunchedAsItIsOrNotAtAll) {
  EXPECT_EQ(grid_blocks({.work_items = 70 * 32, .block = 32, .grid_y = 65535, .exact = true}, kAmd),
            70U);
  const std::uint64_t too_many = 1ULL << 32;
  EXPECT_THROW(grid_blocks({.work_items = too_many, .block = 32, .exact = true}, kAmd), Error);
  EXPECT_NO_THROW(grid_blocks({.work_items = too_many, .block = 32, .exact = true}, kNvidia));
  EXPECT_THROW(grid_blocks({.work_items = 32, .block = 32, .grid_z = 65536, .exact = true}, kAmd),
               Error);
  EXPECT_THROW(grid_blocks({.work_items = 32, .block = 32, .block_y = 64, .exact = true}, kAmd),
               Error);
}

}  // namespace
}  // namespace kiln::jit
