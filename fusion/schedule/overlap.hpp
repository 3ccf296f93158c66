// Whether two strided views touch a common byte: exact, by arithmetic on strides, not by walking.
#pragma once

#include <cstdint>
#include <string_view>

#include "kiln/dims.hpp"

namespace kiln::fusion {

/// The bytes of a strided view: elements of `element_bytes` at `address` + sum of index * stride.
struct ByteView {
  std::uint64_t address = 0;
  std::int64_t element_bytes = 1;
  Dims shape;
  Dims strides;  ///< in bytes
};

/// True if some element of `a` and some element of `b` share a byte. Deciding this is a bounded
/// linear Diophantine equation, which is hard in general and easy for the strides of real arrays;
/// where the search would take more than some ten thousand steps the answer is true, which is the
/// safe one.
bool overlaps(const ByteView& a, const ByteView& b);

/// True if two different elements of `view` share a byte, as those of a sliding window do. As exact
/// as `overlaps`.
bool overlaps_itself(const ByteView& view);

}  // namespace kiln::fusion
