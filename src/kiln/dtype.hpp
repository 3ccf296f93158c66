// The element types of kiln: their names, widths and kinds. Promotion and inference are in fusion/.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#pragma GCC visibility push(default)

namespace kiln {

/// The element type of an array. `boolean` is one byte, 0 or 1. `c64` is two f32. The last group is
/// for storage only: it is computed in f32 (floats) or i32 (u4, i4, packed two to a byte, low
/// nibble first).
enum class DType : std::uint8_t {
  boolean,
  u8,
  u16,
  u32,
  u64,
  i8,
  i16,
  i32,
  i64,
  f16,
  bf16,
  f32,
  f64,
  c64,
  f8e4m3,
  f8e5m2,
  f8e4m3fnuz,
  f8e5m2fnuz,
  u4,
  i4,
  f4e2m1,
};

enum class Kind : std::uint8_t { boolean, unsigned_integer, signed_integer, floating, complex };

struct DTypeInfo {
  DType dtype;
  std::string_view name;  ///< the text form's name, which is the device code's type name too
  Kind kind;
  int bits;
  bool storage_only;
};

inline constexpr std::array<DTypeInfo, 21> kDTypes = {{
    {DType::boolean, "bool", Kind::boolean, 8, false},
    {DType::u8, "u8", Kind::unsigned_integer, 8, false},
    {DType::u16, "u16", Kind::unsigned_integer, 16, false},
    {DType::u32, "u32", Kind::unsigned_integer, 32, false},
    {DType::u64, "u64", Kind::unsigned_integer, 64, false},
    {DType::i8, "i8", Kind::signed_integer, 8, false},
    {DType::i16, "i16", Kind::signed_integer, 16, false},
    {DType::i32, "i32", Kind::signed_integer, 32, false},
    {DType::i64, "i64", Kind::signed_integer, 64, false},
    {DType::f16, "f16", Kind::floating, 16, false},
    {DType::bf16, "bf16", Kind::floating, 16, false},
    {DType::f32, "f32", Kind::floating, 32, false},
    {DType::f64, "f64", Kind::floating, 64, false},
    {DType::c64, "c64", Kind::complex, 64, false},
    {DType::f8e4m3, "f8e4m3", Kind::floating, 8, true},
    {DType::f8e5m2, "f8e5m2", Kind::floating, 8, true},
    {DType::f8e4m3fnuz, "f8e4m3fnuz", Kind::floating, 8, true},
    {DType::f8e5m2fnuz, "f8e5m2fnuz", Kind::floating, 8, true},
    {DType::u4, "u4", Kind::unsigned_integer, 4, true},
    {DType::i4, "i4", Kind::signed_integer, 4, true},
    {DType::f4e2m1, "f4e2m1", Kind::floating, 4, true},
}};

constexpr const DTypeInfo& info(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)]; }
constexpr std::string_view name(DType dtype) { return info(dtype).name; }
constexpr int bits(DType dtype) { return info(dtype).bits; }
constexpr Kind kind(DType dtype) { return info(dtype).kind; }
constexpr bool is_integer(DType dtype) {
  return kind(dtype) == Kind::unsigned_integer || kind(dtype) == Kind::signed_integer;
}
/// Two elements to a byte, the first in its low half.
constexpr bool is_packed(DType dtype) { return bits(dtype) == 4; }
constexpr bool is_floating(DType dtype) { return kind(dtype) == Kind::floating; }

/// The dtype of that name, or nothing.
constexpr std::optional<DType> parse_dtype(std::string_view text) {
  for (const DTypeInfo& entry : kDTypes) {
    if (entry.name == text) return entry.dtype;
  }
  return std::nullopt;
}

}  // namespace kiln

#pragma GCC visibility pop
