// How the steps of a program are found for a call: by tapes (kernel/kernel_tape.hpp), which are
// made where a step's layout is one that no tape of it holds for.
#include <algorithm>

#include "kernel/emit_kernel.hpp"
#include "program/program_form.hpp"

namespace kiln {
namespace {

NumberSource source_in_form(const ProgramClass::Step& step, const CallNumber& number) {
  using Kind = CallNumber::Kind;
  if (number.kind == Kind::address) return {true, number.operand};
  if (number.kind == Kind::extent) return {false, step.shape[number.axis]};
  const ProgramClass::Operand& operand = step.operands[number.operand];
  switch (number.kind) {
    case Kind::stride: return {false, operand.strides[number.axis]};
    case Kind::offset: return {false, operand.offset};
    case Kind::split_stride: return {false, operand.split_stride};
    case Kind::place: return {false, operand.place};
    case Kind::place_stride: return {false, operand.place_stride};
    default: return {false, operand.place_count};
  }
}

fusion::Layout layout_of(const ProgramClass& form, std::size_t step, const Call& call,
                         const ProgramNumbers& at) {
  const ProgramClass::Step& own = form.steps[step];
  thread_local StepNumbers numbers;  // with operands of other steps before, too
  const std::span<const fusion::Operand> operands = numbers.read(form, step, call, at);
  return plan_kernel(own.spec.function, own.spec.form, numbers.shape, operands, form.features);
}

}  // namespace

bool find_tape_of_step(const PlanTable& plans, const ProgramClass& form, std::size_t step,
                       const Call& call, const ProgramNumbers& at, TapeValues& memory,
                       KernelLaunch& launch) {
  const std::vector<ProgramClass::Operand>& operands = form.steps[step].operands;
  const auto value_of = [&](const NumberSource& source) {
    if (!source.is_address) return at.numbers[source.number];
    return static_cast<std::int64_t>(first_address(operands[source.number], call, at));
  };
  return find_taped<NumberSource>(plans, form.known[step], at.size_kind, value_of, memory, launch);
}

void add_tape_of_step(PlanTable& plans, const ProgramClass& form, std::size_t step,
                      const Call& call, const ProgramNumbers& at,
                      const std::shared_ptr<const ScheduledKernel>& kernel) {
  const ProgramClass::Step& own = form.steps[step];
  std::vector<bool> differs(ProgramClass::kMostNumbers, false);
  for (const ProgramClass::Product& product : form.products) differs[product.number] = true;
  for (const auto& [number, formula] : form.formulas) differs[number] = true;
  const auto varies = [&](const CallNumber& number) {
    const NumberSource source = source_in_form(own, number);
    return source.is_address || differs[source.number];
  };
  StepNumbers numbers;
  const std::span<const fusion::Operand> operands = numbers.read(form, step, call, at);
  std::optional<KernelTape> tape =
      KernelTape::record(own.spec.function, own.spec.form, numbers.shape, operands, form.features,
                         kernel->parameters, kernel->planned.parameters, varies);
  std::shared_ptr<CachedPlan> taped;
  if (tape) {
    std::vector<NumberSource> sources;
    for (const CallNumber& input : tape->inputs()) sources.push_back(source_in_form(own, input));
    taped =
        std::make_shared<TapedKernel<NumberSource>>(kernel, *std::move(tape), std::move(sources));
  }
  add_tape(plans, form.known[step], at.size_kind, std::move(taped), form.device);
}

bool find_launch(const PlanTable& plans, const ProgramClass& form, std::size_t step,
                 const Call& call, const ProgramNumbers& at, KernelLaunches& launches) {
  KernelLaunch& launch = launches.of[step];
  launch = {};
  if (find_tape_of_step(plans, form, step, call, at, launches.values, launch)) return true;
  launches.layouts.reserve(form.steps.size());
  const fusion::Layout& layout =
      launches.layouts.emplace_result([&] { return layout_of(form, step, call, at); });
  return layout.work_items != 0 && find_planned(plans, form.known[step], layout, launch);
}

}  // namespace kiln
