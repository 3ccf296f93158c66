#include "tool/numbers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kiln/error.hpp"

namespace kiln::tool {
namespace {

template <class T>
T load(const void* data, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + index * std::int64_t{sizeof(T)},
              sizeof(T));
  return value;
}

double half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const int mantissa = bits & 0x3ff;
  double value = 0;
  if (exponent == 0x1f) {
    value = mantissa ? std::numeric_limits<double>::quiet_NaN()
                     : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, -24);
  } else {
    value = std::ldexp(mantissa + 1024, exponent - 25);
  }
  return bits & 0x8000 ? -value : value;
}

double number(const void* data, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::boolean:
    case DType::u8: return load<std::uint8_t>(data, index);
    case DType::u16: return load<std::uint16_t>(data, index);
    case DType::u32: return load<std::uint32_t>(data, index);
    case DType::u64: return static_cast<double>(load<std::uint64_t>(data, index));
    case DType::i8: return load<std::int8_t>(data, index);
    case DType::i16: return load<std::int16_t>(data, index);
    case DType::i32: return load<std::int32_t>(data, index);
    case DType::i64: return static_cast<double>(load<std::int64_t>(data, index));
    case DType::f16: return half(load<std::uint16_t>(data, index));
    case DType::bf16:
      return std::bit_cast<float>(std::uint32_t{load<std::uint16_t>(data, index)} << 16);
    case DType::f32: return load<float>(data, index);
    default: return load<double>(data, index);
  }
}

bool is_number(DType dtype) { return !info(dtype).storage_only && dtype != DType::c64; }

/// Calls `visit` with the position of every element of a strided array, in C order.
template <class Visit>
void for_each_element(const Dims& shape, const Dims& strides, Visit visit) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
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

std::optional<double> number_at(const void* data, DType dtype, std::int64_t index) {
  if (!is_number(dtype)) return std::nullopt;
  return number(data, dtype, index);
}

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
