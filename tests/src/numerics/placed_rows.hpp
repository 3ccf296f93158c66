// Rows of equal length, put at different places in memory.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "tests/src/program/run_program.hpp"

namespace kiln::testing {

/// How rows lie in memory, in elements; transposed ones are columns.
struct RowPlace {
  std::int64_t step = 1;
  std::int64_t gap = 0;
  std::int64_t lead = 0;
  bool transposed = false;
};

/// The rows of an array in C order, of two axes, with NaN between them.
inline HostArray placed(const HostArray& rows, const RowPlace& place) {
  const std::int64_t length = rows.shape[1];
  const std::int64_t step =
      place.transposed ? place.step * (rows.shape[0] + place.gap) : place.step;
  const std::int64_t pitch = place.transposed ? 1 : std::abs(step) * length + place.gap;
  HostArray array = HostArray::strided(rows.dtype, rows.shape, {pitch, step}, place.lead);
  std::ranges::fill(array.bytes, std::byte{0xff});
  const auto width = static_cast<std::size_t>(bits(rows.dtype)) / 8;
  for (std::int64_t row = 0; row < rows.shape[0]; ++row) {
    for (std::int64_t i = 0; i < length; ++i) {
      const auto to = static_cast<std::ptrdiff_t>(width) * (row * pitch + i * step);
      const auto from = width * static_cast<std::size_t>(row * length + i);
      std::copy_n(rows.bytes.begin() + static_cast<std::ptrdiff_t>(from), width,
                  array.bytes.begin() + static_cast<std::ptrdiff_t>(array.first) + to);
    }
  }
  return array;
}

}  // namespace kiln::testing
