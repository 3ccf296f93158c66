// Bits of integers and bool: logic, shifts, counts.
#pragma once

#include "integer.h"

namespace kiln {

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

}  // namespace kiln
