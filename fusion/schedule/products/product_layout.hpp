// Plans the layout of matrix-vector products: kernels whose rows share operands, such as a matrix
// of packed weights times one to eight vectors. They are recognised by structure, and every weight
// is read once for all vectors. Other reductions are planned in schedule/rows/row_layout.hpp.
#pragma once

#include <optional>
#include <span>

#include "fusion/schedule/rows/row_layout.hpp"

namespace kiln::fusion {

/// The layout of a reduction in one pass whose outputs are row-invariant, where one operand is
/// packed or repeats along many rows. Nothing for other kernels. Operands may have their elements
/// anywhere: the form, the width of vectors and the order in which they are added up follow from
/// sizes and dtypes. Elements that are no neighbours are gathered, or, where neighbours in the
/// memory of the largest operand are of neighbouring rows, loaded for several rows at once. The
/// axes of the layout are the batches', the columns' if a work item has several, the rows', then
/// the reduced ones, in C order. Arguments as of plan_rows(); `tiles`: the target has the matrix
/// instruction of preamble/product_tiles.h.
std::optional<SizedLayout> plan_products(const TypedGraph& graph, const ReduceSpace& space,
                                         const Sizes& shape, std::span<const SizedOperand> operands,
                                         const std::vector<bool>& row_invariant, Backend backend,
                                         bool tiles);

}  // namespace kiln::fusion
