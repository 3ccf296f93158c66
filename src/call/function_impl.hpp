// What is behind a Function: its definition and its plans.
#pragma once

#include "call/plan.hpp"
#include "call/plan_table.hpp"
#include "kiln/function.hpp"

namespace kiln {

struct Function::Impl {
  Definition definition;
  PlanTable plans;
};

/// The plan of a call, made if it is not there. Throws what make_plan throws.
const Plan& plan_for(Function::Impl& impl, const Call& call);

}  // namespace kiln
