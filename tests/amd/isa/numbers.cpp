// See numbers.hpp.
#include "tests/amd/isa/numbers.hpp"

#include <algorithm>
#include <limits>

namespace kiln::amd {

float small_to_float(const SmallFormat& format, std::uint32_t bits) {
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

std::uint32_t half_of(double value, Round round) {
  const std::uint64_t bits = as_bits(value);
  const std::uint32_t sign = static_cast<std::uint32_t>(bits >> 48) & 0x8000;
  if (is_nan(bits)) return sign | 0x7e00 | (static_cast<std::uint32_t>(bits >> 42) & 0x3ff);
  const std::uint64_t magnitude = bits & 0x7fffffffffffffff;
  if (magnitude == 0) return sign;
  if (magnitude == 0x7ff0000000000000) return sign | 0x7c00;
  const int exponent = static_cast<int>(magnitude >> 52) - 1023;
  // 11 digits stay of 53, or fewer of a subnormal half; a subnormal double is far below all halves.
  constexpr int kLeast = -14;
  const int shift = std::min(42 + std::max(kLeast - exponent, 0), 63);
  const std::uint64_t significand = (magnitude & 0xfffffffffffff) | std::uint64_t{1} << 52;
  const std::uint64_t rest = significand & ((std::uint64_t{1} << shift) - 1);
  const std::uint64_t half = std::uint64_t{1} << (shift - 1);
  auto kept = static_cast<std::uint32_t>(significand >> shift);
  switch (round) {
    case Round::nearest: kept += rest > half || (rest == half && (kept & 1) != 0) ? 1 : 0; break;
    case Round::up: kept += rest > 0 && sign == 0 ? 1 : 0; break;
    case Round::down: kept += rest > 0 && sign != 0 ? 1 : 0; break;
    case Round::zero: break;
  }
  // The significand with its leading bit, and the exponent above it: a carry goes where it must.
  const std::uint32_t above =
      exponent < kLeast ? 0 : static_cast<std::uint32_t>(exponent - kLeast) << 10;
  if (above + kept < 0x7c00) return sign | (above + kept);
  const bool to_infinity = round == Round::nearest || (round == Round::up && sign == 0) ||
                           (round == Round::down && sign != 0);
  return sign | (to_infinity ? 0x7c00 : 0x7bff);
}

std::uint32_t small_of(const SmallFormat& format, float value, bool saturate) {
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

double fma_odd(double a, double b, double c) {
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
