// Conversion of f16 in blocks, on the CPU. Some compilers vectorise single conversions; for others,
// whole blocks are converted before and after the computation.
//
// Asked for by: load_halves half_results
#pragma once

#include "convert.h"
#include "streams.h"

#if KILN_HOST
namespace kiln {

#if defined(__F16C__) && !KILN_HALF
#define KILN_STAGED_HALVES 1
// The type of an f16 lane until its block is stored.
using f16_lane = f32;

#ifdef __AVX512F__
constexpr int kHalvesAtOnce = 16;
#else
constexpr int kHalvesAtOnce = 8;
#endif
typedef short HalfVector __attribute__((vector_size(2 * kHalvesAtOnce)));
typedef f32 FloatVector __attribute__((vector_size(4 * kHalvesAtOnce)));

KILN_FN void widen(const f16* from, f32* to) {
  HalfVector halves;
  __builtin_memcpy(&halves, from, sizeof halves);
#ifdef __AVX512F__
  const FloatVector floats = __builtin_ia32_vcvtph2ps512_mask(halves, FloatVector{}, u16(-1), 4);
#else
  const FloatVector floats = __builtin_ia32_vcvtph2ps256(halves);
#endif
  __builtin_memcpy(to, &floats, sizeof floats);
}
KILN_FN void narrow_to_half(const f32* from, f16* to) {
  FloatVector floats;
  __builtin_memcpy(&floats, from, sizeof floats);
#ifdef __AVX512F__
  const HalfVector halves = __builtin_ia32_vcvtps2ph512_mask(floats, 0, HalfVector{}, u16(-1));
#else
  const HalfVector halves = __builtin_ia32_vcvtps2ph256(floats, 0);
#endif
  __builtin_memcpy(to, &halves, sizeof halves);
}

template <int Lanes, class Index>
KILN_FN Collected<f32, Lanes> load_halves(const f16* row, Index first, int lanes) {
  Collected<f32, Lanes> wide;
  const f16* from = row + first;
  int lane = 0;
  for (; lane + kHalvesAtOnce <= lanes; lane += kHalvesAtOnce) widen(from + lane, wide.lane + lane);
  for (; lane < lanes; ++lane) wide[lane] = to<f32>(from[lane]);
  return wide;
}

template <int Lanes, class Index>
KILN_FN Collected<f32, Lanes> half_results(f16* row, Index) {
  return collect<Lanes>(reinterpret_cast<const f32*>(row));
}
template <int Lanes>
KILN_FN Collected<f16, Lanes> narrowed(int lanes, const Collected<f32, Lanes>& wide) {
  Collected<f16, Lanes> halves;
  int lane = 0;
  for (; lane + kHalvesAtOnce <= lanes; lane += kHalvesAtOnce) {
    narrow_to_half(wide.lane + lane, halves.lane + lane);
  }
  for (; lane < lanes; ++lane) halves[lane] = to<f16>(wide.lane[lane]);
  return halves;
}
template <int Lanes, class Index>
KILN_FN void put(f16* row, Index first, int lanes, const Collected<f32, Lanes>& wide) {
  put(row, first, lanes, narrowed(lanes, wide));
}
template <int Lanes, class Index>
KILN_FN void stream(f16* row, Index first, int lanes, const Collected<f32, Lanes>& wide) {
  stream(row, first, lanes, narrowed(lanes, wide));
}

#else

using f16_lane = f16;

template <int Lanes, class Index>
KILN_FN Row<const f16> load_halves(const f16* row, Index first, int) {
  return {row + first};
}
template <int Lanes, class Index>
KILN_FN Row<f16> half_results(f16* row, Index first) {
  return {row + first};
}
template <class Index>
KILN_FN void put(f16*, Index, int, const Row<f16>&) {}

#endif

}  // namespace kiln
#endif
