// Quotients on GPUs.
#pragma once

#include "native.h"

#if !KILN_HOST
namespace kiln {

namespace gpu {

// Correctly rounded. Compilers for AMD GPUs refine the reciprocal of the instruction, which in f32
// is the float below or above and in f64 has half of the bits, and round 2^i / (2^j - 2^(j - 24)),
// 2^(j - 53) in f64, down where the refined one is below: it is midway between two floats, and so
// is the quotient. Here the next larger reciprocal makes the quotient that the last step starts
// from, which then is above the middle; any other quotient that is the float below or above does as
// well (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor").
KILN_FN f32 div(f32 a, f32 b) {
#if KILN_AMD
  // By constants, of which compilers multiply by some.
  if (__builtin_constant_p(b) && (bit_cast<u32>(b) & 0x7fffffu) != 0x7fffffu) return a / b;
  bool unused;
  bool scaled;
  const f32 d = __builtin_amdgcn_div_scalef(a, b, false, &unused);
  const f32 n = __builtin_amdgcn_div_scalef(a, b, true, &scaled);
  const f32 r = native::rcp(d);
  const f32 reciprocal = ::fmaf(::fmaf(-d, r, 1.0f), r, r);
  const f32 larger = bit_cast<f32>(bit_cast<u32>(reciprocal) + 1);
  const f32 near = n * reciprocal;
  const f32 nearer = ::fmaf(::fmaf(-d, near, n), larger, near);
  const f32 rest = ::fmaf(-d, nearer, n);
  return __builtin_amdgcn_div_fixupf(__builtin_amdgcn_div_fmasf(rest, reciprocal, nearer, scaled),
                                     b, a);
#else
  return a / b;
#endif
}
KILN_FN f64 div(f64 a, f64 b) {
#if KILN_AMD
  constexpr u64 kFraction = 0xfffffffffffffull;
  if (__builtin_constant_p(b) && (bit_cast<u64>(b) & kFraction) != kFraction) return a / b;
  bool unused;
  bool scaled;
  const f64 d = __builtin_amdgcn_div_scale(a, b, false, &unused);
  const f64 n = __builtin_amdgcn_div_scale(a, b, true, &scaled);
  const f64 r = __builtin_amdgcn_rcp(d);
  const f64 refined = __builtin_fma(__builtin_fma(-d, r, 1.0), r, r);
  const f64 reciprocal = __builtin_fma(__builtin_fma(-d, refined, 1.0), refined, refined);
  const f64 larger = bit_cast<f64>(bit_cast<u64>(reciprocal) + 1);
  const f64 near = n * reciprocal;
  const f64 nearer = __builtin_fma(__builtin_fma(-d, near, n), larger, near);
  const f64 rest = __builtin_fma(-d, nearer, n);
  return __builtin_amdgcn_div_fixup(__builtin_amdgcn_div_fmas(rest, reciprocal, nearer, scaled), b,
                                    a);
#else
  return a / b;
#endif
}

}  // namespace gpu

// The same where a shorter way seldom does not apply. Called, not inlined, on NVIDIA GPUs, whose
// sequence is as long in every lane: with it hardswish of bf16 reaches 0.99 of a copy on an H200,
// and f64 in its place 0.87.
#if KILN_NVIDIA
static __device__ __attribute__((noinline)) f32 unusual_quotient(f32 a, f32 b) { return a / b; }
#else
KILN_FN f32 unusual_quotient(f32 a, f32 b) { return gpu::div(a, b); }
#endif

}  // namespace kiln
#endif

// Quotients of many numbers by one, on GPUs.
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
