#include "program/step_kernel.hpp"

#include "call/manifest_log.hpp"

namespace kiln {

KernelSpec StepKernel::spec(CallTypes types) const {
  std::size_t array = 0;
  for (std::size_t i = 0; i < types.arguments.size(); ++i) {
    if (types.arguments[i].scalar) continue;
    types.arrays[array].place = places_[i];
    types.arrays[array++].indexed = indexed_[i];
  }
  for (std::size_t i = 0; i < types.outputs.size(); ++i) {
    types.outputs[i].place = places_[types.arguments.size() + i];
    types.outputs[i].indexed = indexed_[types.arguments.size() + i];
  }
  return kernel_spec(function_, types.arrays, types.outputs);
}

CallNames StepKernel::names() const {
  return {function_.name, function_.graph.argument_names, function_.graph.output_names};
}

std::size_t StepKernel::bytes() const {
  const fusion::TypedGraph& graph = function_.graph;
  std::size_t bytes = sizeof *this + function_.name.size() + function_.expression.size();
  bytes += places_.size() * (sizeof(fusion::MemoryPlace) + sizeof(fusion::IndexedAxis));
  bytes += graph.nodes.size() * sizeof(fusion::TypedNode);
  for (const auto* names : {&graph.argument_names, &graph.output_names}) {
    for (const std::string& name : *names) bytes += sizeof name + name.size();
  }
  return bytes;
}

std::unique_ptr<Plan> StepKernel::make_plan(const Call& call, OnMiss on_miss) const {
  const KernelSpec kernel = spec(check_call(names(), call));
  // The expression does not say that the kernel stores a result for each split, nor do views where
  // data says places.
  const bool is_function = function_.splits == 1 && function_.graph.indexed.empty();
  if (logged_ && logs_manifest() && is_function) {
    log_function(names(), function_.expression, function_.options,
                 specification_of(names(), call, places_));
  }
  return kiln::make_plan(names(), function_.expression, {&kernel, 1}, call, on_miss);
}

}  // namespace kiln
