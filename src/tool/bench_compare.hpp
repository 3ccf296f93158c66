// Whether what a benchmark computed is right.
#pragma once

#include <cstddef>
#include <span>

#include "kiln/dtype.hpp"

namespace kiln::fusion {
struct TypedGraph;
}

namespace kiln::tool {

/// Whether `stored`, contiguous numbers of the float `dtype`, may be the roundings of what a
/// computation in f32 gives for the exact values `exact`: what was computed is within 2^-10 of the
/// exact value, or within 2^-14 of the typical size of all values, since a sum whose terms cancel
/// keeps their error. Rounding is monotone, so what is stored then lies between the roundings of
/// both ends. This follows the spacing of any format, among subnormals and at its ends too, and
/// allows two neighbouring numbers only where the exact value is near the point between them. NaN
/// is right only where NaN is exact.
bool may_be_rounded_from(DType dtype, std::span<const std::byte> stored,
                         std::span<const double> exact);

/// Takes written casts that round the result off the float outputs, so that the reference gives the
/// exact values that may_be_rounded_from() needs: a value that is rounded already no longer says
/// which of its neighbours was near.
void leave_outputs_unrounded(fusion::TypedGraph& graph);

}  // namespace kiln::tool
