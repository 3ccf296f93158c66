// Plans the layout of kernels that reduce: how the rows of a ReduceSpace are mapped to threads.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fusion/infer/reduce_space.hpp"
#include "fusion/schedule/layout.hpp"
#include "fusion/schedule/rows/row_mapping.hpp"
#include "kiln/dims.hpp"

namespace kiln::fusion {

/// Operands as in plan_layout(), with strides over `shape`, which counts in place of the space's:
/// that may be the shape of another call. `row_invariant` are those with one element for each row.
/// If the axis that is innermost in memory is not reduced, neighbouring threads take neighbouring
/// columns; else they share a row. `keep_order` keeps the order of the reduced axes, for results
/// that are indices, as sums and products of floats do.
SizedLayout plan_rows(const ReduceSpace& space, const Sizes& shape,
                      std::span<const SizedOperand> operands,
                      const std::vector<bool>& row_invariant, bool keep_order, Backend backend,
                      const RowFeatures& device = {}, std::span<const AxisBound> bounds = {});
Layout plan_rows(const ReduceSpace& space, const Dims& shape, std::span<const Operand> operands,
                 const std::vector<bool>& row_invariant, bool keep_order, Backend backend,
                 const RowFeatures& device = {}, std::span<const AxisBound> bounds = {});

/// Whether a kernel brings an input into the L2 cache before its PDL wait (preamble/dependents.h):
/// one of which all rows read the same elements, such as the weights of a norm, which then come
/// from memory while the kernels before still write the rows.
bool is_prefetched(const Schedule& schedule, std::size_t input);

}  // namespace kiln::fusion
