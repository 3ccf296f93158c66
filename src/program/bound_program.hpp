// A bound run of a program: a Launch of several kernels and calls of the caller.
#pragma once

#include <memory>
#include <vector>

#include "call/bound_launch.hpp"
#include "program/program_impl.hpp"

namespace kiln {

class [[gnu::visibility("hidden")]] BoundProgram final : public Launch::Impl {
 public:
  BoundProgram(std::shared_ptr<Program::Impl> program,
               std::shared_ptr<const CachedProgramPlan> plan, const Stream& stream,
               std::span<const Argument> inputs, std::span<const View> outputs,
               const View& workspace);

  void refill() override;
  void run(const Stream& stream) const override;

 private:
  const std::shared_ptr<Program::Impl> program_;  ///< owns what the plan names
  const std::shared_ptr<const CachedProgramPlan> plan_;
  const ReadyProgram& ready_;
  const View workspace_;
  std::vector<void*> memories_;
};

}  // namespace kiln
