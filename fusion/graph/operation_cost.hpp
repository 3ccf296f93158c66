// What operations cost: one figure for partitions, schedules and forecasts.
#pragma once

#include <span>

#include "fusion/graph/typed_graph.hpp"

namespace kiln::fusion {

/// Of one element of a node of `nodes`, in multiples of an f32 addition: OpTraits::cost or
/// narrow_cost, but for what follows from dtypes and operands: conversions, and quotients by a
/// constant.
double operation_cost(std::span<const TypedNode> nodes, const TypedNode& node);
/// The same where it is known whether a function is computed by a method for results of 16 bits.
double operation_cost(std::span<const TypedNode> nodes, const TypedNode& node, bool narrow);

}  // namespace kiln::fusion
