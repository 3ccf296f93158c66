#include "call/taped_kernel.hpp"

#include <algorithm>
#include <bit>

namespace kiln {

std::size_t size_kind_of(std::span<const std::int64_t> sizes) {
  constexpr std::uint64_t kAlignment = 16;
  std::uint64_t kind = 0;
  for (const std::int64_t own : sizes) {
    const std::uint64_t size = static_cast<std::uint64_t>(own) | kAlignment;
    const int width = std::bit_width(size);
    const std::uint64_t about = static_cast<std::uint64_t>(width) << 2 | (size >> (width - 3) & 3);
    kind = kind * 31 + about * 8 + static_cast<std::uint64_t>(std::countr_zero(size));
  }
  return mixed(0, kind) % RecentTapes::kSizeKinds;
}

void RecentTapes::look_again() const {
  for (std::atomic<std::uint8_t>& recent : of_) {
    if (recent.load(std::memory_order_relaxed) > kNone) recent.store(0, std::memory_order_relaxed);
  }
}

bool RecentTapes::is_due() const {
  const std::uint32_t left = wait_.load(std::memory_order_relaxed);
  if (left != 0) wait_.store(left - 1, std::memory_order_relaxed);
  if (left == 0) return true;
  return left <= kCallsForAnother && last_ones_held();
}

bool RecentTapes::last_ones_held() const {
  const auto held = [&](const std::atomic<std::uint8_t>& number) {
    return held_again_[number.load(std::memory_order_relaxed)].load(std::memory_order_relaxed);
  };
  return static_cast<std::size_t>(std::ranges::count_if(last_, held)) >= kLastTapes / 2;
}

std::uint8_t RecentTapes::least_recent() const {
  const auto stamp = [](const std::atomic<std::uint32_t>& used) {
    return used.load(std::memory_order_relaxed);
  };
  return static_cast<std::uint8_t>(std::ranges::min_element(used_, {}, stamp) - used_.begin());
}

void RecentTapes::note_tape(std::uint8_t number, std::size_t size_kind) const {
  const std::uint32_t made = made_.fetch_add(1, std::memory_order_relaxed) + 1;
  wait_.store(made < kMostTapes ? 0 : kCallsForAnother, std::memory_order_relaxed);
  used_[number].store(made, std::memory_order_relaxed);
  held_again_[number].store(false, std::memory_order_relaxed);
  last_[made % kLastTapes].store(number, std::memory_order_relaxed);
  std::uint8_t count = count_.load(std::memory_order_relaxed);
  while (count <= number && !count_.compare_exchange_weak(count, number + 1)) {
  }
  look_again();
  of_[size_kind].store(number, std::memory_order_relaxed);
}

void RecentTapes::note_no_tape() const {
  wait_.store(kCallsWithoutTape, std::memory_order_relaxed);
}

}  // namespace kiln
