// A run-time number as the bytes of a kernel's parameter.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "kiln/function.hpp"

namespace kiln {

/// Writes `scalar` as a `dtype` (f32, f64, bool or an integer of 8 bits or more) to `to`. False if
/// that is an integer dtype which cannot hold the number; nothing is written then.
inline bool put_scalar_bytes(std::byte* to, const Scalar& scalar, DType dtype) {
  static_assert(std::endian::native == std::endian::little, "the low bytes come first");
  const auto integer = static_cast<std::int64_t>(scalar.bits());
  const bool floating = is_floating(scalar.dtype());
  const double real = floating                       ? std::bit_cast<double>(scalar.bits())
                      : scalar.dtype() == DType::u64 ? static_cast<double>(scalar.bits())
                                                     : static_cast<double>(integer);
  if (dtype == DType::f32) {
    // Rounded once: an integer does not pass through the double.
    const auto value = floating                       ? static_cast<float>(real)
                       : scalar.dtype() == DType::u64 ? static_cast<float>(scalar.bits())
                                                      : static_cast<float>(integer);
    std::memcpy(to, &value, sizeof value);
    return true;
  }
  if (dtype == DType::f64) {
    std::memcpy(to, &real, sizeof real);
    return true;
  }
  if (dtype == DType::c64) {
    const float parts[2] = {static_cast<float>(real), 0.0f};
    std::memcpy(to, parts, sizeof parts);
    return true;
  }
  if (dtype == DType::boolean) {
    *to = std::byte{real != 0};
    return true;
  }
  const int width = bits(dtype);
  const bool large = scalar.dtype() == DType::u64 && integer < 0;
  const bool fits = kind(dtype) == Kind::unsigned_integer
                        ? (integer >= 0 || large) && (width == 64 || scalar.bits() >> width == 0)
                        : !large && (width == 64 || (integer >= -(std::int64_t{1} << (width - 1)) &&
                                                     integer < (std::int64_t{1} << (width - 1))));
  if (floating || !fits) return false;
  std::memcpy(to, &integer, static_cast<std::size_t>(width / 8));
  return true;
}

/// The number for messages.
std::string scalar_text(const Scalar& scalar);

}  // namespace kiln
