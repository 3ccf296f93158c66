#include "tests/src/program/plan_cases.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fusion/graph/broadcast.hpp"
#include "kernel/emit_kernel.hpp"
#include "tests/src/program/random_arguments.hpp"

namespace kiln::testing {
namespace {

// That the operands of a step have.
std::uint64_t bytes_of(const ProgramStep& step, const ProgramPlan& plan, const CallTypes& call) {
  std::uint64_t bytes = 0;
  for (const auto* operands : {&step.inputs, &step.outputs}) {
    for (const ProgramOperand& operand : *operands) {
      if (operand.scalar) continue;
      DType dtype = plan.output_dtypes.front();
      switch (operand.kind) {
        case ProgramOperand::Kind::length: continue;
        case ProgramOperand::Kind::argument: dtype = call.arguments[operand.index].dtype; break;
        case ProgramOperand::Kind::output: dtype = plan.output_dtypes[operand.index]; break;
        case ProgramOperand::Kind::temporary: dtype = plan.temporaries[operand.index].dtype; break;
      }
      bytes += fusion::byte_count(dtype, operand.shape);
    }
  }
  return bytes;
}

}  // namespace

PlanCase random_case(std::uint64_t seed, std::size_t nodes, bool packed) {
  ProgramKind kind;
  kind.nodes = nodes;
  kind.elements = nodes > 200 ? 60 : 400;
  kind.floats = seed % 3 != 0;
  kind.packed = packed;
  RandomProgram made = random_program(seed, kind);
  PlanCase result{{}, random_arguments(made, seed), Rounding::once, seed};
  result.graph = std::move(made.graph);
  if (seed % 4 == 1) result.rounding = Rounding::each;
  return result;
}

CallTypes call_of(const PlanCase& one) {
  CallTypes call;
  for (const HostArray& input : one.inputs) {
    call.arguments.push_back({input.dtype, false, false});
    call.arrays.push_back({input.dtype, input.shape, input.strides});
  }
  return call;
}

Definition definition_of(const fusion::Graph& graph, Rounding rounding) {
  Definition definition;
  definition.name = "random";
  definition.graph = graph;
  definition.options.rounding = rounding;
  return definition;
}

void emit_kernels(const ProgramPlan& plan, const CallTypes& call) {
  for (const KernelSpec& spec : step_specs(plan, call)) {
    if (std::ranges::find(spec.shape, 0) != spec.shape.end()) continue;  // nothing is launched
    for (const char* target : {"cpu", "gfx90a", "sm_90"}) emit_kernel(spec, target);
  }
}

std::string wrong_bytes(const Definition& definition, const CallTypes& call,
                        const fusion::CostModel& model) {
  const ProgramPlan plan = plan_program(definition, call, model);
  const ProgramInfo& info = plan.info;
  if (info.bytes > info.op_by_op_bytes) {
    return fmt::format("it moves {} bytes, {} unfused", info.bytes, info.op_by_op_bytes);
  }
  if (info.bytes < info.lower_bound) return "it moves less than the lower bound";
  for (std::size_t k = 0; k < plan.steps.size(); ++k) {
    const std::uint64_t bytes = bytes_of(plan.steps[k], plan, call);
    if (bytes == info.kernels[k].bytes) continue;
    return fmt::format("kernel {} says that it moves {} bytes, its operands have {}", k,
                       info.kernels[k].bytes, bytes);
  }
  const std::uint64_t unfused = unfused_workspace(definition, call);
  if (info.workspace_bytes > unfused) {
    return "it needs a larger workspace than one kernel for each operation does";
  }
  if (info.workspace_bytes > 0 && info.op_by_op_workspace != unfused) {
    return "it is compared with another plan of one kernel for each operation";
  }
  return {};
}

}  // namespace kiln::testing
