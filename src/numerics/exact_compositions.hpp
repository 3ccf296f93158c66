// What the library functions of one argument mean, by their mathematical definitions and not by the
// ops that kiln makes them of: in long double, so that f64 results can be judged.
#pragma once

#include <string_view>

#include "kiln/dtype.hpp"

namespace kiln::numerics {

/// The exact result, in the dtype where that matters: for what stands in place of an infinity.
using ExactComposition = long double (*)(long double x, DType dtype);

/// Null for a name that no composition has.
ExactComposition exact_composition(std::string_view name);

}  // namespace kiln::numerics
