// Copies between any two layouts and dtypes.
#pragma once

#include "kiln/view.hpp"

namespace kiln {

/// Every element of `src`, broadcast to the shape of `dst` by NumPy's rules and cast to its dtype
/// as a written cast is, into `dst`. Between equal dtypes the bits are kept, those of a NaN too.
/// Strides are free on both sides. One launch on `stream`, which may be capturing: of a fused
/// kernel, or of the device's own copy where both views are the same block of bytes. No memory is
/// allocated on the device. Throws Error as a call of a Function does: invalid_argument for shapes
/// that do not broadcast, for dtypes without a cast, and where `dst` overlaps `src` otherwise than
/// exactly.
void copy(const Stream& stream, const View& src, const View& dst);

}  // namespace kiln
