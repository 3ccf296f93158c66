// Floating-point formats that the host has no type for, bit for bit, and roundings that are not the
// host's. Nothing here knows instructions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace kiln::amd {

inline float as_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline std::uint32_t as_bits(float value) { return std::bit_cast<std::uint32_t>(value); }
inline double as_double(std::uint64_t bits) { return std::bit_cast<double>(bits); }
inline std::uint64_t as_bits(double value) { return std::bit_cast<std::uint64_t>(value); }

inline bool is_nan(std::uint32_t bits) { return (bits & 0x7fffffff) > 0x7f800000; }
inline bool is_nan(std::uint64_t bits) { return (bits & 0x7fffffffffffffff) > 0x7ff0000000000000; }
inline bool is_nan16(std::uint32_t bits) { return (bits & 0x7fff) > 0x7c00; }

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

inline float small_to_float(const SmallFormat& format, std::uint32_t bits) {
  const int width = 1 + format.exponent_bits + format.fraction_bits;
  const std::uint32_t sign = bits >> (width - 1) & 1;
  const std::uint32_t fraction = bits & ((1U << format.fraction_bits) - 1);
  const std::uint32_t top = (1U << format.exponent_bits) - 1;
  const std::uint32_t exponent = bits >> format.fraction_bits & top;
  const float negative = sign != 0 ? -1.0F : 1.0F;
  if (format.unsigned_zero) {
    if (sign != 0 && exponent == 0 && fraction == 0) return as_float(0x7fc00000);
  } else if (format.infinities) {
    if (exponent == top) {
      if (fraction == 0) return negative * std::numeric_limits<float>::infinity();
      return as_float(sign << 31 | 0x7f800000 | fraction << (23 - format.fraction_bits));
    }
  } else if (exponent == top && fraction == (1U << format.fraction_bits) - 1) {
    return as_float(sign << 31 | 0x7fc00000);
  }
  const int scale = (exponent == 0 ? 1 : static_cast<int>(exponent)) - format.bias;
  const std::uint32_t significand =
      exponent == 0 ? fraction : fraction | 1U << format.fraction_bits;
  return negative * std::ldexp(static_cast<float>(significand), scale - format.fraction_bits);
}

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
inline std::uint32_t half_of(double value, Round round = Round::nearest) {
  const std::uint64_t bits = as_bits(value);
  const std::uint32_t sign = static_cast<std::uint32_t>(bits >> 48) & 0x8000;
  if (is_nan(bits)) return sign | 0x7e00 | (static_cast<std::uint32_t>(bits >> 42) & 0x3ff);
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | 0x7c00;
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
  const int step = (exponent < -14 ? -14 : exponent) - 10;
  // At most 2^11, and what is cut off is cut off by this alone.
  const double scaled = std::ldexp(magnitude, -step);
  const double floor = std::floor(scaled);
  const double rest = scaled - floor;
  const bool is_odd = std::fmod(floor, 2) != 0;
  bool away = false;
  switch (round) {
    case Round::nearest: away = rest > 0.5 || (rest == 0.5 && is_odd); break;
    case Round::up: away = rest > 0 && sign == 0; break;
    case Round::down: away = rest > 0 && sign != 0; break;
    case Round::zero: break;
  }
  const double rounded = floor + (away ? 1 : 0);
  // The significand with its leading bit, and the exponent above it: a carry goes where it must.
  const auto significand = static_cast<std::uint32_t>(rounded);
  std::uint32_t result = exponent < -14
                             ? significand
                             : (static_cast<std::uint32_t>(exponent + 14) << 10) + significand;
  if (result >= 0x7c00) {
    const bool to_infinity = round == Round::nearest || (round == Round::up && sign == 0) ||
                             (round == Round::down && sign != 0);
    result = to_infinity ? 0x7c00 : 0x7bff;
  }
  return sign | result;
}

/// The bits of an 8-bit float nearest to `value`, ties to even. Beyond the largest: that if
/// `saturate`, else infinity or NaN as the format has it.
inline std::uint32_t small_of(const SmallFormat& format, float value, bool saturate) {
  const std::uint32_t top = (1U << format.exponent_bits) - 1;
  const std::uint32_t sign_bit = 1U << (format.exponent_bits + format.fraction_bits);
  const bool negative = std::signbit(value);
  const std::uint32_t sign = negative ? sign_bit : 0;
  const std::uint32_t nan =
      format.unsigned_zero ? sign_bit
      : format.infinities  ? sign | (top << format.fraction_bits) | 1U << (format.fraction_bits - 1)
                           : sign | (sign_bit - 1);
  std::uint32_t largest = sign_bit - 1;  // FNUZ: all ones
  if (!format.unsigned_zero) {
    largest = format.infinities ? (top << format.fraction_bits) - 1 : sign_bit - 2;
  }
  if (std::isnan(value)) return nan;
  const std::uint32_t beyond = saturate            ? sign | largest
                               : format.infinities ? sign | top << format.fraction_bits
                                                   : nan;
  if (std::isinf(value)) return beyond;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude == 0) return format.unsigned_zero ? 0 : sign;
  int exponent = std::ilogb(magnitude);
  const int least = 1 - format.bias;
  const int step = (exponent < least ? least : exponent) - format.fraction_bits;
  const double rounded = std::nearbyint(std::ldexp(magnitude, -step));
  const auto significand = static_cast<std::uint32_t>(rounded);
  const std::uint32_t result =
      exponent < least
          ? significand
          : (static_cast<std::uint32_t>(exponent - least) << format.fraction_bits) + significand;
  if (result > largest) return beyond;
  if (result == 0 && format.unsigned_zero) return 0;
  return sign | result;
}

/// a * b + c with what is lost marked in the last bit, so that rounding it again to 24 bits or
/// fewer is exact. The product of two floats or halves is.
inline double fma_odd(double a, double b, double c) {
  const double product = a * b;
  const double sum = product + c;
  if (!std::isfinite(sum)) return sum;
  const double back = sum - product;
  const double lost = (product - (sum - back)) + (c - back);
  if (lost == 0) return sum;
  std::uint64_t bits = as_bits(sum);
  if ((bits & 1) != 0) return sum;
  // Towards the exact value: outwards if what is lost has the sum's sign.
  bits += (lost > 0) == (sum > 0) ? 1 : static_cast<std::uint64_t>(-1);
  return as_double(bits);
}

}  // namespace kiln::amd
