// Small weights as pairs of 16-bit floats, on NVIDIA GPUs: small integers minus a whole number, the
// zero point, and 8-bit floats. bf16 and f16 hold all of these exactly.
#pragma once

#include "products.h"

#if KILN_NVIDIA

namespace kiln {

// The weight value nearest to a quotient.
template <class T>
KILN_FN f32 nearest_weight(f32 dividend, f32 divisor) {
  constexpr f32 kLeast = is_same<T, i4>() ? -8.0f : is_same<T, i8>() ? -128.0f : 0.0f;
  constexpr f32 kMost = is_same<T, i4>()   ? 7.0f
                        : is_same<T, i8>() ? 127.0f
                        : is_same<T, u4>() ? 15.0f
                                           : 255.0f;
  f32 reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(divisor));
  const f32 within = ::fminf(::fmaxf(dividend * reciprocal, kLeast), kMost);
  return (within + 12582912.0f) - 12582912.0f;
}

template <class X>
struct PairFormat;
template <>
struct PairFormat<bf16> {
  enum : u32 {
    kOne = 0x3f80,    // 1
    kPower = 0x4300,  // 128, to whose bits 0 to 127 can be added
    kPowerValue = 128,
  };
};
template <>
struct PairFormat<f16> {
  enum : u32 {
    kOne = 0x3c00,
    kPower = 0x6400,
    kPowerValue = 1024,
  };
};

// Two numbers that the format holds exactly.
template <class X>
KILN_FN u32 exact_pair(f32 low, f32 high) {
  if constexpr (is_same<X, bf16>()) {
    return __byte_perm(bit_cast<u32>(low), bit_cast<u32>(high), 0x7632);
  } else {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }
}

template <class X>
KILN_FN u32 add_pairs(u32 a, u32 b) {
  u32 sum;
  if constexpr (is_same<X, bf16>()) {  // sm_80 has no addition
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(0x3f803f80u), "r"(b));
  } else {
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  }
  return sum;
}

// The offset in the bits of a signed weight whose highest bit is flipped (lifted()).
template <class T>
KILN_FN constexpr u32 bit_above() {
  return is_same<T, i4>() ? 8u : is_same<T, i8>() ? 0x80u : 0u;
}

// Whether weights fit below the exponent of a power of two, as pairs: 8-bit ones do not fit bf16.
template <class X, class T>
KILN_FN constexpr bool is_in_pairs() {
  return is_packed<T>() || (is_same<X, f16>() && !is_same<T, f8e4m3>() && !is_same<T, f8e5m2>());
}

template <class X>
KILN_FN u32 fma_pairs(u32 a, u32 b, u32 c) {
  u32 sum;
  if constexpr (is_same<X, bf16>()) {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  } else {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  }
  return sum;
}

// The upper half of a byte of 4-bit weights is used in place, which saves half of the shifts. In
// f16 it is sixteen times the weight above the power of two. In bf16 the four bits reach into the
// exponent: alone they are 2^-129 times the weight, subnormal or not, and the greatest power of two
// makes quarters of it, so the lower halves are made quarters too.
template <class X, class T>
KILN_FN constexpr f32 weight_unit() {
  return is_packed<T>() && is_same<X, bf16>() ? 0.25f : 1.0f;
}
template <class X>
struct UpperHalf;
template <>
struct UpperHalf<bf16> {
  enum : u32 {
    kPower = 0,
    kFactor = 0x7f00,  // 2^127
    kLess = 0x4200,    // 32, what it lacks beside a lower half
  };
};
template <>
struct UpperHalf<f16> {
  enum : u32 {
    kPower = 0x6400,
    kFactor = 0x2c00,  // 1 / 16
    kLess = 0x6380,    // 960
  };
};

// A zero point as threads pass it to each other: the number to add to such pairs, or the zero point
// itself.
template <class X, class T>
KILN_FN f32 zero_point_term(f32 zero_point) {
  if constexpr (!is_in_pairs<X, T>()) return zero_point;
  return (-(f32(PairFormat<X>::kPowerValue) + f32(bit_above<T>())) - zero_point) *
         weight_unit<X, T>();
}

// One of a pair, twice, as instructions for pairs take it.
template <int Which>
KILN_FN u32 twice(u32 pair) {
  u32 result;
  if constexpr (Which == 0) {
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\nmov.b32 %0, {low, low};\n}"
        : "=r"(result)
        : "r"(pair));
  } else {
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\nmov.b32 %0, {high, high};\n}"
        : "=r"(result)
        : "r"(pair));
  }
  return result;
}

// The numbers to add to pairs from the lower and from the upper halves of bytes.
struct ZeroPointTerms {
  u32 lower;
  u32 upper;
};
template <class X, class T>
KILN_FN ZeroPointTerms zero_point_terms(u32 lower) {
  if constexpr (!is_packed<T>()) return {lower, lower};
  return {lower, add_pairs<X>(lower, UpperHalf<X>::kLess * 0x00010001u)};
}

// For two rows whose numbers are in one word.
struct PairTerms {
  ZeroPointTerms of[2];
};
template <class X, class T>
KILN_FN PairTerms terms_of_pair(u32 zero_points) {
  const ZeroPointTerms both = zero_point_terms<X, T>(zero_points);
  return {
      {{twice<0>(both.lower), twice<0>(both.upper)}, {twice<1>(both.lower), twice<1>(both.upper)}}};
}

// Pair i of a word of weights, minus a zero point, in units of weight_unit(). For 4-bit weights it
// is lanes i and i + 4, masked at once; for 8-bit ones, neighbours.
template <class X, class T>
KILN_FN u32 weight_pair(u32 word, int i, ZeroPointTerms terms) {
  if constexpr (is_packed<T>()) {
    const u32 bytes = word >> i / 2 * 8;
    if (i % 2 == 1) {
      const u32 bits = (UpperHalf<X>::kPower | bit_above<T>() << 4) * 0x00010001u;
      return fma_pairs<X>(select_bits(bytes, 0x00f000f0u, bits),
                          UpperHalf<X>::kFactor * 0x00010001u, terms.upper);
    }
    const u32 bits = (PairFormat<X>::kPower | bit_above<T>()) * 0x00010001u;
    const u32 lower = select_bits(bytes, 0x000f000fu, bits);
    if constexpr (is_same<X, bf16>()) return fma_pairs<X>(lower, 0x3e803e80u, terms.lower);
    return add_pairs<X>(lower, terms.lower);
  } else if constexpr (is_in_pairs<X, T>()) {
    const u32 bytes = word ^ bit_above<T>() * 0x01010101u;
    return add_pairs<X>(__byte_perm(bytes, 0x64646464u, i == 0 ? 0x4140 : 0x4342), terms.lower);
  } else if constexpr (is_same<T, u8>() || is_same<T, i8>()) {
    const f32 zero_point = bit_cast<f32>(terms.lower << 16);
    return exact_pair<X>(minus_zero_point(InWord<T>{word, 2 * i}, zero_point),
                         minus_zero_point(InWord<T>{word, 2 * i + 1}, zero_point));
  } else if constexpr (kHasPairs && is_same<X, f16>()) {
    return pair_of_halves<T>(u16(word >> 16 * i));
  } else {
    return exact_pair<X>(number(InWord<T>{word, 2 * i}), number(InWord<T>{word, 2 * i + 1}));
  }
}

}  // namespace kiln

#endif
