#include "core/plan_table.hpp"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/reclamation.hpp"
#include "core/memory_limit.hpp"

namespace kiln {

// Open addressing with linear probing over a power of two; never more than half full. A look-up in
// tbb::concurrent_unordered_map takes two to three times as long.
struct PlanTable::Slots {
  explicit Slots(std::size_t capacity) : mask(capacity - 1), plans(capacity) {}

  void put(const CachedPlan* plan) {
    std::size_t at = plan->hash & mask;
    while (plans[at].load(std::memory_order_relaxed) != nullptr) at = (at + 1) & mask;
    plans[at].store(plan, std::memory_order_release);
  }

  std::size_t mask;
  std::vector<std::atomic<const CachedPlan*>> plans;
};

namespace {

// Grows with every plan that is added: the time by which plans are old. One line that threads share
// and that calls only read.
constinit std::atomic<std::uint64_t> now{1};

bool is_captured_on(Device device) { return device.type != DeviceType::cpu; }

}  // namespace

// All tables of the process. Never destroyed: functions may be static.
struct PlanTable::Tables {
  static Tables& instance() {
    static auto* const all = new Tables;
    return *all;
  }

  PlanUsage& usage(Device device) {
    auto found = std::ranges::find(devices, device, &PerDevice::device);
    if (found == devices.end()) found = devices.insert(found, {device, {}});
    return found->usage;
  }

  void count(const CachedPlan& plan) {
    PlanUsage& own = usage(plan.device);
    own.plans += plan.plans();
    own.bytes += plan.counted_bytes;
  }

  void discount(const CachedPlan& plan) {
    PlanUsage& own = usage(plan.device);
    own.plans -= plan.plans();
    own.bytes -= plan.counted_bytes;
  }

  std::size_t drop_old(Device device, const CachedPlan* but, Garbage& garbage);

  struct PerDevice {
    Device device;
    PlanUsage usage;
  };
  std::mutex mutex;  // guards all of this, and what tables have but their atomics
  std::vector<PlanTable*> tables;
  std::vector<PerDevice> devices;
};

// An eighth, so that looking for the oldest is rare. The mutex is held.
std::size_t PlanTable::Tables::drop_old(Device device, const CachedPlan* but, Garbage& garbage) {
  struct Candidate {
    std::uint64_t last_used;
    CachedPlan* plan;
    PlanTable* table;
  };
  std::vector<Candidate> candidates;
  for (PlanTable* const table : tables) {
    for (const std::shared_ptr<CachedPlan>& plan : table->plans_) {
      // What has another owner than its table would not be freed.
      if (plan->device != device || plan.get() == but || plan.use_count() > 1) continue;
      candidates.push_back({plan->last_used.load(std::memory_order_relaxed), plan.get(), table});
    }
  }
  std::ranges::sort(candidates, {}, &Candidate::last_used);
  PlanUsage& own = usage(device);
  const std::uint64_t enough = own.bytes - own.bytes / 8;
  std::vector<PlanTable*> changed;
  std::size_t count = 0;
  for (const Candidate& candidate : candidates) {
    if (own.bytes <= enough) break;
    discount(*candidate.plan);
    own.dropped += candidate.plan->plans();
    ++count;
    candidate.plan->is_dropped = true;
    changed.push_back(candidate.table);
  }
  std::ranges::sort(changed);
  changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
  for (PlanTable* const table : changed) table->forget_dropped(garbage);
  return count;
}

PlanTable::PlanTable() {
  current_ = std::make_shared<Slots>(kLeastSlots);
  slots_.store(current_.get());
  Tables& all = Tables::instance();
  const std::lock_guard lock(all.mutex);
  all.tables.push_back(this);
}

// Nobody calls what is destroyed, so nobody reads its plans.
PlanTable::~PlanTable() {
  Tables& all = Tables::instance();
  const std::lock_guard lock(all.mutex);
  std::erase(all.tables, this);
  for (const std::shared_ptr<CachedPlan>& plan : plans_) all.discount(*plan);
}

std::uint64_t hash_of_words(std::span<const std::uint64_t> words) {
  return XXH3_64bits(words.data(), words.size_bytes());
}

const CachedPlan* PlanTable::find(std::span<const std::uint64_t> signature,
                                  std::uint64_t hash) const {
  const Slots& slots = *slots_.load();
  for (std::size_t at = hash & slots.mask;; at = (at + 1) & slots.mask) {
    const CachedPlan* const plan = slots.plans[at].load(std::memory_order_acquire);
    if (plan == nullptr) return nullptr;
    if (plan->hash != hash || !std::ranges::equal(plan->signature, signature)) continue;
    // Written only when it changes: threads share the line.
    const std::uint64_t time = now.load(std::memory_order_relaxed);
    if (plan->last_used.load(std::memory_order_relaxed) != time) {
      plan->last_used.store(time, std::memory_order_relaxed);
    }
    return plan;
  }
}

std::shared_ptr<const CachedPlan> PlanTable::insert(std::shared_ptr<CachedPlan> plan) {
  Garbage garbage;
  plan->counted_bytes = plan->bytes();
  {
    const std::lock_guard lock(Tables::instance().mutex);
    if (const CachedPlan* known = find(plan->signature, plan->hash)) {
      return known->shared_from_this();
    }
    add(plan, garbage);
  }
  base::retire(std::move(garbage));
  return plan;
}

void PlanTable::replace(std::shared_ptr<CachedPlan> plan) {
  Garbage garbage;
  plan->counted_bytes = plan->bytes();
  {
    const std::lock_guard lock(Tables::instance().mutex);
    if (!put_in_place(plan, garbage)) add(plan, garbage);
  }
  base::retire(std::move(garbage));
}

// The mutex is held.
void PlanTable::add(const std::shared_ptr<CachedPlan>& plan, Garbage& garbage) {
  Tables& all = Tables::instance();
  plan->last_used = now.fetch_add(1) + 1;
  all.count(*plan);
  plans_.push_back(plan);
  if (plans_.size() * 2 > current_->plans.size()) {
    refill_slots(garbage);
  } else {
    current_->put(plan.get());
  }
  if (all.usage(plan->device).bytes > memory_limit()) {
    all.drop_old(plan->device, plan.get(), garbage);
  }
}

// In the slot of the plan of that signature, if there is one. The mutex is held.
bool PlanTable::put_in_place(const std::shared_ptr<CachedPlan>& plan, Garbage& garbage) {
  const CachedPlan* const known = find(plan->signature, plan->hash);
  if (known == nullptr) return false;
  Tables& all = Tables::instance();
  const auto place = std::ranges::find(plans_, known, &std::shared_ptr<CachedPlan>::get);
  all.discount(*known);
  if (is_captured_on(known->device)) keep_kernels(*known);
  garbage.push_back(std::exchange(*place, plan));
  plan->last_used = now.fetch_add(1) + 1;
  all.count(*plan);
  std::size_t at = plan->hash & current_->mask;
  while (current_->plans[at].load(std::memory_order_relaxed) != known) {
    at = (at + 1) & current_->mask;
  }
  current_->plans[at].store(plan.get(), std::memory_order_release);
  return true;
}

// Readers go on in the slots that they have found. The mutex is held.
void PlanTable::refill_slots(Garbage& garbage) {
  auto refilled = std::make_shared<Slots>(std::bit_ceil(std::max(kLeastSlots, plans_.size() * 4)));
  for (const std::shared_ptr<CachedPlan>& plan : plans_) refilled->put(plan.get());
  slots_.store(refilled.get());
  garbage.push_back(std::exchange(current_, std::move(refilled)));
}

// The mutex is held.
void PlanTable::forget_dropped(Garbage& garbage) {
  std::erase_if(plans_, [&](std::shared_ptr<CachedPlan>& plan) {
    if (!plan->is_dropped) return false;
    if (is_captured_on(plan->device)) keep_kernels(*plan);
    garbage.push_back(std::move(plan));
    return true;
  });
  refill_slots(garbage);
}

void PlanTable::keep_kernels(const CachedPlan& plan) {
  for (std::shared_ptr<jit::Kernel>& kernel : plan.loaded_kernels()) {
    if (std::ranges::find(kept_kernels_, kernel) == kept_kernels_.end()) {
      kept_kernels_.push_back(std::move(kernel));
    }
  }
}

std::vector<std::shared_ptr<jit::Kernel>> PlanTable::loaded_kernels() const {
  std::vector<std::shared_ptr<jit::Kernel>> kernels = kept_kernels_;
  for (const std::shared_ptr<CachedPlan>& plan : plans_) {
    std::ranges::move(plan->loaded_kernels(), std::back_inserter(kernels));
  }
  return kernels;
}

std::size_t drop_old_plans(Device device) {
  PlanTable::Garbage garbage;
  PlanTable::Tables& all = PlanTable::Tables::instance();
  std::size_t count = 0;
  {
    const std::lock_guard lock(all.mutex);
    count = all.drop_old(device, nullptr, garbage);
  }
  base::retire(std::move(garbage));
  return count;
}

PlanUsage plan_usage(Device device) {
  PlanTable::Tables& all = PlanTable::Tables::instance();
  const std::lock_guard lock(all.mutex);
  return all.usage(device);
}

}  // namespace kiln
