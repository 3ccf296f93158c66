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

bool is_known(const PlanTable& plans, std::span<const std::uint64_t> words, std::uint64_t hash) {
  const base::ReadSection reading;
  return plans.find(words, hash) != nullptr;
}

void insert(PlanTable& plans, std::shared_ptr<CachedPlan> made,
            std::span<const std::uint64_t> words, std::uint64_t hash, const Device& device) {
  made->signature.assign(words.begin(), words.end());
  made->hash = hash;
  made->device = device;
  plans.insert(std::move(made));
}

void add_kernels(PlanTable& plans, const ProgramClass& form, const Call& call,
                 const ProgramPlan& plan, const ReadyProgram& ready, const ProgramNumbers& at) {
  const Device& device = call.stream.device;
  std::vector<KernelSpec> specs;
  for (std::size_t k = 0; k < form.steps.size(); ++k) {
    fusion::Layout layout = layout_of(form, k, call, at);
    const StepKernelKey key(form, k, layout.schedule);
    const FixedKernelKey fixed_key(form, k, call, at);
    const bool is_scheduled = is_known(plans, key.words, key.hash);
    const bool adds_fixed = form.steps[k].is_fixed && layout.work_items != 0 &&
                            !is_known(plans, fixed_key.words(), fixed_key.hash());
    if (is_scheduled && !adds_fixed) continue;
    if (specs.empty()) specs = step_specs(plan, types_of(call));
    EmittedKernel emitted = emit_kernel(specs[k], form.target);
    if (emitted.layout.schedule != layout.schedule) continue;
    ScheduledKernel kernel{std::move(emitted.layout.schedule), std::move(emitted.kernel.parameters),
                           ready.steps()[k].plan->kernels.front()};
    if (adds_fixed) {
      insert(plans, std::make_shared<FixedKernel>(kernel, std::move(layout)), fixed_key.words(),
             fixed_key.hash(), device);
    }
    if (is_scheduled) continue;
    auto kernels = std::make_shared<ScheduledKernels>();
    kernels->kernels.push_back(std::move(kernel));
    insert(plans, std::move(kernels), key.words, key.hash, device);
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
