// Looks at arrays in host memory as numbers: ranges and differences for the report of `kiln run`.
// Nothing is computed here that a kernel computes.
#pragma once

#include <cstdint>
#include <optional>

#include "files/tensor_file.hpp"
#include "kiln/dtype.hpp"

namespace kiln::tool {

struct Range {
  double lowest = 0;  ///< of the finite elements
  double highest = 0;
  std::uint64_t finite = 0;
  std::uint64_t nans = 0;
  std::uint64_t infinities = 0;
};
/// Of `count` elements in C order; nothing for c64 and the dtypes for storage only.
std::optional<Range> range_of(const void* data, DType dtype, std::int64_t count);

struct Difference {
  double largest = 0;            ///< |actual - expected| over elements that are finite in both
  double largest_relative = 0;   ///< the same over |expected|, where that is not 0
  std::uint64_t mismatched = 0;  ///< where one is NaN or infinite and the other is not the same
};
/// Compares `actual` in C order with a tensor of the same shape. Throws Error(unsupported) for c64
/// and the dtypes for storage only.
Difference difference(const void* actual, DType dtype, const files::HostTensor& expected);

}  // namespace kiln::tool
