// On GPUs a kernel of rows need not run before the product that reads its result, as rms_norm
// before a matrix: where there are few rows and they are short beside the matrix, every block of
// the product computes them itself (fusion/schedule/products/prologue.hpp). The joined kernel
// computes what both did, operation by operation.
#pragma once

#include "program/plan.hpp"

namespace kiln {

/// Joins such steps of a plan for calls of those types, whose target is a GPU. Where temporaries
/// lie has to be decided again.
void join_prologues(ProgramPlan& plan, const CallTypes& call);

}  // namespace kiln
