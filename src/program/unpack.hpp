// Which packed arrays of a program have to be unpacked before kernels can reduce them or run along
// them. Kernels multiply packed rows (fusion/schedule/products/product_layout.hpp); of others they
// read a number at a time.
#pragma once

#include "program/plan.hpp"

namespace kiln {

/// Adds the packed arrays that `plan` has read by kernels of a kind that cannot. False if all are
/// there already.
bool add_to_unpack(fusion::Unpacked& unpacked, const ProgramPlan& plan, const CallTypes& call);

}  // namespace kiln
