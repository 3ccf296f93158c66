// Emits matrix-vector products, kernels whose rows share operands, such as a matrix of packed
// weights times a few vectors: a thread takes several rows and columns at once, and what they share
// is loaded and computed once.
#pragma once

#include <string_view>

#include "fusion/emit/emit.hpp"
#include "fusion/schedule/products/product_loops.hpp"

namespace kiln::fusion {

/// `schedule` is of plan_products(), its operands the array arguments in the graph's order, then
/// the outputs; `graph` is what that was given, `loops` are of both.
KernelDescription emit_products(const TypedGraph& graph, const Schedule& schedule,
                                const ProductLoops& loops, Accuracy accuracy);

}  // namespace kiln::fusion
