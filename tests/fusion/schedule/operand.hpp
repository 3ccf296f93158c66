// Operands for tests of schedules.
#pragma once

#include <cstdint>
#include <utility>

#include "fusion/schedule/layout.hpp"

namespace kiln::fusion {

inline Operand operand(DType dtype, Dims strides, bool output = false,
                       std::uint64_t address = 4096) {
  return {dtype, output, std::move(strides), address};
}

}  // namespace kiln::fusion
