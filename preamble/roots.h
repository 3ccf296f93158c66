// Square and cube roots, and lengths.
#pragma once

#include "arithmetic.h"
#include "host_wide.h"
#include "native.h"
#include "signs.h"

namespace kiln {

#if !KILN_HOST
namespace gpu {

// Correctly rounded. On NVIDIA, y = x / sqrt(x) to 2^-22, then one step of Newton's method, whose
// residual is exact in fma. Where x is so small that the residual would not be, x is made larger.
KILN_FN f32 sqrt(f32 x) {
#if KILN_NVIDIA
  const bool small = x < 1.26217745e-29f;  // 2^-96
  const f32 scaled = small ? x * 18446744073709551616.0f : x;
  const f32 r = native::rsqrt(scaled);
  const f32 y = scaled * r;
  const f32 root = ::fmaf(::fmaf(-y, y, scaled), 0.5f * r, y);
  const f32 result = small ? root * 2.32830644e-10f : root;
  return x == 0.0f || x == bit_cast<f32>(0x7f800000u) ? x : result;
#else
  // hiprtc's own is the instruction, which is 1 ULP off at most: of it and its two neighbours, the
  // one whose square with its neighbour's is on the right side of x, as LLVM's code generator
  // decides (AMDGPU, lowerFSQRTF32).
  const bool small = x < 1.26217745e-29f;  // 2^-96
  const f32 scaled = small ? x * 4294967296.0f : x;
  const f32 root = native::sqrt(scaled);
  const f32 below = bit_cast<f32>(bit_cast<u32>(root) - 1);
  const f32 above = bit_cast<f32>(bit_cast<u32>(root) + 1);
  const f32 not_above = ::fmaf(-below, root, scaled) <= 0.0f ? below : root;
  const f32 nearest = ::fmaf(-above, root, scaled) > 0.0f ? above : not_above;
  const f32 result = small ? nearest * 1.52587891e-05f : nearest;  // 2^-16
  return x == 0.0f || x == bit_cast<f32>(0x7f800000u) ? x : result;
#endif
}

}  // namespace gpu
#endif
#if KILN_HOST
namespace host {

KILN_FN f32 cbrt(f32 x) {
  const f64 third = wide_log(wide_magnitude(x)) * (kWideLog2E / 3.0);
  return with_sign(x == 0.0f ? 0.0f : f32(wide_exp2(third)), x);
}
KILN_FN f32 hypot(f32 a, f32 b) {
  const f64 x = a;
  const f64 y = b;
  const bool infinite = (magnitude(a) == kInf) | (magnitude(b) == kInf);
  return infinite ? kInf : f32(__builtin_sqrt(x * x + y * y));
}

}  // namespace host
#endif

#if KILN_HOST
KILN_LIBRARY_1(sqrt, sqrt)
#else
KILN_FN f32 sqrt(f32 x) { return gpu::sqrt(x); }
KILN_FN f64 sqrt(f64 x) { return ::sqrt(x); }
#endif

namespace strict {
using kiln::sqrt;
}
namespace narrow {
using kiln::sqrt;
}

namespace strict {

KILN_LIBRARY_1(cbrt, cbrt)
KILN_LIBRARY_2(hypot, hypot)
#if KILN_HOST
// C has no rsqrt.
KILN_FN f32 rsqrt(f32 x) { return 1.0f / sqrt(x); }
KILN_FN f64 rsqrt(f64 x) { return 1.0 / sqrt(x); }
#else
KILN_LIBRARY_1(rsqrt, rsqrt)
#endif

}  // namespace strict
using strict::rsqrt;
KILN_DEFAULT_1(cbrt)
KILN_DEFAULT_2(hypot)
KILN_AT_LOWER_ACCURACY(cbrt)
KILN_AT_LOWER_ACCURACY(hypot)

namespace narrow {

using kiln::rsqrt;

}  // namespace narrow
namespace fast {

#if !KILN_HOST
KILN_FN f32 sqrt(f32 x) { return native::sqrt(x); }
KILN_FN f32 rsqrt(f32 x) { return native::rsqrt(x); }
KILN_FN f64 sqrt(f64 x) { return kiln::sqrt(x); }
KILN_FN f64 rsqrt(f64 x) { return kiln::rsqrt(x); }
#else
using kiln::rsqrt;
using kiln::sqrt;
#endif

}  // namespace fast

}  // namespace kiln
