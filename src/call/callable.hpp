// What is called with views, and its plans: a Function, or a kernel of a Program.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "call/plan.hpp"
#include "core/plan_table.hpp"

namespace kiln {

class Callable {
 public:
  explicit Callable(OnMiss on_miss) : on_miss_(on_miss) {}
  Callable(const Callable&) = delete;
  Callable& operator=(const Callable&) = delete;
  virtual ~Callable() = default;

  /// Launches the call. Where its plan is there, or its class is known and tapes of its kernels
  /// hold: no lock and no allocation. Throws Error.
  void launch(const Call& call);
  /// The plan of a call, made if it is not there: then the call is checked, and its kernels are
  /// found or, as Options::on_miss says, compiled. What it names belongs to this. Throws Error.
  std::shared_ptr<const Plan> plan_for(const Call& call) {
    return plan_for(call, when_kept(on_miss_));
  }
  /// Under OnMiss::fallback it may be one of which kernels are missing.
  std::shared_ptr<const Plan> plan_for(const Call& call, OnMiss on_miss);
  /// The same for calls that may wait for each other's kernels: where some would be compiled, the
  /// call is checked, they are added to `missing`, and null is returned. Throws Error.
  std::shared_ptr<const Plan> plan_or_missing(const Call& call, std::vector<WantedKernel>& missing);
  /// Serves the call without its kernels (fallback/run_unfused.hpp). Throws Error.
  void fall_back(const Call& call) const;
  /// What such a call would launch now; compiles nothing. Throws Error.
  KernelInfo look_up(const Call& call);
  /// What such a call launches; compiled if it is not there, whatever Options::on_miss says.
  KernelInfo prepare(const Call& call);
  /// See PlanTable.
  std::vector<std::shared_ptr<jit::Kernel>> loaded_kernels() const {
    return plans_.loaded_kernels();
  }

 private:
  /// Checks the call and makes its plan, but for the signature.
  virtual std::unique_ptr<Plan> make_plan(const Call& call, OnMiss on_miss) const = 0;
  virtual CallNames names() const = 0;
  virtual std::string_view expression() const = 0;
  /// The kernels of a call of such types.
  virtual std::vector<KernelSpec> specs(const CallTypes& types) const = 0;
  /// Whether calls have classes (call_class.hpp).
  virtual bool has_classes() const { return false; }
  /// After all checks of a call and its memory.
  std::vector<KernelSpec> checked_specs(const Call& call) const;
  std::shared_ptr<const Plan> find(const Signature& signature) const;
  std::shared_ptr<const Plan> add_plan(const Call& call, const Signature& signature,
                                       OnMiss on_miss);

  const OnMiss on_miss_;
  PlanTable plans_;
};

}  // namespace kiln
