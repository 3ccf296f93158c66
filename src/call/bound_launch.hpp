// What is behind a Launch: the operands as they are now, and the parameters that they make of
// kernels. A bound call of a Function; that of a Program is program/bound_program.hpp.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "call/function_impl.hpp"
#include "call/plan.hpp"
#include "kiln/error.hpp"
#include "kiln/function.hpp"

namespace kiln {

struct Launch::Impl {
  Impl(const CallNames& names, const Stream& stream, std::span<const Argument> inputs,
       std::span<const View> outputs)
      : names(names),
        stream(stream),
        inputs(inputs.begin(), inputs.end()),
        outputs(outputs.begin(), outputs.end()) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  virtual ~Impl() = default;

  /// Checks the operands and writes the parameters again. Throws Error.
  virtual void refill() = 0;
  virtual void run(const Stream& stream) const = 0;

  Call call() const { return {stream, inputs, outputs}; }
  /// Puts `value` into an operand and refills; if the call is then not right, nothing has changed.
  template <class Operand>
  void replace(Operand& operand, Operand value) {
    std::swap(operand, value);
    try {
      refill();
    } catch (const Error&) {
      std::swap(operand, value);
      refill();  // some parameters may have been written
      throw;
    }
  }

  /// The parameters of one kernel.
  struct Filled {
    std::byte* bytes() { return reinterpret_cast<std::byte*>(block.data()); }
    const Plan* plan;
    const PlannedKernel* kernel;
    std::vector<std::uint64_t> block;  ///< in words, for their alignment
    std::vector<void*> arguments;
  };
  /// The plan must live as long as this does.
  void add_kernels(const Plan& plan);
  void launch(const Filled& kernel, const Stream& on) const {
    kernel.plan->backend->launch(*kernel.kernel->kernel, kernel.kernel->shape,
                                 const_cast<void**>(kernel.arguments.data()), on);
  }

  CallNames names;  ///< of what was bound
  KernelInfo info;
  Stream stream;
  std::vector<Argument> inputs;
  std::vector<View> outputs;
  std::vector<Filled> filled;
};

class [[gnu::visibility("hidden")]] BoundFunction final : public Launch::Impl {
 public:
  BoundFunction(std::shared_ptr<Function::Impl> function, std::shared_ptr<const Plan> plan,
                const Stream& stream, std::span<const Argument> inputs,
                std::span<const View> outputs);

  void refill() override;
  void run(const Stream& stream) const override;

 private:
  const std::shared_ptr<Function::Impl> function_;  ///< owns what the plan names
  const std::shared_ptr<const Plan> plan_;
};

}  // namespace kiln
