// The order in which work runs: drawn from the seed, among those that dependencies allow.
#include "tests/amd/hip/work_queue.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace kiln::amd {
namespace {

// Four chains of three operations each, by numbers.
std::vector<int> order_of_chains(std::uint64_t seed) {
  constexpr int kChains = 4;
  constexpr int kLength = 3;
  WorkQueue queue(seed);
  std::vector<int> order;
  std::vector<Submitted> last(kChains);
  for (int i = 0; i < kChains * kLength; ++i) {
    Submitted& before = last[static_cast<std::size_t>(i % kChains)];
    before = queue.submit(0, std::vector{before}, [&order, i] { order.push_back(i); });
  }
  queue.finish_device(0);
  const auto position = [&](int i) { return std::ranges::find(order, i) - order.begin(); };
  EXPECT_EQ(order.size(), kChains * kLength);
  for (int i = kChains; i < kChains * kLength; ++i) EXPECT_LT(position(i - kChains), position(i));
  return order;
}

TEST(WorkQueue, RepeatsTheOrderOfASeedAndDrawsAnotherForAnother) {
  std::set<std::vector<int>> orders;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const std::vector<int> order = order_of_chains(seed);
    EXPECT_EQ(order_of_chains(seed), order);
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 15U);
}

}  // namespace
}  // namespace kiln::amd
