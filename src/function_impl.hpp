// What is behind a Function: its definition and its plans.
#pragma once

#include "kiln/function.hpp"
#include "plan.hpp"
#include "plan_table.hpp"

namespace kiln {

struct Function::Impl {
  Definition definition;
  PlanTable plans;
};

}  // namespace kiln
