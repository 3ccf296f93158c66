#include "call/callable.hpp"

namespace kiln {

const Plan& Callable::plan_for(const Call& call) {
  const Signature signature(call);
  if (const Plan* plan = plans_.find(signature)) return *plan;
  return add_plan(call, signature, on_miss_);
}

KernelInfo Callable::prepare(const Call& call) {
  const Signature signature(call);
  const Plan* const known = plans_.find(signature);
  if (known == nullptr) return add_plan(call, signature, OnMiss::compile).info;
  KernelInfo info = known->info;
  info.cache = CacheState::memory;
  info.compile_ms = 0;
  return info;
}

const Plan& Callable::add_plan(const Call& call, const Signature& signature, OnMiss on_miss) {
  std::unique_ptr<Plan> plan = make_plan(call, on_miss);
  plan->signature.assign(signature.words().begin(), signature.words().end());
  plan->hash = signature.hash();
  return plans_.insert(std::move(plan));
}

}  // namespace kiln
