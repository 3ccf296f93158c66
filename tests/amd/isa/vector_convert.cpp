// Conversions between floats, integers and packed formats.
#include <algorithm>
#include <limits>

#include "tests/amd/isa/lanewise.hpp"

namespace kiln::amd {
namespace {

template <class To>
constexpr auto saturated = [](auto value) {
  using From = decltype(value);
  using Limits = std::numeric_limits<To>;
  if (value != value) return To{0};
  const From beyond = static_cast<From>(2) * static_cast<From>(To{1} << (Limits::digits - 1));
  if (value < static_cast<From>(Limits::min())) return Limits::min();
  if (value >= beyond) return Limits::max();
  return static_cast<To>(value);
};

constexpr auto to_float = [](auto a) { return static_cast<float>(a); };
constexpr auto to_double = [](auto a) { return static_cast<double>(a); };
constexpr auto same = [](auto a) { return a; };
constexpr auto floored = [](float a) { return saturated<i32>(std::floor(a)); };
constexpr auto half_up = [](float a) {
  return saturated<i32>(std::floor(static_cast<double>(a) + 0.5));
};
constexpr auto halves_towards_zero = [](float a, float b) {
  return half_of(a, Round::zero) | half_of(b, Round::zero) << 16;
};
constexpr auto halves = [](float a, float b) { return half_of(a) | half_of(b) << 16; };

u32 bf16_of(float value) {
  const u32 bits = as_bits(value);
  if (is_nan(bits)) return bits >> 16 | 0x40;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
constexpr auto bf16s = [](float a, float b) { return bf16_of(a) | bf16_of(b) << 16; };

constexpr auto packed_byte = [](float a, u32 byte, u32 old) {
  const u32 shift = 8 * (byte & 3);
  const u32 value = saturated<std::uint8_t>(std::nearbyint(a));
  return (old & ~(u32{0xff} << shift)) | value << shift;
};
constexpr auto packed_signed = [](i32 a, i32 b) {
  return static_cast<u32>(std::clamp(a, -32768, 32767) & 0xffff) |
         static_cast<u32>(std::clamp(b, -32768, 32767)) << 16;
};
constexpr auto packed_unsigned = [](u32 a, u32 b) {
  return std::min(a, 0xffffU) | std::min(b, 0xffffU) << 16;
};

// v_cvt_f32_ubyte0 to 3; the half that the byte is not in may be unwritten.
template <int kByte>
VectorEntry byte_to_float() {
  return lanewise<F32, B32>([](u32 a) { return static_cast<float>(a >> (8 * kByte) & 0xff); })
      .shadowed([](const u32*, const u32* unset) {
        return (unset[0] >> (8 * kByte) & 0xff) != 0 ? 0xffffffffU : 0U;
      });
}

// ---- 8-bit floats: the variant says the format, then which part of a word it is

const SmallFormat& small_format(u32 variant) {
  static constexpr const SmallFormat* kFormats[] = {&kF8E4M3Fnuz, &kF8E5M2Fnuz, &kF8E4M3, &kF8E5M2};
  return *kFormats[variant & 3];
}
u32 small_to_bits(u32 variant, u32 byte) {
  return as_bits(small_to_float(small_format(variant), byte & 0xff));
}

// Bits, as a NaN has a sign of its own here.
constexpr auto small_to_word = [](u32 variant, u32 a) {
  return small_to_bits(variant, a >> (8 * (variant >> 2)));
};
constexpr auto smalls_to_words = [](u32 variant, u32 a) {
  const u32 pair = a >> (16 * (variant >> 2));
  return small_to_bits(variant, pair) | u64{small_to_bits(variant, pair >> 8)} << 32;
};
constexpr auto floats_to_smalls = [](u32 variant, float a, float b) {
  const bool saturate = variant >> 2 != 0;
  const SmallFormat& format = small_format(variant);
  return small_of(format, a, saturate) | small_of(format, b, saturate) << 8;
};
constexpr u32 kFp8 = 0;
constexpr u32 kBf8 = 1;
VectorEntry to_smalls(u32 format) {
  VectorEntry entry =
      lanewise<B16, F32, F32>(floats_to_smalls).of_small_floats(format).keeping_high();
  entry.saturates = true;
  return entry;
}

const VectorRow kConversions[] = {
    {"v_cvt_f32_f16", lanewise<F32, F16>(same)},
    {"v_cvt_f16_f32", lanewise<F16, F32>(same)},
    {"v_cvt_f64_f32", lanewise<F64, F32>(to_double)},
    {"v_cvt_f32_f64", lanewise<F32, F64>(to_float)},
    {"v_cvt_f32_i32", lanewise<F32, I32>(to_float)},
    {"v_cvt_f32_u32", lanewise<F32, B32>(to_float)},
    {"v_cvt_f64_i32", lanewise<F64, I32>(to_double)},
    {"v_cvt_f64_u32", lanewise<F64, B32>(to_double)},
    {"v_cvt_f16_i16", lanewise<F16, I16>(to_float)},
    {"v_cvt_f16_u16", lanewise<F16, B16>(to_float)},
    {"v_cvt_i32_f32", lanewise<I32, F32>(saturated<i32>)},
    {"v_cvt_u32_f32", lanewise<B32, F32>(saturated<u32>)},
    {"v_cvt_i32_f64", lanewise<I32, F64>(saturated<i32>)},
    {"v_cvt_u32_f64", lanewise<B32, F64>(saturated<u32>)},
    {"v_cvt_i16_f16", lanewise<I16, F16>(saturated<i16>)},
    {"v_cvt_u16_f16", lanewise<B16, F16>(saturated<u16>)},
    {"v_cvt_i32_i16", lanewise<I32, I16>(same)},
    {"v_cvt_u32_u16", lanewise<B32, B16>(same)},
    {"v_cvt_rpi_i32_f32 v_cvt_nearest_i32_f32", lanewise<I32, F32>(half_up)},
    {"v_cvt_flr_i32_f32 v_cvt_floor_i32_f32", lanewise<I32, F32>(floored)},
    {"v_cvt_f32_ubyte0", byte_to_float<0>()},
    {"v_cvt_f32_ubyte1", byte_to_float<1>()},
    {"v_cvt_f32_ubyte2", byte_to_float<2>()},
    {"v_cvt_f32_ubyte3", byte_to_float<3>()},
    {"v_cvt_pkrtz_f16_f32 v_cvt_pk_rtz_f16_f32", lanewise<B32, F32, F32>(halves_towards_zero)},
    {"v_cvt_pk_f16_f32", lanewise<B32, F32, F32>(halves)},
    {"v_cvt_pk_bf16_f32", lanewise<B32, F32, F32>(bf16s)},
    {"v_cvt_f32_bf16", lanewise<B32, B16>([](u16 a) { return u32{a} << 16; })},
    {"v_cvt_pk_u8_f32", lanewise<B32, F32, B32, B32>(packed_byte)},
    {"v_cvt_pk_i16_i32", lanewise<B32, I32, I32>(packed_signed)},
    {"v_cvt_pk_u16_u32", lanewise<B32, B32, B32>(packed_unsigned)},
    {"v_cvt_f32_fp8", lanewise<B32, B32>(small_to_word).of_small_floats(kFp8)},
    {"v_cvt_f32_bf8", lanewise<B32, B32>(small_to_word).of_small_floats(kBf8)},
    {"v_cvt_pk_f32_fp8", lanewise<B64, B32>(smalls_to_words).of_small_floats(kFp8)},
    {"v_cvt_pk_f32_bf8", lanewise<B64, B32>(smalls_to_words).of_small_floats(kBf8)},
    {"v_cvt_pk_fp8_f32", to_smalls(kFp8)},
    {"v_cvt_pk_bf8_f32", to_smalls(kBf8)},
};

}  // namespace

std::span<const VectorRow> conversion_rows() { return kConversions; }

}  // namespace kiln::amd
