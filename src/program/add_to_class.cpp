// What a class learns from a call that was planned: its form, and the kernels of its schedules.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/reclamation.hpp"
#include "program/program_form.hpp"

namespace kiln {
namespace {

bool can_have_class(const Definition& definition, const ProgramPlan& plan,
                    const ReadyProgram& ready) {
  if (fusion::has_custom_calls(definition.graph) || plan.steps.empty()) return false;
  // Making a form takes dozens of plans.
  constexpr std::size_t kMostNodes = 8192;
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

// The sizes of the first call of this class, with 0 in place of those that have changed since;
// nothing if this is it: most programs only ever see one.
std::optional<std::vector<std::int64_t>> sizes_before(PlanTable& plans, ProgramClassKey& key,
                                                      const Device& device) {
  constexpr std::uint64_t kMark = ProgramClass::kMostForms;  // where no form is
  {
    const base::ReadSection reading;
    if (const CachedPlan* const mark = plans.find(key.words(kMark), key.hash(kMark))) {
      return static_cast<const ProgramClass&>(*mark).unchanged_sizes(key.sizes());
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

void add_kernels(PlanTable& plans, const ProgramClass& form, const Call& call,
                 const ProgramPlan& plan, const ReadyProgram& ready, const ProgramNumbers& at) {
  const base::ReadSection reading;
  KernelLaunches launches(form.steps.size());
  std::vector<KernelSpec> specs;
  for (std::size_t k = 0; k < form.steps.size(); ++k) {
    const ClassKernel& own = form.known[k];
    own.tapes.look_again();
    KernelLaunch& launch = launches.of[k];
    const bool is_known = find_launch(plans, form, k, call, at, launches);
    if (launch.layout == nullptr) continue;
    std::shared_ptr<const ScheduledKernel> added;
    if (!is_known) {
      if (specs.empty()) specs = step_specs(plan, types_of(call));
      added = add_kernel(plans, own, launch.layout->schedule, specs[k], form.target,
                         ready.steps()[k].plan->kernels.front(), form.device);
      if (added == nullptr) continue;
      launch.kernel = &added;
    }
    add_tape_of_step(plans, form, k, call, at, *launch.kernel);
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
