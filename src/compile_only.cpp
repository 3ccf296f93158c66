#include "compile_only.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "call_types.hpp"
#include "function_impl.hpp"
#include "fusion/emit.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

TypedCall type_specification(const Definition& definition, const Specification& specification) {
  std::vector<fusion::ArgumentType> types;
  std::vector<OperandShape> arrays;
  for (const std::string& name : definition.graph.arguments()) {
    const auto found = std::ranges::find(specification.arguments, name, &ArgumentSpec::name);
    if (found == specification.arguments.end()) {
      throw Error(Code::invalid_argument, fmt::format("{}: no type was given for the argument '{}'",
                                                      definition.name, name));
    }
    types.push_back({found->dtype, found->scalar, found->weak});
    if (found->scalar) continue;
    const Dims strides = found->strides.empty() ? contiguous_strides(found->shape) : found->strides;
    arrays.push_back({found->dtype, found->shape, strides, 0});
  }
  for (const ArgumentSpec& argument : specification.arguments) {
    if (std::ranges::find(definition.graph.arguments(), argument.name) ==
        definition.graph.arguments().end()) {
      throw Error(
          Code::invalid_argument,
          fmt::format("{}: there is no argument '{}'; the arguments are {}", definition.name,
                      argument.name, fmt::join(definition.graph.arguments(), ", ")));
    }
  }
  return type_call_natural(definition, types, arrays, specification.outputs);
}

}  // namespace

OutputTypes output_types(const Function& function, const Specification& specification) {
  const TypedCall call = type_specification(function.impl().definition, specification);
  OutputTypes types;
  types.shape = call.shape;
  for (const fusion::NodeId output : call.graph.outputs) {
    types.dtypes.push_back(call.graph.nodes[output].dtype);
  }
  return types;
}

std::string emit_for(const Function& function, const Specification& specification,
                     std::string_view target, bool with_preamble) {
  const Definition& definition = function.impl().definition;
  const std::string resolved = target == "cpu" ? jit::host_target() : std::string(target);
  const EmittedCall emitted =
      emit_call(definition, type_specification(definition, specification), resolved);
  KernelCode named = name_kernel(emitted.request);
  if (with_preamble) return std::move(named.source);
  return fusion::with_entry(emitted.kernel.source, named.entry_name);
}

CompiledKernel compile_for(const Function& function, const Specification& specification,
                           std::string_view target) {
  const Definition& definition = function.impl().definition;
  const std::string resolved = target == "cpu" ? jit::host_target() : std::string(target);
  const EmittedCall emitted =
      emit_call(definition, type_specification(definition, specification), resolved);
  KernelCode code = make_code(emitted.request);
  CompiledKernel kernel;
  kernel.info = {definition.name,
                 definition.expression,
                 code.entry_name,
                 code.key_text,
                 resolved,
                 emitted.variant,
                 fusion::with_entry(emitted.kernel.source, code.entry_name),
                 code.state,
                 code.state == CacheState::compiled ? code.compile_ms : 0,
                 emitted.bytes};
  kernel.resources = jit::resources(code.code, code.entry_name);
  kernel.source = std::move(code.source);
  kernel.code = std::move(code.code);
  kernel.log = std::move(code.log);
  return kernel;
}

}  // namespace kiln
