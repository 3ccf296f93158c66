// The layout of kernels whose rows share operands, such as a matrix of packed weights times one to
// eight vectors: recognised by structure, every weight read once for all vectors. Other reductions
// are laid out in schedule/rows/row_layout.hpp.
#pragma once

#include <optional>
#include <span>

#include "fusion/schedule/rows/row_layout.hpp"

namespace kiln::fusion {

/// The layout of a reduction in one pass that gives numbers per row only, over operands that are
/// each contiguous along the innermost reduced axis or do not move along it: where one of them is
/// packed, or the same for many rows. Nothing for other kernels. The axes of the layout are those
/// of batches, the columns' if there are several in a work item, the rows', then the reduced ones.
/// Arguments as of plan_rows(); `tiles` if the target has what preamble/product_tiles.h needs.
std::optional<Layout> plan_products(const TypedGraph& graph, const ReduceSpace& space,
                                    std::span<const Operand> operands,
                                    const std::vector<bool>& uniform, Backend backend, bool tiles);

}  // namespace kiln::fusion
