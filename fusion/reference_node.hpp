// One node of a typed graph on given operands, for the reference interpreter: constants and
// conversions here, operations by reference_operation.hpp. Arguments, which need memory, are read
// by the interpreter's loops.
#pragma once

#include <span>

#include "fusion/infer.hpp"
#include "fusion/reference_value.hpp"

namespace kiln::fusion::reference {

/// The value of `node` of `graph`, which is neither an argument nor a reduction.
Value evaluate_node(const TypedGraph& graph, const TypedNode& node,
                    std::span<const Value> operands);

}  // namespace kiln::fusion::reference
