// Quotients of many numbers by one, on GPUs.
#pragma once

#include "division.h"

#if !KILN_HOST
namespace kiln {

// NVIDIA's compiler makes a reciprocal, two branches and thirteen instructions of every quotient.
// This is the same method, correctly rounded, with what depends on the divisor computed once: as
// long as neither a quotient nor a remainder leaves f32's normal range. Divisors from 2^-60 to 2^60
// and dividends from 2^-66 to 2^60, or zero, cannot; what else there is, `Unusual` tells.
struct Divisor {
  f32 value;
#if KILN_NVIDIA
  f32 reciprocal;
  bool usual;
#endif
};
struct Unusual {
#if KILN_NVIDIA
  u32 least = 0xffffffffu;  // dividend without its sign, where zero is the largest
  f32 most = 0.0f;
  __device__ __forceinline__ bool found(const Divisor& by) const {
    constexpr u32 kLeast = 0x1e800000u * 2 - 1;  // 2^-66
    return !by.usual || least < kLeast || most > 1.15292150e18f;
  }
#else
  __device__ __forceinline__ bool found(const Divisor&) const { return false; }
#endif
  // Of a vector whose lanes have divisors of their own.
  template <int Width>
  __device__ __forceinline__ bool found(const Divisor (&by)[Width]) const {
    bool any = false;
    _Pragma("unroll") for (int i = 0; i < Width; ++i) any = any || found(by[i]);
    return any;
  }
};
KILN_FN Divisor divisor(f32 value) {
#if KILN_NVIDIA
  const f32 near = native::rcp(value);
  return {value, ::fmaf(near, ::fmaf(-value, near, 1.0f), near),
          value >= 8.67361738e-19f && value <= 1.15292150e18f};
#else
  return {value};
#endif
}
KILN_FN f32 quotient(f32 a, const Divisor& by, Unusual& unusual) {
#if KILN_NVIDIA
  const u32 size = bit_cast<u32>(a) * 2 - 1;
  unusual.least = size < unusual.least ? size : unusual.least;
  unusual.most = ::fmaxf(unusual.most, ::fabsf(a));
  const f32 near = a * by.reciprocal;
  return ::fmaf(-::fmaf(near, by.value, -a), by.reciprocal, near);  // so that -0 stays what it is
#else
  return gpu::div(a, by.value);
#endif
}

}  // namespace kiln
#endif
