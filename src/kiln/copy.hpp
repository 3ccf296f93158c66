// Copies between any two layouts and dtypes.
#pragma once

#include "kiln/view.hpp"

#pragma GCC visibility push(default)

namespace kiln {

/// What is copied where. Calls name the members, so that source and destination cannot be confused:
/// `copy(stream, {.from = x, .to = y})`.
struct Copy {
  View from;
  View to;
};

/// Every element of `from`, broadcast to the shape of `to` by NumPy's rules and cast to its dtype
/// as a written cast is, into `to`. Between equal dtypes the bits are kept, those of a NaN too.
/// Strides are free on both sides. One launch on `stream`, which may be capturing: of a fused
/// kernel, or of the device's own copy where both views are the same block of bytes. No memory is
/// allocated on the device. Throws Error as a call of a Function does: invalid_argument for shapes
/// that do not broadcast, for dtypes without a cast, and where `to` overlaps `from` otherwise than
/// exactly.
void copy(const Stream& stream, const Copy& copy);

}  // namespace kiln

#pragma GCC visibility pop
