// Small weights as pairs of 16-bit floats, on NVIDIA GPUs: small integers less a whole number, the
// point, and 8-bit floats, all of which bf16 and f16 hold exactly.
#pragma once

#if KILN_NVIDIA

namespace kiln {

// The weight that is nearest to a quotient.
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

// What is added to the bits of a weight beside the power of two: with its highest bit turned round,
// a signed one is that much more (lifted()).
template <class T>
KILN_FN constexpr u32 bit_above() {
  return is_same<T, i4>() ? 8u : is_same<T, i8>() ? 0x80u : 0u;
}

// Weights below the exponent of a power of two, as pairs: 8-bit ones have no room in bf16.
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

// Of 4-bit weights the upper half of a byte is taken as it lies there, so that half of the shifts
// are not needed. As f16 that is sixteen times the weight beside the power of two. In bf16 the four
// bits reach into the exponent; with nothing else in it they are 2^-129 times the weight, be that
// subnormal or not, and the greatest power of two makes quarters of it: the lower halves become
// quarters too.
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

// What becomes of a point before it is given to other threads: what is to be added to such pairs,
// or the point itself.
template <class X, class T>
KILN_FN f32 point_term(f32 point) {
  if constexpr (!is_in_pairs<X, T>()) return point;
  return (-(f32(PairFormat<X>::kPowerValue) + f32(bit_above<T>())) - point) * weight_unit<X, T>();
}

// Either of a pair twice, as an instruction for pairs takes it by itself.
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

// Pairs of it, for the lower and the upper halves of bytes.
struct PointTerms {
  u32 lower;
  u32 upper;
};
template <class X, class T>
KILN_FN PointTerms point_terms(u32 lower) {
  if constexpr (!is_packed<T>()) return {lower, lower};
  return {lower, add_pairs<X>(lower, UpperHalf<X>::kLess * 0x00010001u)};
}

// Of two rows whose points are in one word.
struct PairTerms {
  PointTerms of[2];
};
template <class X, class T>
KILN_FN PairTerms terms_of_pair(u32 points) {
  const PointTerms both = point_terms<X, T>(points);
  return {
      {{twice<0>(both.lower), twice<0>(both.upper)}, {twice<1>(both.lower), twice<1>(both.upper)}}};
}

// Pair i of a word of weights, less a point, in weight_unit()s. Of 4-bit weights it is lanes i and
// i + 4, with two masked out at once; of 8-bit ones, neighbours.
template <class X, class T>
KILN_FN u32 weight_pair(u32 word, int i, PointTerms terms) {
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
    const f32 point = bit_cast<f32>(terms.lower << 16);
    return exact_pair<X>(from_point(InWord<T>{word, 2 * i}, point),
                         from_point(InWord<T>{word, 2 * i + 1}, point));
  } else if constexpr (kHasPairs && is_same<X, f16>()) {
    return pair_of_halves<T>(u16(word >> 16 * i));
  } else {
    return exact_pair<X>(number(InWord<T>{word, 2 * i}), number(InWord<T>{word, 2 * i + 1}));
  }
}

}  // namespace kiln

#endif
