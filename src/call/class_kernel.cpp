#include "call/class_kernel.hpp"

#include <utility>

#include "base/reclamation.hpp"
#include "kernel/emit_kernel.hpp"

namespace kiln {
namespace {

constinit std::atomic<std::uint64_t> planned{0};

// What the kernel of a schedule is found by.
struct ScheduleKey {
  ScheduleKey(const ClassKernel& kernel, std::uint64_t of)
      : words{kSchedulesTag, kernel.id, of}, hash(of) {}
  ScheduleKey(const ClassKernel& kernel, const fusion::Schedule& schedule)
      : ScheduleKey(kernel, hash_of(kernel.id, schedule)) {}
  // The first words of signatures that are no call's, whose first word is a device.
  static constexpr std::uint64_t kSchedulesTag = 1ull << 61;
  std::array<std::uint64_t, 3> words;
  std::uint64_t hash;
};

std::uint8_t number_of_next(const PlanTable& plans, const ClassKernel& kernel) {
  const base::ReadSection reading;
  for (std::uint8_t number = 0; number < RecentTapes::kMostTapes; ++number) {
    const TapeKey key(kernel.id, number);
    if (plans.find(key.words, key.hash) == nullptr) return number;
  }
  return kernel.tapes.least_recent();
}

}  // namespace

bool find_planned(const PlanTable& plans, const ClassKernel& kernel, const fusion::Layout& layout,
                  KernelLaunch& launch) {
  const auto find = [&](const ScheduleKey& key) {
    const auto* const found = static_cast<const CachedKernel*>(plans.find(key.words, key.hash));
    if (found == nullptr || found->kernel->schedule != layout.schedule) return false;
    launch.kernel = &found->kernel;
    return true;
  };
  launch.tape = nullptr;
  launch.layout = &layout;
  if (!find({kernel, kernel.recent_schedule.load(std::memory_order_relaxed)})) {
    const ScheduleKey key(kernel, layout.schedule);
    kernel.recent_schedule.store(key.hash, std::memory_order_relaxed);
    if (!find(key)) return false;
  }
  return true;
}

void KernelLaunch::count_planned() { planned.fetch_add(1, std::memory_order_relaxed); }

std::uint64_t planned_launches() { return planned.load(std::memory_order_relaxed); }

std::shared_ptr<const ScheduledKernel> add_kernel(PlanTable& plans, const ClassKernel& kernel,
                                                  const fusion::Schedule& schedule,
                                                  const KernelSpec& spec, std::string_view target,
                                                  const PlannedKernel& planned,
                                                  const Device& device) {
  const ScheduleKey key(kernel, schedule);
  EmittedKernel emitted = emit_kernel(spec, target);
  if (emitted.layout.schedule != schedule) return nullptr;
  auto made = std::make_shared<CachedKernel>(ScheduledKernel{
      std::move(emitted.layout.schedule), std::move(emitted.kernel.parameters), planned});
  made->signature.assign(key.words.begin(), key.words.end());
  made->hash = key.hash;
  made->device = device;
  const std::shared_ptr<const CachedPlan> kept = plans.insert(std::move(made));
  const auto& known = static_cast<const CachedKernel&>(*kept).kernel;
  return known->schedule == schedule ? known : nullptr;
}

void add_tape(PlanTable& plans, const ClassKernel& kernel, std::size_t size_kind,
              std::shared_ptr<CachedPlan> taped, const Device& device) {
  if (taped == nullptr) return kernel.tapes.note_no_tape();
  const std::uint8_t number = number_of_next(plans, kernel);
  const TapeKey key(kernel.id, number);
  taped->signature.assign(key.words.begin(), key.words.end());
  taped->hash = key.hash;
  taped->device = device;
  plans.replace(std::move(taped));
  kernel.tapes.note_tape(number, size_kind);
}

}  // namespace kiln
