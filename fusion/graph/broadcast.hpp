// NumPy's broadcasting of shapes and strides: which shape a call has, how each operand walks it,
// and how many elements and bytes that is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kiln/dims.hpp"
#include "kiln/dtype.hpp"

namespace kiln::fusion {

/// The shape of two broadcast against each other; nothing if an axis has two sizes, neither one.
std::optional<Dims> broadcast(const Dims& a, const Dims& b);

/// Whether one has all axes of the other, and else only axes of size one in front of them.
bool same_but_for_ones_in_front(const Dims& a, const Dims& b);

/// Strides over `shape` of an operand with `own_shape` and `own_strides`: 0 along the axes in which
/// it repeats. `own_shape` must broadcast to `shape`.
Dims broadcast_strides(const Dims& own_shape, const Dims& own_strides, const Dims& shape);

/// How many elements an array of that shape has.
std::int64_t element_count(const Dims& shape);

/// How many elements an operand with `strides` over `shape` has: an axis of stride 0 repeats them
/// and does not count.
std::int64_t element_count(const Dims& shape, const Dims& strides);

/// The bytes of a C-ordered array, the last one whole where packed elements leave half of it.
std::uint64_t byte_count(DType dtype, const Dims& shape);

/// "[63,172]".
std::string to_string(const Dims& dims);

}  // namespace kiln::fusion
