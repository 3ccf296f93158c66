#include "fusion/partition/workspace.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>

namespace kiln::fusion {

std::uint64_t aligned_bytes(std::uint64_t bytes) {
  constexpr std::uint64_t kAlign = 256;
  return std::max<std::uint64_t>(1, (bytes + kAlign - 1) / kAlign) * kAlign;
}

namespace {

// The parts of the workspace that are not in use, from begin to end; the last one has no end. Few
// lie between large ones that are in use, however many of those there are.
class FreeParts {
 public:
  // Takes the lowest offset with that many bytes free.
  std::uint64_t take(std::uint64_t bytes) {
    auto part = free_.begin();
    while (part->second - part->first < bytes) ++part;
    const auto [at, end] = *part;
    const auto next = free_.erase(part);
    if (at + bytes < end) free_.emplace_hint(next, at + bytes, end);
    return at;
  }
  void give_back(std::uint64_t at, std::uint64_t bytes) {
    auto part = free_.emplace(at, at + bytes).first;
    if (const auto next = std::next(part); next->first == part->second) {
      part->second = next->second;
      free_.erase(next);
    }
    if (part == free_.begin()) return;
    const auto before = std::prev(part);
    if (before->second != part->first) return;
    before->second = part->second;
    free_.erase(part);
  }

 private:
  std::map<std::uint64_t, std::uint64_t> free_{{0, std::numeric_limits<std::uint64_t>::max()}};
};

// In the order in which they are written.
Workspace place_in_order(std::span<const Lifetime> lifetimes) {
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return lifetimes[i].first; });
  Workspace result;
  result.offsets.resize(lifetimes.size());
  FreeParts free;
  std::multimap<std::size_t, std::size_t> ends;  // last kernel to lifetime
  for (const std::size_t i : order) {
    while (!ends.empty() && ends.begin()->first < lifetimes[i].first) {
      const std::size_t ended = ends.begin()->second;
      free.give_back(result.offsets[ended], aligned_bytes(lifetimes[ended].bytes));
      ends.erase(ends.begin());
    }
    const std::uint64_t bytes = aligned_bytes(lifetimes[i].bytes);
    const std::uint64_t at = free.take(bytes);
    ends.emplace(lifetimes[i].last, i);
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

// Places a few in some order, each at the lowest offset at which it meets nothing that it lives
// together with.
std::uint64_t place_few(std::span<const Lifetime> lifetimes, std::span<const std::uint16_t> order,
                        std::span<std::uint64_t> offsets) {
  std::array<std::uint16_t, kFewLifetimes> placed;  // by their offsets
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  for (const std::uint16_t i : order) {
    const std::uint64_t own = aligned_bytes(lifetimes[i].bytes);
    std::uint64_t at = 0;
    for (std::size_t n = 0; n < count; ++n) {
      const std::uint16_t k = placed[n];
      if (lifetimes[k].last < lifetimes[i].first || lifetimes[i].last < lifetimes[k].first)
        continue;
      if (offsets[k] >= at + own) break;
      at = std::max(at, offsets[k] + aligned_bytes(lifetimes[k].bytes));
    }
    offsets[i] = at;
    bytes = std::max(bytes, at + own);
    std::size_t slot = count++;
    for (; slot > 0 && offsets[placed[slot - 1]] > at; --slot) placed[slot] = placed[slot - 1];
    placed[slot] = i;
  }
  return bytes;
}

}  // namespace

bool lives_together(std::span<const Lifetime> lifetimes, std::uint64_t bytes) {
  return std::ranges::any_of(lifetimes, [&](const Lifetime& begins) {
    std::uint64_t sum = 0;
    for (const Lifetime& other : lifetimes) {
      const bool lives = other.first <= begins.first && begins.first <= other.last;
      sum += lives ? aligned_bytes(other.bytes) : 0;
    }
    return sum >= bytes;
  });
}

std::uint64_t plan_few(std::span<const Lifetime> lifetimes, std::span<std::uint64_t> offsets) {
  if (lifetimes.size() == 1) {
    offsets[0] = 0;
    return aligned_bytes(lifetimes[0].bytes);
  }
  std::array<std::uint16_t, kFewLifetimes> order;
  std::array<std::uint64_t, kFewLifetimes> other;
  const auto sorted = [&](const auto& is_before) {
    for (std::size_t i = 0; i < lifetimes.size(); ++i) {
      std::size_t slot = i;
      for (; slot > 0 && is_before(lifetimes[i], lifetimes[order[slot - 1]]); --slot) {
        order[slot] = order[slot - 1];
      }
      order[slot] = static_cast<std::uint16_t>(i);
    }
    return std::span<const std::uint16_t>(order).first(lifetimes.size());
  };
  const std::uint64_t bytes = place_few(
      lifetimes, sorted([](const Lifetime& a, const Lifetime& b) { return a.first < b.first; }),
      offsets);
  const std::uint64_t by_size = place_few(
      lifetimes, sorted([](const Lifetime& a, const Lifetime& b) { return a.bytes > b.bytes; }),
      other);
  if (by_size >= bytes) return bytes;
  std::copy_n(other.begin(), lifetimes.size(), offsets.begin());
  return by_size;
}

Workspace plan_workspace(std::span<const Lifetime> lifetimes) {
  // The second way takes time with the square of their number.
  Workspace result = place_in_order(lifetimes);
  if (lifetimes.size() <= kFewLifetimes) {
    Workspace other = place_by_size(lifetimes);
    if (other.bytes < result.bytes) return other;
  }
  return result;
}

}  // namespace kiln::fusion
