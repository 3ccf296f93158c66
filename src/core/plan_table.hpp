// The plans of one Function or Program by signature: looked up without a lock, added under one. All
// tables of the process together keep no more of a device's plans than a limit; above it the least
// recently used go.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "jit/device/backend.hpp"
#include "kiln/view.hpp"

namespace kiln {

/// What is kept for the calls of one signature on one device.
struct CachedPlan : std::enable_shared_from_this<CachedPlan> {
  CachedPlan() = default;
  CachedPlan(const CachedPlan&) = delete;
  CachedPlan& operator=(const CachedPlan&) = delete;
  virtual ~CachedPlan() = default;

  /// The memory that it takes, about; kernels are counted where they are loaded.
  virtual std::size_t bytes() const = 0;
  /// What PlanUsage::plans counts it as; 0 for what only helps to make plans.
  virtual std::size_t plans() const { return 1; }
  /// What it launches. Called while tables are locked.
  virtual std::vector<std::shared_ptr<jit::Kernel>> loaded_kernels() const = 0;

  std::vector<std::uint64_t> signature;
  std::uint64_t hash = 0;
  Device device;

 private:
  friend class PlanTable;
  mutable std::atomic<std::uint64_t> last_used{0};
  std::size_t counted_bytes = 0;
  bool is_dropped = false;
};

/// A hash of words that a plan is found by: XXH3-64 of their bytes.
std::uint64_t hash_of_words(std::span<const std::uint64_t> words);

class PlanTable {
 public:
  PlanTable();
  ~PlanTable();
  PlanTable(const PlanTable&) = delete;
  PlanTable& operator=(const PlanTable&) = delete;

  /// Null if there is none. Takes no lock. The plan stays for as long as the base::ReadSection in
  /// which this is called; shared_from_this() keeps it for longer.
  const CachedPlan* find(std::span<const std::uint64_t> signature, std::uint64_t hash) const;
  /// Adds a plan, unless another thread was first; the one that is kept is returned. Others of the
  /// device, of any table, may be dropped for it.
  std::shared_ptr<const CachedPlan> insert(std::shared_ptr<CachedPlan> plan);
  /// The same, but a plan of that signature is dropped for this one.
  void replace(std::shared_ptr<CachedPlan> plan);
  /// The kernels of the plans that it has, and on GPUs of those that it had: a stream may have been
  /// captured while they were called, and nobody but the caller knows what became of that. For
  /// CachedPlan::loaded_kernels() alone, while tables are locked.
  std::vector<std::shared_ptr<jit::Kernel>> loaded_kernels() const;

 private:
  struct Slots;
  struct Tables;
  using Garbage = std::vector<std::shared_ptr<const void>>;
  static constexpr std::size_t kLeastSlots = 16;

  void add(const std::shared_ptr<CachedPlan>& plan, Garbage& garbage);
  bool put_in_place(const std::shared_ptr<CachedPlan>& plan, Garbage& garbage);
  void refill_slots(Garbage& garbage);
  void forget_dropped(Garbage& garbage);
  void keep_kernels(const CachedPlan& plan);

  std::atomic<Slots*> slots_;
  std::shared_ptr<Slots> current_;  ///< what slots_ points to
  std::vector<std::shared_ptr<CachedPlan>> plans_;
  std::vector<std::shared_ptr<jit::Kernel>> kept_kernels_;  ///< of plans that were dropped

  friend std::size_t drop_old_plans(Device device);
  friend struct PlanUsage plan_usage(Device device);
};

/// Drops an eighth of what the plans of a device take, the least recently used first and none that
/// somebody else holds. How many were dropped.
std::size_t drop_old_plans(Device device);

/// What there is of a device's plans.
struct PlanUsage {
  std::uint64_t plans = 0;
  std::uint64_t bytes = 0;
  std::uint64_t dropped = 0;  ///< since the process began
};
PlanUsage plan_usage(Device device);

}  // namespace kiln
