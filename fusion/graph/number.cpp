#include "fusion/graph/number.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

// A double as the bits of an IEEE format with `exponent` and `mantissa` bits, rounded to nearest
// even in one step.
std::uint64_t round_to_format(double value, int exponent_bits, int mantissa_bits) {
  const std::uint64_t sign =
      std::signbit(value) ? std::uint64_t{1} << (exponent_bits + mantissa_bits) : 0;
  const std::uint64_t infinity = ((std::uint64_t{1} << exponent_bits) - 1) << mantissa_bits;
  if (std::isnan(value)) return sign | infinity | (std::uint64_t{1} << (mantissa_bits - 1));
  if (std::isinf(value)) return sign | infinity;
  if (value == 0) return sign;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = 0;
  std::frexp(value, &exponent);  // |value| = f * 2^exponent, f in [0.5, 1)
  // The unit in the last place; below the smallest normal number it no longer shrinks.
  const int ulp_exponent = std::max(exponent - 1, 1 - bias) - mantissa_bits;
  const double units = std::nearbyint(std::ldexp(std::fabs(value), -ulp_exponent));
  // Adding instead of placing lets a carry move into the exponent, and up to infinity.
  const auto significand = static_cast<std::uint64_t>(units);
  const std::uint64_t hidden = std::uint64_t{1} << mantissa_bits;
  const int biased = significand < hidden ? 0 : ulp_exponent + mantissa_bits + bias;
  const std::uint64_t bits =
      biased == 0 ? significand
                  : (static_cast<std::uint64_t>(biased) << mantissa_bits) + (significand - hidden);
  return sign | std::min(bits, infinity);
}

double value_of_format(std::uint64_t bits, int exponent_bits, int mantissa_bits) {
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << mantissa_bits) - 1);
  const auto exponent =
      static_cast<int>(bits >> mantissa_bits & ((std::uint64_t{1} << exponent_bits) - 1));
  const int bias = (1 << (exponent_bits - 1)) - 1;
  double value;
  if (exponent == (1 << exponent_bits) - 1) {
    value = fraction != 0 ? std::nan("") : HUGE_VAL;
  } else {
    const std::uint64_t hidden = exponent == 0 ? 0 : std::uint64_t{1} << mantissa_bits;
    value = std::ldexp(static_cast<double>(hidden + fraction),
                       std::max(exponent, 1) - bias - mantissa_bits);
  }
  return (bits >> (exponent_bits + mantissa_bits) & 1) != 0 ? -value : value;
}

}  // namespace

std::uint64_t encode(double value, DType dtype) {
  switch (dtype) {
    case DType::f16: return round_to_format(value, 5, 10);
    case DType::bf16: return round_to_format(value, 8, 7);
    case DType::f32: return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case DType::f64: return std::bit_cast<std::uint64_t>(value);
    default:
      throw Error(
          Code::invalid_argument,
          fmt::format("encode: dtype: expected f16, bf16, f32 or f64, got {}", name(dtype)));
  }
}

double decode(std::uint64_t bits_of_value, DType dtype) {
  switch (dtype) {
    case DType::f16: return value_of_format(bits_of_value, 5, 10);
    case DType::bf16: return value_of_format(bits_of_value, 8, 7);
    case DType::f32: return std::bit_cast<float>(static_cast<std::uint32_t>(bits_of_value));
    case DType::f64: return std::bit_cast<double>(bits_of_value);
    default: break;
  }
  if (kind(dtype) != Kind::signed_integer) return static_cast<double>(bits_of_value);
  const int unused = 64 - bits(dtype);
  return static_cast<double>(static_cast<std::int64_t>(bits_of_value << unused) >> unused);
}

}  // namespace kiln::fusion
