// Finds what is equal to a new element of a list, so that each is kept once (hash-consing): a hash
// table of positions. The list itself is its owner's.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace kiln::fusion {

class HashIndex {
 public:
  /// Enters `next`, the position that a new element of that hash is about to take, unless an equal
  /// one was entered before: `is_equal(position)` says so. Gives the position of the equal one, or
  /// `next`.
  template <class IsEqual>
  std::uint32_t find_or_enter(std::uint64_t hash, std::uint32_t next, const IsEqual& is_equal) {
    if (2 * count_ >= slots_.size()) grow();
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hash & mask;
    for (; slots_[at].position != kEmpty; at = (at + 1) & mask) {
      if (slots_[at].hash == hash && is_equal(slots_[at].position)) return slots_[at].position;
    }
    slots_[at] = {hash, next};
    ++count_;
    return next;
  }

 private:
  static constexpr std::uint32_t kEmpty = std::numeric_limits<std::uint32_t>::max();
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t position = kEmpty;
  };

  void grow() {
    constexpr std::size_t kFirst = 16;
    std::vector<Slot> larger(slots_.empty() ? kFirst : 2 * slots_.size());
    for (const Slot& slot : slots_) {
      if (slot.position == kEmpty) continue;
      std::size_t at = slot.hash & (larger.size() - 1);
      while (larger[at].position != kEmpty) at = (at + 1) & (larger.size() - 1);
      larger[at] = slot;
    }
    slots_ = std::move(larger);
  }

  std::vector<Slot> slots_;  ///< a power of two of them, at most half of them taken
  std::size_t count_ = 0;
};

/// `value` mixed into the hash of what came before it.
inline std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0xff51afd7ed558ccdu;
  return hash ^ hash >> 32;
}

}  // namespace kiln::fusion
