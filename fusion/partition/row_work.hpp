// What the passes of one kernel that reduces compute of every element: each pass begins with the
// kernel's arrays, so what leads to a reduction is computed again by every pass after its own that
// needs it.
#pragma once

#include <vector>

#include "fusion/graph/typed_graph.hpp"

namespace kiln::fusion {

/// Operations on one element, in multiples of an f32 addition (OpTraits::cost).
struct RowWork {
  double once = 0;   ///< had each value been computed once
  double again = 0;  ///< what passes compute beyond that
  /// Whether one kernel is slower than two, with an array between them that one writes and the
  /// other reads. As much as is computed once is free: kernels keep what costs most from one pass
  /// to the next.
  bool is_better_cut() const;
  /// Whether the kernel's work and text have nothing to do any more with how many operations it
  /// has.
  bool is_out_of_bounds() const;
};

/// What each pass computes for: the values that its reductions reduce, and in the last one the
/// outputs. `row_invariant` are the nodes with one element for each row.
std::vector<std::vector<NodeId>> pass_roots(const TypedGraph& graph,
                                            const std::vector<bool>& row_invariant);

/// Stops as soon as the work is out of
/// bounds.
RowWork row_work(const TypedGraph& graph, const std::vector<bool>& row_invariant);

}  // namespace kiln::fusion
