// Calls of functions with running results along an axis, and the one kernel that computes them.
#pragma once

#include <span>
#include <vector>

#include "call/call_types.hpp"

namespace kiln {

/// Types a call as type_call() does, into one kernel. Throws Error(unsupported) where one kernel is
/// not enough, and for packed arrays.
TypedCall type_scan(const Definition& definition, std::span<const fusion::ArgumentType> arguments,
                    std::span<const OperandShape> arrays, std::span<const OperandShape> outputs,
                    fusion::TypedGraph graph);

/// The layout and text of such a call's kernel.
void emit_scan_call(const TypedCall& call, std::string_view target, EmittedCall& emitted);

}  // namespace kiln
