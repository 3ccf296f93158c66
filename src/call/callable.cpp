#include "call/callable.hpp"

#include "base/configuration.hpp"
#include "base/profiler_ranges.hpp"
#include "base/reclamation.hpp"
#include "call/call_class.hpp"
#include "call/manifest_log.hpp"
#include "fallback/run_unfused.hpp"
#include "kernel/emit_kernel.hpp"
#include "kiln/error.hpp"

namespace kiln {

void Callable::launch(const Call& call) {
  const base::ProfilerRange range([&] { return names().function; });
  const Signature signature(call);
  {
    const base::ReadSection reading;
    if (const CachedPlan* plan = plans_.find(signature.words(), signature.hash())) {
      launch_plan(static_cast<const Plan&>(*plan), call);
      return;
    }
    // Manifests list every shape.
    if (has_classes() && !logs_manifest() && launch_by_class(plans_, call, signature.hash())) {
      return;
    }
  }
  const OnMiss on_miss = base::on_miss_of(on_miss_);
  if (on_miss != OnMiss::fallback) {
    return launch_plan(*add_plan(call, signature, on_miss), call);
  }
  const bool kept = jit::backend(call.stream.device).is_capturing(call.stream);
  const auto plan = add_plan(call, signature, kept ? when_kept(on_miss) : on_miss);
  if (plan->missing.empty()) return launch_plan(*plan, call);
  const CompileLater later(plan->missing);  // the call comes first
  fall_back(call);
}

std::vector<KernelSpec> Callable::checked_specs(const Call& call) const {
  const CallTypes types = check_call(names(), call);
  check_overlap(names(), extents_of(call), call);
  std::vector<KernelSpec> kernels = specs(types);
  check_updates(names(), updates_of(kernels, call), call);
  return kernels;
}

void Callable::fall_back(const Call& call) const {
  const std::vector<KernelSpec> kernels = checked_specs(call);
  std::vector<UnfusedCall> unfused;
  for (const KernelSpec& spec : kernels) {
    unfused.push_back({&spec, {}});
    for (const std::size_t argument : spec.arguments) {
      unfused.back().scalars.push_back(call.inputs[argument].scalar());
    }
  }
  run_unfused(jit::backend(call.stream.device), call.stream, names().function, unfused);
}

std::shared_ptr<const Plan> Callable::plan_for(const Call& call, OnMiss on_miss) {
  const Signature signature(call);
  if (auto plan = find(signature)) return plan;
  return add_plan(call, signature, on_miss);
}

std::shared_ptr<const Plan> Callable::plan_or_missing(const Call& call,
                                                      std::vector<WantedKernel>& missing) {
  if (when_kept(on_miss_) != OnMiss::compile) return plan_for(call);
  try {
    return plan_for(call, OnMiss::fail);
  } catch (const Error& error) {
    if (error.code() != Code::would_compile) throw;
  }
  jit::Backend& backend = jit::backend(call.stream.device);
  for (const KernelSpec& spec : checked_specs(call)) {
    EmittedKernel emitted = emit_kernel(spec, backend.target());
    if (!emitted.is_empty()) missing.push_back({std::move(emitted.request), &backend});
  }
  return nullptr;
}

KernelInfo Callable::prepare(const Call& call) {
  const Signature signature(call);
  const std::shared_ptr<const Plan> known = find(signature);
  if (known == nullptr) return add_plan(call, signature, OnMiss::compile)->info;
  KernelInfo info = known->info;
  info.cache = CacheState::memory;
  info.compile_ms = 0;
  return info;
}

KernelInfo Callable::look_up(const Call& call) {
  const Signature signature(call);
  if (const auto known = find(signature)) {
    KernelInfo info = known->info;
    info.cache = CacheState::memory;
    info.compile_ms = 0;
    return info;
  }
  try {
    return add_plan(call, signature, OnMiss::fail)->info;
  } catch (const Error& error) {
    if (error.code() != Code::would_compile) throw;
  }
  const std::string target = jit::backend(call.stream.device).target();
  std::vector<EmittedKernel> kernels;
  for (const KernelSpec& spec : specs(check_call(names(), call))) {
    kernels.push_back(emit_kernel(spec, target));
  }
  KernelInfo info = describe_kernels(names().function, expression(), kernels);
  info.fallback = true;
  return info;
}

std::shared_ptr<const Plan> Callable::find(const Signature& signature) const {
  const base::ReadSection reading;
  const CachedPlan* const plan = plans_.find(signature.words(), signature.hash());
  if (plan == nullptr) return nullptr;
  return std::static_pointer_cast<const Plan>(plan->shared_from_this());
}

std::shared_ptr<const Plan> Callable::add_plan(const Call& call, const Signature& signature,
                                               OnMiss on_miss) {
  std::shared_ptr<Plan> plan = make_plan(call, on_miss);
  if (!plan->missing.empty()) return plan;
  plan->signature.assign(signature.words().begin(), signature.words().end());
  plan->hash = signature.hash();
  auto kept = std::static_pointer_cast<const Plan>(plans_.insert(std::move(plan)));
  if (has_classes()) {
    add_to_class(plans_, call, *kept, [&](const CallTypes& types) { return specs(types); });
  }
  return kept;
}

}  // namespace kiln
