#include "program/bound_program.hpp"

#include <utility>

namespace kiln {

BoundProgram::BoundProgram(std::shared_ptr<Program::Impl> program,
                           std::shared_ptr<const CachedProgramPlan> plan, const Stream& stream,
                           std::span<const Argument> inputs, std::span<const View> outputs,
                           const View& workspace)
    : Impl(names_of(program->definition()), stream, inputs, outputs),
      program_(std::move(program)),
      plan_(std::move(plan)),
      ready_(plan_->ready(call(), when_kept(program_->definition().options.on_miss))),
      workspace_(workspace),
      memories_(ready_.memory_count()) {
  info = ready_.info();
  for (const ReadyProgram::Step& step : ready_.steps()) {
    if (step.plan) add_kernels(*step.plan);
  }
  refill();
}

void BoundProgram::refill() {
  ready_.check(call(), workspace_);
  ready_.find_memories(call(), workspace_, memories_);
  std::size_t next = 0;
  for (const ReadyProgram::Step& step : ready_.steps()) {
    if (!step.plan || step.plan->kernels.empty()) continue;
    const PlacedOperands operands{stream, step.inputs, step.outputs, memories_, inputs};
    check_overlap(*step.plan, operands);
    for (const PlannedKernel& kernel : step.plan->kernels) {
      fill_parameters(*step.plan, kernel, operands, filled[next++].bytes());
    }
  }
}

void BoundProgram::run(const Stream& on) const {
  std::size_t next = 0;
  for (const ReadyProgram::Step& step : ready_.steps()) {
    if (!step.plan) {
      ready_.run_call(step, on, memories_);
      continue;
    }
    for (std::size_t i = 0; i < step.plan->kernels.size(); ++i) launch(filled[next++], on);
  }
}

}  // namespace kiln
