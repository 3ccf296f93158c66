// Operations on integers and bool by the names of the op table, for all eight widths: they wrap,
// and every case that C++ leaves undefined has a result (division by zero, INT_MIN / -1, wide
// shifts). Floats are in signs.h, order.h and arithmetic.h, whose overloads win over these
// templates.
#pragma once

#include "convert.h"

namespace kiln {

template <class T>
using Unsigned = typename Type<T>::Unsigned;
template <class T>
using Wide = typename Type<T>::Wide;

// The low bits. NVIDIA's assembler (CUDA 13) widens a negated i16 of -32768 to +32768, so there a
// narrow difference or product, which the compiler may know as a negation, is kept at 32 bits.
template <class T>
KILN_FN T wrap(Wide<T> value) {
#if KILN_NVIDIA
  if constexpr (sizeof(T) < 4) asm("" : "+r"(value));
#endif
  return T(value);
}

template <class T>
KILN_FN T add(T a, T b) {
  return T(Wide<T>(a) + Wide<T>(b));
}
template <class T>
KILN_FN T sub(T a, T b) {
  return wrap<T>(Wide<T>(a) - Wide<T>(b));
}
template <class T>
KILN_FN T mul(T a, T b) {
  return wrap<T>(Wide<T>(a) * Wide<T>(b));
}
template <class T>
KILN_FN T neg(T a) {
  return wrap<T>(Wide<T>(0) - Wide<T>(a));
}
// Not `a < 0`, of which compilers warn where T is unsigned.
template <class T>
KILN_FN bool negative(T a) {
  if constexpr (Type<T>::kSigned) return a < T(0);
  return false;
}
template <class T>
KILN_FN T abs(T a) {
  return negative(a) ? neg(a) : a;
}
template <class T>
KILN_FN T square(T a) {
  return mul(a, a);
}
template <class T>
KILN_FN T sign(T a) {
  return T(int(a != T(0)) - 2 * int(negative(a)));
}
template <class T>
KILN_FN T fma(T a, T b, T c) {
  return add(mul(a, b), c);
}

// ---- order --------------------------------------------------------------------------------------

// NVIDIA's assembler (CUDA 13) gets the larger of two 16-bit numbers that it knows wrong.
#if KILN_NVIDIA
#define KILN_NARROW_ORDER(instruction)                                         \
  if constexpr (sizeof(T) < 4) {                                               \
    i32 result;                                                                \
    asm(instruction " %0, %1, %2;" : "=r"(result) : "r"(i32(a)), "r"(i32(b))); \
    return T(result);                                                          \
  }
#else
#define KILN_NARROW_ORDER(instruction)
#endif
template <class T>
KILN_FN T maximum(T a, T b) {
  KILN_NARROW_ORDER("max.s32")
  return a < b ? b : a;
}
template <class T>
KILN_FN T minimum(T a, T b) {
  KILN_NARROW_ORDER("min.s32")
  return b < a ? b : a;
}
#undef KILN_NARROW_ORDER
template <class T>
KILN_FN T fmax(T a, T b) {
  return maximum(a, b);
}
template <class T>
KILN_FN T fmin(T a, T b) {
  return minimum(a, b);
}
template <class T>
KILN_FN T clip(T a, T low, T high) {
  return minimum(maximum(a, low), high);
}

template <class T>
KILN_FN bool equal(T a, T b) {
  return a == b;
}
template <class T>
KILN_FN bool not_equal(T a, T b) {
  return a != b;
}
template <class T>
KILN_FN bool less(T a, T b) {
  return a < b;
}
template <class T>
KILN_FN bool less_equal(T a, T b) {
  return a <= b;
}
template <class T>
KILN_FN bool greater(T a, T b) {
  return a > b;
}
template <class T>
KILN_FN bool greater_equal(T a, T b) {
  return a >= b;
}

template <class T>
KILN_FN T where(bool condition, T a, T b) {
  return condition ? a : b;
}

// ---- logic, and ops that leave integers alone ---------------------------------------------------

KILN_FN bool logical_not(bool a) { return !a; }
KILN_FN bool logical_and(bool a, bool b) { return a && b; }
KILN_FN bool logical_or(bool a, bool b) { return a || b; }
KILN_FN bool logical_xor(bool a, bool b) { return a != b; }

template <class T>
KILN_FN T floor(T a) {
  return a;
}
template <class T>
KILN_FN T ceil(T a) {
  return a;
}
template <class T>
KILN_FN T round(T a) {
  return a;
}
template <class T>
KILN_FN T trunc(T a) {
  return a;
}
template <class T>
KILN_FN T conj(T a) {
  return a;
}
template <class T>
KILN_FN T real(T a) {
  return a;
}
template <class T>
KILN_FN T imag(T) {
  return T(0);
}
template <class T>
KILN_FN bool isnan(T) {
  return false;
}
template <class T>
KILN_FN bool isinf(T) {
  return false;
}
template <class T>
KILN_FN bool isfinite(T) {
  return true;
}

}  // namespace kiln
