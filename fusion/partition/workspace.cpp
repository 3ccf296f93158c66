#include "fusion/partition/workspace.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace kiln::fusion {

std::uint64_t aligned_bytes(std::uint64_t bytes) {
  constexpr std::uint64_t kAlign = 256;
  return std::max<std::uint64_t>(1, (bytes + kAlign - 1) / kAlign) * kAlign;
}

namespace {

// The parts of the workspace that are in use, from begin to end.
class UsedParts {
 public:
  // The lowest offset with that many bytes free.
  std::uint64_t find(std::uint64_t bytes) const {
    std::uint64_t at = 0;
    for (const auto& [begin, end] : used_) {
      if (begin >= at + bytes) break;
      at = std::max(at, end);
    }
    return at;
  }
  void take(std::uint64_t at, std::uint64_t bytes) { used_.emplace(at, at + bytes); }
  void give_back(std::uint64_t at) { used_.erase(at); }

 private:
  std::map<std::uint64_t, std::uint64_t> used_;
};

// In the order in which they are written.
Workspace place_in_order(std::span<const Lifetime> lifetimes) {
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return lifetimes[i].first; });
  Workspace result;
  result.offsets.resize(lifetimes.size());
  UsedParts used;
  std::multimap<std::size_t, std::uint64_t> ends;  // last kernel to begin
  for (const std::size_t i : order) {
    while (!ends.empty() && ends.begin()->first < lifetimes[i].first) {
      used.give_back(ends.begin()->second);
      ends.erase(ends.begin());
    }
    const std::uint64_t bytes = aligned_bytes(lifetimes[i].bytes);
    const std::uint64_t at = used.find(bytes);
    used.take(at, bytes);
    ends.emplace(lifetimes[i].last, at);
    result.offsets[i] = at;
    result.bytes = std::max(result.bytes, at + bytes);
  }
  return result;
}

// The largest first, each below everything that it lives together with.
Workspace place_by_size(std::span<const Lifetime> lifetimes) {
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](std::size_t i) { return lifetimes[i].bytes; });
  Workspace result;
  result.offsets.resize(lifetimes.size());
  std::vector<std::size_t> placed;  // by their offsets
  for (const std::size_t i : order) {
    const std::uint64_t bytes = aligned_bytes(lifetimes[i].bytes);
    std::uint64_t at = 0;
    for (const std::size_t k : placed) {
      if (lifetimes[k].last < lifetimes[i].first || lifetimes[i].last < lifetimes[k].first)
        continue;
      if (result.offsets[k] >= at + bytes) break;
      at = std::max(at, result.offsets[k] + aligned_bytes(lifetimes[k].bytes));
    }
    result.offsets[i] = at;
    result.bytes = std::max(result.bytes, at + bytes);
    placed.insert(
        std::ranges::upper_bound(placed, at, {}, [&](std::size_t k) { return result.offsets[k]; }),
        i);
  }
  return result;
}

}  // namespace

Workspace plan_workspace(std::span<const Lifetime> lifetimes) {
  constexpr std::size_t kFew = 256;  // the second way takes time with the square of their number
  Workspace result = place_in_order(lifetimes);
  if (lifetimes.size() <= kFew) {
    Workspace other = place_by_size(lifetimes);
    if (other.bytes < result.bytes) return other;
  }
  return result;
}

}  // namespace kiln::fusion
