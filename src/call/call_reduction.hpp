// Calls of functions that contain reductions: the shapes of their outputs, and the one kernel that
// computes them.
#pragma once

#include <span>
#include <vector>

#include "call/call_types.hpp"

namespace kiln {

/// Types a call as type_call() does, into one kernel. A reduction keeps its axes with size one; an
/// output's view may leave those axes out. Throws Error(unsupported) where one kernel is not
/// enough.
TypedCall type_reduction(const Definition& definition,
                         std::span<const fusion::ArgumentType> arguments,
                         std::span<const OperandShape> arrays,
                         std::span<const OperandShape> outputs, fusion::TypedGraph graph);

/// Whether one kernel can compute a function that reduces or has running results, and several would
/// not be faster since its passes compute much again.
bool is_one_kernel(const Definition& definition, std::span<const fusion::ArgumentType> arguments,
                   std::span<const OperandShape> arrays);

/// Whether there is a kernel for such a call's packed operands, if it has any: on every target, or
/// on none.
bool can_reduce_packed(const TypedCall& call);

/// The shape of every argument, an empty one for a scalar.
std::vector<Dims> argument_shapes(const fusion::TypedGraph& graph,
                                  std::span<const OperandShape> arrays);

/// The shape of every output.
std::vector<Dims> reduction_shapes(const Definition& definition, const fusion::TypedGraph& graph,
                                   std::span<const OperandShape> arrays);

/// A view over the shape of its value: axes of size one that the view leaves out are put back.
/// Throws Error(invalid_argument) for any other shape.
OperandShape with_kept_axes(const Definition& definition, std::size_t index,
                            const OperandShape& output, const Dims& kept);

/// The layout and text of such a call's kernel.
void emit_reduction(const TypedCall& call, std::string_view target, EmittedCall& emitted);

}  // namespace kiln
