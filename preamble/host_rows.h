// Reductions of rows on the CPU; and what stands in for what GPUs have threads for.
#pragma once

#include "host_parts.h"
#include "reduce.h"
#include "tree.h"

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

// Values and their positions, each in lanes of their own: the compiler makes vectors of both.
template <class T, class Index, int Width>
struct FoundLanes {
  T value[Width];
  Index index[Width];
  KILN_MEMBER Found<T, Index> operator[](int lane) const { return {value[lane], index[lane]}; }
  template <class Reduction>
  KILN_MEMBER void combine(int lane, Found<T, Index> found, bool counts = true) {
    const bool second = counts & Reduction::replaces((*this)[lane], found);
    value[lane] = second ? found.value : value[lane];
    index[lane] = second ? found.index : index[lane];
  }
};
template <class T>
struct IsFound {
  enum : bool { value = false };
};
template <class T, class Index>
struct IsFound<Found<T, Index>> {
  enum : bool { value = true };
};

// The identity of a reduction in every lane, in the type in which the CPU accumulates.
template <class Reduction, class T, int Width>
KILN_FN auto start_accumulators() {
  using Type = typename Accumulator<Reduction, T>::Type;
  if constexpr (IsFound<T>::value) {
    const T identity = Reduction::template identity<T>();
    FoundLanes<decltype(T::value), decltype(T::index), Width> lanes;
    for (int i = 0; i < Width; ++i) lanes.value[i] = identity.value;
    for (int i = 0; i < Width; ++i) lanes.index[i] = identity.index;
    return lanes;
  } else if constexpr (is_same<Type, T>()) {
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

template <class Reduction, class Part, class T, class Index, int Width>
KILN_FN void combine_lane(const Part& part, FoundLanes<T, Index, Width>& lanes, int lane,
                          Found<T, Index> found) {
  lanes.template combine<Reduction>(part.at + lane, found, part.has(lane));
}

// The same for a sum or product of a row of one vector, where each lane gets one value, and keeps
// its distance from others: lanes of a part that are of the one before keep what they have, since
// its elements may have been overwritten. If no part is before, all of the row is as many lanes
// later.
template <class Reduction, class Part, class T, int Width, class Value>
KILN_FN void place_lane(const Part& part, Lanes<T, Width>& lanes, int lane, Value value) {
  const T identity = Reduction::template identity<T>();
  const T placed = Reduction::combine(identity, value);
  T& to = lanes.lane[(Part::copies ? 0 : part.at - part.overlap) + lane];
  to = select(part.has(lane), placed, Part::copies ? identity : to);
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

// The extreme value of all lanes, and then the first position where it is.
template <class Reduction, class T, class Index, int Width>
KILN_FN Found<T, Index> fold(const FoundLanes<T, Index, Width>& lanes) {
  using Values = typename Reduction::Values;
  constexpr AllLanes<Width> part{};
  auto extreme = start_accumulators<Values, T, 1>().lane[0];
  KILN_FOR_EACH_LANE_OF(i, part) extreme = Values::combine(extreme, lanes.value[i]);
  const T value = result_of<Values>(extreme);
  Index index = ~Index(0);
  KILN_FOR_EACH_LANE_OF(i, part) {
    const Index position = are_same(lanes.value[i], value) ? lanes.index[i] : ~Index(0);
    index = least(index, position);
  }
  return {value, index};
}

// ---- sums and products of long rows, in the order of their tree ---------------------------------

// Accumulators of a vector, with room before them for lanes of the part before; whether they have
// nothing yet.
template <class T>
struct Accumulators {
  T* start;
  bool empty;
};
template <class Reduction, class Part, class T, class Value>
KILN_FN void combine_lane(const Part& part, Accumulators<T> lanes, int lane, Value value) {
  T& to = lanes.start[part.at - part.overlap + lane];
  const T before = select(lanes.empty, Reduction::template identity<T>(), to);
  to = select(part.has(lane), Reduction::combine(before, value), to);
}

// Of a row that is read in vectors, one after the other: an accumulator for each residue of a
// chunk, and the results of chunks.
template <class Reduction, class T, int Width>
struct TreeRows {
  enum : int { kOpen = 40 };
  alignas(64) T lane[kMaxOverlap + kMostResidues];
  T chunk[kOpen];
  int residues;
  int open;
  KILN_MEMBER TreeRows() : open(0) {}

  template <class Index>
  KILN_MEMBER void begin(Index count) {
    residues = int(tree_residues(count));
    T* const first = lane + kMaxOverlap;
    for (int i = int(count); i < residues; ++i) first[i] = Reduction::template identity<T>();
  }
  // Of the vector that begins with that element of the chunk.
  template <class Index>
  KILN_MEMBER Accumulators<T> of(Index element) {
    return {lane + kMaxOverlap + int(u32(element) & u32(residues - 1)), element < Index(residues)};
  }
  KILN_MEMBER void end(int merges) {
    chunk[open++] = fold_sets<1>();
    for (; merges != 0; --merges, --open) {
      chunk[open - 2] = Reduction::combine(chunk[open - 2], chunk[open - 1]);
    }
  }
  KILN_MEMBER T result() const { return chunk[0]; }

 private:
  enum : int { kLanes = kLeastResidues };
  // Combines accumulators in pairs, each half of all with the other.
  template <int Sets>
  KILN_MEMBER T fold_sets() const {
    if constexpr (Sets * kLanes < kMostResidues) {
      if (Sets * kLanes < residues) return fold_sets<2 * Sets>();
    }
    const T* const first = lane + kMaxOverlap;
    alignas(64) Lanes<T, 8> eight;
    if constexpr (Sets == 1) {
      KILN_FOR_EIGHT_LANES(i) eight.lane[i] = fold_far<kLanes / 8, 8>(first + i);
    } else {
      alignas(64) Lanes<T, kLanes> left;
      constexpr AllLanes<kLanes> part{};
      KILN_FOR_EACH_LANE_OF(i, part) left.lane[i] = fold_far<Sets, kLanes>(first + i);
      KILN_FOR_EIGHT_LANES(i) eight.lane[i] = fold_far<kLanes / 8, 8>(left.lane + i);
    }
    return fold_far<8, 1>(eight.lane);
  }
  template <int Count, int Step>
  KILN_MEMBER static T fold_far(const T* first) {
    if constexpr (Count == 1) {
      return *first;
    } else {
      return Reduction::combine(fold_far<Count / 2, 2 * Step>(first),
                                fold_far<Count / 2, 2 * Step>(first + Step));
    }
  }
};

// ---- what a GPU has threads for -----------------------------------------------------------------

template <class T, int Threads>
struct Slots {};
template <class Reduction, int Threads, class T, class Part, int Width>
KILN_FN T reduce(Lanes<Part, Width>& lanes, Slots<T, Threads>&) {
  return result_of<Reduction>(fold<Reduction, Width>(lanes));
}
template <class Reduction, int Threads, class T, class Index, int Width>
KILN_FN Found<T, Index> reduce(FoundLanes<T, Index, Width>& lanes,
                               Slots<Found<T, Index>, Threads>&) {
  return fold<Reduction>(lanes);
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
