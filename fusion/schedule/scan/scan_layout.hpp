// Plans the layout of scans (cumsum, cumprod, cummax): which thread takes which elements, and in
// which order.
#pragma once

#include <span>
#include <string>

#include "fusion/schedule/layout.hpp"
#include "fusion/schedule/rows/row_mapping.hpp"
#include "kiln/dims.hpp"

namespace kiln::fusion {

/// Operands as in plan_layout(), with strides over `shape`, which is scanned along `axis`. A block
/// of threads scans a row along the axis; where neighbours in memory are along another axis, each
/// thread scans columns. Of what a test asks for, threads are those of a row, and at least as many
/// as have a block of the order of numerics.md.
SizedLayout plan_scan(const Sizes& shape, std::size_t axis, std::span<const SizedOperand> operands,
                      Backend backend, const ForcedRows& forced = {},
                      std::span<const AxisBound> bounds = {});
Layout plan_scan(const Dims& shape, std::size_t axis, std::span<const Operand> operands,
                 Backend backend);

}  // namespace kiln::fusion
