// What is behind a Launch: a plan, the operands as they are now, and the parameters they make.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "call/function_impl.hpp"
#include "call/plan.hpp"
#include "kiln/error.hpp"
#include "kiln/function.hpp"

namespace kiln {

struct Launch::Impl {
  Impl(std::shared_ptr<Function::Impl> function, std::shared_ptr<const Plan> plan,
       const Stream& stream, std::span<const Argument> inputs, std::span<const View> outputs);

  Call call() const { return {stream, inputs, outputs}; }
  /// Checks the operands and writes the parameters again.
  void refill();
  /// Puts `value` into an operand and refills; if the call is then not right, nothing has changed.
  template <class Operand>
  void replace(Operand& operand, Operand value) {
    std::swap(operand, value);
    try {
      refill();
    } catch (const Error&) {
      std::swap(operand, value);
      throw;
    }
  }

  std::shared_ptr<Function::Impl> function;  ///< owns what the plan names
  std::shared_ptr<const Plan> held;
  const Plan& plan;
  Stream stream;
  std::vector<Argument> inputs;
  std::vector<View> outputs;
  /// The parameters of one kernel of the plan.
  struct Filled {
    std::vector<std::uint64_t> block;  ///< in words, for their alignment
    std::vector<void*> arguments;
  };
  std::vector<Filled> filled;
};

/// `view` with other data. Throws Error(invalid_argument) unless it is aligned as the old data is,
/// since the kernel was chosen by that.
View with_data(const View& view, void* data, std::string_view function, std::string_view setter,
               std::size_t index);

}  // namespace kiln
