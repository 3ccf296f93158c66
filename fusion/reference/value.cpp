// Conversions of the reference interpreter, written for clarity: values and formats as mathematics,
// through ldexp and rint, with no bit tricks.
#include "fusion/reference/value.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kiln/error.hpp"

namespace kiln::fusion::reference {
namespace {

// A binary format with fewer than 32 bits. Values are 2^(exponent - bias) (1 + mantissa / 2^bits).
struct Format {
  int mantissa_bits;
  int bias;
  long double largest;
  bool has_infinity;
  bool has_nan;
  bool negative_zero;
};

Format format_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return {10, 15, 65504.0L, true, true, true};
    case DType::bf16: return {7, 127, std::ldexp(255.0L, 120), true, true, true};
    case DType::f8e4m3: return {3, 7, 448.0L, false, true, true};
    case DType::f8e5m2: return {2, 15, 57344.0L, true, true, true};
    case DType::f8e4m3fnuz: return {3, 8, 240.0L, false, true, false};
    case DType::f8e5m2fnuz: return {2, 16, 57344.0L, false, true, false};
    case DType::f4e2m1: return {1, 1, 6.0L, false, false, true};
    default: throw Error(Code::internal, "reference: not a narrow float");
  }
}

// The 16-bit formats overflow to infinity, the smaller ones saturate.
bool overflows_to_infinity(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

constexpr long double kInfinity = std::numeric_limits<long double>::infinity();
constexpr long double kNan = std::numeric_limits<long double>::quiet_NaN();

long double round_narrow(long double value, DType dtype) {
  const Format format = format_of(dtype);
  if (std::isnan(value)) return format.has_nan ? value : format.largest;
  const long double limit = overflows_to_infinity(dtype) ? kInfinity : format.largest;
  if (std::isinf(value)) return std::copysign(limit, value);
  if (value == 0) return format.negative_zero ? value : 0.0L;
  const int exponent = std::max(std::ilogb(value), 1 - format.bias);
  const int last_bit = exponent - format.mantissa_bits;
  const long double rounded = std::ldexp(std::rint(std::ldexp(value, -last_bit)), last_bit);
  if (std::fabs(rounded) > format.largest) return std::copysign(limit, value);
  return rounded == 0 && !format.negative_zero ? 0.0L : rounded;
}

// The codes from 0 to the largest value are in the order of the values.
std::uint64_t encode_narrow(long double value, DType dtype) {
  const Format format = format_of(dtype);
  const int exponent_and_mantissa = bits(dtype) - 1;
  const std::uint64_t sign_bit = std::uint64_t{1} << exponent_and_mantissa;
  const std::uint64_t all_exponent =
      (sign_bit - 1) & ~((std::uint64_t{1} << format.mantissa_bits) - 1);
  if (std::isnan(value)) {
    if (!format.negative_zero) return sign_bit;
    if (!format.has_infinity) return sign_bit - 1;
    return all_exponent | std::uint64_t{1} << (format.mantissa_bits - 1);
  }
  const std::uint64_t sign = std::signbit(value) ? sign_bit : 0;
  if (std::isinf(value)) return sign | all_exponent;
  const long double size = std::fabs(value);
  if (size == 0) return sign;
  const int exponent = std::max(std::ilogb(size), 1 - format.bias);
  const auto scaled = static_cast<std::uint64_t>(std::ldexp(size, format.mantissa_bits - exponent));
  // A subnormal has exponent field 0; a normal one's hidden bit adds the 1 that is missing here.
  const auto field = static_cast<std::uint64_t>(exponent + format.bias - 1);
  return sign | ((field << format.mantissa_bits) + scaled);
}

long double decode_narrow(DType dtype, std::uint64_t code) {
  const Format format = format_of(dtype);
  const std::uint64_t sign_bit = std::uint64_t{1} << (bits(dtype) - 1);
  const std::uint64_t size = code & (sign_bit - 1);
  const bool negative = (code & sign_bit) != 0;
  if (!format.negative_zero && negative && size == 0) return kNan;
  const std::uint64_t mantissa_count = std::uint64_t{1} << format.mantissa_bits;
  const std::uint64_t field = size / mantissa_count;
  const std::uint64_t mantissa = size % mantissa_count;
  const std::uint64_t last_field = (sign_bit - 1) / mantissa_count;
  if (format.has_infinity && field == last_field)
    return mantissa != 0 ? kNan : negative ? -kInfinity : kInfinity;
  const int exponent = (field == 0 ? 1 : static_cast<int>(field)) - format.bias;
  const auto significand =
      static_cast<long double>(field == 0 ? mantissa : mantissa + mantissa_count);
  const long double value = std::ldexp(significand, exponent - format.mantissa_bits);
  if (value > format.largest) return kNan;
  return negative ? -value : value;
}

bool is_signed(DType dtype) { return kind(dtype) == Kind::signed_integer; }

Integer smallest(DType dtype) { return is_signed(dtype) ? -(Integer{1} << (bits(dtype) - 1)) : 0; }
Integer largest(DType dtype) {
  return (Integer{1} << (bits(dtype) - (is_signed(dtype) ? 1 : 0))) - 1;
}

Integer truncate(long double value, DType dtype) {
  if (std::isnan(value)) return 0;
  if (value <= static_cast<long double>(smallest(dtype))) return smallest(dtype);
  if (value >= static_cast<long double>(largest(dtype))) return largest(dtype);
  return static_cast<Integer>(value);
}

}  // namespace

Value from_real(DType dtype, long double real) { return {dtype, real, 0, 0}; }

Value from_integer(DType dtype, Integer integer) {
  if (dtype == DType::boolean) return {dtype, 0, 0, integer != 0 ? 1 : 0};
  const Integer modulus = Integer{1} << bits(dtype);
  Integer wrapped = integer % modulus;
  if (wrapped < 0) wrapped += modulus;
  if (wrapped > largest(dtype)) wrapped -= modulus;
  return {dtype, 0, 0, wrapped};
}

long double round_to(long double value, DType dtype) {
  if (dtype == DType::f64) return static_cast<double>(value);
  if (dtype == DType::f32 || dtype == DType::c64) return static_cast<float>(value);
  return round_narrow(value, dtype);
}

Value convert(const Value& value, DType dtype, bool rounds) {
  if (value.pattern && value.dtype == dtype) return value;
  const Kind from = kind(value.dtype);
  const Kind to = kind(dtype);
  const bool from_float = from == Kind::floating || from == Kind::complex;
  if (to == Kind::boolean) {
    const bool nonzero = from_float ? value.real != 0 || value.imag != 0 : value.integer != 0;
    return from_integer(dtype, nonzero ? 1 : 0);
  }
  if (to == Kind::signed_integer || to == Kind::unsigned_integer) {
    return from_integer(dtype, from_float ? truncate(value.real, dtype) : value.integer);
  }
  Value result =
      from_real(dtype, from_float ? value.real : static_cast<long double>(value.integer));
  if (to == Kind::complex) result.imag = value.imag;
  if (rounds) {
    result.real = round_to(result.real, dtype);
    result.imag = round_to(result.imag, dtype == DType::c64 ? dtype : DType::f64);
  }
  return result;
}

Value decode(DType dtype, std::uint64_t pattern) {
  Value value = from_real(dtype, 0);
  if (dtype == DType::f64) {
    value.real = std::bit_cast<double>(pattern);
  } else if (dtype == DType::f32 || dtype == DType::c64) {
    value.real = std::bit_cast<float>(static_cast<std::uint32_t>(pattern));
    if (dtype == DType::c64)
      value.imag = std::bit_cast<float>(static_cast<std::uint32_t>(pattern >> 32));
  } else if (is_floating(dtype)) {
    value.real = decode_narrow(dtype, pattern);
  } else {
    return from_integer(dtype, static_cast<Integer>(pattern));
  }
  value.pattern = pattern;
  return value;
}

std::uint64_t encode(const Value& value) {
  if (value.pattern) return *value.pattern;
  const auto float_bits = [](long double x) {
    return std::uint64_t{std::bit_cast<std::uint32_t>(static_cast<float>(x))};
  };
  if (value.dtype == DType::f64)
    return std::bit_cast<std::uint64_t>(static_cast<double>(value.real));
  if (value.dtype == DType::f32) return float_bits(value.real);
  if (value.dtype == DType::c64) return float_bits(value.real) | float_bits(value.imag) << 32;
  if (is_floating(value.dtype))
    return encode_narrow(round_narrow(value.real, value.dtype), value.dtype);
  const std::uint64_t all = static_cast<std::uint64_t>(value.integer);
  return bits(value.dtype) == 64 ? all : all & ((std::uint64_t{1} << bits(value.dtype)) - 1);
}

std::uint64_t read_bits(const void* data, DType dtype, std::int64_t index) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  if (bits(dtype) == 4) {
    const unsigned char pair = bytes[index >> 1];  // below 0 too
    return (index & 1) == 0 ? pair & 15U : pair >> 4U;
  }
  const int size = bits(dtype) / 8;
  std::uint64_t pattern = 0;
  std::memcpy(&pattern, bytes + index * size, static_cast<std::size_t>(size));
  return pattern;
}

Value read(const void* data, DType dtype, std::int64_t index) {
  return decode(dtype, read_bits(data, dtype, index));
}

void write(void* data, const Value& value, std::int64_t index) {
  auto* bytes = static_cast<unsigned char*>(data);
  const std::uint64_t pattern = encode(value);
  if (bits(value.dtype) == 4) {
    unsigned char& pair = bytes[index >> 1];
    pair = static_cast<unsigned char>((index & 1) == 0 ? (pair & 0xf0U) | pattern
                                                       : (pair & 0x0fU) | pattern << 4U);
    return;
  }
  const int size = bits(value.dtype) / 8;
  std::memcpy(bytes + index * size, &pattern, static_cast<std::size_t>(size));
}

}  // namespace kiln::fusion::reference
