#include "ahead/compile_only.hpp"

#include <fmt/format.h>

#include "call/call_specs.hpp"
#include "call/custom_kernel.hpp"
#include "call/function_impl.hpp"
#include "fusion/emit/emit.hpp"
#include "fusion/infer/shapes.hpp"
#include "kernel/kernel_build.hpp"
#include "kernel/kernel_ranges.hpp"
#include "kernel/target.hpp"
#include "kiln/error.hpp"
#include "kiln/view.hpp"
#include "program/plan.hpp"

namespace kiln {
namespace {

std::vector<ArrayType> outputs_of(const Definition& definition, const CallTypes& types,
                                  const Specification& specification) {
  const std::size_t expected = definition.graph.outputs().size();
  if (!specification.outputs.empty() && specification.outputs.size() != expected) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: expected the dtypes of {} outputs, got {}", definition.name,
                            expected, specification.outputs.size()));
  }
  if (specification.layouts.empty()) {
    return natural_outputs(definition, types, specification.outputs, specification.shape);
  }
  if (specification.layouts.size() != specification.outputs.size()) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: outputs: {} layouts and {} dtypes were given", definition.name,
                            specification.layouts.size(), specification.outputs.size()));
  }
  std::vector<ArrayType> outputs;
  for (std::size_t i = 0; i < specification.layouts.size(); ++i) {
    const OutputSpec& layout = specification.layouts[i];
    outputs.push_back({specification.outputs[i],
                       layout.shape,
                       layout.strides.empty() ? contiguous_strides(layout.shape) : layout.strides,
                       layout.misalignment,
                       0,
                       {layout.memory, layout.element}});
  }
  return outputs;
}

std::vector<KernelSpec> function_specs(const Definition& definition,
                                       const Specification& specification) {
  CallTypes types = argument_types(definition, specification);
  types.outputs = outputs_of(definition, types, specification);
  return call_specs(definition, types);
}

KernelSpec only_kernel(const Definition& definition, const Specification& specification) {
  std::vector<KernelSpec> kernels = function_specs(definition, specification);
  if (kernels.size() != 1) {
    throw Error(Code::unsupported, fmt::format("{}: the outputs have {} shapes, which is as many "
                                               "kernels; only one can be made at a time",
                                               definition.name, kernels.size()));
  }
  return std::move(kernels[0]);
}

CompiledKernel compiled_kernel(const KernelRequest& request, KernelInfo info) {
  KernelCode code = build_kernel(request);
  add_built(info, info_of(code));
  CompiledKernel kernel;
  kernel.info = std::move(info);
  kernel.resources = jit::resources(code.code, code.named.entry_name);
  kernel.source = complete_source(request, code.named.entry_name);
  kernel.code = std::move(code.code);
  kernel.log = std::move(code.log);
  return kernel;
}

// A program's outputs have the shapes that they have.
void check_no_shape(const Definition& definition, const Specification& specification) {
  if (specification.shape.empty()) return;
  throw Error(
      Code::unsupported,
      fmt::format("{}: the outputs of a program have their own shapes; none can be asked for",
                  definition.name));
}

}  // namespace

bool takes_program(const Function& function, const Specification& specification) {
  const Definition& definition = function.impl().definition;
  if (fusion::program_op(definition.graph) != nullptr) return true;
  if (fusion::has_indexed(definition.graph)) return true;
  if (!fusion::works_along_axes(definition.graph)) return false;
  return !is_one_kernel(definition, argument_types(definition, specification));
}

ProgramInfo explain_program(const Function& function, const Specification& specification,
                            std::string_view target) {
  const Definition& definition = function.impl().definition;
  return plan_program(definition, program_types(definition, specification, resolve_target(target)))
      .info;
}

OutputTypes output_types(const Function& function, const Specification& specification) {
  const Definition& definition = function.impl().definition;
  if (takes_program(function, specification)) {
    check_no_shape(definition, specification);
    ProgramPlan plan = plan_program(definition, program_types(definition, specification));
    return {std::move(plan.output_dtypes), std::move(plan.output_shapes)};
  }
  const CallTypes types = argument_types(definition, specification);
  OutputTypes result;
  for (ArrayType& output : outputs_of(definition, types, specification)) {
    result.dtypes.push_back(output.dtype);
    result.shapes.push_back(std::move(output.shape));
  }
  return result;
}

std::vector<KernelSpec> kernel_specs(const Function& function, const Specification& specification,
                                     std::string_view target) {
  const Definition& definition = function.impl().definition;
  if (!takes_program(function, specification)) return function_specs(definition, specification);
  return program_specs(function, specification, target);
}

std::vector<KernelSpec> program_specs(const Function& function, const Specification& specification,
                                      std::string_view target) {
  const Definition& definition = function.impl().definition;
  const CallTypes types = program_types(definition, specification, resolve_target(target));
  return step_specs(plan_program(definition, types), types);
}

std::string emit_for(const KernelSpec& kernel, std::string_view target, bool with_preamble) {
  const EmittedKernel emitted = emit_kernel(kernel, resolve_target(target));
  const NamedKernel named = name_kernel(emitted.request);
  return readable_text(emitted.request,
                       with_preamble ? complete_source(emitted.request, named.entry_name)
                                     : fusion::with_entry(emitted.request.text, named.entry_name));
}

std::string emit_for(const Function& function, const Specification& specification,
                     std::string_view target, bool with_preamble) {
  return emit_for(only_kernel(function.impl().definition, specification), target, with_preamble);
}

std::vector<EmittedKernel> emit_all(const Function& function, const Specification& specification,
                                    std::string_view target) {
  const std::string resolved = resolve_target(target);
  std::vector<EmittedKernel> kernels;
  for (const KernelSpec& spec : function_specs(function.impl().definition, specification)) {
    kernels.push_back(emit_kernel(spec, resolved));
  }
  return kernels;
}

CompiledKernel compile_for(const KernelSpec& spec, std::string_view target) {
  const EmittedKernel emitted = emit_kernel(spec, resolve_target(target));
  KernelInfo info =
      describe_kernels(spec.function.name, spec.function.expression, std::span(&emitted, 1));
  info.source = readable_text(
      emitted.request, emitted.request.text);  // compiled also where there is nothing to launch
  return compiled_kernel(emitted.request, std::move(info));
}

CompiledKernel compile_for(const Kernel& kernel, std::string_view target) {
  const std::string resolved = resolve_target(target);
  const Kernel::Impl& impl = *kernel.shared_impl();
  return compiled_kernel(impl.request(resolved), impl.info(resolved));
}

CompiledKernel compile_for(const Function& function, const Specification& specification,
                           std::string_view target) {
  return compile_for(only_kernel(function.impl().definition, specification), target);
}

Explanation explain_for(const KernelSpec& spec, std::string_view target) {
  const std::string resolved = resolve_target(target);
  const fusion::TypedGraph& graph = spec.function.graph;
  const EmittedKernel emitted = emit_kernel(spec, resolved);
  const std::vector<std::string> names = operand_names(graph);
  Explanation explanation{
      fusion::explain(spec.shape, spec.operands, names, emitted.layout),
      fusion::estimate(graph, spec.shape, spec.operands, emitted.layout, resolved)};
  if (emitted.passes) {
    explanation.layout.passes = fusion::explain_passes(graph, names, *emitted.passes);
  }
  explanation.ranges = schedule_ranges(spec, resolved);
  explanation.layout.loops = fusion::explain_moves(names, emitted.moves);
  if (emitted.loops) {
    explanation.layout.loops =
        fusion::explain_loops(names, emitted.layout.schedule, *emitted.loops);
  }
  return explanation;
}

}  // namespace kiln
