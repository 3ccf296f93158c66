// The layout of kernels with running results along an axis (cumsum, cumprod, cummax): who takes
// which elements in which order.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fusion/infer/scan_space.hpp"
#include "fusion/schedule/layout.hpp"
#include "kiln/dims.hpp"

namespace kiln::fusion {

/// Operands as in plan_layout(), with strides over the space's shape. Rows along the axis go
/// through a block of threads; where neighbours lie along another axis, each thread takes columns.
Layout plan_scan(const ScanSpace& space, std::span<const Operand> operands, Backend backend);

}  // namespace kiln::fusion
