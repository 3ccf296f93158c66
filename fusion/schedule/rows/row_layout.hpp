// The layout of kernels that reduce: how the rows of a ReduceSpace are shared out to threads.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fusion/infer/reduce_space.hpp"
#include "fusion/schedule/layout.hpp"
#include "fusion/schedule/rows/row_sharing.hpp"
#include "kiln/dims.hpp"

namespace kiln::fusion {

/// Operands as in plan_layout(), with strides over the space's shape; `uniform` says which have one
/// element for each row. Where the axis that is innermost in memory is kept, neighbouring threads
/// take neighbouring columns; else they share a row. `keep_order` keeps the order of the reduced
/// axes, for results that are places in a row.
Layout plan_rows(const ReduceSpace& space, std::span<const Operand> operands,
                 const std::vector<bool>& uniform, bool keep_order, Backend backend,
                 const RowFeatures& device = {});

}  // namespace kiln::fusion
