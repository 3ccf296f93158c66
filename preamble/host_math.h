// What the f32 functions for host compilers have in common. They are branch-free polynomials that
// g++ and clang vectorise, with NaN, infinities, zeros and subnormals right.
#pragma once

#include "types.h"

#if KILN_HOST
namespace kiln {

namespace host {

// Minimax coefficients were fitted with the Remez algorithm; each comment gives the relative error
// of the exact polynomial, before rounding.

constexpr f32 kInf = __builtin_inff();
constexpr f32 kNan = __builtin_nanf("");
constexpr f32 kLog2E = 1.44269504f;
// ln 2 in two parts, the first with so few bits that its product with an exponent is exact.
constexpr f32 kLn2High = 0.693359375f;
constexpr f32 kLn2Low = -2.12194440e-4f;
// Adding and subtracting this rounds to an integer, which is left in the sum's low bits.
constexpr f32 kToInteger = 12582912.0f;

// a b + c: in one instruction where the CPU has one, which saves the polynomials half of their time
// and a rounding in each step.
#ifdef __FMA__
KILN_FN f32 madd(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
KILN_FN f64 madd(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }
#else
KILN_FN f32 madd(f32 a, f32 b, f32 c) { return a * b + c; }
KILN_FN f64 madd(f64 a, f64 b, f64 c) { return a * b + c; }
#endif

KILN_FN f32 magnitude(f32 x) { return bit_cast<f32>(bit_cast<u32>(x) & 0x7fffffffu); }
KILN_FN f32 with_sign(f32 x, f32 sign) {
  return bit_cast<f32>((bit_cast<u32>(x) & 0x7fffffffu) | (bit_cast<u32>(sign) & 0x80000000u));
}
// Keeps NaN.
KILN_FN f32 clamp(f32 x, f32 low, f32 high) {
  const f32 above = x < low ? low : x;
  return above > high ? high : above;
}

// The bits of n + kToInteger, for an n in [-252, 254]. Those of kToInteger itself are beyond what a
// shift into an exponent's place, also of a half of them, leaves.
KILN_FN u32 integer_bits(f32 shifted) { return bit_cast<u32>(shifted); }

// 2^n for n in [-126, 127]; at -127, zero, and at 128, infinity.
KILN_FN f32 power_of_two(u32 n) { return bit_cast<f32>((n << 23) + 0x3f800000u); }

// x * 2^n, in two steps, of which only the second can round.
KILN_FN f32 scale(f32 x, u32 n) {
  const u32 half = n >> 1;
  return x * power_of_two(half) * power_of_two(n - half);
}

}  // namespace host

}  // namespace kiln
#endif
