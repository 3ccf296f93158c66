// The larger and the smaller of two floats, and the neighbours of one.
#pragma once

#include "integer.h"
#include "signs.h"

namespace kiln {

namespace exact {

// Equal numbers have equal bits but for the zeros, where `and` gives +0 and `or` gives -0. A
// comparison with NaN is false, which leaves b.
template <class T>
KILN_FN T larger(T a, T b) {
  const T either = from_bits<T>(to_bits(a) & to_bits(b));
  const T different = a > b ? a : b;
  return a == b ? either : different;
}
template <class T>
KILN_FN T smaller(T a, T b) {
  const T either = from_bits<T>(to_bits(a) | to_bits(b));
  const T different = a < b ? a : b;
  return a == b ? either : different;
}
template <class T>
KILN_FN T maximum(T a, T b) {
  const T result = larger(a, b);
  return a != a ? a : result;
}
template <class T>
KILN_FN T minimum(T a, T b) {
  const T result = smaller(a, b);
  return a != a ? a : result;
}
template <class T>
KILN_FN T fmax(T a, T b) {
  const T result = larger(a, b);
  return b != b ? a : result;
}
template <class T>
KILN_FN T fmin(T a, T b) {
  const T result = smaller(a, b);
  return b != b ? a : result;
}
#if KILN_NVIDIA
// NVIDIA's instruction takes -0 for less than +0, and of a NaN and a number the number. Its
// compiler takes the zeros for equal where it knows both operands, so it is not told what this is.
KILN_FN f32 max_number(f32 a, f32 b) {
  f32 result;
  asm("max.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
KILN_FN f32 min_number(f32 a, f32 b) {
  f32 result;
  asm("min.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
KILN_FN f32 maximum(f32 a, f32 b) {
  const f32 number = max_number(a, b);
  const f32 result = b != b ? b : number;
  return a != a ? a : result;
}
KILN_FN f32 minimum(f32 a, f32 b) {
  const f32 number = min_number(a, b);
  const f32 result = b != b ? b : number;
  return a != a ? a : result;
}
KILN_FN f32 fmax(f32 a, f32 b) {
  const f32 number = max_number(a, b);
  return b != b ? a : number;
}
KILN_FN f32 fmin(f32 a, f32 b) {
  const f32 number = min_number(a, b);
  return b != b ? a : number;
}
#endif
template <class T>
KILN_FN T clip(T a, T low, T high) {
  return minimum(maximum(a, low), high);
}
#if KILN_NVIDIA
// The same, without asking of the first result whether it is a NaN.
KILN_FN f32 clip(f32 a, f32 low, f32 high) {
  const f32 number = min_number(max_number(a, low), high);
  const f32 bounded = high != high ? high : number;
  const f32 result = low != low ? low : bounded;
  return a != a ? a : result;
}
#endif

// Neighbouring floats have neighbouring bits, counted away from zero.
template <class T>
KILN_FN T nextafter(T from, T towards) {
  const Bits<T> bits = to_bits(from);
  const bool away = (from < towards) == (from > T(0));
  const T stepped = from_bits<T>(away ? bits + 1 : bits - 1);
  const T least = from_bits<T>((to_bits(towards) & sign_bit<T>()) | 1);
  const T moved = from == T(0) ? least : stepped;
  return isnan(from) ? from : isnan(towards) || from == towards ? towards : moved;
}

}  // namespace exact

KILN_EXACT_2(maximum)
KILN_EXACT_2(minimum)
KILN_EXACT_2(fmax)
KILN_EXACT_2(fmin)
KILN_EXACT_2(nextafter)
// The neighbour in a narrower float, which both operands are rounded to first.
template <class T>
KILN_FN f32 nextafter(f32 from, f32 towards) {
  constexpr u32 kSign = 0x8000u;
  const T stored = to<T>(from);
  const f32 a = to<f32>(stored);
  const T target = to<T>(towards);
  const f32 b = to<f32>(target);
  const u32 bits = stored.bits;
  const u32 stepped = (a < b) == (a > 0.0f) ? bits + 1 : bits - 1;
  const u32 moved = a == 0.0f ? (target.bits & kSign) | 1u : stepped;
  const f32 result = to<f32>(T{u16(moved)});
  return isnan(a) ? a : isnan(b) || a == b ? b : result;
}
KILN_FN f32 clip(f32 a, f32 low, f32 high) { return exact::clip(a, low, high); }
KILN_FN f64 clip(f64 a, f64 low, f64 high) { return exact::clip(a, low, high); }

KILN_AT_EVERY_ACCURACY(maximum)
KILN_AT_EVERY_ACCURACY(minimum)
KILN_AT_EVERY_ACCURACY(fmax)
KILN_AT_EVERY_ACCURACY(fmin)
KILN_AT_EVERY_ACCURACY(clip)
KILN_AT_EVERY_ACCURACY(nextafter)

}  // namespace kiln
