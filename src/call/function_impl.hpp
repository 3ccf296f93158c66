// What is behind a Function: its definition, and how a call of it becomes kernels.
#pragma once

#include "base/configuration.hpp"
#include "call/callable.hpp"
#include "fallback/general_launch.hpp"
#include "kiln/function.hpp"

namespace kiln {

struct Function::Impl final : Callable {
  explicit Impl(Definition defined)
      : Callable(defined.options.on_miss), definition(std::move(defined)) {
    if (base::on_miss_so_far(definition.options.on_miss) != OnMiss::fallback) return;
    load_likely_general_kernels(definition.graph, definition.options.accuracy);
  }

  const Definition definition;

 private:
  std::unique_ptr<Plan> make_plan(const Call& call, OnMiss on_miss) const override;
  bool has_classes() const override { return true; }
  CallNames names() const override { return names_of(definition); }
  std::string_view expression() const override { return definition.expression; }
  std::vector<KernelSpec> specs(const CallTypes& types) const override;
};

}  // namespace kiln
