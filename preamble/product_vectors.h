// Products in vectors of floats. On the CPU kernels compute with whole SIMD vectors and keep their
// sums in registers, which compilers do not achieve for loops over lanes; what is computed of a
// packed weight and of its group is looked up where a register holds the results for all codes. On
// AMD GPUs a vector is a pair, for which some of them have instructions.
//
// Asked for by: VectorSums
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

KILN_FN Floats in_all(Floats value) { return value; }
KILN_FN Floats in_all(f32 value) { return value - Floats{}; }

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

KILN_FN Floats in_all(Floats value) { return value; }
KILN_FN Floats in_all(f32 value) { return value - Floats{}; }

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

// ---- packed elements ----------------------------------------------------------------------------

// The codes of neighbouring packed elements in the lowest four bits of each lane; above them are
// those of others. Where a vector has more than fit a lane's bits, elements are in other lanes than
// their numbers say (in_packed_lanes): each lane has the bits that a broadcast leaves there.
KILN_FN Integers codes_of(const u8* bytes) {
#if defined(__AVX512F__)
  typedef u64 Quads __attribute__((vector_size(64)));
  u64 eight;
  __builtin_memcpy(&eight, bytes, sizeof eight);
  const Integers all = (Integers)(eight - Quads{});
  return all >> Integers{0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28};
#elif defined(__AVX__)
  i32 four;
  __builtin_memcpy(&four, bytes, sizeof four);
  return (four - Integers{}) >> Integers{0, 4, 8, 12, 16, 20, 24, 28};
#else
  u16 two;
  __builtin_memcpy(&two, bytes, sizeof two);
  return (i32(two) - Integers{}) >> Integers{0, 4, 8, 12};
#endif
}

// Neighbouring numbers, each in the lane in which codes_of() has it, and back.
#if defined(__AVX512F__)
KILN_FN Floats permuted(Floats numbers, Integers lanes) {
#if defined(__clang__)
  return __builtin_ia32_permvarsf512(numbers, lanes);
#else
  return __builtin_ia32_permvarsf512_mask(numbers, lanes, numbers, u16(-1));
#endif
}
KILN_FN Floats in_packed_lanes(Floats numbers) {
  return permuted(numbers, Integers{0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15});
}
KILN_FN Floats in_order(Floats numbers) {
  return permuted(numbers, Integers{0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15});
}
#else
KILN_FN Floats in_packed_lanes(Floats numbers) { return numbers; }
KILN_FN Floats in_order(Floats numbers) { return numbers; }
#endif

// The numbers that codes stand for. Those of f4e2m1 are positive ones with the exponent and the
// mantissa in the place of those of an f32, 2^126 times too small.
template <class T>
KILN_FN Floats numbers_of(Integers codes) {
  if constexpr (is_same<T, u4>()) {
    return __builtin_convertvector(codes & 15, Floats);
  } else if constexpr (is_same<T, i4>()) {
    return __builtin_convertvector(codes << 28 >> 28, Floats);
  } else {
    static_assert(is_same<T, f4e2m1>(), "numbers_of: packed elements");
    const Floats positive = (Floats)((codes & 7) << 22) * 0x1p126f;
    return (Floats)((Integers)positive | (codes & 8) << 28);
  }
}

// ---- elements as vectors ------------------------------------------------------------------------

#if defined(__F16C__)
typedef u16 Halves __attribute__((vector_size(2 * kSimd)));
// Numbers of f16, as their bits.
KILN_FN Floats floats_of(Halves halves) {
#if KILN_HALF && defined(__clang__)
  typedef HostHalf Numbers __attribute__((ext_vector_type(kSimd)));
  return (Floats) __builtin_convertvector((Numbers)halves, Floats);
#elif KILN_HALF
  typedef HostHalf Numbers __attribute__((vector_size(2 * kSimd)));
  return __builtin_convertvector((Numbers)halves, Floats);
#elif defined(__AVX512F__)
  return __builtin_ia32_vcvtph2ps512_mask((HalfVector)halves, Floats{}, u16(-1), 4);
#else
  return __builtin_ia32_vcvtph2ps256((HalfVector)halves);
#endif
}
#endif

// Neighbouring elements as a vector.
template <class T>
KILN_FN Floats neighbours(const T* from) {
  Floats result;
#if defined(__F16C__)
  if constexpr (is_same<T, f16>()) {
    Halves halves;
    __builtin_memcpy(&halves, from, sizeof halves);
    return floats_of(halves);
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
  typedef u16 Words __attribute__((vector_size(2 * kSimd)));
  Words words;
  __builtin_memcpy(&words, from, sizeof words);
  return (Floats)(__builtin_convertvector(words, Integers) << 16);
}
// 8-bit floats: their exponent and mantissa in the place of those of an f16, or of an f32, make
// numbers that are too small by the difference of the two biases.
template <class T>
KILN_FN Floats small_floats(const T* from) {
  using Format = Type<T>;
#if defined(__F16C__)
  // The largest of f8e5m2fnuz have an exponent that is infinity's in f16.
  if constexpr (!is_same<T, f8e5m2fnuz>()) {
    typedef u8 Bytes __attribute__((vector_size(kSimd)));
    Bytes bytes;
    __builtin_memcpy(&bytes, from, sizeof bytes);
    const Halves bits = __builtin_convertvector(bytes, Halves);
    if constexpr (is_same<T, f8e5m2>()) return floats_of(bits << 8);
    const Halves magnitude = bits & 0x7f;
    const Halves nan =
        (Halves)(Format::kFnuz ? bits == u16(Format::kNan) : magnitude >= u16(Format::kSpecial));
    const Halves number = magnitude << (10 - Format::kMantissa) | (bits & 0x80) << 8;
    const f32 power = bit_cast<f32>(u32(127 + 15 - Format::kBias) << 23);
    return floats_of(number | (nan & 0x7e00)) * power;
  }
#endif
  const Integers bits = widened(reinterpret_cast<const u8*>(from));
  const Integers magnitude = bits & 0x7f;
  const f32 power = bit_cast<f32>(u32(127 + 127 - Format::kBias) << 23);
  const Floats positive = (Floats)(magnitude << (23 - Format::kMantissa)) * power;
  const Integers number = (Integers)positive | (bits & 0x80) << 24;
  const Integers special =
      Format::kFnuz ? bits == i32(Format::kNan) : magnitude >= i32(Format::kSpecial);
  return (Floats)(number | (special & (Format::kFnuz ? 0x7fc00000 : 0x7f800000)));
}
KILN_FN Floats neighbours(const f8e4m3* from) { return small_floats(from); }
KILN_FN Floats neighbours(const f8e5m2* from) { return small_floats(from); }
KILN_FN Floats neighbours(const f8e4m3fnuz* from) { return small_floats(from); }
KILN_FN Floats neighbours(const f8e5m2fnuz* from) { return small_floats(from); }
KILN_FN Floats neighbours(const u8* from) { return __builtin_convertvector(widened(from), Floats); }
KILN_FN Floats neighbours(const i8* from) {
  return __builtin_convertvector(widened(reinterpret_cast<const u8*>(from)) << 24 >> 24, Floats);
}

// Elements of a row as vectors.
template <class T>
struct VectorsOf {
  const T* row;
  KILN_MEMBER Floats operator[](int i) const { return neighbours(row + i * kSimd); }
};
template <class T>
struct PackedVectors {
  const u8* row;
  KILN_MEMBER Integers codes(int i) const { return codes_of(row + i * (kSimd / 2)); }
  KILN_MEMBER Floats operator[](int i) const { return numbers_of<T>(codes(i)); }
};
template <>
struct VectorsOf<u4> : PackedVectors<u4> {};
template <>
struct VectorsOf<i4> : PackedVectors<i4> {};
template <>
struct VectorsOf<f4e2m1> : PackedVectors<f4e2m1> {};
template <class T, class Index>
KILN_FN VectorsOf<T> vectors_of(const T* row, Index first) {
  return {row + first};
}
template <class T, class Place, class Index>
KILN_FN VectorsOf<T> vectors_of(Packed<const T, Place> row, Index first) {
  return {{&row.data->bits + ((row.element >> 1) + (Place(first) >> 1))}};
}

// The same of elements that are not packed, in the lanes of those that are.
template <class T>
struct InPackedLanes : VectorsOf<T> {
  KILN_MEMBER Floats operator[](int i) const {
    return in_packed_lanes(neighbours(this->row + i * kSimd));
  }
};
template <class T>
KILN_FN InPackedLanes<T> in_packed_lanes(VectorsOf<T> vectors) {
  return {vectors};
}

// Rows are often too short for the hardware to expect the next ones: those that come so many
// elements later are prefetched while these are added up. Prefetching an invalid address does
// nothing.
template <class T, int Lanes>
KILN_FN void prefetch_lanes(const void* lanes, i64 elements) {
  constexpr u64 kBytes = is_packed<T>() ? Lanes / 2 : Lanes * sizeof(T);
  const u64 from =
      reinterpret_cast<u64>(lanes) + u64(is_packed<T>() ? elements / 2 : elements * i64(sizeof(T)));
  KILN_EACH_VECTOR(line, int(kBytes + 63) / 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(from + u64(line) * 64), 0, 2);
  }
}

// What `value` computes of packed elements. A register of sixteen lanes holds the results for all
// codes: they are computed once and looked up.
#if defined(__AVX512F__)
struct Results {
  const u8* row;
  Floats of_code;
  KILN_MEMBER Floats operator[](int i) const {
    return permuted(of_code, codes_of(row + i * (kSimd / 2)));
  }
};
template <class T, class Value>
KILN_FN Results results_of(VectorsOf<T> elements, const Value& value) {
  const Integers codes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return {elements.row, in_all(value(numbers_of<T>(codes)))};
}
#else
template <class T, class Value>
struct Results {
  VectorsOf<T> elements;
  const Value& value;
  KILN_MEMBER Floats operator[](int i) const { return in_all(value(elements[i])); }
};
template <class T, class Value>
KILN_FN Results<T, Value> results_of(VectorsOf<T> elements, const Value& value) {
  return {elements, value};
}
#endif

// ---- groups -------------------------------------------------------------------------------------

// What is computed once for each group of a row is computed for so many groups at a time: for each
// group by itself, or for vectors of groups where compilers would not make these of a loop.
enum : u32 { kGroups = 16 };
struct GroupVector {
  int first;
};
template <class T>
struct Groups {
  alignas(4 * kSimd) T of[kGroups];
  KILN_MEMBER T& operator[](u32 g) { return of[g]; }
  KILN_MEMBER Floats operator[](GroupVector groups) const {
    Floats result;
    if constexpr (is_same<T, f32>()) {
      __builtin_memcpy(&result, of + groups.first, sizeof result);
    } else {
      for (int k = 0; k < kSimd; ++k) result[k] = f32(of[groups.first + k]);
    }
    return result;
  }
  KILN_MEMBER void set(GroupVector groups, Floats values) {
    static_assert(is_same<T, f32>(), "set: vectors are of floats");
    __builtin_memcpy(of + groups.first, &values, sizeof values);
  }
};
#define KILN_EACH_GROUP(g) KILN_EACH_LANE(g, int(kGroups))
#if defined(__clang__)
#define KILN_EACH_GROUP_VECTOR(g)                                                      \
  _Pragma("clang loop unroll(full)") for (GroupVector g = {0}; g.first < int(kGroups); \
                                          g.first += kSimd)
#else
#define KILN_EACH_GROUP_VECTOR(g) \
  _Pragma("GCC unroll 4") for (GroupVector g = {0}; g.first < int(kGroups); g.first += kSimd)
#endif

// A loop that is seldom run, and would take registers from others.
#if defined(__clang__)
#define KILN_PLAIN_LOOP _Pragma("clang loop vectorize(disable) unroll(disable)")
#else
#define KILN_PLAIN_LOOP _Pragma("GCC unroll 1")
#endif

template <class To, class T, class Stride>
KILN_FN void load_groups(Groups<To>& to_groups, const T* from, Stride stride, u32 count) {
  if (is_same<To, f32>() && stride == 1 && count >= kGroups) {
    for (int k = 0; k < int(kGroups); k += kSimd) {
      const Floats floats = neighbours(from + k);
      __builtin_memcpy(to_groups.of + k, &floats, sizeof floats);
    }
  } else {
    KILN_PLAIN_LOOP for (u32 g = 0; g < kGroups && g < count; ++g) {
      to_groups.of[g] = to<To>(from[Stride(g) * stride]);
    }
  }
}

// By name where there is one: compilers contract what stands in one block alone, and bits would
// show what they move out of a loop.
KILN_FN Floats add_product(Floats sum, Floats a, Floats b) {
#if defined(__AVX512F__)
  return __builtin_ia32_vfmaddps512_mask(a, b, sum, u16(-1), 4);
#elif defined(__FMA__)
  return __builtin_ia32_vfmaddps256(a, b, sum);
#elif defined(__clang__)
#pragma clang fp contract(fast)
  return a * b + sum;
#else
  return a * b + sum;
#endif
}

// Products of elements whose numbers are equal modulo kSums are added one after the other, whatever
// the width of vectors is, and after kSumElements elements to a total.
enum : int { kSums = 16, kVectorSums = kSums / kSimd, kSumElements = 64 * kSums };

// Whether a vector of `Width` elements is the last of such a block.
template <int Width, class Index>
KILN_FN bool ends_vectors(Index done) {
  constexpr Index kVectors = kSumElements / Width;
  return done % kVectors == kVectors - 1;
}

}  // namespace kiln
#endif

#if KILN_HOST || KILN_AMD
namespace kiln {

// One number for all lanes is allowed too.
template <class A, class B, class C>
KILN_FN Floats add_product(A sum, B a, C b) {
  return add_product(in_all(sum), in_all(a), in_all(b));
}

KILN_FN Floats minus_zero_point(Floats numbers, f32 zero_point) { return numbers - zero_point; }

template <int Count>
struct VectorSums {
  Floats vector[Count];
  KILN_MEMBER Floats& operator[](int i) { return vector[i]; }
};
#if KILN_HOST
// GCC makes no vectors of sizes that depend on a template's argument.
template <int Lanes>
struct FloatsOf;
template <>
struct FloatsOf<2> {
  typedef f32 Type __attribute__((vector_size(8)));
};
template <>
struct FloatsOf<4> {
  typedef f32 Type __attribute__((vector_size(16)));
};
template <>
struct FloatsOf<8> {
  typedef f32 Type __attribute__((vector_size(32)));
};
template <int Lanes>
KILN_FN f32 total_of_halves(const void* lanes) {
  using Half = typename FloatsOf<Lanes / 2>::Type;
  Half halves[2];
  __builtin_memcpy(halves, lanes, sizeof halves);
  const Half sum = halves[0] + halves[1];
  if constexpr (Lanes == 4) {
    return sum[0] + sum[1];
  } else {
    return total_of_halves<Lanes / 2>(&sum);
  }
}
#endif
template <class Reduction, int Count>
KILN_FN VectorSums<Count> combine_results(const VectorSums<Count>& a, const VectorSums<Count>& b) {
  VectorSums<Count> result;
  KILN_EACH_VECTOR(i, Count) result.vector[i] = a.vector[i] + b.vector[i];
  return result;
}
template <int Count>
KILN_FN Lanes<f32, Count * kSimd> lanes_of_sums(const VectorSums<Count>& sums) {
  Lanes<f32, Count * kSimd> lanes;
  static_assert(sizeof lanes == sizeof sums, "lanes_of_sums: lanes are those of the vectors");
  __builtin_memcpy(&lanes, &sums, sizeof lanes);
  return lanes;
}
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
// In pairs, half of all lanes apart first.
template <int Count>
KILN_FN f32 total(VectorSums<Count> sums) {
#if KILN_HOST
  if constexpr (Count > 1) {
    VectorSums<Count / 2> half;
    KILN_EACH_VECTOR(i, Count / 2) half.vector[i] = sums.vector[i] + sums.vector[i + Count / 2];
    return total(half);
  } else {
    return total_of_halves<kSimd>(&sums.vector[0]);
  }
#else
  Lanes<f32, Count* kSimd> lanes = lanes_of_sums(sums);
  return fold<Sum, Count * kSimd>(lanes);
#endif
}

#if KILN_HOST
// Sums whose lanes are those of packed elements.
template <int Count>
KILN_FN f32 total_of_packed(VectorSums<Count> sums) {
  KILN_EACH_VECTOR(i, Count) sums.vector[i] = in_order(sums.vector[i]);
  return total(sums);
}

// As for one group (products.h).
KILN_FN Floats nearest_zero_point(Floats zero_points) {
  const Floats whole = (zero_points + 12582912.0f) - 12582912.0f;
  return (Floats)((Integers)whole & (zero_points <= 1024.0f) & (zero_points >= -1024.0f));
}
KILN_FN Floats nearest_zero_point(Floats dividends, Floats divisors) {
  return nearest_zero_point(dividends * (1.0f / divisors));
}
#endif

}  // namespace kiln
#endif
