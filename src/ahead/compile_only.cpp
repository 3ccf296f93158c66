#include "ahead/compile_only.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "call/call_reduction.hpp"
#include "call/call_types.hpp"
#include "call/function_impl.hpp"
#include "fusion/emit/emit.hpp"
#include "fusion/infer/shapes.hpp"
#include "kernel/kernel_build.hpp"
#include "kiln/error.hpp"
#include "kiln/view.hpp"
#include "program/plan.hpp"

namespace kiln {
namespace {

// Where an operand begins, as the specification says, or else as the program does whose kernel it
// is.
template <class Spec>
fusion::MemoryPlace place_of(const Spec& spec, const Definition& definition, std::size_t operand) {
  if (spec.memory != 0) return {spec.memory, spec.element};
  return definition.place(operand);
}

/// A specification in the order of the function's arguments.
struct Types {
  std::vector<fusion::ArgumentType> arguments;
  std::vector<OperandShape> arrays;
};

// Every argument that is given is one of the function.
void check_names(const Definition& definition, const Specification& specification) {
  for (const ArgumentSpec& argument : specification.arguments) {
    if (std::ranges::find(definition.graph.arguments(), argument.name) ==
        definition.graph.arguments().end()) {
      throw Error(
          Code::invalid_argument,
          fmt::format("{}: there is no argument '{}'; the arguments are {}", definition.name,
                      argument.name,
                      definition.graph.arguments().empty()
                          ? std::string("none")
                          : fmt::format("{}", fmt::join(definition.graph.arguments(), ", "))));
    }
  }
}

Types types_of(const Definition& definition, const Specification& specification) {
  Types types;
  const std::vector<std::string>& names = definition.graph.arguments();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto found = std::ranges::find(specification.arguments, names[i], &ArgumentSpec::name);
    if (found == specification.arguments.end()) {
      throw Error(Code::invalid_argument, fmt::format("{}: no type was given for the argument '{}'",
                                                      definition.name, names[i]));
    }
    types.arguments.push_back({found->dtype, found->scalar, found->weak});
    if (found->scalar) continue;
    const Dims strides = found->strides.empty() ? contiguous_strides(found->shape) : found->strides;
    types.arrays.push_back({found->dtype, found->shape, strides, found->misalignment, 0,
                            place_of(*found, definition, i)});
  }
  check_names(definition, specification);
  return types;
}

std::vector<OperandShape> outputs_of(const Definition& definition, const Types& types,
                                     const Specification& specification) {
  const std::size_t expected = definition.graph.outputs().size();
  if (!specification.outputs.empty() && specification.outputs.size() != expected) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: expected the dtypes of {} outputs, got {}", definition.name,
                            expected, specification.outputs.size()));
  }
  if (specification.layouts.empty()) {
    return natural_outputs(definition, types.arguments, types.arrays, specification.outputs,
                           specification.shape);
  }
  if (specification.layouts.size() != specification.outputs.size()) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: outputs: {} layouts and {} dtypes were given", definition.name,
                            specification.layouts.size(), specification.outputs.size()));
  }
  std::vector<OperandShape> outputs;
  for (std::size_t i = 0; i < specification.layouts.size(); ++i) {
    const OutputSpec& layout = specification.layouts[i];
    outputs.push_back({specification.outputs[i], layout.shape,
                       layout.strides.empty() ? contiguous_strides(layout.shape) : layout.strides,
                       layout.misalignment, 0,
                       place_of(layout, definition, definition.graph.arguments().size() + i)});
  }
  return outputs;
}

std::vector<TypedCall> type_specification(const Definition& definition,
                                          const Specification& specification) {
  const Types types = types_of(definition, specification);
  return type_call(definition, types.arguments, types.arrays,
                   outputs_of(definition, types, specification));
}

TypedCall only_kernel(const Definition& definition, const Specification& specification) {
  std::vector<TypedCall> parts = type_specification(definition, specification);
  if (parts.size() != 1) {
    throw Error(Code::unsupported, fmt::format("{}: the outputs have {} shapes, which is as many "
                                               "kernels; only one can be made at a time",
                                               definition.name, parts.size()));
  }
  return std::move(parts[0]);
}

// A program's outputs have the shapes that they have.
void check_no_shape(const Definition& definition, const Specification& specification) {
  if (specification.shape.empty()) return;
  throw Error(
      Code::unsupported,
      fmt::format("{}: the outputs of a program have their own shapes; none can be asked for",
                  definition.name));
}

std::uint32_t misalignment_of(std::uint64_t base, const ProgramOperand& operand, DType dtype) {
  const std::int64_t bytes = operand.layout.offset * bits(dtype) / 8;
  return static_cast<std::uint32_t>((base + static_cast<std::uint64_t>(bytes)) % 16);
}

// A kernel of a program with the types of what it reads and writes.
KernelOfCall kernel_of(const ProgramPlan& plan, const ProgramStep& step, const ProgramCall& call) {
  KernelOfCall kernel{*step.function, {}};
  const auto dtype_of = [&](const ProgramOperand& operand) {
    switch (operand.kind) {
      case ProgramOperand::Kind::argument: return call.arguments[operand.index].dtype;
      case ProgramOperand::Kind::output: return plan.output_dtypes[operand.index];
      case ProgramOperand::Kind::temporary: break;
    }
    return plan.temporaries[operand.index].dtype;
  };
  const std::vector<std::string>& names = step.function->impl().definition.graph.arguments();
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    const ProgramOperand& operand = step.inputs[i];
    ArgumentSpec spec;
    spec.name = names[i];
    spec.dtype = dtype_of(operand);
    spec.scalar = operand.scalar;
    if (operand.scalar) {
      spec.weak = call.arguments[operand.index].weak;
    } else {
      spec.shape = operand.shape;
      spec.strides = operand.layout.strides;
      std::uint64_t address = 0;
      if (operand.kind == ProgramOperand::Kind::argument) {
        std::size_t array = 0;
        for (std::size_t k = 0; k < operand.index; ++k) array += call.arguments[k].scalar ? 0 : 1;
        address = call.arrays[array].address;
      }
      spec.misalignment = misalignment_of(address, operand, spec.dtype);
    }
    kernel.specification.arguments.push_back(std::move(spec));
  }
  for (const ProgramOperand& operand : step.outputs) {
    const DType dtype = dtype_of(operand);
    kernel.specification.outputs.push_back(dtype);
    kernel.specification.layouts.push_back(
        {operand.shape, operand.layout.strides, misalignment_of(0, operand, dtype)});
  }
  return kernel;
}

std::vector<KernelOfCall> kernels_of_program(const Function& function,
                                             const Specification& specification) {
  const Definition& definition = function.impl().definition;
  check_names(definition, specification);
  const ProgramCall call = program_call(definition, specification);
  const ProgramPlan plan = plan_program(definition, call);
  std::vector<KernelOfCall> kernels;
  for (const ProgramStep& step : plan.steps) {
    if (step.function) kernels.push_back(kernel_of(plan, step, call));
  }
  return kernels;
}

}  // namespace

bool takes_program(const Function& function, const Specification& specification) {
  const Definition& definition = function.impl().definition;
  if (definition.typed) return false;
  if (fusion::program_op(definition.graph) != nullptr) return true;
  if (!fusion::works_along_axes(definition.graph)) return false;
  const Types types = types_of(definition, specification);
  return !is_one_kernel(definition, types.arguments, types.arrays);
}

ProgramInfo explain_program(const Function& function, const Specification& specification) {
  const Definition& definition = function.impl().definition;
  check_names(definition, specification);
  return plan_program(definition, program_call(definition, specification)).info;
}

OutputTypes output_types(const Function& function, const Specification& specification) {
  const Definition& definition = function.impl().definition;
  if (takes_program(function, specification)) {
    check_names(definition, specification);
    check_no_shape(definition, specification);
    ProgramPlan plan = plan_program(definition, program_call(definition, specification));
    return {std::move(plan.output_dtypes), std::move(plan.output_shapes)};
  }
  const Types types = types_of(definition, specification);
  OutputTypes result;
  for (OperandShape& output : outputs_of(definition, types, specification)) {
    result.dtypes.push_back(output.dtype);
    result.shapes.push_back(std::move(output.shape));
  }
  return result;
}

std::vector<KernelOfCall> kernels_of(const Function& function, const Specification& specification) {
  if (takes_program(function, specification)) return kernels_of_program(function, specification);
  const std::vector<TypedCall> parts =
      type_specification(function.impl().definition, specification);
  if (parts.size() == 1) return {{function, specification}};
  std::vector<KernelOfCall> kernels;
  for (const TypedCall& part : parts) {
    auto impl = std::make_shared<Function::Impl>();
    impl->definition = *part.definition;
    Specification own;
    if (!specification.shape.empty()) own.shape = part.shape;
    for (const std::string& name : impl->definition.graph.arguments()) {
      own.arguments.push_back(
          *std::ranges::find(specification.arguments, name, &ArgumentSpec::name));
    }
    for (const std::size_t output : part.outputs) {
      if (!specification.outputs.empty()) own.outputs.push_back(specification.outputs[output]);
      if (!specification.layouts.empty()) own.layouts.push_back(specification.layouts[output]);
    }
    kernels.push_back({Function(std::move(impl)), std::move(own)});
  }
  return kernels;
}

std::string emit_for(const Function& function, const Specification& specification,
                     std::string_view target, bool with_preamble) {
  const Definition& definition = function.impl().definition;
  const std::string resolved = target == "cpu" ? jit::host_target() : std::string(target);
  const EmittedCall emitted = emit_call(only_kernel(definition, specification), resolved);
  const NamedKernel named = name_kernel(emitted.request);
  if (with_preamble) return complete_source(emitted.request, named.entry_name);
  return fusion::with_entry(emitted.request.text, named.entry_name);
}

std::vector<EmittedCall> emit_all(const Function& function, const Specification& specification,
                                  std::string_view target) {
  const std::string resolved = target == "cpu" ? jit::host_target() : std::string(target);
  std::vector<EmittedCall> kernels;
  for (const TypedCall& part : type_specification(function.impl().definition, specification)) {
    kernels.push_back(emit_call(part, resolved));
  }
  return kernels;
}

CompiledKernel compile_for(const Function& function, const Specification& specification,
                           std::string_view target) {
  const Definition& definition = function.impl().definition;
  const std::string resolved = target == "cpu" ? jit::host_target() : std::string(target);
  const EmittedCall emitted = emit_call(only_kernel(definition, specification), resolved);
  KernelCode code = build_kernel(emitted.request);
  CompiledKernel kernel;
  kernel.info = {definition.name,
                 definition.expression,
                 code.named.entry_name,
                 code.named.key_text,
                 resolved,
                 emitted.variant,
                 fusion::with_entry(emitted.request.text, code.named.entry_name),
                 code.state,
                 code.state == CacheState::compiled ? code.compile_ms : 0,
                 emitted.bytes};
  kernel.resources = jit::resources(code.code, code.named.entry_name);
  kernel.source = complete_source(emitted.request, code.named.entry_name);
  kernel.code = std::move(code.code);
  kernel.log = std::move(code.log);
  return kernel;
}

Explanation explain_for(const Function& function, const Specification& specification,
                        std::string_view target) {
  const TypedCall call = only_kernel(function.impl().definition, specification);
  const std::string resolved = target == "cpu" ? jit::host_target() : std::string(target);
  const fusion::Layout layout = emit_call(call, resolved).layout;
  return {fusion::explain(call.shape, call.operands, operand_names(call.graph), layout),
          fusion::estimate(call.graph, call.shape, call.operands, layout, resolved)};
}

}  // namespace kiln
