#include "call/taped_kernel.hpp"

#include <bit>

#include "base/reclamation.hpp"

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

void add_tape(PlanTable& plans, std::uint64_t kernel, std::shared_ptr<CachedPlan> taped,
              const RecentTapes& recent, const Device& device) {
  for (std::uint64_t number = 0; number < RecentTapes::kMostTapes; ++number) {
    const TapeKey key(kernel, number);
    {
      const base::ReadSection reading;
      if (plans.find(key.words, key.hash) != nullptr) continue;
    }
    taped->signature.assign(key.words.begin(), key.words.end());
    taped->hash = key.hash;
    taped->device = device;
    plans.insert(std::move(taped));
    recent.look_again();
    return;
  }
}

}  // namespace kiln
