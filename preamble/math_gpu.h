// f32 functions for GPUs that are cheaper than the compilers' own within the same bounds, and the
// hardware's approximations, which they start from. Branch-free, so that the elements of a work
// item run side by side.
#pragma once

#if !KILN_HOST
namespace kiln {

namespace native {

// The hardware's own: a few ULP of f32 where results are normal, subnormals may become 0.
#if KILN_AMD
#if __has_builtin(__builtin_amdgcn_exp2f) && __has_builtin(__builtin_amdgcn_logf)
KILN_FN f32 exp2(f32 x) { return __builtin_amdgcn_exp2f(x); }
KILN_FN f32 log2(f32 x) { return __builtin_amdgcn_logf(x); }
#else  // clang up to 17: the device library's names of the same instructions
extern "C" __device__ __attribute__((const)) f32 __ocml_native_exp2_f32(f32);
extern "C" __device__ __attribute__((const)) f32 __ocml_native_log2_f32(f32);
KILN_FN f32 exp2(f32 x) { return __ocml_native_exp2_f32(x); }
KILN_FN f32 log2(f32 x) { return __ocml_native_log2_f32(x); }
#endif
KILN_FN f32 rcp(f32 x) { return __builtin_amdgcn_rcpf(x); }
KILN_FN f32 sqrt(f32 x) { return __builtin_amdgcn_sqrtf(x); }
KILN_FN f32 rsqrt(f32 x) { return __builtin_amdgcn_rsqf(x); }
// These take turns of a whole circle.
KILN_FN f32 sin(f32 x) { return __builtin_amdgcn_sinf(__builtin_amdgcn_fractf(x * 0.159154943f)); }
KILN_FN f32 cos(f32 x) { return __builtin_amdgcn_cosf(__builtin_amdgcn_fractf(x * 0.159154943f)); }
#else
#define KILN_INSTRUCTION(op, instruction)                \
  KILN_FN f32 op(f32 x) {                                \
    f32 result;                                          \
    asm(instruction " %0, %1;" : "=f"(result) : "f"(x)); \
    return result;                                       \
  }
KILN_INSTRUCTION(exp2, "ex2.approx.ftz.f32")
KILN_INSTRUCTION(log2, "lg2.approx.ftz.f32")
KILN_INSTRUCTION(rcp, "rcp.approx.ftz.f32")
KILN_INSTRUCTION(sqrt, "sqrt.approx.ftz.f32")
KILN_INSTRUCTION(rsqrt, "rsqrt.approx.ftz.f32")
KILN_INSTRUCTION(sin, "sin.approx.ftz.f32")
KILN_INSTRUCTION(cos, "cos.approx.ftz.f32")
#if __CUDA_ARCH__ >= 750
KILN_INSTRUCTION(tanh, "tanh.approx.f32")
#endif
#undef KILN_INSTRUCTION
#endif

}  // namespace native

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

// No overflow on the way, and the small results of negative x in full.
KILN_FN f32 sigmoid(f32 x) {
  const f32 e = ::expf(-bit_cast<f32>(bit_cast<u32>(x) & 0x7fffffffu));
  const f32 d = 1.0f + e;
  const f32 r = native::rcp(d);
  return (x < 0.0f ? e : 1.0f) * ::fmaf(r, ::fmaf(-d, r, 1.0f), r);
}

// 1 + x = 2^e (1 + f) with 1 + f in [2/3, 4/3): f is exact but for one rounding, since 2^-e x and
// 2^-e - 1 are exact where they matter.
KILN_FN f32 log1p(f32 x) {
  const f32 u = 1.0f + x;
  const u32 e = (bit_cast<u32>(u) - 0x3f2aaaabu) & 0xff800000u;
  const f32 quarter = bit_cast<f32>(0x40800000u - e);  // 2^(2 - e): 2^-e alone may be subnormal
  const f32 f = bit_cast<f32>(bit_cast<u32>(x) - e) - ::fmaf(-0.25f, quarter, 1.0f);
  f32 p = 0.14372629f;  // (log(1 + f) - f) / f^2: 2^-25.1 of the logarithm
  p = ::fmaf(p, f, -0.15370686f);
  p = ::fmaf(p, f, 0.13921301f);
  p = ::fmaf(p, f, -0.16419779f);
  p = ::fmaf(p, f, 0.20016028f);
  p = ::fmaf(p, f, -0.25007573f);
  p = ::fmaf(p, f, 0.33333108f);
  p = ::fmaf(p, f, -0.4999994f);
  const f32 near = ::fmaf(p * f, f, f);
  // e ln 2, of e in the exponent's place. The signs keep -0.
  const f32 result = -::fmaf(f32(i32(e)), -8.26295818e-08f, -near);
  // The hardware's logarithm knows what zero, infinity, NaN and negative numbers give.
  return bit_cast<u32>(u) - 1u >= 0x7f7fffffu ? native::log2(u) : result;
}

}  // namespace gpu

// ---- quotients of many numbers by one -----------------------------------------------------------

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
