// Tapes of a program's steps (kernel/kernel_tape.hpp): found and run on the hot path, made where a
// step's layout is one that no tape of it holds for.
#include <algorithm>

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

}  // namespace

std::uint64_t tapes_of(const ProgramClass& form, std::size_t step) { return form.id << 16 | step; }

const TapedStep* find_tape(const PlanTable& plans, const ProgramClass& form, std::size_t step,
                           const Call& call, const ProgramNumbers& at, TapeValues& memory,
                           const std::int64_t*& values) {
  const std::vector<ProgramClass::Operand>& operands = form.steps[step].operands;
  const auto tape_of = [&](std::uint64_t number) {
    const TapeKey key(tapes_of(form, step), number);
    return static_cast<const TapedStep*>(plans.find(key.words, key.hash));
  };
  const auto value_of = [&](const NumberSource& source) {
    if (!source.is_address) return at.numbers[source.number];
    return static_cast<std::int64_t>(first_address(operands[source.number], call, at));
  };
  return form.recent_tapes[step].find(at.size_kind, tape_of, [&](const TapedStep& taped) {
    values = run_tape(taped, memory, value_of);
    return values != nullptr;
  });
}

std::shared_ptr<TapedStep> make_tape(const ProgramClass& form, std::size_t step, const Call& call,
                                     const ProgramNumbers& at, const ScheduledKernel& kernel) {
  const ProgramClass::Step& own = form.steps[step];
  std::vector<bool> differs(ProgramClass::kMostNumbers, false);
  for (const auto& [number, formula] : form.formulas) differs[number] = true;
  const auto varies = [&](const CallNumber& number) {
    const NumberSource source = source_in_form(own, number);
    return source.is_address || differs[source.number];
  };
  StepNumbers numbers;
  const std::span<const fusion::Operand> operands = numbers.read(form, step, call, at);
  std::optional<KernelTape> tape =
      KernelTape::record(own.spec.function, own.spec.form, numbers.shape, operands, form.features,
                         kernel.parameters, kernel.planned.parameters, varies);
  if (!tape) return nullptr;
  std::vector<NumberSource> sources;
  for (const CallNumber& input : tape->inputs()) sources.push_back(source_in_form(own, input));
  return std::make_shared<TapedStep>(kernel, *std::move(tape), std::move(sources));
}

}  // namespace kiln
