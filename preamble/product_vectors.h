// Products in vectors of floats. On the CPU kernels of small weights compute with whole SIMD
// vectors and keep their sums in registers, which compilers do not achieve for loops over lanes;
// beside packed weights, vectors of even elements alternate with vectors of odd ones, as the halves
// of bytes do. On AMD GPUs a vector is a pair, for which some of them have instructions.
#pragma once

#include "halves.h"
#include "host_rows.h"
#include "products.h"

#if KILN_AMD
#define KILN_EACH_VECTOR(i, count) KILN_EACH(i, count)

namespace kiln {

typedef f32 Floats __attribute__((ext_vector_type(2)));
enum : int { kSimd = 2 };

// Two neighbouring lanes.
template <class Lanes>
KILN_FN Floats pair_of(const Lanes& lanes, int i) {
  return Floats{to<f32>(lanes[2 * i]), to<f32>(lanes[2 * i + 1])};
}

// Contracted, it is one instruction for both where there is one.
KILN_FN Floats add_product(Floats sum, Floats a, Floats b) {
#pragma clang fp contract(fast)
  return a * b + sum;
}

}  // namespace kiln
#endif

#if KILN_HOST
#if defined(__clang__)
#define KILN_EACH_VECTOR(i, count) \
  _Pragma("clang loop unroll(full)") for (int i = 0; i < count; ++i)
#else
#define KILN_EACH_VECTOR(i, count) _Pragma("GCC unroll 64") for (int i = 0; i < count; ++i)
#endif

namespace kiln {

typedef f32 Floats __attribute__((vector_size(4 * kSimd)));
typedef i32 Integers __attribute__((vector_size(4 * kSimd)));

KILN_FN Integers widened(const u8* bytes) {
#if defined(__AVX2__) && !defined(__clang__)
  typedef char Sixteen __attribute__((vector_size(16)));
#ifdef __AVX512F__
  Sixteen all;
  __builtin_memcpy(&all, bytes, sizeof all);
  return (Integers)__builtin_ia32_pmovzxbd512_mask(all, Integers{}, u16(-1));
#else
  typedef u64 Two __attribute__((vector_size(16)));
  u64 eight;
  __builtin_memcpy(&eight, bytes, sizeof eight);
  return (Integers)__builtin_ia32_pmovzxbd256((Sixteen)Two{eight, 0});
#endif
#else
  typedef u8 Bytes __attribute__((vector_size(kSimd)));
  Bytes all;
  __builtin_memcpy(&all, bytes, sizeof all);
  return __builtin_convertvector(all, Integers);
#endif
}

#if defined(__AVX512F__)
#define KILN_EVEN_LANES 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define KILN_ODD_LANES 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#elif defined(__AVX__)
#define KILN_EVEN_LANES 0, 2, 4, 6, 8, 10, 12, 14
#define KILN_ODD_LANES 1, 3, 5, 7, 9, 11, 13, 15
#else
#define KILN_EVEN_LANES 0, 2, 4, 6
#define KILN_ODD_LANES 1, 3, 5, 7
#endif
KILN_FN Floats every_other(Floats low, Floats high, bool odd) {
#if defined(__clang__)
  return odd ? __builtin_shufflevector(low, high, KILN_ODD_LANES)
             : __builtin_shufflevector(low, high, KILN_EVEN_LANES);
#else
  return odd ? __builtin_shuffle(low, high, Integers{KILN_ODD_LANES})
             : __builtin_shuffle(low, high, Integers{KILN_EVEN_LANES});
#endif
}

// Neighbouring elements as a vector.
template <class T>
KILN_FN Floats neighbours(const T* from) {
  Floats result;
#if KILN_STAGED_HALVES
  if constexpr (is_same<T, f16>() && kSimd % kHalvesAtOnce == 0) {
    f32 wide[kSimd];
    for (int k = 0; k < kSimd; k += kHalvesAtOnce) widen(from + k, wide + k);
    __builtin_memcpy(&result, wide, sizeof result);
    return result;
  }
#endif
  for (int k = 0; k < kSimd; ++k) result[k] = to<f32>(from[k]);
  return result;
}
KILN_FN Floats neighbours(const f32* from) {
  Floats result;
  __builtin_memcpy(&result, from, sizeof result);
  return result;
}
KILN_FN Floats neighbours(const bf16* from) {
  typedef u16 Halves __attribute__((vector_size(2 * kSimd)));
  Halves halves;
  __builtin_memcpy(&halves, from, sizeof halves);
  return (Floats)(__builtin_convertvector(halves, Integers) << 16);
}
KILN_FN Floats neighbours(const u8* from) { return __builtin_convertvector(widened(from), Floats); }
KILN_FN Floats neighbours(const i8* from) {
  return __builtin_convertvector(widened(reinterpret_cast<const u8*>(from)) << 24 >> 24, Floats);
}

// Elements of a row as vectors, of which those of even and of odd elements alternate if
// `Alternate`.
template <class T, bool Alternate>
struct VectorsOf {
  const T* row;
  KILN_MEMBER Floats operator[](int i) const {
    if constexpr (!Alternate) return neighbours(row + i * kSimd);
    const T* const from = row + i / 2 * 2 * kSimd;
    return every_other(neighbours(from), neighbours(from + kSimd), i % 2 == 1);
  }
};
template <>
struct VectorsOf<bf16, true> {
  const bf16* row;
  KILN_MEMBER Floats operator[](int i) const {
    Integers both;
    __builtin_memcpy(&both, row + i / 2 * 2 * kSimd, sizeof both);
    return (Floats)(i % 2 == 0 ? both << 16 : both & i32(0xffff0000u));
  }
};
template <>
struct VectorsOf<u4, true> {
  const u4* row;
  KILN_MEMBER Floats operator[](int i) const {
    const Integers both = widened(&row->bits + i / 2 * kSimd);
    return __builtin_convertvector(i % 2 == 0 ? both & 15 : both >> 4, Floats);
  }
};
template <>
struct VectorsOf<i4, true> {
  const i4* row;
  KILN_MEMBER Floats operator[](int i) const {
    const Integers both = widened(&row->bits + i / 2 * kSimd);
    return __builtin_convertvector((i % 2 == 0 ? both << 28 : both << 24) >> 28, Floats);
  }
};
template <bool Alternate, class T, class Index>
KILN_FN VectorsOf<T, Alternate> vectors_of(const T* row, Index first) {
  return {row + first};
}
template <bool Alternate, class T, class Place, class Index>
KILN_FN VectorsOf<T, Alternate> vectors_of(Packed<const T, Place> row, Index first) {
  return {row.data + ((row.element >> 1) + (Place(first) >> 1))};
}

KILN_FN Floats add_product(Floats sum, Floats a, Floats b) {
#if defined(__clang__)
#pragma clang fp contract(fast)
  return a * b + sum;
#elif defined(__AVX512F__)
  return __builtin_ia32_vfmaddps512_mask(a, b, sum, u16(-1), 4);
#elif defined(__FMA__)
  return __builtin_ia32_vfmaddps256(a, b, sum);
#else
  return a * b + sum;
#endif
}

// A block of a sum is short, since a vector adds several terms to each sum.
template <class Index>
KILN_FN bool ends_vectors(Index done) {
  return done % 16 == 15;
}

}  // namespace kiln
#endif

#if KILN_HOST || KILN_AMD
namespace kiln {

// One number for all lanes is allowed too.
KILN_FN Floats in_all(Floats value) { return value; }
KILN_FN Floats in_all(f32 value) { return value - Floats{}; }
template <class A, class B, class C>
KILN_FN Floats add_product(A sum, B a, C b) {
  return add_product(in_all(sum), in_all(a), in_all(b));
}

KILN_FN Floats minus_zero_point(Floats numbers, f32 zero_point) { return numbers - zero_point; }

template <int Count>
struct VectorSums {
  Floats vector[Count] = {};
  KILN_MEMBER Floats& operator[](int i) { return vector[i]; }
};
template <int Count>
KILN_FN void carry(VectorSums<Count>& all, VectorSums<Count>& block) {
  KILN_EACH_VECTOR(i, Count) {
    all.vector[i] += block.vector[i];
    block.vector[i] = Floats{};
  }
}
template <int Count>
KILN_FN void carry_scaled(VectorSums<Count>& all, VectorSums<Count>& group, f32 scale) {
  KILN_EACH_VECTOR(i, Count) {
    all.vector[i] = add_product(all.vector[i], group.vector[i], scale);
    group.vector[i] = Floats{};
  }
}
template <int Count>
KILN_FN f32 total(const VectorSums<Count>& sums) {
  Lanes<f32, Count * kSimd> lanes;
  static_assert(sizeof lanes == sizeof sums, "total: lanes are those of the vectors");
  __builtin_memcpy(&lanes, &sums, sizeof lanes);
  return fold<Sum, Count * kSimd>(lanes);
}

}  // namespace kiln
#endif
