// A kernel of a class of calls, of Functions (call_class.hpp) or Programs (program/): how it is
// found for a call, by a tape that holds or else by the schedule that the call is planned to have.
// The kernels of a class are found and learnt one by one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "call/scheduled_kernel.hpp"
#include "call/taped_kernel.hpp"
#include "core/plan_table.hpp"
#include "kernel/kernel_spec.hpp"

namespace kiln {

/// What a class remembers of one.
struct ClassKernel {
  std::uint64_t id = 0;  ///< of no other one of the table
  RecentTapes tapes;
  /// The hash of the schedule that a call had last, which the next is likely to have.
  mutable std::atomic<std::uint64_t> recent_schedule = 0;
};

/// How a kernel is launched: with the numbers of a tape, or else with a layout.
struct KernelLaunch {
  LaunchBlock block(std::span<char* const> data) const {
    if (tape != nullptr) return {**kernel, *tape, values, data};
    count_planned();
    return {**kernel, *layout, data};
  }
  const std::shared_ptr<const ScheduledKernel>* kernel = nullptr;
  const KernelTape* tape = nullptr;
  const std::int64_t* values = nullptr;
  const fusion::Layout* layout = nullptr;
  bool wants_tape = false;  ///< of this layout: add_tape()

 private:
  static void count_planned();
};

/// Those of a call. Lives on its stack, in a fusion::ScratchScope.
struct KernelLaunches {
  explicit KernelLaunches(std::size_t kernels) : of(kernels) {}
  fusion::ScratchVector<KernelLaunch> of;
  fusion::ScratchVector<fusion::Layout> layouts;  ///< of those without a tape
  TapeValues values;
};

/// Whether a tape of the kernel holds for a call. `value_of`: of a source. To be called in a
/// base::ReadSection, as find_planned(). Takes no lock.
template <class Source, class ValueOf>
bool find_taped(const PlanTable& plans, const ClassKernel& kernel, std::size_t size_kind,
                const ValueOf& value_of, TapeValues& memory, KernelLaunch& launch) {
  const auto tape_of = [&](std::uint64_t number) {
    const TapeKey key(kernel.id, number);
    return static_cast<const TapedKernel<Source>*>(plans.find(key.words, key.hash));
  };
  const auto holds = [&](const TapedKernel<Source>& taped) {
    launch.values = run_tape(taped, memory, value_of);
    return launch.values != nullptr;
  };
  const TapedKernel<Source>* const taped =
      kernel.tapes.find(size_kind, tape_of, holds, launch.wants_tape);
  if (taped == nullptr) return false;
  launch.kernel = &taped->kernel;
  launch.tape = &taped->tape;
  return true;
}

/// Whether the kernel of the layout's schedule is known; then it is launched so.
bool find_planned(const PlanTable& plans, const ClassKernel& kernel, const fusion::Layout& layout,
                  KernelLaunch& launch);
/// How many launches had a layout since the process began.
std::uint64_t planned_launches();

/// The kernel of a schedule, which is added where it is not known: that of a plan for `spec`; null
/// if this has another schedule.
std::shared_ptr<const ScheduledKernel> add_kernel(PlanTable& plans, const ClassKernel& kernel,
                                                  const fusion::Schedule& schedule,
                                                  const KernelSpec& spec, std::string_view target,
                                                  const PlannedKernel& planned,
                                                  const Device& device);
/// Adds a tape (TapedKernel) for calls with sizes of this kind. If there are very many, the one
/// that has not held for longest is dropped. `taped`: null where there can be none.
void add_tape(PlanTable& plans, const ClassKernel& kernel, std::size_t size_kind,
              std::shared_ptr<CachedPlan> taped, const Device& device);

}  // namespace kiln
