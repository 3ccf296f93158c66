// Which packed arguments of a program have to be unpacked before kernels can reduce them. Kernels
// multiply packed rows (fusion/schedule/products/product_layout.hpp); of others they read a number at a time.
#pragma once

#include <vector>

#include "program/plan.hpp"

namespace kiln {

/// By their positions among the arguments; empty if there are none.
std::vector<bool> to_unpack(const ProgramPlan& plan, const ProgramCall& call);

}  // namespace kiln
