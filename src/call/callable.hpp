// What is called with views, and its plans: a Function, or a kernel of a Program.
#pragma once

#include <memory>

#include "call/plan.hpp"
#include "call/plan_table.hpp"

namespace kiln {

class Callable {
 public:
  explicit Callable(OnMiss on_miss) : on_miss_(on_miss) {}
  Callable(const Callable&) = delete;
  Callable& operator=(const Callable&) = delete;
  virtual ~Callable() = default;

  /// The plan of a call, made if it is not there: then the call is checked, and its kernels are
  /// found or, as Options::on_miss says, compiled. It stays as long as this does. Throws Error.
  const Plan& plan_for(const Call& call);
  /// What such a call launches; compiled if it is not there, whatever Options::on_miss says.
  KernelInfo prepare(const Call& call);

 private:
  /// Checks the call and makes its plan, but for the signature.
  virtual std::unique_ptr<Plan> make_plan(const Call& call, OnMiss on_miss) const = 0;
  const Plan& add_plan(const Call& call, const Signature& signature, OnMiss on_miss);

  const OnMiss on_miss_;
  PlanTable plans_;
};

}  // namespace kiln
