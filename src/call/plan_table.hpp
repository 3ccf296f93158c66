// The plans of one function: looked up without a lock, added under one. Plans are never removed
// while the function lives, so a reader needs no count and no epoch.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "call/plan.hpp"

namespace kiln {

class PlanTable {
 public:
  PlanTable();
  ~PlanTable();
  PlanTable(const PlanTable&) = delete;
  PlanTable& operator=(const PlanTable&) = delete;

  /// Null if there is none. Takes no lock.
  const Plan* find(const Signature& signature) const;
  /// Adds a plan, unless another thread was first; the one that is kept is returned.
  const Plan& insert(std::unique_ptr<Plan> plan);

 private:
  struct Slots;

  std::atomic<Slots*> slots_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Plan>> plans_;
  std::vector<std::unique_ptr<Slots>> generations_;  ///< old ones stay, a reader may be in them
};

}  // namespace kiln
