// What to evict: pure functions on a listing. Who makes the listing and deletes is publish.cpp and
// manage.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kiln::cache {

inline constexpr unsigned kShards = 256;

struct Candidate {
  std::string name;
  std::uint64_t bytes = 0;
  std::int64_t last_used = 0;  ///< nanoseconds since 1970
};

struct EvictionPolicy {
  std::int64_t now = 0;                    ///< nanoseconds since 1970
  std::optional<std::uint64_t> max_bytes;  ///< above it, the least recently used go
  std::optional<std::int64_t> unused_for;  ///< nanoseconds; what was not used for so long goes
};

/// The positions of what has to go, the least recently used first; equal times go by name, so that
/// two processes decide alike. A time further in the future than a clock may be off means nothing
/// about recency (the clock was set back since): it counts as the oldest, and a use renews it.
std::vector<std::size_t> choose_victims(std::span<const Candidate> candidates,
                                        const EvictionPolicy& policy);

/// Whether a time of last use should be renewed at `now`: it is older than `interval`, or from a
/// future that a clock set back has left behind.
bool should_touch(std::int64_t last_used, std::int64_t now, std::int64_t interval);

/// Whether a temporary or lock file of that time has been left by a process that is gone, whichever
/// way the clock has been set since.
bool is_abandoned(std::int64_t modified, std::int64_t now);

/// The neighbouring sub-directories that share one part of the bound.
struct Share {
  unsigned first = 0;
  unsigned count = 1;
  std::uint64_t max_bytes = 0;  ///< that start evicting
  std::uint64_t low_bytes = 0;  ///< down to which it goes, so that not every publish evicts
};

/// The share of sub-directory `shard`. Keys spread evenly, so each of the 256 gets an equal part of
/// the bound and nobody needs the total; but parts are not made smaller than 4 MiB, where a few
/// large entries would push each other out of a cache that is nearly empty.
Share share_of(unsigned shard, std::uint64_t max_size);

}  // namespace kiln::cache
