#include "fusion/graph/broadcast.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace kiln::fusion {

std::optional<Dims> broadcast(const Dims& a, const Dims& b) {
  const Dims& longer = a.size() >= b.size() ? a : b;
  const Dims& shorter = a.size() >= b.size() ? b : a;
  Dims result = longer;
  const std::size_t skipped = longer.size() - shorter.size();
  for (std::size_t k = 0; k < shorter.size(); ++k) {
    std::int64_t& size = result[skipped + k];
    if (size == shorter[k] || shorter[k] == 1) continue;
    if (size != 1) return std::nullopt;
    size = shorter[k];
  }
  return result;
}

bool same_but_for_ones_in_front(const Dims& a, const Dims& b) {
  const Dims& longer = a.size() >= b.size() ? a : b;
  const Dims& shorter = a.size() >= b.size() ? b : a;
  const auto front = longer.end() - static_cast<std::ptrdiff_t>(shorter.size());
  return std::all_of(longer.begin(), front, [](std::int64_t size) { return size == 1; }) &&
         std::equal(front, longer.end(), shorter.begin());
}

Dims broadcast_strides(const Dims& own_shape, const Dims& own_strides, const Dims& shape) {
  Dims strides(shape.size(), 0);
  const std::size_t skipped = shape.size() - own_shape.size();
  for (std::size_t k = 0; k < own_shape.size(); ++k) {
    if (own_shape[k] != 1) strides[skipped + k] = own_strides[k];
  }
  return strides;
}

std::int64_t element_count(const Dims& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::int64_t element_count(const Dims& shape, const Dims& strides) {
  std::int64_t count = 1;
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (strides[k] != 0) count *= shape[k];
  }
  return count;
}

std::uint64_t byte_count(DType dtype, const Dims& shape) {
  const auto count = static_cast<std::uint64_t>(element_count(shape));
  return (count * static_cast<std::uint64_t>(bits(dtype)) + 7) / 8;
}

std::string to_string(const Dims& dims) {
  return fmt::format("[{}]", fmt::join(dims.begin(), dims.end(), ","));
}

}  // namespace kiln::fusion
