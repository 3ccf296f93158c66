// A kernel of a Program: a function whose types are known, where its operands begin in memory that
// they share, and which of them are at places that data says.
#pragma once

#include <memory>
#include <vector>

#include "call/callable.hpp"
#include "kernel/kernel_spec.hpp"

namespace kiln {

class StepKernel final : public Callable {
 public:
  /// `logged`: in manifests it is a function, since its program cannot be in one.
  StepKernel(TypedFunction function, std::vector<fusion::MemoryPlace> places,
             std::vector<fusion::IndexedAxis> indexed, bool logged)
      : Callable(function.options.on_miss),
        function_(std::move(function)),
        places_(std::move(places)),
        indexed_(std::move(indexed)),
        logged_(logged) {}

  const TypedFunction& function() const { return function_; }
  KernelSpec spec(CallTypes types) const;
  /// The memory that it takes without its plans, about.
  std::size_t bytes() const;

 private:
  std::unique_ptr<Plan> make_plan(const Call& call, OnMiss on_miss) const override;
  CallNames names() const override;
  std::string_view expression() const override { return function_.expression; }
  std::vector<KernelSpec> specs(const CallTypes& types) const override { return {spec(types)}; }

  const TypedFunction function_;
  const std::vector<fusion::MemoryPlace> places_;   ///< of the arguments, then of the outputs
  const std::vector<fusion::IndexedAxis> indexed_;  ///< of the same
  const bool logged_;
};

}  // namespace kiln
