#include "program/unpack.hpp"

#include <algorithm>

#include "fusion/infer/scan_space.hpp"
#include "fusion/infer/shapes.hpp"
#include "kernel/emit_kernel.hpp"

namespace kiln {
namespace {

// Whether there is a kernel that reads such packed operands.
bool has_kernel(const StepKernel& kernel, const CallTypes& types) {
  const fusion::TypedGraph& graph = kernel.function().graph;
  if (!fusion::works_along_axes(graph)) return true;
  return !fusion::has_scans(graph) && can_reduce_packed(kernel.spec(types));
}

}  // namespace

bool add_to_unpack(fusion::Unpacked& unpacked, const ProgramPlan& plan, const CallTypes& call) {
  unpacked.arguments.resize(call.arguments.size(), false);
  bool added = false;
  for (const ProgramStep& step : plan.steps) {
    const auto reads_packed = [&](const ProgramOperand& operand) {
      return !operand.scalar && is_packed(operand_dtype(operand, plan, call));
    };
    if (!step.kernel || std::ranges::none_of(step.inputs, reads_packed)) continue;
    if (has_kernel(*step.kernel, step_types(plan, step, call))) continue;
    for (const ProgramOperand& operand : step.inputs) {
      if (!reads_packed(operand)) continue;
      if (operand.kind == ProgramOperand::Kind::argument) {
        added = added || !unpacked.arguments[operand.index];
        unpacked.arguments[operand.index] = true;
      } else {  // only calls give others
        added = added || !unpacked.results;
        unpacked.results = true;
      }
    }
  }
  return added;
}

}  // namespace kiln
