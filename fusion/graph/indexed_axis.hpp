// The axis of an array along which data says where elements are.
#pragma once

#include <cstdint>

namespace kiln::fusion {

struct IndexedAxis {
  std::int64_t stride = 0;   ///< from one place to the next, in elements
  std::int64_t extent = -1;  ///< places that there are; -1: no axis is indexed
  bool exists() const { return extent >= 0; }
  friend bool operator==(const IndexedAxis&, const IndexedAxis&) = default;
};

}  // namespace kiln::fusion
