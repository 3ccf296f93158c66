// One node of a typed graph on given operands, for the reference interpreter: constants and
// conversions here, operations by operation.hpp. Arguments, which need memory, are read
// by the interpreter's loops.
#pragma once

#include <span>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/reference/value.hpp"

namespace kiln::fusion::reference {

/// The value of the run-time number `node` that was given as `number`. A weak one is a literal:
/// like a constant it keeps the digits of an f32 beside narrow floats under Rounding::once.
Value scalar_value(const TypedGraph& graph, const TypedNode& node, const Value& number);

/// The value of `node` of `graph`, which is neither an argument nor a reduction.
Value evaluate_node(const TypedGraph& graph, const TypedNode& node,
                    std::span<const Value> operands);

}  // namespace kiln::fusion::reference
