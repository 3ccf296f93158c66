// Packed weights on the CPU: kernels of products compute with whole SIMD vectors and keep their
// sums in registers, which compilers do not achieve for loops over lanes. Vectors of even elements
// alternate with vectors of odd ones, as the halves of bytes do.
#pragma once

#include "halves.h"
#include "host_rows.h"
#include "products.h"

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

// Elements of a row as vectors in that order.
template <class T>
struct VectorsOf {
  const T* row;
  KILN_MEMBER Floats operator[](int i) const {
    f32 both[2 * kSimd];
    const T* const from = row + i / 2 * 2 * kSimd;
#if KILN_STAGED_HALVES
    if constexpr (is_same<T, f16>()) {
      if constexpr (2 * kSimd % kHalvesAtOnce == 0) {
        for (int k = 0; k < 2 * kSimd; k += kHalvesAtOnce) widen(from + k, both + k);
      }
    } else
#endif
      for (int k = 0; k < 2 * kSimd; ++k) both[k] = to<f32>(from[k]);
    Floats result;
    for (int k = 0; k < kSimd; ++k) result[k] = both[2 * k + i % 2];
    return result;
  }
};
template <>
struct VectorsOf<bf16> {
  const bf16* row;
  KILN_MEMBER Floats operator[](int i) const {
    Integers both;
    __builtin_memcpy(&both, row + i / 2 * 2 * kSimd, sizeof both);
    return (Floats)(i % 2 == 0 ? both << 16 : both & i32(0xffff0000u));
  }
};
template <>
struct VectorsOf<u4> {
  const u4* row;
  KILN_MEMBER Floats operator[](int i) const {
    const Integers both = widened(&row->bits + i / 2 * kSimd);
    return __builtin_convertvector(i % 2 == 0 ? both & 15 : both >> 4, Floats);
  }
};
template <>
struct VectorsOf<i4> {
  const i4* row;
  KILN_MEMBER Floats operator[](int i) const {
    const Integers both = widened(&row->bits + i / 2 * kSimd);
    return __builtin_convertvector((i % 2 == 0 ? both << 28 : both << 24) >> 28, Floats);
  }
};
template <class T, class Index>
KILN_FN VectorsOf<T> vectors_of(const T* row, Index first) {
  return {row + first};
}
template <class T, class Place, class Index>
KILN_FN VectorsOf<T> vectors_of(Packed<const T, Place> row, Index first) {
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

// One number for all lanes is allowed too.
KILN_FN Floats in_all(Floats value) { return value; }
KILN_FN Floats in_all(f32 value) { return value - Floats{}; }
template <class A, class B, class C>
KILN_FN Floats add_product(A sum, B a, C b) {
  return add_product(in_all(sum), in_all(a), in_all(b));
}

template <int Count>
struct VectorSums {
  Floats vector[Count] = {};
  KILN_MEMBER Floats& operator[](int i) { return vector[i]; }
};
// A block of a sum is short, since a vector adds several terms to each sum.
template <class Index>
KILN_FN bool ends_vectors(Index done) {
  return done % 16 == 15;
}
template <int Count>
KILN_FN void carry(VectorSums<Count>& all, VectorSums<Count>& block) {
  KILN_EACH_VECTOR(i, Count) {
    all.vector[i] += block.vector[i];
    block.vector[i] = Floats{};
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
