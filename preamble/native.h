// The approximations of GPUs' own hardware, of f32: what cheaper methods start from.
#pragma once

#include "types.h"

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

}  // namespace kiln
#endif
