// Which bytes a view touches: a range around its data, and exactly for the overlap check. The one
// place that knows how packed elements share bytes.
#pragma once

#include <cstdint>

#include "fusion/schedule/overlap.hpp"
#include "kiln/view.hpp"

namespace kiln {

/// [low, high) in bytes from the view's data.
struct ByteExtent {
  std::int64_t low = 0;
  std::int64_t high = 0;
};
ByteExtent extent_of(const View& view);

/// For fusion::overlaps. Where a packed view's strides are such that its bytes are no strided view
/// themselves, every byte of its extent.
fusion::ByteView bytes_of(const View& view);

}  // namespace kiln
