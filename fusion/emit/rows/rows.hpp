// Emits reductions along rows: whatever comes before the reductions, the reductions, and whatever
// comes after them, in one kernel that reads a row once if it fits on chip.
#pragma once

#include <string_view>

#include "fusion/emit/emit.hpp"
#include "fusion/schedule/rows/pass_schedule.hpp"

namespace kiln::fusion {

/// `graph` has no trivial reductions and its space no conflict (infer/reduce_space.hpp);
/// `schedule` is of plan_rows(), its operands the array arguments in the graph's order, then the
/// outputs; `passes` are of both.
KernelDescription emit_rows(const TypedGraph& graph, const Schedule& schedule,
                            const PassSchedule& passes, Accuracy accuracy);

}  // namespace kiln::fusion
