// Emits reductions along rows: whatever comes before the reductions, the reductions, and whatever
// comes after them, in one kernel that reads a row once if it fits on chip.
#pragma once

#include <string_view>

#include "fusion/emit/emit.hpp"

namespace kiln::fusion {

/// `graph` has no trivial reductions and its space no conflict (infer/reduce_space.hpp);
/// `schedule` is of plan_rows(), its operands the array arguments in the graph's order, then the
/// outputs.
KernelDescription emit_rows(const TypedGraph& graph, const Schedule& schedule, Accuracy accuracy);

}  // namespace kiln::fusion
