#include "tool/numbers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/number.hpp"
#include "kiln/error.hpp"

namespace kiln::tool {
namespace {

double number(const void* data, DType dtype, std::int64_t index) {
  const auto width = static_cast<std::size_t>(bits(dtype) / 8);
  std::uint64_t pattern = 0;
  std::memcpy(&pattern,
              static_cast<const std::byte*>(data) + index * static_cast<std::ptrdiff_t>(width),
              width);
  return fusion::decode(pattern, dtype);
}

bool is_number(DType dtype) { return !info(dtype).storage_only && dtype != DType::c64; }

/// Calls `visit` with the position of every element of a strided array, in C order.
template <class Visit>
void for_each_element(const Dims& shape, const Dims& strides, Visit visit) {
  const std::int64_t count = fusion::element_count(shape);
  Dims index(shape.size());
  std::int64_t element = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    visit(i, element);
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      element += strides[axis];
      if (++index[axis] < shape[axis]) break;
      element -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace

std::optional<Range> range_of(const void* data, DType dtype, std::int64_t count) {
  if (!is_number(dtype)) return std::nullopt;
  Range range;
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = number(data, dtype, i);
    if (std::isnan(value)) {
      ++range.nans;
    } else if (std::isinf(value)) {
      ++range.infinities;
    } else {
      range.lowest = range.finite ? std::min(range.lowest, value) : value;
      range.highest = range.finite ? std::max(range.highest, value) : value;
      ++range.finite;
    }
  }
  return range;
}

Difference difference(const void* actual, DType dtype, const files::HostTensor& expected) {
  if (!is_number(dtype) || !is_number(expected.dtype)) {
    throw Error(Code::unsupported, fmt::format("--expect: cannot compare {} with {}", name(dtype),
                                               name(expected.dtype)));
  }
  Difference result;
  for_each_element(expected.shape, expected.strides, [&](std::int64_t i, std::int64_t element) {
    const double a = number(actual, dtype, i);
    const double b = number(expected.data(), expected.dtype, element);
    if (std::isfinite(a) && std::isfinite(b)) {
      const double error = std::abs(a - b);
      result.largest = std::max(result.largest, error);
      if (b != 0) result.largest_relative = std::max(result.largest_relative, error / std::abs(b));
    } else if (!(std::isnan(a) && std::isnan(b)) && a != b) {
      ++result.mismatched;
    }
  });
  return result;
}

}  // namespace kiln::tool
