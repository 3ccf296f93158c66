// How the functions of the headers after this one are declared: floating-point operations by the
// names of the op table, for f32 and f64. Namespace kiln holds the default accuracy, kiln::strict
// the functions of the compiler's own library, kiln::narrow cheaper ones for values that end in f16
// or bf16, whose stored result stays within 0.51 ULP of the exact one, and kiln::fast what
// Accuracy::fast allows on top. What numerics.md defines exactly has the same bits on every device.
#pragma once

#include "types.h"

#if KILN_HOST
#define KILN_LIBRARY(function) __builtin_##function
#else
#define KILN_LIBRARY(function) ::function
#endif

#define KILN_LIBRARY_1(op, function)                             \
  KILN_FN f32 op(f32 x) { return KILN_LIBRARY(function##f)(x); } \
  KILN_FN f64 op(f64 x) { return KILN_LIBRARY(function)(x); }
#define KILN_LIBRARY_2(op, function)                                       \
  KILN_FN f32 op(f32 a, f32 b) { return KILN_LIBRARY(function##f)(a, b); } \
  KILN_FN f64 op(f64 a, f64 b) { return KILN_LIBRARY(function)(a, b); }

// The default: on the host a function that vectorises, on GPUs the library's or a cheaper one.
#if KILN_HOST
#define KILN_DEFAULT_1(op)                      \
  KILN_FN f32 op(f32 x) { return host::op(x); } \
  KILN_FN f64 op(f64 x) { return strict::op(x); }
#define KILN_DEFAULT_2(op)                                \
  KILN_FN f32 op(f32 a, f32 b) { return host::op(a, b); } \
  KILN_FN f64 op(f64 a, f64 b) { return strict::op(a, b); }
#else
#define KILN_DEFAULT_1(op) using strict::op;
#define KILN_DEFAULT_2(op) using strict::op;
#define KILN_GPU_1(op)                         \
  KILN_FN f32 op(f32 x) { return gpu::op(x); } \
  KILN_FN f64 op(f64 x) { return strict::op(x); }
#endif

// What is the same at every accuracy, and what has one method besides the strict one.
#define KILN_AT_EVERY_ACCURACY(op) \
  namespace strict {               \
  using kiln::op;                  \
  }                                \
  KILN_AT_LOWER_ACCURACY(op)
#define KILN_AT_LOWER_ACCURACY(op) \
  namespace narrow {               \
  using kiln::op;                  \
  }                                \
  namespace fast {                 \
  using kiln::op;                  \
  }
