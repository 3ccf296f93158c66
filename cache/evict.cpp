#include "cache/evict.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace kiln::cache {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
// Machines that share a directory disagree by less than this.
constexpr std::int64_t kClockSkew = 3600 * kSecond;
// No process takes this long between creating a temporary file and renaming it.
constexpr std::int64_t kAbandoned = 600 * kSecond;
constexpr std::uint64_t kSmallestShare = 4 << 20;

bool in_the_future(std::int64_t time, std::int64_t now) { return time - kClockSkew > now; }

}  // namespace

std::vector<std::size_t> choose_victims(std::span<const Candidate> candidates,
                                        const EvictionPolicy& policy) {
  const auto age_key = [&](std::size_t i) {
    const std::int64_t time = candidates[i].last_used;
    return in_the_future(time, policy.now) ? std::numeric_limits<std::int64_t>::min() : time;
  };
  std::vector<std::size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const std::int64_t time_a = age_key(a), time_b = age_key(b);
    return time_a != time_b ? time_a < time_b : candidates[a].name < candidates[b].name;
  });
  std::uint64_t total = 0;
  for (const Candidate& candidate : candidates) total += candidate.bytes;

  std::vector<std::size_t> victims;
  for (const std::size_t i : order) {
    const bool too_much = policy.max_bytes && total > *policy.max_bytes;
    const bool unused =
        policy.unused_for && candidates[i].last_used < policy.now - *policy.unused_for;
    if (!too_much && !unused) continue;
    victims.push_back(i);
    total -= candidates[i].bytes;
  }
  return victims;
}

bool should_touch(std::int64_t last_used, std::int64_t now, std::int64_t interval) {
  return now - last_used > interval || in_the_future(last_used, now);
}

bool is_abandoned(std::int64_t modified, std::int64_t now) {
  return now - modified > kAbandoned || modified - now > kAbandoned;
}

Share share_of(unsigned shard, std::uint64_t max_size) {
  unsigned count = 1;
  while (count < kShards && max_size / kShards * count < kSmallestShare) count *= 2;
  Share share;
  share.count = count;
  share.first = shard / count * count;
  share.max_bytes = count == kShards ? max_size : max_size / kShards * count;
  share.low_bytes = share.max_bytes - share.max_bytes / 10;
  return share;
}

}  // namespace kiln::cache
