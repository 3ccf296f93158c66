// Quotients of f32 on GPUs.
#pragma once

#include "native.h"

#if !KILN_HOST
namespace kiln {

namespace gpu {

// Correctly rounded. Compilers for AMD GPUs refine the reciprocal of the instruction, which is the
// float below or above, and round 2^i / (2^j - 2^(j - 24)) down where it is below: the refined one
// is midway between two floats, and so is the quotient. Here the next larger reciprocal makes the
// quotient that the last step starts from, which then is above the middle; any other quotient that
// is the float below or above does as well (Markstein, "Computation of elementary functions on the
// IBM RISC System/6000 processor").
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

}  // namespace gpu

}  // namespace kiln
#endif
