#include "call/plan_table.hpp"

#include <algorithm>

namespace kiln {

// Open addressing with linear probing over a power of two; never more than half full. A look-up in
// tbb::concurrent_unordered_map takes two to three times as long.
struct PlanTable::Slots {
  explicit Slots(std::size_t capacity) : mask(capacity - 1), plans(capacity) {}

  void put(const Plan* plan) {
    std::size_t at = plan->hash & mask;
    while (plans[at].load(std::memory_order_relaxed) != nullptr) at = (at + 1) & mask;
    plans[at].store(plan, std::memory_order_release);
  }

  std::size_t mask;
  std::vector<std::atomic<const Plan*>> plans;
};

PlanTable::PlanTable() {
  generations_.push_back(std::make_unique<Slots>(16));
  slots_.store(generations_.back().get(), std::memory_order_release);
}

PlanTable::~PlanTable() = default;

const Plan* PlanTable::find(const Signature& signature) const {
  const Slots& slots = *slots_.load(std::memory_order_acquire);
  const std::span<const std::uint64_t> words = signature.words();
  for (std::size_t at = signature.hash() & slots.mask;; at = (at + 1) & slots.mask) {
    const Plan* const plan = slots.plans[at].load(std::memory_order_acquire);
    if (plan == nullptr) return nullptr;
    if (plan->hash == signature.hash() && std::ranges::equal(plan->signature, words)) return plan;
  }
}

const Plan& PlanTable::insert(std::unique_ptr<Plan> plan) {
  const std::lock_guard lock(mutex_);
  for (const std::unique_ptr<Plan>& known : plans_) {
    if (known->hash == plan->hash && known->signature == plan->signature) return *known;
  }
  plans_.push_back(std::move(plan));
  Slots* current = slots_.load(std::memory_order_relaxed);
  if (plans_.size() * 2 > current->plans.size()) {
    generations_.push_back(std::make_unique<Slots>(current->plans.size() * 4));
    current = generations_.back().get();
    for (const std::unique_ptr<Plan>& known : plans_) current->put(known.get());
    slots_.store(current, std::memory_order_release);
  } else {
    current->put(plans_.back().get());
  }
  return *plans_.back();
}

}  // namespace kiln
