// What is behind a Program: what it computes, and its plans.
#pragma once

#include <memory>

#include "call/function_impl.hpp"
#include "core/plan_table.hpp"
#include "kiln/program.hpp"
#include "program/ready_program.hpp"

namespace kiln {

struct Program::Impl {
  explicit Impl(std::shared_ptr<Function::Impl> of) : function(std::move(of)) {}

  const Definition& definition() const { return function->definition; }
  /// Made if it is not there; compiles nothing. Throws Error.
  std::shared_ptr<const CachedProgramPlan> plan_for(const Call& call);
  void run(const Call& call, const View& workspace);
  std::uint64_t workspace_bytes(const Call& call);
  /// Makes the kernels of the call's plan, and its class. Throws Error.
  const ReadyProgram& prepare(const Call& call, const CachedProgramPlan& plan);

  const std::shared_ptr<Function::Impl> function;

 private:
  const CachedProgramPlan* find(const Signature& signature) const;
  std::shared_ptr<const CachedProgramPlan> plan_for(const Call& call, const Signature& signature);

  PlanTable plans_;
};

}  // namespace kiln
