#include "call/callable.hpp"

#include "base/reclamation.hpp"
#include "call/call_class.hpp"
#include "call/manifest_log.hpp"

namespace kiln {

void Callable::launch(const Call& call) {
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
  launch_plan(*add_plan(call, signature, on_miss_), call);
}

std::shared_ptr<const Plan> Callable::plan_for(const Call& call, OnMiss on_miss) {
  const Signature signature(call);
  if (auto plan = find(signature)) return plan;
  return add_plan(call, signature, on_miss);
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

std::shared_ptr<const Plan> Callable::find(const Signature& signature) const {
  const base::ReadSection reading;
  const CachedPlan* const plan = plans_.find(signature.words(), signature.hash());
  if (plan == nullptr) return nullptr;
  return std::static_pointer_cast<const Plan>(plan->shared_from_this());
}

std::shared_ptr<const Plan> Callable::add_plan(const Call& call, const Signature& signature,
                                               OnMiss on_miss) {
  std::shared_ptr<Plan> plan = make_plan(call, on_miss);
  plan->signature.assign(signature.words().begin(), signature.words().end());
  plan->hash = signature.hash();
  auto kept = std::static_pointer_cast<const Plan>(plans_.insert(std::move(plan)));
  if (has_classes()) {
    add_to_class(plans_, call, *kept, [&](const CallTypes& types) { return specs(types); });
  }
  return kept;
}

}  // namespace kiln
