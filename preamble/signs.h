// Floats by their bits: signs, and what is no finite number.
#pragma once

#include "convert.h"
#include "math.h"

namespace kiln {

namespace exact {

template <class T>
struct BitsOf;
template <>
struct BitsOf<f32> {
  using Type = u32;
};
template <>
struct BitsOf<f64> {
  using Type = u64;
};
template <class T>
using Bits = typename BitsOf<T>::Type;
template <class T>
KILN_FN constexpr Bits<T> sign_bit() {
  return Bits<T>(1) << (sizeof(T) * 8 - 1);
}
template <class T>
KILN_FN constexpr Bits<T> infinity_bits() {
  return Bits<T>(is_same<T, f32>() ? 0x7f800000u : 0x7ff0000000000000u);
}

template <class T>
KILN_FN Bits<T> to_bits(T x) {
  return bit_cast<Bits<T>>(x);
}
template <class T>
KILN_FN Bits<T> size_bits(T x) {
  return Bits<T>(to_bits(x) & ~sign_bit<T>());
}
template <class T>
KILN_FN T from_bits(Bits<T> bits) {
  return bit_cast<T>(bits);
}

template <class T>
KILN_FN T abs(T x) {
  return from_bits<T>(size_bits(x));
}
template <class T>
KILN_FN T neg(T x) {
  return from_bits<T>(to_bits(x) ^ sign_bit<T>());
}
template <class T>
KILN_FN T copysign(T x, T sign) {
  return from_bits<T>(size_bits(x) | (to_bits(sign) & sign_bit<T>()));
}
template <class T>
KILN_FN T sign(T x) {
  return x > T(0) ? T(1) : x < T(0) ? T(-1) : x;
}
template <class T>
KILN_FN bool isnan(T x) {
  return size_bits(x) > infinity_bits<T>();
}
template <class T>
KILN_FN bool isinf(T x) {
  return size_bits(x) == infinity_bits<T>();
}
template <class T>
KILN_FN bool isfinite(T x) {
  return size_bits(x) < infinity_bits<T>();
}

}  // namespace exact

#define KILN_EXACT_1(op)                         \
  KILN_FN f32 op(f32 x) { return exact::op(x); } \
  KILN_FN f64 op(f64 x) { return exact::op(x); }
#define KILN_EXACT_2(op)                                   \
  KILN_FN f32 op(f32 a, f32 b) { return exact::op(a, b); } \
  KILN_FN f64 op(f64 a, f64 b) { return exact::op(a, b); }
#define KILN_PREDICATE(op)                        \
  KILN_FN bool op(f32 x) { return exact::op(x); } \
  KILN_FN bool op(f64 x) { return exact::op(x); }

KILN_EXACT_1(abs)
KILN_EXACT_1(neg)
KILN_EXACT_1(sign)
KILN_PREDICATE(isnan)
KILN_PREDICATE(isinf)
KILN_PREDICATE(isfinite)
KILN_EXACT_2(copysign)

KILN_AT_EVERY_ACCURACY(abs)
KILN_AT_EVERY_ACCURACY(neg)
KILN_AT_EVERY_ACCURACY(sign)
KILN_AT_EVERY_ACCURACY(copysign)

}  // namespace kiln
