// Small integers times integers of 8 bits: the products of a group are added up exactly, by the dot
// instructions of a device where it has them, before they are scaled.
//
// Four-bit weights stand in bytes, those of the lower halves apart from those of the upper ones,
// and a vector x is arranged like them once for all rows. Where an instruction takes bytes of one
// kind only, weights are moved to it: a weight is its byte plus weight_offset<T>(), and the sum of
// x makes up for that, as it does for zero points.
//
// Asked for by: DotWeights DotVector
#pragma once

#include "product_vectors.h"
#include "products.h"

namespace kiln {

// What weights are moved by. Signed ones of 4 bits become unsigned.
#if KILN_HOST
enum : int { kSignedByteOffset = -128, kUnsignedByteOffset = 0 };
#elif KILN_NVIDIA
enum : int { kSignedByteOffset = 0, kUnsignedByteOffset = 0 };
#else
// gfx11 and newer multiply bytes of either kind; some before them signed ones alone.
#if defined(__GFX11__) || defined(__GFX12__)
#define KILN_MIXED_DOT 1
#elif defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || \
    defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__) || defined(__gfx1011__) ||  \
    defined(__gfx1012__) || defined(__gfx1030__) || defined(__gfx1031__) ||                       \
    defined(__gfx1032__) || defined(__gfx1033__) || defined(__gfx1034__) ||                       \
    defined(__gfx1035__) || defined(__gfx1036__)
#define KILN_SIGNED_DOT 1
#endif
#ifdef KILN_SIGNED_DOT
enum : int { kSignedByteOffset = 0, kUnsignedByteOffset = 128 };
#else
enum : int { kSignedByteOffset = 0, kUnsignedByteOffset = 0 };
#endif
#endif
template <class T>
KILN_FN constexpr int weight_offset() {
  return is_same<T, i4>()   ? -8
         : is_same<T, i8>() ? int(kSignedByteOffset)
         : is_same<T, u8>() ? int(kUnsignedByteOffset)
                            : 0;
}

#if KILN_HOST

typedef i32 Dots __attribute__((vector_size(32)));
typedef f32 DotFloats __attribute__((vector_size(32)));
typedef i64 DotTotals __attribute__((vector_size(64)));
typedef u8 DotBytes __attribute__((vector_size(32)));
enum : int { kDotBytes = 32 };

#if defined(__clang__)
#define KILN_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define KILN_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, DotBytes{__VA_ARGS__})
#endif

KILN_FN DotBytes dot_bytes(const void* from) {
  DotBytes bytes;
  __builtin_memcpy(&bytes, from, sizeof bytes);
  return bytes;
}

// Four products of bytes are added to each lane; those of `a` are unsigned, those of `b` signed.
// Fewer than eight bits are in a byte of `a` if it is of `Few`.
template <bool Few>
KILN_FN Dots add_dots(Dots sum, DotBytes a, DotBytes b) {
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
#elif defined(__AVXVNNI__)
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
  return sum;
#else
  typedef i16 Halves __attribute__((vector_size(32)));
#ifdef __AVX2__
  typedef char Chars __attribute__((vector_size(32)));
  if constexpr (Few) {  // two products fit 16 bits
    const Halves pairs = (Halves)__builtin_ia32_pmaddubsw256((Chars)a, (Chars)b);
    return sum + (Dots)__builtin_ia32_pmaddwd256(pairs, Halves{} + i16(1));
  }
  const Halves even = (Halves)(a & (DotBytes)(Halves{} + i16(0xff)));
  const Halves odd = (Halves)a >> 8 & i16(0xff);
  return sum + (Dots)__builtin_ia32_pmaddwd256(even, (Halves)b << 8 >> 8) +
         (Dots)__builtin_ia32_pmaddwd256(odd, (Halves)b >> 8);
#else
  // A product of two bytes fits 16 bits, four of them do not.
  const Halves even = (Halves)((Halves)a & i16(0xff)) * ((Halves)b << 8 >> 8);
  const Halves odd = (Halves)((Halves)a >> 8 & i16(0xff)) * ((Halves)b >> 8);
  return sum + ((Dots)even << 16 >> 16) + ((Dots)even >> 16) + ((Dots)odd << 16 >> 16) +
         ((Dots)odd >> 16);
#endif
#endif
}

template <class T, int Lanes>
struct DotWeights {
  const u8* from;
  // Those so many elements later.
  KILN_MEMBER DotWeights at(i64 elements) const {
    return {from + (is_packed<T>() ? elements >> 1 : elements)};
  }
};
template <int Lanes, int Align, class T, class Index>
KILN_FN DotWeights<T, Lanes> dot_weights(const T* row, Index first) {
  return {reinterpret_cast<const u8*>(row + first)};
}
template <int Lanes, int Align, class T, class Place, class Index>
KILN_FN DotWeights<T, Lanes> dot_weights(Packed<const T, Place> row, Index first) {
  return {&row.data->bits + ((row.element >> 1) + (Place(first) >> 1))};
}

// Sixteen bytes in both halves.
KILN_FN DotBytes in_both_halves(const u8* from) {
  typedef u64 Two __attribute__((vector_size(16)));
  typedef u64 Four __attribute__((vector_size(32)));
  Two two;
  __builtin_memcpy(&two, from, sizeof two);
  return (DotBytes)Four{two[0], two[1], two[0], two[1]};
}

template <class T, int Lanes>
struct DotVector {
  DotBytes part[Lanes / kDotBytes];
};
template <class T, int Lanes, int Align, class Index>
KILN_FN DotVector<T, Lanes> dot_vector(const i8* row, Index first) {
  DotVector<T, Lanes> x;
  if constexpr (!is_packed<T>()) {
    KILN_EACH_VECTOR(i, Lanes / kDotBytes) x.part[i] = dot_bytes(row + first + i * kDotBytes);
  } else {
    const DotBytes low = dot_bytes(row + first);
    const DotBytes high = dot_bytes(row + first + (Lanes - kDotBytes));
    // clang-format off
    if constexpr (Lanes == kDotBytes) {
      x.part[0] = KILN_SHUFFLE(low, low, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                               1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    } else {
      x.part[0] = KILN_SHUFFLE(low, high, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                               32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62);
      x.part[1] = KILN_SHUFFLE(low, high, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                               33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63);
    }
    // clang-format on
  }
  return x;
}

template <class T, int Lanes>
KILN_FN DotBytes bytes_of(DotWeights<T, Lanes> weights, int part) {
  typedef u32 Words __attribute__((vector_size(32)));
  if constexpr (!is_packed<T>()) {
    const DotBytes bytes = dot_bytes(weights.from + part * kDotBytes);
    return is_same<T, i8>() ? bytes ^ u8(0x80) : bytes;
  } else {
    Words halves;
    if constexpr (Lanes == kDotBytes) {
      halves = (Words)in_both_halves(weights.from) >> Words{0, 0, 0, 0, 4, 4, 4, 4};
    } else {
      halves = (Words)dot_bytes(weights.from) >> (part == 0 ? 0 : 4);
    }
    halves &= 0x0f0f0f0fu;
    return (DotBytes)(is_same<T, i4>() ? halves ^ 0x08080808u : halves);
  }
}

template <class T, int Lanes>
KILN_FN Dots dot_products(DotWeights<T, Lanes> weights, const DotVector<T, Lanes>& x) {
  Dots sum = {};
  KILN_EACH_VECTOR(i, Lanes / kDotBytes) {
    sum = add_dots<is_packed<T>()>(sum, bytes_of(weights, i), x.part[i]);
  }
  return sum;
}
template <class T, int Lanes>
KILN_FN Dots activation_sum(const DotVector<T, Lanes>& x) {
  Dots sum = {};
  KILN_EACH_VECTOR(i, Lanes / kDotBytes) sum = add_dots<true>(sum, DotBytes{} + u8(1), x.part[i]);
  return sum;
}

template <class T, class Vector>
KILN_FN T fold_vector(Vector vector) {
  Lanes<T, 8> lanes;
  static_assert(sizeof lanes == sizeof vector, "fold_vector: lanes are those of the vector");
  __builtin_memcpy(&lanes, &vector, sizeof lanes);
  return fold<Sum, 8>(lanes);
}

// So many vectors are arranged at a time, for many rows. They are in no more groups than kGroups.
enum : u32 { kStaged = kGroups };
template <class Count>
KILN_FN u32 staged_vectors(Count left) {
  return left < Count(kStaged) ? u32(left) : u32(kStaged);
}
template <class T, int Lanes>
struct StagedVectors {
  DotVector<T, Lanes> vector[kStaged];
  Dots sum[kStaged];
  KILN_MEMBER void set(u32 i, const DotVector<T, Lanes>& x) {
    vector[i] = x;
    sum[i] = activation_sum(x);
  }
  KILN_MEMBER f32 total(u32 i) const { return f32(fold_vector<i32>(sum[i])); }
};
#define KILN_EACH_STAGED(i, count) KILN_PLAIN_LOOP for (u32 i = 0; i < count; ++i)
#define KILN_EACH_SIDE(side, rows, count) \
  KILN_PLAIN_LOOP for (int side = 0; side < rows; side += count)
#define KILN_EACH_ROLLED(i, count) KILN_PLAIN_LOOP for (int i = 0; i < count; ++i)

// What there is of one row, in a loop over these, as if there were all rows.
template <class T>
struct OneRow {
  T value;
  KILN_MEMBER T& operator[](int) { return value; }
};

// Of several groups, the first ones; 0 for the others, which are in no row.
KILN_FN Floats first_groups(Floats values, GroupVector groups, u32 count) {
  Integers number;
  for (int k = 0; k < kSimd; ++k) number[k] = groups.first + k;
  return (Floats)((Integers)values & (number < i32(count)));
}

// Sums of integer products of many groups, and those with a scale for each group: of the vectors of
// a stage, which are added to those of a row.
struct WholeSums {
  DotTotals all = {};
  KILN_MEMBER void add(const WholeSums& stage) { all += stage.all; }
};
struct ScaledSums {
  DotFloats all = {};
  KILN_MEMBER void add(const ScaledSums& stage) { all += stage.all; }
};

KILN_FN void add_whole(WholeSums& sums, Dots products) {
  sums.all += __builtin_convertvector(products, DotTotals);
}
// By name where there is one, as add_product() of floats.
KILN_FN DotFloats madd(DotFloats a, DotFloats b, DotFloats c) {
#if defined(__FMA__)
  return __builtin_ia32_vfmaddps256(a, b, c);
#elif defined(__clang__)
#pragma clang fp contract(fast)
  return a * b + c;
#else
  return a * b + c;
#endif
}
KILN_FN DotFloats as_floats(Dots whole) { return __builtin_convertvector(whole, DotFloats); }
// What each product is moved by to be one of a weight less its zero point. All are whole numbers
// below 2^24 and remain what they are.
template <class T, class Number>
KILN_FN Number center_of(Number zero_point) {
  return f32(weight_offset<T>()) - zero_point;
}
KILN_FN DotFloats centered_floats(Dots products, DotFloats sum_of_x, f32 center) {
  return madd(sum_of_x, center - DotFloats{}, as_floats(products));
}
template <class T>
KILN_FN DotFloats centered_floats(Dots products, DotFloats sum_of_x) {
  if constexpr (weight_offset<T>() == 0) return as_floats(products);
  return centered_floats(products, sum_of_x, center_of<T>(0.0f));
}
// `scale` is that of weights times that of activations.
KILN_FN void add_scaled(ScaledSums& sums, DotFloats products, f32 scale) {
  sums.all = madd(products, scale - DotFloats{}, sums.all);
}
KILN_FN i64 total(const WholeSums& sums) { return fold_vector<i64>(sums.all); }
KILN_FN f32 total(const ScaledSums& sums) { return fold_vector<f32>(sums.all); }
KILN_FN f32 total(const Groups<f32>& of_groups) {
  Lanes<f32, int(kGroups)> lanes;
  __builtin_memcpy(&lanes, of_groups.of, sizeof lanes);
  return fold<Sum, int(kGroups)>(lanes);
}

#else

using Dots = i32;

// Adds four products of bytes; those of `b` are signed, those of `a` if `Signed`.
template <bool Signed>
KILN_FN i32 add_dots(i32 sum, u32 a, u32 b) {
#if KILN_NVIDIA
#if __CUDA_ARCH__ >= 610
#define KILN_HAS_DOT 1
  i32 result;
  if constexpr (Signed) {
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
  } else {
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
  }
  return result;
#endif
#else
#if defined(KILN_MIXED_DOT)
#define KILN_HAS_DOT 1
  return __builtin_amdgcn_sudot4(Signed, i32(a), true, i32(b), sum, false);
#elif defined(KILN_SIGNED_DOT)
#define KILN_HAS_DOT 1
  static_assert(Signed, "add_dots: the instruction takes signed bytes");
  return __builtin_amdgcn_sdot4(i32(a), i32(b), sum, false);
#endif
#endif
#ifndef KILN_HAS_DOT
  KILN_EACH(i, 4) {
    const u8 byte = u8(a >> 8 * i);
    sum += (Signed ? i32(i8(byte)) : i32(byte)) * i32(i8(b >> 8 * i));
  }
  return sum;
#endif
}

// The bytes of two words at even places, or at odd ones.
template <int Odd>
KILN_FN u32 every_other_byte(u32 low, u32 high) {
#if KILN_NVIDIA
  return __byte_perm(low, high, Odd ? 0x7531 : 0x6420);
#else
  return __builtin_amdgcn_perm(high, low, Odd ? 0x07050301u : 0x06040200u);
#endif
}

template <int Lanes, int Align, class T, class Index>
KILN_FN LaneWords<T, Lanes> dot_weights(const T* row, Index first) {
  return lanes_of<Lanes, Align>(row, first);
}
template <int Lanes, int Align, class T, class Place, class Index>
KILN_FN LaneWords<T, Lanes> dot_weights(Packed<const T, Place> row, Index first) {
  return lanes_of<Lanes, Align>(row, first);
}
template <class T, int Lanes>
using DotWeights = LaneWords<T, Lanes>;

template <class T, int Lanes>
struct DotVector {
  alignas(Lanes % 16 == 0 ? 16 : Lanes) u32 word[Lanes / 4];
};
template <class T, int Lanes, int Align, class Index>
KILN_FN DotVector<T, Lanes> dot_vector(const i8* row, Index first) {
  DotVector<T, Lanes> x;
  copy_bytes<Lanes, Align>(x.word, row + first);
  if constexpr (is_packed<T>()) {
    KILN_EACH(i, Lanes / 8) {
      const u32 low = x.word[2 * i];
      const u32 high = x.word[2 * i + 1];
      x.word[2 * i] = every_other_byte<0>(low, high);
      x.word[2 * i + 1] = every_other_byte<1>(low, high);
    }
  }
  return x;
}

template <class T, int Lanes>
KILN_FN i32 dot_products(const LaneWords<T, Lanes>& weights, const DotVector<T, Lanes>& x) {
  constexpr bool kSigned = is_same<T, i8>() || int(kUnsignedByteOffset) != 0;
  i32 sum = 0;
  KILN_EACH(i, int(sizeof weights.word) / 4) {
    const u32 word = weights.word[i];
    if constexpr (is_packed<T>()) {
      const u32 halves = is_same<T, i4>() ? word ^ 0x88888888u : word;
      sum = add_dots<kSigned>(sum, halves & 0x0f0f0f0fu, x.word[2 * i]);
      sum = add_dots<kSigned>(sum, halves >> 4 & 0x0f0f0f0fu, x.word[2 * i + 1]);
    } else {
      const bool moves = is_same<T, u8>() && int(kUnsignedByteOffset) != 0;
      sum = add_dots<kSigned>(sum, moves ? word ^ 0x80808080u : word, x.word[i]);
    }
  }
  return sum;
}
template <class T, int Lanes>
KILN_FN i32 activation_sum(const DotVector<T, Lanes>& x) {
  i32 sum = 0;
  KILN_EACH(i, Lanes / 4) sum = add_dots<true>(sum, 0x01010101u, x.word[i]);
  return sum;
}

struct WholeSums {
  i64 all = 0;
};
struct ScaledSums {
  f32 all = 0.0f;
};
KILN_FN void add_whole(WholeSums& sums, i32 products) { sums.all += products; }
KILN_FN void add_scaled(ScaledSums& sums, i32 products, f32 scale, f32 activation_scale) {
  sums.all = add_product(sums.all, f32(products) * scale, activation_scale);
}
KILN_FN i64 total(const WholeSums& sums) { return sums.all; }
KILN_FN f32 total(const ScaledSums& sums) { return sums.all; }

#endif

// The sum of (weight - zero point) * x, from dot_products() and activation_sum().
template <class T>
KILN_FN Dots centered_products(Dots products, Dots sum_of_x, i32 zero_point) {
  return products + sum_of_x * (weight_offset<T>() - zero_point);
}

}  // namespace kiln
