// What is behind a Function: its definition and its plans.
#pragma once

#include "kiln/function.hpp"
#include "call/plan.hpp"
#include "call/plan_table.hpp"

namespace kiln {

struct Function::Impl {
  Definition definition;
  PlanTable plans;
};

/// The plan of a call, made if it is not there. Throws what make_plan throws.
const Plan& plan_for(Function::Impl& impl, const Call& call);

}  // namespace kiln
