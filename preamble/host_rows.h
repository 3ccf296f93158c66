// Reductions of rows on the CPU; and what stands in for what GPUs have threads for.
#pragma once

#include "host_parts.h"
#include "reduce.h"

#if KILN_HOST
namespace kiln {

// One element for all lanes.
template <class T>
struct Repeated {
  T value;
  KILN_MEMBER T operator[](int) const { return value; }
};
template <int Lanes, class T>
KILN_FN Repeated<T> repeat(const T* from) {
  return {*from};
}

// ---- accumulators -------------------------------------------------------------------------------

// The identity of a reduction in every lane, in the type in which the CPU accumulates.
template <class Reduction, class T>
struct Accumulator {
  using Type = T;
};
template <>
struct Accumulator<Max, f32> {
  using Type = Rising;
};
template <>
struct Accumulator<Min, f32> {
  using Type = Falling;
};
template <class Reduction, class T, int Width>
KILN_FN Lanes<typename Accumulator<Reduction, T>::Type, Width> start_accumulators() {
  using Type = typename Accumulator<Reduction, T>::Type;
  if constexpr (is_same<Type, T>()) {
    return identity_lanes<Reduction, T, Width>();
  } else {
    Lanes<Type, Width> lanes;
    for (int i = 0; i < Width; ++i) lanes.lane[i] = Type::of(Reduction::template identity<T>());
    return lanes;
  }
}
template <class Reduction, class T>
KILN_FN T result_of(T result) {
  return result;
}
template <class Reduction, u32 Least>
KILN_FN f32 result_of(Ordered<Least> result) {
  return result.value();
}

template <class T>
KILN_FN T select(bool first, T a, T b) {
  return first ? a : b;
}
template <u32 Least>
KILN_FN Ordered<Least> select(bool first, Ordered<Least> a, Ordered<Least> b) {
  return {first ? a.order : b.order};
}

template <class Reduction, class Part, class T, int Width, class Value>
KILN_FN void combine_lane(const Part& part, Lanes<T, Width>& lanes, int lane, Value value) {
  T& to = lanes.lane[part.at + lane];
  to = select(part.has(lane), Reduction::combine(to, value), to);
}

// Combines each half of the lanes with the other until one is left. The step from all lanes to
// eight is one loop, which is vectorised.
template <class Reduction, int Count, int Step, class T, int Most>
KILN_FN T fold_every(const Lanes<T, Most>& lanes, int first) {
  if constexpr (Count == 1) {
    return lanes.lane[first];
  } else {
    return Reduction::combine(fold_every<Reduction, Count / 2, 2 * Step>(lanes, first),
                              fold_every<Reduction, Count / 2, 2 * Step>(lanes, first + Step));
  }
}
template <class Reduction, int Width, class T, int Most>
KILN_FN T fold(const Lanes<T, Most>& lanes) {
  if constexpr (Width > 8) {
    alignas(32) Lanes<T, 8> eight;
    KILN_FOR_EIGHT_LANES(i) eight.lane[i] = fold_every<Reduction, Width / 8, 8>(lanes, i);
    return fold_every<Reduction, 8, 1>(eight, 0);
  } else {
    return fold_every<Reduction, Width, 1>(lanes, 0);
  }
}

// ---- what a GPU has threads for -----------------------------------------------------------------

template <class T, int Threads>
struct Slots {};
template <class Reduction, int Threads, class T, class Part, int Width>
KILN_FN T reduce(Lanes<Part, Width>& lanes, Slots<T, Threads>&) {
  return result_of<Reduction>(fold<Reduction, Width>(lanes));
}
template <int Threads>
KILN_FN bool is_first() {
  return true;
}
template <int Threads, int Rows, class Index>
KILN_FN Index row_of(Index item) {
  return item;
}

// The vectors of a row, one after the other.
#define KILN_FOR_EACH_VECTOR(Index, threads, vectors, slot, vector, count) \
  for (Index vector = 0; vector < count; ++vector)

}  // namespace kiln
#endif
