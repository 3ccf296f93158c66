// Elements of matrices and vectors of products: small integers and floats are loaded in whole words
// and unpacked from these, others as they are; a vector of elements that lie anywhere is gathered.
//
// Asked for by: lanes_of InWord gathered
#pragma once

#include "access_gpu.h"
#include "access_host.h"
#include "arithmetic.h"
#include "convert.h"
#include "host_math.h"
#include "integer.h"
#include "native.h"
#include "packed.h"
#include "reduce.h"
#include "strides.h"

#define KILN_EACH(i, count) KILN_UNROLL for (int i = 0; i < count; ++i)
// Lanes are independent; the CPU vectorises the loop.
#if KILN_HOST && defined(__clang__)
#define KILN_EACH_LANE(lane, count) \
  _Pragma("clang loop vectorize(assume_safety)") for (int lane = 0; lane < count; ++lane)
#elif KILN_HOST
#define KILN_EACH_LANE(lane, count) _Pragma("GCC ivdep") for (int lane = 0; lane < count; ++lane)
#else
#define KILN_EACH_LANE(lane, count) KILN_EACH(lane, count)
#endif

namespace kiln {

// Adds a * b without rounding it first where the hardware can do that: a sum's terms are then
// closer to exact, and its error bound holds.
#if KILN_HOST
KILN_FN f32 add_product(f32 sum, f32 a, f32 b) { return host::madd(a, b, sum); }
KILN_FN f64 add_product(f64 sum, f64 a, f64 b) { return host::madd(a, b, sum); }
#else
KILN_FN f32 add_product(f32 sum, f32 a, f32 b) { return fma(a, b, sum); }
KILN_FN f64 add_product(f64 sum, f64 a, f64 b) { return fma(a, b, sum); }
#endif

// The whole number nearest to a zero point, or 0 for one so large that subtracting it from a small
// integer would not help.
KILN_FN f32 nearest_zero_point(f32 zero_point) {
  const f32 whole = (zero_point + 12582912.0f) - 12582912.0f;
  return zero_point <= 1024.0f && zero_point >= -1024.0f ? whole : 0.0f;
}
// That of a quotient, which may be approximate.
KILN_FN f32 nearest_zero_point(f32 dividend, f32 divisor) {
#if KILN_NVIDIA
  f32 reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(divisor));
#elif KILN_AMD
  const f32 reciprocal = __builtin_amdgcn_rcpf(divisor);
#else
  const f32 reciprocal = 1.0f / divisor;
#endif
  return nearest_zero_point(dividend * reciprocal);
}

template <class T>
KILN_FN constexpr bool is_packed() {
  return is_same<T, u4>() || is_same<T, i4>() || is_same<T, f4e2m1>();
}

// A lane in its storage type.
template <class T>
KILN_FN T as_stored(T lane) {
  return lane;
}

#if KILN_HOST

template <class T, int Lanes>
struct LanesAs {
  using Type = Row<const T>;
};
template <int Lanes>
struct LanesAs<u4, Lanes> {
  using Type = Unpacked<u4, Lanes>;
};
template <int Lanes>
struct LanesAs<i4, Lanes> {
  using Type = Unpacked<i4, Lanes>;
};
template <int Lanes>
struct LanesAs<f4e2m1, Lanes> {
  using Type = Unpacked<f4e2m1, Lanes>;
};
template <class T, int Lanes>
using LanesOf = typename LanesAs<T, Lanes>::Type;

#else

// A lane of a word that holds several, the first in its lowest bits. `place` is known when the loop
// over the lanes is unrolled, so shifts and masks are constants.
template <class T>
struct InWord {
  u32 word;
  int place;
};

template <class T>
KILN_FN constexpr int lane_bits() {
  return is_packed<T>() ? 4 : int(sizeof(T)) * 8;
}

template <class T>
KILN_FN T as_stored(InWord<T> lane) {
  const u32 bits = lane.word >> lane.place * lane_bits<T>();
  if constexpr (is_packed<T>())
    return T{u8(bits & 15)};
  else if constexpr (sizeof(T) == 1)
    return bit_cast<T>(u8(bits));
  else
    return bit_cast<T>(u16(bits));
}

KILN_FN f32 number(InWord<bf16> lane) {
  return bit_cast<f32>(lane.place == 0 ? lane.word << 16 : lane.word & 0xffff0000u);
}

// A small integer as an f32. Conversion instructions of NVIDIA GPUs have a quarter of the speed of
// arithmetic, so there the bits are put below the exponent of a power of two, which is subtracted
// again. AMD converts any byte of a word at full speed.
#if KILN_NVIDIA

struct Lifted {
  f32 value;  // the number and
  f32 power;  // what it was added to
};

// (word & mask) ^ bits in one instruction; the compiler would use two for two constants.
KILN_FN u32 select_bits(u32 word, u32 mask, u32 bits) {
  u32 result;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
  return result;
}

template <class T>
KILN_FN Lifted lifted(InWord<T> lane) {
  if constexpr (is_packed<T>()) {
    const int place = lane.place & 3;
    const u32 word = lane.place < 4 ? lane.word : lane.word >> 16;
    const u32 power = u32(127 + 23 - 4 * place) << 23;
    // With its highest bit flipped, an i4 is 8 more.
    const u32 above = is_same<T, i4>() ? 8u : 0u;
    const u32 bits = power | above << 4 * place;
    return {bit_cast<f32>(select_bits(word, 15u << 4 * place, bits)), bit_cast<f32>(bits)};
  } else {
    const u32 above = is_same<T, i8>() ? 0x80u : 0u;
    const u32 word = lane.word ^ above * 0x01010101u;
    const u32 bits = __byte_perm(word, 0x4b000000u, 0x7550u | u32(lane.place));
    return {bit_cast<f32>(bits), bit_cast<f32>(0x4b000000u | above)};
  }
}

// Two 8-bit floats as two f16, which hold them all, by an instruction.
enum : bool { kHasPairs = __CUDA_ARCH__ >= 890 };
template <class T>
KILN_FN u32 pair_of_halves(u16 pair) {
  u32 halves = 0;
#if __CUDA_ARCH__ >= 890
  if constexpr (is_same<T, f8e4m3>()) {
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
  } else {
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(pair));
  }
#endif
  return halves;
}

template <class T>
KILN_FN f32 number(InWord<T> lane) {
  if constexpr (is_same<T, u4>() || is_same<T, i4>() || is_same<T, u8>() || is_same<T, i8>()) {
    const Lifted number = lifted(lane);
    return number.value - number.power;
  } else if constexpr (kHasPairs && (is_same<T, f8e4m3>() || is_same<T, f8e5m2>())) {
    const u32 halves = pair_of_halves<T>(u16(lane.word >> (lane.place & 2) * 8));
    return to<f32>(f16{u16(halves >> (lane.place & 1) * 16)});
  } else {
    return to<f32>(as_stored(lane));
  }
}

// number(lane) * scale, rounded once, in one instruction less: power * scale is exact and needed
// once for all lanes. Not finite for scales from 2^104 on, where number(lane) * scale may be; the
// caller checks for that.
template <class T>
KILN_FN f32 scaled(InWord<T> lane, f32 scale) {
  static_assert(is_same<T, u4>() || is_same<T, u8>(), "scaled: the power of two has a single bit");
  const Lifted number = lifted(lane);
  return ::fmaf(number.value, scale, -number.power * scale);
}

#else

template <class T>
KILN_FN f32 number(InWord<T> lane) {
  if constexpr (is_same<T, u4>() || is_same<T, i4>()) {
    const u32 above = is_same<T, i4>() ? 8u : 0u;
    const u32 word = lane.word ^ above * 0x11111111u;
    u32 halves = (lane.place % 2 == 0 ? word : word >> 4) & 0x0f0f0f0fu;
    // Keeps the compiler from extracting each half by an instruction of its own.
    asm("" : "+v"(halves));
    return f32((halves >> lane.place / 2 * 8) & 255u) - f32(above);
  } else if constexpr (is_same<T, u8>()) {
    return f32((lane.word >> lane.place * 8) & 255u);
  } else {
    return to<f32>(as_stored(lane));
  }
}

#endif

// number(lane) - zero_point, for a whole number of at most 2048.
template <class T>
KILN_FN f32 minus_zero_point(InWord<T> lane, f32 zero_point) {
#if KILN_NVIDIA
  const Lifted number = lifted(lane);
  return number.value - (number.power + zero_point);
#else
  return number(lane) - zero_point;
#endif
}

template <int Count>
KILN_FN void carry_scaled(Lanes<f32, Count>& all, Lanes<f32, Count>& group, f32 scale) {
  KILN_EACH(i, Count) {
    all.lane[i] = add_product(all.lane[i], group.lane[i], scale);
    group.lane[i] = 0.0f;
  }
}

template <class To, class T>
KILN_FN To to(InWord<T> lane) {
  if constexpr (is_same<To, f32>())
    return number(lane);
  else
    return to<To>(as_stored(lane));
}

template <class T, int Lanes>
struct LaneWords {
  enum : int {
    kIn = 32 / lane_bits<T>(),
    kBytes = Lanes / kIn * 4,
  };
  alignas(kBytes % 16 == 0 ? 16 : kBytes) u32 word[Lanes / kIn];
  __device__ __forceinline__ InWord<T> operator[](int lane) const {
    return {word[lane / kIn], lane % kIn};
  }
};

// Small integers and small floats are loaded in whole words; fewer of them, and wider types, as
// they are.
template <class T, int Lanes,
          bool InWords = (sizeof(T) <= 2 && !is_same<T, b8>() && Lanes * lane_bits<T>() % 32 == 0)>
struct LanesAs {
  using Type = LaneWords<T, Lanes>;
};
template <class T, int Lanes>
struct LanesAs<T, Lanes, false> {
  using Type = Vec<T, Lanes>;
};
template <int Lanes>
struct LanesAs<u4, Lanes, false> {
  using Type = Unpacked<u4, Lanes>;
};
template <int Lanes>
struct LanesAs<i4, Lanes, false> {
  using Type = Unpacked<i4, Lanes>;
};
template <int Lanes>
struct LanesAs<f4e2m1, Lanes, false> {
  using Type = Unpacked<f4e2m1, Lanes>;
};
template <class T, int Lanes>
using LanesOf = typename LanesAs<T, Lanes>::Type;

template <class T, int Lanes>
KILN_FN constexpr bool is_in_words() {
  return is_same<LanesOf<T, Lanes>, LaneWords<T, Lanes>>();
}

#endif

// Elements [first, first + Lanes) of a row, as load() has them.
template <int Lanes, int Align, class T, class Index>
KILN_FN LanesOf<T, Lanes> lanes_of(const T* row, Index first) {
#if !KILN_HOST
  if constexpr (is_in_words<T, Lanes>()) {
    LanesOf<T, Lanes> result;
    copy_bytes<int(sizeof result.word), Align>(result.word, row + first);
    return result;
  } else
#endif
    return load<Lanes, Align>(row, first);
}
template <int Lanes, int Align, class T, class Place, class Index>
KILN_FN LanesOf<T, Lanes> lanes_of(Packed<const T, Place> row, Index first) {
  if constexpr (Lanes == 1) return {element(packed(row.data, row.element + Place(first)))};
#if !KILN_HOST
  if constexpr (is_in_words<T, Lanes>()) {
    // Rows begin with whole bytes: added separately, what rows have in common is computed once.
    LanesOf<T, Lanes> result;
    copy_bytes<Lanes / 2, Align>(result.word, row.data + (row.element >> 1) + (Place(first) >> 1));
    return result;
  } else
#endif
    return load<Lanes, Align>(row, first, Lanes);
}

// A vector of elements that lie anywhere: gathered one by one, it is loaded like any other, so that
// neither what is computed of it nor its order shows where they lay. GPUs have it in registers, as
// all indices are known. Of packed elements there are two to a byte.
template <class T, int Lanes>
struct Gathered {
  enum : int { kPerUnit = is_packed<T>() ? 2 : 1, kUnits = (Lanes + kPerUnit - 1) / kPerUnit };
#if KILN_HOST
  alignas(64) T of[kUnits];
#else
  alignas(16) T of[kUnits];
#endif
  KILN_MEMBER const T* row() const { return of; }
};

// Elements [first, first + Lanes) of a row, each `place(element)` elements from its beginning. Runs
// of neighbours are loaded at once.
template <int Lanes, int Run, class T, class Index, class Place>
KILN_FN Gathered<T, Lanes> gathered(const T* row, Index first, const Place& place) {
  Gathered<T, Lanes> result;
  KILN_EACH(i, Lanes / Run) {
    const T* const from = row + place(first + Index(i * Run));
#if KILN_HOST
    __builtin_memcpy(result.of + i * Run, from, Run * sizeof(T));
#else
    copy_bytes<Run* int(sizeof(T)), Run* int(sizeof(T))>(result.of + i * Run, from);
#endif
  }
  return result;
}
template <int Lanes, int Run, class T, class Offset, class Index, class Place>
KILN_FN Gathered<T, Lanes> gathered(Packed<const T, Offset> row, Index first, const Place& place) {
  Gathered<T, Lanes> result;
  KILN_EACH(i, int(result.kUnits)) {
    const T low = element(row + place(first + Index(2 * i)));
    const T high = 2 * i + 1 < Lanes ? element(row + place(first + Index(2 * i + 1))) : T{0};
    result.of[i] = T{u8(low.bits | high.bits << 4)};
  }
  return result;
}

#if !KILN_HOST
// The same of all rows of a thread, where these are side by side: `rows` each have their elements
// [first, first + Lanes), each `place(element)` elements from the first row's beginning.
template <int Align, class T, int Lanes, int Rows, class Index, class Place>
KILN_FN void gather_rows(Gathered<T, Lanes> (&rows)[Rows], const T* from, Index first,
                         const Place& place) {
  KILN_EACH(i, Lanes) {
    Vec<T, Rows> line;
    copy_bytes<Vec<T, Rows>::kBytes, Align>(line.lane, from + place(first + Index(i)));
    KILN_EACH(r, Rows) rows[r].of[i] = line.lane[r];
  }
}
template <int Align, class T, int Lanes, int Rows, class Offset, class Index, class Place>
KILN_FN void gather_rows(Gathered<T, Lanes> (&rows)[Rows], Packed<const T, Offset> from,
                         Index first, const Place& place) {
  Vec<T, Rows / 2> line[Lanes];
  KILN_EACH(i, Lanes) {
    const Offset at = from.element + Offset(place(first + Index(i)));
    copy_bytes<Rows / 2, Align>(line[i].lane, from.data + (at >> 1));
  }
  KILN_EACH(i, int(rows[0].kUnits)) {
    KILN_EACH(r, Rows) {
      const u32 low = u32(line[2 * i].lane[r / 2].bits) >> r % 2 * 4;
      const u32 high =
          2 * i + 1 < Lanes ? u32(line[(2 * i + 1) % Lanes].lane[r / 2].bits) >> r % 2 * 4 : 0;
      rows[r].of[i] = T{u8((low & 15) | (high & 15) << 4)};
    }
  }
}
#endif

}  // namespace kiln
