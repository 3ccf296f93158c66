#include "program/plan.hpp"

#include <fmt/format.h>

#include "jit/device/backend.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

// The array that an operand is a view of; temporaries begin at multiples of 16.
ArrayType memory_of(const ProgramOperand& operand, const ProgramPlan& plan, const CallTypes& call) {
  if (operand.kind == ProgramOperand::Kind::argument) {
    std::size_t array = 0;
    for (std::size_t i = 0; i < operand.index; ++i) array += call.arguments[i].scalar ? 0 : 1;
    return call.arrays[array];
  }
  const bool output = operand.kind == ProgramOperand::Kind::output;
  if (output && !call.outputs.empty()) return call.outputs[operand.index];
  ArrayType array;
  array.dtype = operand_dtype(operand, plan, call);
  if (!output) array.address = plan.temporaries[operand.index].offset;
  return array;
}

ArrayType type_of(const ProgramOperand& operand, const ProgramPlan& plan, const CallTypes& call) {
  ArrayType array = memory_of(operand, plan, call);
  array.shape = operand.shape;
  array.strides = operand.layout.strides;
  array.indexed = operand.layout.indexed;
  const std::int64_t bit = (array.offset + operand.layout.offset) * bits(array.dtype);
  array.address += static_cast<std::uint64_t>(bit >> 3);
  array.offset = is_packed(array.dtype) ? bit >> 2 & 1 : 0;  // as View::from()
  return array;
}

}  // namespace

DType operand_dtype(const ProgramOperand& operand, const ProgramPlan& plan, const CallTypes& call) {
  switch (operand.kind) {
    case ProgramOperand::Kind::argument: return call.arguments[operand.index].dtype;
    case ProgramOperand::Kind::output: return plan.output_dtypes[operand.index];
    case ProgramOperand::Kind::length: return DType::i64;
    case ProgramOperand::Kind::temporary: break;
  }
  return plan.temporaries[operand.index].dtype;
}

CallTypes step_types(const ProgramPlan& plan, const ProgramStep& step, const CallTypes& call) {
  CallTypes types;
  for (const ProgramOperand& operand : step.inputs) {
    if (operand.scalar) {
      const bool length = operand.kind == ProgramOperand::Kind::length;
      types.arguments.push_back(length ? fusion::ArgumentType{DType::i64, true, false}
                                       : call.arguments[operand.index]);
      continue;
    }
    types.arrays.push_back(type_of(operand, plan, call));
    types.arguments.push_back({types.arrays.back().dtype, false, false});
  }
  for (const ProgramOperand& operand : step.outputs) {
    types.outputs.push_back(type_of(operand, plan, call));
  }
  return types;
}

std::vector<KernelSpec> step_specs(const ProgramPlan& plan, const CallTypes& call) {
  std::vector<KernelSpec> specs;
  for (const ProgramStep& step : plan.steps) {
    if (step.kernel) specs.push_back(step.kernel->spec(step_types(plan, step, call)));
  }
  return specs;
}

CallTypes program_types(const Call& call) {
  CallTypes types = types_of(call);
  types.target = jit::backend(call.stream.device).target();
  return types;
}

CallTypes program_types(const Definition& definition, const Specification& specification,
                        std::string_view target) {
  CallTypes call = argument_types(definition, specification);
  call.target = target;
  if (specification.outputs.empty() && specification.layouts.empty()) return call;
  const ProgramPlan natural = plan_program(definition, call);
  const std::size_t count = natural.output_shapes.size();
  const auto check_count = [&](std::string_view what, std::size_t given) {
    if (given == 0 || given == count) return;
    throw Error(Code::invalid_argument, fmt::format("{}: expected the {} of {} outputs, got {}",
                                                    definition.name, what, count, given));
  };
  check_count("dtypes", specification.outputs.size());
  check_count("layouts", specification.layouts.size());
  for (std::size_t i = 0; i < count; ++i) {
    OutputSpec layout{natural.output_shapes[i], {}, 0, 0, 0};
    if (!specification.layouts.empty()) layout = specification.layouts[i];
    if (layout.strides.empty()) layout.strides = contiguous_strides(layout.shape);
    const DType dtype =
        specification.outputs.empty() ? natural.output_dtypes[i] : specification.outputs[i];
    call.outputs.push_back({dtype, layout.shape, layout.strides, layout.misalignment, 0, {}});
  }
  return call;
}

}  // namespace kiln
