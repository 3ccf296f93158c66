// Online reductions: two in one pass.
#pragma once

#include "exp.h"
#include "order.h"
#include "reduce.h"

namespace kiln {

template <class T>
KILN_FN bool is_lowest(T value) {
  return value == lowest<T>();
}

// The largest of some elements, and the sum of exp(element - largest).
struct Exponentials {
  f32 largest;
  f32 sum;
};
// Rescales the sum of the smaller `largest` to the larger one. Both sides of an exchange compute
// the same bits.
template <bool Narrow>
struct CombineExponentials {
  KILN_MEMBER static f32 exp(f32 x) {
    if constexpr (Narrow)
      return narrow::exp_not_positive(x);
    else
      return kiln::exp(x);
  }
  KILN_MEMBER static Exponentials combine(Exponentials a, Exponentials b) {
    const bool first = a.largest > b.largest;
    const f32 smaller = first ? b.largest : a.largest;
    const f32 larger = Max::combine(a.largest, b.largest);
    const f32 scale = exp(smaller == larger ? 0.0f : smaller - larger);
    return {larger, (first ? a.sum : b.sum) + (first ? b.sum : a.sum) * scale};
  }
};

// The number of elements, their mean, and the sum of their squared differences from it.
struct Moments {
  f32 count;
  f32 mean;
  f32 squares;
};
// The moments of numbers whose differences from `centre` sum to `off` and whose squared differences
// sum to `squares`. `centre` is the mean of some of them, so the result of the subtraction is not
// negative but for rounding.
KILN_FN Moments moments_around(f32 centre, f32 count, f32 off, f32 squares) {
  const f32 delta = off / maximum(count, 1.0f);
  return {count, centre + delta, maximum(squares - off * delta, 0.0f)};
}
template <bool Equal>  // counts
struct CombineMoments {
  KILN_MEMBER static Moments combine(Moments a, Moments b) {
    const f32 count = a.count + b.count;
    const f32 delta = a.mean - b.mean;
    const f32 squares = a.squares + b.squares;
    if constexpr (Equal) {
      return {count, 0.5f * (a.mean + b.mean), squares + delta * delta * (0.5f * a.count)};
    } else {
      const f32 each = 1.0f / maximum(count, 1.0f);
      return {count, (a.count * a.mean + b.count * b.mean) * each,
              squares + delta * delta * (a.count * b.count * each)};
    }
  }
};

}  // namespace kiln
