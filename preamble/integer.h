// Operations on integers and bool by the names of the op table, for all eight widths: they wrap,
// and every case that C++ leaves undefined has a result (division by zero, INT_MIN / -1, wide
// shifts). Floats are in math.h, whose overloads win over these templates.
#pragma once

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

// ---- division -----------------------------------------------------------------------------------

// What the hardware may divide by without a trap: -1 is taken out beside 0, because INT_MIN / -1
// traps.
template <class T>
KILN_FN bool divides(T b) {
  return b != T(0) && !(Type<T>::kSigned && b == T(-1));
}

// C's quotient and remainder; by 0 they are 0 and the dividend.
template <class T>
KILN_FN T quotient(T a, T b) {
  const T result = T(a / (divides(b) ? b : T(1)));
  return b == T(0) ? T(0) : divides(b) ? result : neg(a);
}
template <class T>
KILN_FN T fmod(T a, T b) {
  const T result = T(a % (divides(b) ? b : T(1)));
  return b == T(0) ? a : divides(b) ? result : T(0);
}

// The sign of the divisor, as in Python.
template <class T>
KILN_FN T remainder(T a, T b) {
  const T rest = fmod(a, b);
  const bool other_sign = b != T(0) && rest != T(0) && negative(rest) != negative(b);
  return other_sign ? add(rest, b) : rest;
}
template <class T>
KILN_FN T floor_divide(T a, T b) {
  const T rest = fmod(a, b);
  const bool round_down = b != T(0) && rest != T(0) && negative(rest) != negative(b);
  return sub(quotient(a, b), T(round_down));
}

// By squaring. A negative exponent gives the truncated inverse: 0, except for base 1 and -1.
template <class T>
KILN_FN T power(T base, T exponent) {
  Wide<T> result = 1;
  Wide<T> factor = Wide<T>(base);
  Unsigned<T> bits = Unsigned<T>(exponent);
  for (; bits != 0; bits = Unsigned<T>(bits >> 1)) {
    result = (bits & 1) != 0 ? result * factor : result;
    factor *= factor;
  }
  if constexpr (Type<T>::kSigned) {
    if (negative(exponent)) {
      const T unit = (exponent & T(1)) != 0 ? base : T(1);
      return base == T(1) || base == T(-1) ? unit : T(0);
    }
  }
  return T(result);
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

// ---- bits ---------------------------------------------------------------------------------------

template <class T>
KILN_FN T bitwise_not(T a) {
  return T(~a);
}
template <class T>
KILN_FN T bitwise_and(T a, T b) {
  return T(a & b);
}
template <class T>
KILN_FN T bitwise_or(T a, T b) {
  return T(a | b);
}
template <class T>
KILN_FN T bitwise_xor(T a, T b) {
  return T(a ^ b);
}
KILN_FN bool bitwise_not(bool a) { return !a; }

// Counts at or above the width, and negative ones, shift everything out.
template <class T, class Count>
KILN_FN T left_shift(T a, Count count) {
  constexpr Unsigned<Count> kBits = Type<T>::kBits;
  const bool inside = Unsigned<Count>(count) < kBits;
  return inside ? T(Wide<T>(a) << (inside ? int(count) : 0)) : T(0);
}
template <class T, class Count>
KILN_FN T right_shift(T a, Count count) {
  constexpr Unsigned<Count> kBits = Type<T>::kBits;
  const bool inside = Unsigned<Count>(count) < kBits;
  const T shifted = T(a >> (inside ? int(count) : Type<T>::kBits - 1));
  return inside || Type<T>::kSigned ? shifted : T(0);
}

template <class T>
KILN_FN T popcount(T a) {
  u64 bits = Unsigned<T>(a);
  bits = bits - ((bits >> 1) & 0x5555555555555555u);
  bits = (bits & 0x3333333333333333u) + ((bits >> 2) & 0x3333333333333333u);
  bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fu;
  return T((bits * 0x0101010101010101u) >> 56);
}
KILN_FN bool popcount(bool a) { return a; }

// Leading zeros; of 0, the width. A bool is one bit wide.
template <class T>
KILN_FN T clz(T a) {
  u64 bits = Unsigned<T>(a);
  bits |= bits >> 1;
  bits |= bits >> 2;
  bits |= bits >> 4;
  bits |= bits >> 8;
  bits |= bits >> 16;
  bits |= bits >> 32;
  return T(Type<T>::kBits - int(popcount(bits)));
}
KILN_FN bool clz(bool a) { return !a; }

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
