// Floating-point formats that the host has no type for, bit for bit, and roundings that are not the
// host's. Nothing here knows instructions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace kiln::amd {

inline float as_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline std::uint32_t as_bits(float value) { return std::bit_cast<std::uint32_t>(value); }
inline double as_double(std::uint64_t bits) { return std::bit_cast<double>(bits); }
inline std::uint64_t as_bits(double value) { return std::bit_cast<std::uint64_t>(value); }

inline bool is_nan(std::uint32_t bits) { return (bits & 0x7fffffff) > 0x7f800000; }
inline bool is_nan(std::uint64_t bits) { return (bits & 0x7fffffffffffffff) > 0x7ff0000000000000; }
inline bool is_nan16(std::uint32_t bits) { return (bits & 0x7fff) > 0x7c00; }

/// A signalling NaN made quiet.
inline float quieted(float nan) { return as_float(as_bits(nan) | 0x00400000); }
inline double quieted(double nan) { return as_double(as_bits(nan) | 0x0008000000000000); }

/// A format of 16 or fewer bits: sign, exponent, fraction.
struct SmallFormat {
  int exponent_bits;
  int fraction_bits;
  int bias;
  bool infinities;     ///< else the largest exponent is of numbers, too (OCP E4M3, and FNUZ)
  bool unsigned_zero;  ///< FNUZ: the bits of -0 are the only NaN
};
inline constexpr SmallFormat kF16{5, 10, 15, true, false};
inline constexpr SmallFormat kF8E4M3{4, 3, 7, false, false};
inline constexpr SmallFormat kF8E5M2{5, 2, 15, true, false};
inline constexpr SmallFormat kF8E4M3Fnuz{4, 3, 8, false, true};
inline constexpr SmallFormat kF8E5M2Fnuz{5, 2, 16, false, true};

/// Half to float by bits: exact, a NaN keeps its payload and its kind.
inline std::uint32_t half_to_bits(std::uint32_t half) {
  const std::uint32_t sign = (half & 0x8000) << 16;
  const std::uint32_t rest = half & 0x7fff;
  if (rest >= 0x7c00) return sign | 0x7f800000 | (rest & 0x3ff) << 13;
  // Multiplied by 2^112: subnormal halves become normal floats.
  return sign | as_bits(as_float(rest << 13) * 0x1p112F);
}
inline float half_to_float(std::uint32_t half) { return as_float(half_to_bits(half)); }

enum class Round : std::uint8_t { nearest, up, down, zero };

/// The nearest half of a double, which holds more than twice its digits: exact.
std::uint32_t half_of(double value, Round round = Round::nearest);

/// The bits of an 8-bit float nearest to `value`, ties to even. Beyond the largest: that if
/// `saturate`, else infinity or NaN as the format has it.
std::uint32_t small_of(const SmallFormat& format, float value, bool saturate);
float small_to_float(const SmallFormat& format, std::uint32_t bits);

/// a * b + c with what is lost marked in the last bit, so that rounding it again to 24 bits or
/// fewer is exact. The product of two floats or halves is.
double fma_odd(double a, double b, double c);

}  // namespace kiln::amd
