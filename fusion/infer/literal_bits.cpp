#include "fusion/infer/literal_bits.hpp"

#include <fmt/format.h>

#include <bit>
#include <string>

#include "fusion/graph/number.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

std::string literal_text(const Literal& literal) {
  switch (literal.kind) {
    case Kind::boolean: return literal.bits != 0 ? "True" : "False";
    case Kind::signed_integer: return fmt::format("{}", static_cast<std::int64_t>(literal.bits));
    case Kind::unsigned_integer: return fmt::format("{}", literal.bits);
    default: return fmt::format("{}", literal.as_double());
  }
}

}  // namespace

std::uint64_t literal_bits(const Literal& literal, DType dtype, Rounding rounding,
                           std::string_view function) {
  const double value = literal.as_double();
  switch (dtype) {
    case DType::f64: return std::bit_cast<std::uint64_t>(value);
    case DType::f32: return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case DType::f16:
    case DType::bf16:
      if (rounding == Rounding::once)
        return std::bit_cast<std::uint32_t>(static_cast<float>(value));
      return encode(value, dtype);
    case DType::c64: return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case DType::boolean: return value != 0 ? 1 : 0;
    default: break;
  }
  const int width = bits(dtype);
  bool fits = true;
  if (literal.kind == Kind::unsigned_integer) {
    fits = dtype == DType::u64;
  } else if (kind(dtype) == Kind::unsigned_integer) {
    fits =
        static_cast<std::int64_t>(literal.bits) >= 0 && (width == 64 || literal.bits >> width == 0);
  } else {
    const auto signed_value = static_cast<std::int64_t>(literal.bits);
    fits = width == 64 || (signed_value >= -(std::int64_t{1} << (width - 1)) &&
                           signed_value < (std::int64_t{1} << (width - 1)));
  }
  if (!fits) {
    throw Error(
        Code::invalid_argument,
        fmt::format("{}: the literal {} does not fit {}, the dtype of its partner; write a cast",
                    function, literal_text(literal), name(dtype)));
  }
  return width == 64 ? literal.bits : literal.bits & ((std::uint64_t{1} << width) - 1);
}

}  // namespace kiln::fusion
