// Quotients, remainders and powers of integers; by zero, and INT_MIN by -1, they have results too.
#pragma once

#include "integer.h"

namespace kiln {

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

}  // namespace kiln
