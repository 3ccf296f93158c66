// Division by numbers known at run time, which turns the index of an element into coordinates.
#pragma once

#include "types.h"

namespace kiln {

// n / divisor as multiply and shift, prepared on the host
// (fusion/schedule/elementwise/elementwise.cpp). Exact for n < 2^31 and divisor <= 2^31: Granlund
// and Montgomery, "Division by Invariant Integers using Multiplication", PLDI 1994.
struct Divisor32 {
  u32 divisor;
  u32 multiplier;
  u32 shift;
};

KILN_FN u32 divide(u32 n, Divisor32 by) {
  return (u32((u64(n) * by.multiplier) >> 32) + n) >> by.shift;
}

// 64-bit indices are for operands that span more than 2^31 elements: plain division.
struct Divisor64 {
  u64 divisor;
};

KILN_FN u64 divide(u64 n, Divisor64 by) { return n / by.divisor; }

}  // namespace kiln
