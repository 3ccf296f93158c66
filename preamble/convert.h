// Conversions between every two element types: to<To>(x), with the meaning that kiln gives to a
// cast (float to integer truncates, saturates and takes NaN to 0; integers wrap; to bool is x !=
// 0). Narrow floats round to nearest even, once, also from f64 and i64. Arithmetic is elsewhere.
#pragma once

#include "types.h"

namespace kiln {

struct f4e2m1 {
  u8 bits;
};  // one value in the low half of a byte: packing is the loads' business
struct u4 {
  u8 bits;
};
struct i4 {
  u8 bits;
};

struct c64 {
  f32 re;
  f32 im;
};

enum class Category {
  boolean,
  stored_boolean,
  integer,
  stored_integer,
  real,
  stored_real,
  complex
};

// What conversions need to know about a type: what it is, the bits of an integer, and the layout of
// a narrow float as mantissa bits, exponent bias, largest code and the code of NaN.
template <class T>
struct Type;
template <>
struct Type<bool> {
  enum : int { kCategory = int(Category::boolean) };
};
template <>
struct Type<b8> {
  enum : int { kCategory = int(Category::stored_boolean) };
};
template <>
struct Type<f32> {
  enum : int { kCategory = int(Category::real) };
};
template <>
struct Type<f64> {
  enum : int { kCategory = int(Category::real) };
};
template <>
struct Type<c64> {
  enum : int { kCategory = int(Category::complex) };
};

template <class Self, class UnsignedSelf, class Arithmetic>
struct IntegerType {
  enum : int {
    kCategory = int(Category::integer),
    kBits = int(sizeof(Self)) * 8,
  };
  enum : bool { kSigned = Self(-1) < Self(0) };
  using Unsigned = UnsignedSelf;
  using Wide = Arithmetic;  // unsigned, and not promoted to int by arithmetic
  enum : Self {
    kMax = Self(kSigned ? (UnsignedSelf(-1) >> 1) : UnsignedSelf(-1)),
    kMin = Self(kSigned ? Self(-kMax - 1) : Self(0)),
  };
};
template <>
struct Type<u8> : IntegerType<u8, u8, u32> {};
template <>
struct Type<u16> : IntegerType<u16, u16, u32> {};
template <>
struct Type<u32> : IntegerType<u32, u32, u32> {};
template <>
struct Type<u64> : IntegerType<u64, u64, u64> {};
template <>
struct Type<i8> : IntegerType<i8, u8, u32> {};
template <>
struct Type<i16> : IntegerType<i16, u16, u32> {};
template <>
struct Type<i32> : IntegerType<i32, u32, u32> {};
template <>
struct Type<i64> : IntegerType<i64, u64, u64> {};
template <>
struct Type<u4> {
  enum : int { kCategory = int(Category::stored_integer) };
};
template <>
struct Type<i4> {
  enum : int { kCategory = int(Category::stored_integer) };
};

// kOverflow is where a magnitude beyond the largest finite one ends: infinity for f16 and bf16, the
// largest finite value for the 8-bit and 4-bit floats (OCP OFP8 and MX, saturating mode; infinities
// saturate too). kSpecial is the first magnitude that is an infinity or NaN.
template <int Mantissa, int ExponentBias, u32 Overflow, u32 Special, u32 Nan, bool Fnuz,
          class BitsType>
struct NarrowFloatType {
  enum : int {
    kCategory = int(Category::stored_real),
    kMantissa = Mantissa,
    kBias = ExponentBias,
  };
  enum : u32 {
    kOverflow = Overflow,
    kSpecial = Special,
    kNan = Nan,
  };
  enum : bool { kFnuz = Fnuz };  // no negative zero: its code is NaN
  using Bits = BitsType;
};
template <>
struct Type<f16> : NarrowFloatType<10, 15, 0x7c00, 0x7c00, 0x7e00, false, u16> {};
template <>
struct Type<bf16> : NarrowFloatType<7, 127, 0x7f80, 0x7f80, 0x7fc0, false, u16> {};
template <>
struct Type<f8e4m3> : NarrowFloatType<3, 7, 0x7e, 0x7f, 0x7f, false, u8> {};
template <>
struct Type<f8e5m2> : NarrowFloatType<2, 15, 0x7b, 0x7c, 0x7e, false, u8> {};
template <>
struct Type<f8e4m3fnuz> : NarrowFloatType<3, 8, 0x7f, 0x80, 0x80, true, u8> {};
template <>
struct Type<f8e5m2fnuz> : NarrowFloatType<2, 16, 0x7f, 0x80, 0x80, true, u8> {};
// f4e2m1 has no NaN: like the conversion instructions of GPUs, NaN becomes the largest value.
template <>
struct Type<f4e2m1> : NarrowFloatType<1, 1, 0x7, 0x8, 0x7, false, u8> {};

// Constants outside functions are enumerators or functions: NVRTC makes a variable in the
// GPU's memory of every constexpr one, and a module with variables takes the driver many times as
// long to load.
template <class A, class B>
struct Same {
  enum : bool { kValue = false };
};
template <class A>
struct Same<A, A> {
  enum : bool { kValue = true };
};
template <class A, class B>
KILN_FN constexpr bool is_same() {
  return Same<A, B>::kValue;
}
template <class T>
KILN_FN constexpr Category category() {
  return Category(Type<T>::kCategory);
}
template <class T>
KILN_FN constexpr bool is_integer() {
  return category<T>() == Category::integer;
}
template <class T>
KILN_FN constexpr bool is_real() {
  return category<T>() == Category::real;
}

// ---- narrow floats ------------------------------------------------------------------------------
// Branch-free on integers, so that host compilers vectorise it. A subnormal is scaled by one exact
// floating-point subtraction, or rounded by one addition: F. Giesen, "Half to float done quick".

template <class T>
KILN_FN f32 decode_bits(T value) {
  if constexpr (is_same<T, bf16>()) return bit_cast<f32>(u32(value.bits) << 16);
  using Format = Type<T>;
  constexpr int kShift = 23 - Format::kMantissa;
  constexpr int kWidth = is_same<T, f4e2m1>() ? 4 : int(sizeof(T)) * 8;
  constexpr u32 kSign = u32(1) << (kWidth - 1);
  constexpr u32 kRebias = u32(127 - Format::kBias) << 23;
  constexpr u32 kHidden = u32(1) << 23;
  const u32 bits = value.bits;
  const u32 magnitude = bits & (kSign - 1);
  const u32 sign = (bits & kSign) << (32 - kWidth);
  const u32 normal = (magnitude << kShift) + kRebias;
  const u32 subnormal =
      bit_cast<u32>(bit_cast<f32>(normal + kHidden) - bit_cast<f32>(kRebias + kHidden));
  u32 result = magnitude < (u32(1) << Format::kMantissa) ? subnormal : normal;
  if constexpr (Format::kFnuz) {
    return bit_cast<f32>(bits == Format::kNan ? 0x7fc00000u : result | sign);
  } else if constexpr (is_same<T, f8e4m3>()) {
    return bit_cast<f32>((magnitude == Format::kNan ? 0x7fc00000u : result) | sign);
  } else if constexpr (is_same<T, f4e2m1>()) {
    return bit_cast<f32>(result | sign);
  } else {
    const u32 special = 0x7f800000u | (magnitude << kShift);
    return bit_cast<f32>((magnitude >= Format::kSpecial ? special : result) | sign);
  }
}

template <class T>
KILN_FN T encode_bits(f32 value) {
  if constexpr (is_same<T, bf16>()) {
    // One choice among words, and one narrowing after it: what host compilers make the least of.
    const u32 bits = bit_cast<u32>(value);
    const u32 rounded = bits + 0x7fffu + ((bits >> 16) & 1);
    const u32 word = value != value ? bits | 0x400000u : rounded;
    return T{typename Type<T>::Bits(word >> 16)};
  }
  using Format = Type<T>;
  constexpr int kShift = 23 - Format::kMantissa;
  constexpr int kWidth = is_same<T, f4e2m1>() ? 4 : int(sizeof(T)) * 8;
  constexpr u32 kSmallestNormal = u32(128 - Format::kBias) << 23;
  constexpr u32 kRebias = u32(127 - Format::kBias) << 23;
  // Adding this puts the last bit of a subnormal result at the last bit of the sum.
  constexpr u32 kAligner = u32(127 + 24 - Format::kBias - Format::kMantissa) << 23;
  const u32 bits = bit_cast<u32>(value);
  const u32 magnitude = bits & 0x7fffffffu;
  const u32 sign = (bits >> (32 - kWidth)) & (u32(1) << (kWidth - 1));
  const u32 odd = (magnitude >> kShift) & 1;
  const u32 normal = (magnitude - kRebias + ((u32(1) << (kShift - 1)) - 1) + odd) >> kShift;
  const u32 subnormal =
      bit_cast<u32>(bit_cast<f32>(magnitude) + bit_cast<f32>(kAligner)) - kAligner;
  u32 result = magnitude < kSmallestNormal ? subnormal : normal;
  result = result > Format::kOverflow ? Format::kOverflow : result;
  if constexpr (Format::kFnuz) {
    const u32 code = result | (result == 0 ? 0u : sign);
    const u32 nan = Format::kNan;
    return T{u8(magnitude > 0x7f800000u ? nan : code)};
  } else if constexpr (is_same<T, f4e2m1>()) {
    return T{u8(magnitude > 0x7f800000u ? Format::kNan : result | sign)};
  } else {
    // The upper bits of a NaN's payload are kept where the format has room for them.
    constexpr u32 kPayload = is_same<T, f8e4m3>() ? 0 : (u32(1) << Format::kMantissa) - 1;
    const u32 nan = Format::kNan | ((magnitude >> kShift) & kPayload);
    return T{typename Format::Bits((magnitude > 0x7f800000u ? nan : result) | sign)};
  }
}

#if KILN_HOST
// Where a NaN has nothing in the bits that are cut off, so that rounding leaves it one: what comes
// of bf16 and of arithmetic.
KILN_FN bf16 to_bf16_of_short_nan(f32 value) {
  const u32 bits = bit_cast<u32>(value);
  return bf16{u16((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16)};
}
#endif

// F16C's instructions, where the host compiler makes vectors of them. Clang's __fp16 takes them one
// element at a time, up to 14 its only type: x + y went at 0.2 of a copy.
#if defined(__clang__)
#define KILN_VECTORS_OF_HALVES (__clang_major__ >= 15)
#else
#define KILN_VECTORS_OF_HALVES (__GNUC__ >= 14)
#endif
#if KILN_HOST && defined(__F16C__) && KILN_VECTORS_OF_HALVES
#define KILN_HALF 1
using HostHalf = _Float16;
#else
#define KILN_HALF 0
#endif

template <class T>
KILN_FN f32 decode(T value) {
#if KILN_AMD
  if constexpr (is_same<T, f16>()) return f32(bit_cast<_Float16>(value));
#elif KILN_NVIDIA
  if constexpr (is_same<T, f16>()) {
    f32 result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
  }
#elif KILN_HALF
  if constexpr (is_same<T, f16>()) return f32(__builtin_bit_cast(HostHalf, value));
#endif
  return decode_bits(value);
}

#if KILN_AMD
// LLVM 16 to 23 takes f16(a * b) for f16(fma(a, b, +0)), whatever contraction is asked for, and so
// makes +0 of -0. From 19 on it does not look for a product behind what makes a number canonical,
// and as products are, and most other results, that leaves no instruction and two products at a
// time. Up to 18 (HIP 6.3) it does look there; behind an asm it does not.
KILN_FN f32 hide_product(f32 value) {
#if __clang_major__ >= 19 && __clang_major__ < 24
  return __builtin_canonicalizef(value);
#elif __clang_major__ >= 16 && __clang_major__ < 19
  asm("" : "+v"(value));
  return value;
#else
  return value;
#endif
}
#endif

template <class T>
KILN_FN T encode(f32 value) {
#if KILN_AMD
  if constexpr (is_same<T, f16>()) return bit_cast<f16>(_Float16(hide_product(value)));
#elif KILN_NVIDIA
  if constexpr (is_same<T, f16>()) {
    f16 result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
  }
#if __CUDA_ARCH__ >= 800
  if constexpr (is_same<T, bf16>()) {
    bf16 result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
  }
#endif
#if __CUDA_ARCH__ >= 890
  if constexpr (is_same<T, f8e4m3>() || is_same<T, f8e5m2>()) {
    u16 pair;  // of the result and a zero; it has what a NaN is wrong: its sign, and payload
    if constexpr (is_same<T, f8e4m3>()) {
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
    } else {
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
    }
    const u32 bits = bit_cast<u32>(value);
    const u32 sign = (bits >> 24) & 0x80u;
    if constexpr (is_same<T, f8e4m3>()) return T{u8(pair | sign)};
    const u32 nan = 0x7eu | ((bits >> 21) & 1) | sign;
    return T{u8((bits & 0x7fffffffu) > 0x7f800000u ? nan : u32(pair))};
  }
#endif
#elif KILN_HALF
  if constexpr (is_same<T, f16>()) return __builtin_bit_cast(f16, HostHalf(value));
#endif
  return encode_bits<T>(value);
}

// The f32 from which rounding to a narrower float gives what rounding `value` itself would give:
// truncated with the last bit set when anything was cut off ("round to odd", Boldo and Melquiond,
// "Emulation of FMA and correctly rounded sums", 2008).
KILN_FN f32 round_to_odd(f64 value) {
  const f32 nearest = f32(value);
  const f64 back = nearest;
  const u32 bits = bit_cast<u32>(nearest);
  const f64 magnitude = value < 0 ? -value : value;
  const f64 back_magnitude = back < 0 ? -back : back;
  const u32 up = back_magnitude < magnitude ? bits + 1 : bits;
  const u32 odd = back_magnitude > magnitude ? bits - 1 : up;
  return bit_cast<f32>((bits & 1) ? bits : odd);
}

// The same for integers wider than an f32's mantissa. The lowest bits of large ones are first
// gathered into one sticky bit, so that the conversion is exact: to f32 of 32 bits, of which at
// most 24 are left, far below what a narrower float keeps of so large a number; to f64 of 64 bits.
template <class T>
KILN_FN f32 integer_to_odd(T value) {
  if constexpr (sizeof(T) <= 2) {
    return f32(value);
  } else if constexpr (sizeof(T) == 4) {
    constexpr u32 kExact = 1 << 24;
    const bool is_large = Type<T>::kSigned ? u32(value) + kExact > 2 * kExact : u32(value) > kExact;
    const T gathered = T((u32(value) & ~u32(0xff)) | ((u32(value) & 0xff) != 0 ? 0x100 : 0));
    return f32(is_large ? gathered : value);
  } else {
    const bool negative = Type<T>::kSigned && value < T(1) && value != T(0);
    u64 magnitude = negative ? u64(0) - u64(value) : u64(value);
    const u64 sticky = (magnitude & ~u64(0x7ff)) | ((magnitude & 0x7ff) != 0 ? 0x800 : 0);
    magnitude = magnitude >> 53 != 0 ? sticky : magnitude;
    const f32 result = round_to_odd(f64(magnitude));
    return negative ? -result : result;
  }
}

// ---- numbers ------------------------------------------------------------------------------------

// Clamped before it is converted, because C++ leaves the conversion of what does not fit undefined.
// The limits are the outermost values that the float can hold and the integer too.
template <class To, class From>
KILN_FN To truncate_saturating(From value) {
  using Target = Type<To>;
  constexpr int kDigits = Target::kBits - (Target::kSigned ? 1 : 0);
  constexpr int kMantissa = is_same<From, f32>() ? 24 : 53;
  constexpr int kCut = kDigits > kMantissa ? kDigits - kMantissa : 0;
  constexpr From kLargest = From((u64(Target::kMax) >> kCut) << kCut);
  constexpr From kSmallest = From(Target::kMin);
  const From number = value == value ? value : From(0);
  const From below = number > kLargest ? kLargest : number;
  const From inside = below < kSmallest ? kSmallest : below;
  To result;
  if constexpr (Target::kBits < 32) {
    result = To(i32(inside));
  } else {
    result = To(inside);
  }
  return kCut > 0 && number > kLargest ? To(Target::kMax) : result;
}

template <class To, class From>
KILN_FN To to(From value) {
  constexpr Category kTo = category<To>();
  constexpr Category kFrom = category<From>();
  if constexpr (is_same<To, From>()) {
    return value;
  } else if constexpr (kFrom == Category::stored_boolean) {
    return to<To>(value.bits != 0);
  } else if constexpr (is_same<From, u4>()) {
    return to<To>(i32(value.bits & 15));
  } else if constexpr (is_same<From, i4>()) {
    return to<To>(i32((value.bits & 15) ^ 8) - 8);
  } else if constexpr (kFrom == Category::stored_real) {
    return to<To>(decode(value));
  } else if constexpr (kTo == Category::complex) {
    return c64{to<f32>(value), 0.0f};
  } else if constexpr (kFrom == Category::complex && kTo == Category::boolean) {
    return value.re != 0.0f || value.im != 0.0f;
  } else if constexpr (kFrom == Category::complex && kTo != Category::stored_boolean) {
    return to<To>(value.re);
  } else if constexpr (kTo == Category::stored_boolean) {
    return b8{u8(to<bool>(value))};
  } else if constexpr (is_same<To, u4>() || is_same<To, i4>()) {
    // Through a byte, whose saturation of a float is followed by that of four bits.
    if constexpr (kFrom == Category::real) {
      constexpr From kSmallest = is_same<To, u4>() ? From(0) : From(-8);
      constexpr From kLargest = is_same<To, u4>() ? From(15) : From(7);
      const From number = value == value ? value : From(0);
      const From below = number > kLargest ? kLargest : number;
      return To{u8(i32(below < kSmallest ? kSmallest : below) & 15)};
    } else {
      return To{u8(u32(value) & 15)};
    }
  } else if constexpr (kTo == Category::stored_real) {
    if constexpr (is_same<From, f64>()) {
      return encode<To>(round_to_odd(value));
    } else if constexpr (kFrom == Category::integer) {
      return encode<To>(integer_to_odd(value));
    } else {
      return encode<To>(f32(value));
    }
  } else if constexpr (kTo == Category::boolean) {
    return value != From(0);
  } else if constexpr (kFrom == Category::real && kTo == Category::integer) {
    return truncate_saturating<To>(value);
#if KILN_HOST && !defined(__clang__) && __GNUC__ < 13
  } else if constexpr (kFrom == Category::integer && kTo == Category::real) {
    // These take f32(i32(x)) for trunc(x), which of x in (-1, 0) is -0.
    return value == From(0) ? To(0) : To(value);
#endif
  } else {
    return To(value);
  }
}

#if KILN_NVIDIA
// The integer that is nearest, even where two are: no less than `least`, no more than `most`, and 0
// for NaN.
KILN_FN i32 nearest_integer(f32 value, i32 least, i32 most) {
  i32 result;
  asm("cvt.rni.s32.f32 %0, %1;" : "=r"(result) : "f"(value));
  const i32 below = result > most ? most : result;
  return below < least ? least : below;
}
#endif
// to<To>(round(value)), where `rounded` is round(value): in one instruction where there is one.
template <class To>
KILN_FN To to_rounded(f32 value, f32 rounded) {
#if KILN_NVIDIA
  if constexpr (is_same<To, u4>()) {
    return To{u8(nearest_integer(value, 0, 15))};
  } else if constexpr (is_same<To, i4>()) {
    return To{u8(nearest_integer(value, -8, 7) & 15)};
  } else if constexpr (Type<To>::kBits <= 16) {
    return To(nearest_integer(value, i32(Type<To>::kMin), i32(Type<To>::kMax)));
  }
#endif
  return to<To>(rounded);
}

// `value` as memory would give it back, for Rounding::each: rounded<f16>(x) is to<f32>(to<f16>(x)).
template <class Stored>
KILN_FN f32 rounded(f32 value) {
  return to<f32>(to<Stored>(value));
}

}  // namespace kiln
