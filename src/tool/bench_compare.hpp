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
///
/// Of c64, `exact` has both parts of each number one after the other, and the larger of them is the
/// value: either part may be what is left of terms of that size. `slack` is allowed in any case:
/// see typical_difference().
bool may_be_rounded_from(DType dtype, std::span<const std::byte> stored,
                         std::span<const double> exact, double slack = 0);

/// The root of the mean square of the differences that are finite. Between what a function gives
/// exactly and what it gives where each step is rounded to f32 that is how far a right computation
/// in f32 may be off: the cosine of 30,000 is by 1e-3, since its argument is.
double typical_difference(std::span<const double> a, std::span<const double> b);

/// Takes written casts that round the result off the float outputs, so that the reference gives the
/// exact values that may_be_rounded_from() needs: a value that is rounded already no longer says
/// which of its neighbours was near.
void leave_outputs_unrounded(fusion::TypedGraph& graph);

}  // namespace kiln::tool
