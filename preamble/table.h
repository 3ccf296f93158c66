// Lookup tables on the CPU: where a packed element is all that differs between the lanes of a row,
// the results for its sixteen codes are computed first and then looked up, many at once in a
// register. GPUs compute each element.
#pragma once

#include "packed.h"
#include "streams.h"

#if KILN_HOST
namespace kiln {

constexpr int kCodes = 16;

// All sixteen packed elements, used in place of a row.
template <class T>
struct Codes {
  inline __attribute__((always_inline)) T operator[](int lane) const { return T{u8(lane)}; }
};

// Sixteen lanes are one or two vectors, too few for the interleaving of long rows. g++ would unroll
// the loop before it vectorises it.
#if defined(__clang__)
#define KILN_FOR_EACH_CODE(lane)                                                        \
  _Pragma("clang loop vectorize(assume_safety) interleave_count(1)") for (int lane = 0; \
                                                                          lane < kCodes; ++lane)
#else
#define KILN_FOR_EACH_CODE(lane) \
  _Pragma("GCC ivdep") _Pragma("GCC unroll 1") for (int lane = 0; lane < kCodes; ++lane)
#endif

#ifdef __AVX2__
typedef u8 Bytes16 __attribute__((vector_size(16)));
typedef u8 Bytes32 __attribute__((vector_size(32)));
typedef char Signed32 __attribute__((vector_size(32)));
typedef u32 Words8 __attribute__((vector_size(32)));
typedef i32 Ints8 __attribute__((vector_size(32)));
typedef f32 Floats8 __attribute__((vector_size(32)));
typedef u64 Quads4 __attribute__((vector_size(32)));
typedef u16 Halves32 __attribute__((vector_size(64)));
typedef short Shorts32 __attribute__((vector_size(64)));
typedef u32 Words16 __attribute__((vector_size(64)));
typedef i32 Ints16 __attribute__((vector_size(64)));
typedef u64 Quads8 __attribute__((vector_size(64)));

typedef char Chars16 __attribute__((vector_size(16)));
typedef i32 Ints4 __attribute__((vector_size(16)));
typedef long long Longs2 __attribute__((vector_size(16)));
typedef long long Longs4 __attribute__((vector_size(32)));
typedef long long Longs8 __attribute__((vector_size(64)));

template <class To, class From>
KILN_FN To read_as(const From* from) {
  To to;
  __builtin_memcpy(&to, from, sizeof(To));
  return to;
}
#endif

// Sixteen results to look up. block() maps kBytes bytes of two codes each, the first in the low
// half, to their results; without a matching instruction, one by one.
template <class T, int Size = int(sizeof(T))>
struct LookUp {
  static constexpr int kBytes = 1;
  const T* results;
  static inline __attribute__((always_inline)) LookUp of(const T* results) { return {results}; }
  inline __attribute__((always_inline)) void block(const u8* codes, T* to) const {
    to[0] = results[*codes & 15];
    to[1] = results[*codes >> 4];
  }
};

#if defined(__AVX512BW__)

template <class T>
struct LookUp<T, 2> {
  static constexpr int kBytes = 16;
  Halves32 results;  // twice, since the instruction reads five bits of an index
  static inline __attribute__((always_inline)) LookUp of(const T* from) {
    const Longs4 once = read_as<Longs4>(from);
#if defined(__clang__)
    return {Halves32(__builtin_shufflevector(once, once, 0, 1, 2, 3, 0, 1, 2, 3))};
#else
    return {Halves32(__builtin_ia32_broadcasti64x4_512(once, Longs8{}, u8(-1)))};
#endif
  }
  inline __attribute__((always_inline)) void block(const u8* codes, T* to) const {
#if defined(__clang__)
    const Words16 pairs = __builtin_convertvector(read_as<Bytes16>(codes), Words16);
#else
    const Words16 pairs =
        Words16(__builtin_ia32_pmovzxbd512_mask(read_as<Chars16>(codes), Ints16{}, u16(-1)));
#endif
    const Words16 shifted = pairs | pairs << 12;
#if defined(__clang__)
    const auto found = __builtin_ia32_permvarhi512(Shorts32(results), Shorts32(shifted));
#else
    const auto found = __builtin_shuffle(results, Halves32(shifted));
#endif
    __builtin_memcpy(to, &found, sizeof found);
  }
};

template <class T>
struct LookUp<T, 4> {
  static constexpr int kBytes = 8;
  Words16 results;
  static inline __attribute__((always_inline)) LookUp of(const T* from) {
    return {read_as<Words16>(from)};
  }
  inline __attribute__((always_inline)) void block(const u8* codes, T* to) const {
#if defined(__clang__)
    typedef u8 Bytes8 __attribute__((vector_size(8)));
    const Quads8 pairs = __builtin_convertvector(read_as<Bytes8>(codes), Quads8);
#else
    const Longs2 eight = {read_as<long long>(codes), 0};
    const Quads8 pairs = Quads8(__builtin_ia32_pmovzxbq512_mask(Chars16(eight), Longs8{}, u8(-1)));
#endif
    const Quads8 shifted = pairs | pairs << 28;
#if defined(__clang__)
    const auto found = __builtin_ia32_permvarsi512(Ints16(results), Ints16(shifted));
#else
    const auto found = __builtin_shuffle(results, Words16(shifted));
#endif
    __builtin_memcpy(to, &found, sizeof found);
  }
};

#elif defined(__AVX2__)

#if defined(__clang__)
#define KILN_PICK(Vector, a, b, ...) \
  Vector(__builtin_shufflevector(Vector(a), Vector(b), __VA_ARGS__))
#else
#define KILN_PICK(Vector, a, b, ...) __builtin_shuffle(Vector(a), Vector(b), Vector{__VA_ARGS__})
#endif

// The low and the high bytes of the results are looked up separately and then interleaved, within
// each half of a vector. Every other four bytes of codes go to the upper halves, so that results
// are in order.
template <class T>
struct LookUp<T, 2> {
  static constexpr int kBytes = 32;
  Bytes32 low;
  Bytes32 high;
  static inline __attribute__((always_inline)) LookUp of(const T* from) {
    const Bytes16 a = read_as<Bytes16>(from);
    const Bytes16 b = read_as<Bytes16>(from + 8);
    return {
        twice(KILN_PICK(Bytes16, a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)),
        twice(KILN_PICK(Bytes16, a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31))};
  }
  inline __attribute__((always_inline)) static Bytes32 twice(Bytes16 half) {
#if defined(__clang__)
    return __builtin_shufflevector(half, half, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
                                   0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#else
    return Bytes32(__builtin_ia32_vbroadcastsi256(Longs2(half)));
#endif
  }
  inline __attribute__((always_inline)) static Bytes32 find(Bytes32 table, Bytes32 places) {
    return Bytes32(__builtin_ia32_pshufb256(Signed32(table), Signed32(places)));
  }
  inline __attribute__((always_inline)) static Bytes32 join_bytes_below(Bytes32 a, Bytes32 b) {
    return KILN_PICK(Bytes32, a, b, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 16, 48,
                     17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55);
  }
  inline __attribute__((always_inline)) static Bytes32 join_bytes_above(Bytes32 a, Bytes32 b) {
    return KILN_PICK(Bytes32, a, b, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47,
                     24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63);
  }
  typedef u16 Halves16 __attribute__((vector_size(32)));
  inline __attribute__((always_inline)) static void join_halves(Bytes32 a, Bytes32 b, T* to) {
    const Halves16 below =
        KILN_PICK(Halves16, a, b, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27);
    const Halves16 above =
        KILN_PICK(Halves16, a, b, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31);
    __builtin_memcpy(to, &below, sizeof below);
    __builtin_memcpy(to + 16, &above, sizeof above);
  }
  inline __attribute__((always_inline)) void block(const u8* codes, T* to) const {
    const Words8 loaded = read_as<Words8>(codes);
    const Words8 pairs = KILN_PICK(Words8, loaded, loaded, 0, 2, 4, 6, 1, 3, 5, 7);
    const Words8 kLow = Words8{} + 0x0f0f0f0fu;
    const Bytes32 first = Bytes32(pairs & kLow);
    const Bytes32 second = Bytes32(pairs >> 4 & kLow);
    const Bytes32 a = find(low, first);
    const Bytes32 b = find(high, first);
    const Bytes32 c = find(low, second);
    const Bytes32 d = find(high, second);
    join_halves(join_bytes_below(a, b), join_bytes_below(c, d), to);
    join_halves(join_bytes_above(a, b), join_bytes_above(c, d), to + 32);
  }
};

template <class T>
struct LookUp<T, 4> {
  static constexpr int kBytes = 4;
  Ints8 below;  // the results of the codes from 0 to 7
  Ints8 above;
  static inline __attribute__((always_inline)) LookUp of(const T* from) {
    return {read_as<Ints8>(from), read_as<Ints8>(from + 8)};
  }
  inline __attribute__((always_inline)) void block(const u8* codes, T* to) const {
#if defined(__clang__)
    typedef u8 Bytes4 __attribute__((vector_size(4)));
    const Quads4 pairs = __builtin_convertvector(read_as<Bytes4>(codes), Quads4);
#else
    const Ints4 four = {read_as<i32>(codes), 0, 0, 0};
    const Quads4 pairs = Quads4(__builtin_ia32_pmovzxbq256(Chars16(four)));
#endif
    const Ints8 shifted = Ints8(pairs | pairs << 28);
    // The fourth bit of a code, as a sign, selects one of the two.
    const Floats8 found = __builtin_ia32_blendvps256(
        Floats8(__builtin_ia32_permvarsi256(below, shifted)),
        Floats8(__builtin_ia32_permvarsi256(above, shifted)), Floats8(shifted << 28));
    __builtin_memcpy(to, &found, sizeof found);
  }
};
#undef KILN_PICK

#endif

// The results of elements [first, first + lanes) of a row that begins with a byte.
template <int Lanes, class T, class Packed4, class Index, class First>
KILN_FN Collected<T, Lanes> look_up(const T (&results)[kCodes], Packed<const Packed4, Index> row,
                                    First first, int lanes) {
  Collected<T, Lanes> found;
  const u8* codes = reinterpret_cast<const u8*>(row.data + ((row.element + Index(first)) >> 1));
  const auto table = LookUp<T>::of(results);
  constexpr int kBytes = LookUp<T>::kBytes;
  int byte = 0;
  for (; byte + kBytes <= lanes / 2; byte += kBytes)
    table.block(codes + byte, found.lane + 2 * byte);
  for (int lane = 2 * byte; lane < lanes; ++lane) {
    found[lane] = results[codes[lane / 2] >> lane % 2 * 4 & 15];
  }
  return found;
}

}  // namespace kiln
#endif
