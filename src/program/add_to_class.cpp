// What a class learns from a call that was planned: its form, and the kernels of its schedules.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/reclamation.hpp"
#include "kernel/emit_kernel.hpp"
#include "program/program_form.hpp"

namespace kiln {
namespace {

bool can_have_class(const Definition& definition, const ProgramPlan& plan,
                    const ReadyProgram& ready) {
  if (fusion::has_custom_calls(definition.graph) || plan.steps.empty()) return false;
  // Making a form takes dozens of plans.
  constexpr std::size_t kMostNodes = 1024;
  if (definition.graph.nodes().size() > kMostNodes) return false;
  if (plan.steps.size() > ProgramClass::kMostSteps) return false;
  return std::ranges::all_of(ready.steps(), [](const ReadyProgram::Step& step) {
    return step.plan != nullptr && step.plan->kernels.size() == 1 &&
           ScheduledKernel::fits_stack(step.plan->kernels.front());
  });
}

// The form of the call, which lives for as long as the pointer does; null if there is none.
std::shared_ptr<const ProgramClass> known_form(const PlanTable& plans, ProgramClassKey& key,
                                               ProgramNumbers& at, std::uint64_t& count) {
  const base::ReadSection reading;
  const ProgramClass* const found = find_form(plans, key, at, count);
  if (found == nullptr) return nullptr;
  return std::static_pointer_cast<const ProgramClass>(found->shared_from_this());
}

// Whether no form could be made of two calls: then it is not tried again.
bool is_hopeless(const PlanTable& plans, ProgramClassKey& key, std::uint64_t count) {
  const base::ReadSection reading;
  for (std::uint64_t i = 0; i < count; ++i) {
    const CachedPlan* const form = plans.find(key.words(i), key.hash(i));
    if (form != nullptr && !static_cast<const ProgramClass&>(*form).is_empty) return false;
  }
  return count > 1;
}

// The sizes of the first call of this class; nothing if this is it: most programs only ever see
// one.
std::optional<std::vector<std::int64_t>> sizes_before(PlanTable& plans, ProgramClassKey& key,
                                                      const Device& device) {
  constexpr std::uint64_t kMark = ProgramClass::kMostForms;  // where no form is
  {
    const base::ReadSection reading;
    if (const CachedPlan* const mark = plans.find(key.words(kMark), key.hash(kMark))) {
      return static_cast<const ProgramClass&>(*mark).first_sizes;
    }
  }
  auto mark = std::make_shared<ProgramClass>();
  mark->first_sizes.assign(key.sizes().begin(), key.sizes().end());
  mark->signature.assign(key.words(kMark).begin(), key.words(kMark).end());
  mark->hash = key.hash(kMark);
  mark->device = device;
  plans.insert(std::move(mark));
  return std::nullopt;
}

std::shared_ptr<const CachedPlan> insert(PlanTable& plans, std::shared_ptr<CachedPlan> made,
                                         std::span<const std::uint64_t> words, std::uint64_t hash,
                                         const Device& device) {
  made->signature.assign(words.begin(), words.end());
  made->hash = hash;
  made->device = device;
  return plans.insert(std::move(made));
}

// The kernel of a step's schedule, which is added where it is not known; null if the plan has
// another one.
std::shared_ptr<const CachedPlan> scheduled_kernel(PlanTable& plans, const ProgramClass& form,
                                                   std::size_t step,
                                                   const fusion::Schedule& schedule,
                                                   const KernelSpec& spec,
                                                   const PlannedKernel& planned) {
  const StepKernelKey key(form, step, schedule);
  {
    const base::ReadSection reading;
    const CachedPlan* const found = plans.find(key.words, key.hash);
    if (found != nullptr) return found->shared_from_this();
  }
  EmittedKernel emitted = emit_kernel(spec, form.target);
  if (emitted.layout.schedule != schedule) return nullptr;
  auto kernels = std::make_shared<ScheduledKernels>();
  kernels->kernels.push_back(
      {std::move(emitted.layout.schedule), std::move(emitted.kernel.parameters), planned});
  return insert(plans, std::move(kernels), key.words, key.hash, form.device);
}

bool has_tape(const PlanTable& plans, const ProgramClass& form, std::size_t step, const Call& call,
              const ProgramNumbers& at) {
  form.recent_tapes[step].look_again();
  TapeValues memory;
  const std::int64_t* values = nullptr;
  const base::ReadSection reading;
  return find_tape(plans, form, step, call, at, memory, values) != nullptr;
}

void add_kernels(PlanTable& plans, const ProgramClass& form, const Call& call,
                 const ProgramPlan& plan, const ReadyProgram& ready, const ProgramNumbers& at) {
  std::vector<KernelSpec> specs;
  for (std::size_t k = 0; k < form.steps.size(); ++k) {
    if (has_tape(plans, form, k, call, at)) continue;
    const fusion::Layout layout = layout_of(form, k, call, at);
    if (specs.empty()) specs = step_specs(plan, types_of(call));
    const auto found = scheduled_kernel(plans, form, k, layout.schedule, specs[k],
                                        ready.steps()[k].plan->kernels.front());
    if (found == nullptr) continue;
    const ScheduledKernel& kernel = static_cast<const ScheduledKernels&>(*found).kernels.front();
    if (kernel.schedule != layout.schedule) continue;
    if (auto taped = make_tape(form, k, call, at, kernel)) {
      add_tape(plans, tapes_of(form, k), std::move(taped), form.recent_tapes[k], form.device);
    }
  }
}

}  // namespace

void add_to_class(PlanTable& plans, const Definition& definition, const Call& call,
                  const ProgramPlan& plan, const ReadyProgram& ready) {
  ProgramClassKey key(call);
  if (!key.has_class() || !is_sound(call) || !can_have_class(definition, plan, ready)) return;
  ProgramNumbers at;
  std::uint64_t count = 0;
  std::shared_ptr<const ProgramClass> form = known_form(plans, key, at, count);
  if (form == nullptr) {
    if (count == ProgramClass::kMostForms || is_hopeless(plans, key, count)) return;
    const auto before = sizes_before(plans, key, call.stream.device);
    if (!before) return;
    std::shared_ptr<ProgramClass> made = make_form(definition, call, key, plan, *before);
    made->signature.assign(key.words(count).begin(), key.words(count).end());
    made->hash = key.hash(count);
    form = std::static_pointer_cast<const ProgramClass>(plans.insert(std::move(made)));
    if (!evaluate(*form, key, at)) return;
  }
  add_kernels(plans, *form, call, plan, ready, at);
}

}  // namespace kiln
