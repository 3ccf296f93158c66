// What the cache counts. Counting is one relaxed atomic addition; now and then the sums go to a
// small file in the directory, so that `kiln cache stats` sees what other processes did.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/io.hpp"
#include "kiln/cache.hpp"

namespace kiln::cache {

/// The counters of this process. Any thread may add; nobody waits.
class Counters {
 public:
  void add(Count count, std::uint64_t value = 1) {
    values_[static_cast<std::size_t>(count)].fetch_add(value, std::memory_order_relaxed);
  }
  Stats read() const;
  /// Reads and sets to zero.
  Stats take();

 private:
  std::array<std::atomic<std::uint64_t>, kCounts> values_{};
};

/// The sums of all processes that used the directory `root`; zeros if there is no file or a bad
/// one.
Stats read_stats(base::Io& io, int root);
/// Adds to the sums. False when another process is at it or the file cannot be written: keep `more`
/// for the next time. A process that is killed takes what it has not added with it.
bool add_stats(base::Io& io, int root, const Stats& more);
bool zero_stats(base::Io& io, int root);

}  // namespace kiln::cache
