#include "core/view_bytes.hpp"

#include <cstdlib>
#include <optional>

namespace kiln {
namespace {

// In elements from the data.
ByteExtent elements_of(const View& view) {
  ByteExtent elements{view.offset(), view.offset() + 1};
  for (std::size_t k = 0; k < view.shape().size(); ++k) {
    const std::int64_t reach = view.strides()[k] * (view.shape()[k] - 1);
    (reach < 0 ? elements.low : elements.high) += reach;
  }
  return elements;
}

// Rows of neighbours, each of which begins at the same half of a byte, are rows of bytes; so is
// what lies whole bytes apart.
std::optional<fusion::ByteView> packed_bytes(const View& view) {
  fusion::ByteView bytes;
  bytes.address = reinterpret_cast<std::uintptr_t>(view.data());
  bytes.shape = view.shape();
  bytes.strides = view.strides();
  bool row = false;
  for (std::size_t k = 0; k < bytes.shape.size(); ++k) {
    std::int64_t& stride = bytes.strides[k];
    std::int64_t& size = bytes.shape[k];
    if (size <= 1) stride = 0;
    if (stride % 2 == 0) {
      stride /= 2;
      continue;
    }
    if (std::abs(stride) != 1 || row) return std::nullopt;
    row = true;
    const std::int64_t first = stride > 0 ? view.offset() : view.offset() - (size - 1);
    bytes.address += static_cast<std::uint64_t>(first >> 1);
    size = ((first + size - 1) >> 1) - (first >> 1) + 1;
    stride = 1;
  }
  return bytes;
}

}  // namespace

ByteExtent extent_of(const View& view) {
  const ByteExtent elements = elements_of(view);
  if (is_packed(view.dtype())) return {elements.low >> 1, (elements.high + 1) >> 1};
  const std::int64_t width = bits(view.dtype()) / 8;
  return {elements.low * width, elements.high * width};
}

fusion::ByteView bytes_of(const View& view) {
  fusion::ByteView bytes;
  if (!is_packed(view.dtype())) {
    bytes.address = reinterpret_cast<std::uintptr_t>(view.data());
    bytes.element_bytes = bits(view.dtype()) / 8;
    bytes.shape = view.shape();
    bytes.strides = view.strides();
    for (std::int64_t& stride : bytes.strides) stride *= bytes.element_bytes;
    return bytes;
  }
  if (std::optional<fusion::ByteView> packed = packed_bytes(view)) return *packed;
  const ByteExtent extent = extent_of(view);
  bytes.address =
      reinterpret_cast<std::uintptr_t>(view.data()) + static_cast<std::uint64_t>(extent.low);
  bytes.shape = Dims{extent.high - extent.low};
  bytes.strides = Dims{1};
  return bytes;
}

}  // namespace kiln
