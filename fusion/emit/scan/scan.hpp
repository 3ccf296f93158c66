// Emits scans: kernels with running results along an axis (cumsum, cumprod, cummax). Whatever comes
// before, between and after them is computed for the same elements, in one pass over the axis.
#pragma once

#include <span>

#include "fusion/emit/emit.hpp"
#include "fusion/schedule/element_moves.hpp"

namespace kiln::fusion {

/// `graph` has no trivial running results and its space no conflict (infer/scan_space.hpp);
/// `schedule` is of plan_scan(), its operands the array arguments in the graph's order, then the
/// outputs, and `moves` are of element_moves().
KernelDescription emit_scan(const TypedGraph& graph, const Schedule& schedule,
                            std::span<const ElementMove> moves, Accuracy accuracy);

}  // namespace kiln::fusion
