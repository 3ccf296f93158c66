// Numbers of every dtype as bits, and back: how literals, run-time scalars and the tool write
// values that no C++ type has. Rounds to nearest even in one step.
#pragma once

#include <cstdint>

#include "kiln/dtype.hpp"

namespace kiln::fusion {

/// The bits of `value` in a floating-point dtype (16 bits or more; Error(invalid_argument) for
/// others).
std::uint64_t encode(double value, DType dtype);

/// The value of `bits` in f16, bf16, f32 or f64 (exact); integers and bool as their value.
double decode(std::uint64_t bits, DType dtype);

}  // namespace kiln::fusion
