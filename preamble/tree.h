// The tree by which floats of a row are added up and multiplied (fusion/numerics.md): which partial
// results exist, and in which order they are combined, follows from the number of elements alone.
#pragma once

#include "reduce.h"

namespace kiln {

// A row is cut into chunks. The elements of a chunk whose indices are equal modulo its number of
// residues, a power of two, are combined one after the other; the residues' results in pairs, those
// half of all residues apart first. The results of chunks are combined as the elements of a row
// are.
enum : int {
  kTreeChunk = 1 << 15,
  kLeastResidues = 256,
  kMostResidues = 4096,
  kTreeTerms = 4,    // of a residue, where there may be as many residues as that takes
  kMostParts = 512,  // of a row in chunks: as many residues of one term as pairs can be
};

template <class Index>
KILN_FN u32 tree_residues(Index count) {
  u32 residues = kLeastResidues;
  while (residues < kMostResidues && Index(residues) * kTreeTerms < count) residues *= 2;
  return residues;
}

// How many residues a walk visits: where none has two elements, half as many residues of two have
// the same sums.
template <class Index>
KILN_FN u32 visited_residues(Index count) {
  u32 residues = 1;
  while (residues < kLeastResidues && Index(residues) * 2 < count) residues *= 2;
  return residues < kLeastResidues ? residues : tree_residues(count);
}
// The residue after `residue` in bit-reversed order.
KILN_FN u32 next_residue(u32 residue, u32 residues) {
  u32 bit = residues / 2;
  for (; residue & bit; bit /= 2) residue ^= bit;
  return residue | bit;
}
// How often partial results are combined after those of a turn are pushed on a stack.
KILN_FN int merges_after(u32 turn) {
#if KILN_HOST
  return __builtin_ctz(~turn);
#else
  int merges = 0;
  for (; turn & 1; turn /= 2) ++merges;
  return merges;
#endif
}

// Visits up to kTreeChunk partial results in an order in which few have to be kept: residues in
// bit-reversed order. After each is pushed on a stack, the two on top are combined `merges` times.
template <class Index, class Visit>
KILN_FN void walk_residues(Index count, u32 residues, const Visit& visit) {
  u32 residue = 0;
  for (u32 turn = 0; turn < residues; ++turn) {
    const int merges = merges_after(turn);
    for (Index i = residue; i < count; i += residues) {
      const bool ends = count - i <= residues;
      visit(i, (i == residue ? 0 : 1) + (ends ? merges : 0), ends && turn + 1 == residues);
    }
    residue = next_residue(residue, residues);
  }
}
template <class Index, class Visit>
KILN_FN void walk_tree(Index count, const Visit& visit) {
  walk_residues(count, visited_residues(count), visit);
}

// Calls body(first, count, merges) for the chunks of a row in such an order. A row of nothing is
// one chunk of nothing.
template <class Index, class Body>
KILN_FN void for_each_chunk(Index length, const Body& body) {
  constexpr Index kChunk = kTreeChunk;
  const Index chunks = length == 0 ? 1 : (length - 1) / kChunk + 1;
  walk_tree(Index((chunks - 1) / kChunk + 1), [&](Index group, int after, bool) KILN_INLINED {
    const Index from = group * kChunk;
    walk_tree(least(chunks - from, kChunk), [&](Index chunk, int merges, bool last) KILN_INLINED {
      const Index first = (from + chunk) * kChunk;
      body(first, least(length - first, kChunk), merges + (last ? after : 0));
    });
  });
}

// The number of residues of so many results, of one term where there are no more than pairs can be.
template <class Index>
KILN_FN u32 residues_in_pairs(Index count) {
  return count <= kMostParts ? u32(kMostParts) : tree_residues(count);
}
// Calls body(number, merges, last) for those of `count` results, a row of the tree, whose numbers
// are equal to `part` modulo `parts`, a power of two that divides their residues; with a number
// past the end if there are none. What is left of the tree are the parts' results, as a row.
template <class Index, class Body>
KILN_FN void walk_part(Index count, Index part, Index parts, const Body& body) {
  const Index own = part < count ? (count - part - 1) / parts + 1 : 1;
  u32 residues = residues_in_pairs(count) / u32(parts);
  while (residues > own) residues /= 2;  // all of those visited have an element
  walk_residues(own, residues, [&](Index number, int merges, bool last) KILN_INLINED {
    body(part + number * parts, merges, last);
  });
}

// The same as for_each_chunk() for one of `parts` parts of a row, a power of two. Chunks come in
// groups of kTreeChunk, whose results are a row too. Neighbouring parts are of different groups,
// and of each have the chunks whose numbers are equal modulo how many parts share it. A part of
// nothing has one chunk of nothing. The body is inlined in one place.
template <class Index, class Body>
KILN_FN void for_each_chunk_of(Index length, Index part, Index parts, const Body& body) {
  constexpr Index kChunk = kTreeChunk;
  const Index chunks = length == 0 ? 1 : (length - 1) / kChunk + 1;
  const Index groups = (chunks - 1) / kChunk + 1;
  Index apart = 1;
  while (apart < groups && apart < parts && apart < residues_in_pairs(groups)) apart *= 2;
  const Index sharing = apart < groups ? Index(1) : parts / apart;
  const Index own = part / apart;
  walk_part(groups, part % apart, apart, [&](Index group, int after, bool) KILN_INLINED {
    const Index from = group * kChunk;
    const Index count = group < groups && own < sharing ? least(chunks - from, kChunk) : Index(0);
    walk_part(count, own, sharing, [&](Index chunk, int merges, bool last) KILN_INLINED {
      const Index first = (from + chunk) * kChunk;
      const Index elements = chunk < count ? least(length - first, kChunk) : Index(0);
      body(first, elements, merges + (last ? after : 0));
    });
  });
}

// The same for a row of whole chunks that are every `Parts`-th one of another row.
template <int Parts, class Index, class Body>
KILN_FN void for_each_chunk_apart(Index length, const Body& body) {
  constexpr Index kChunk = kTreeChunk;
  constexpr Index kParts = Parts;
  walk_part(Index(length / kChunk * kParts), Index(0), kParts,
            [&](Index chunk, int merges, bool)
                KILN_INLINED { body(Index(chunk / kParts * kChunk), kChunk, merges); });
}

// ---- columns ------------------------------------------------------------------------------------

// Which of a column's chunks and of their residues are those of one of `splits` parts, a power of
// two: the chunks whose numbers are `chunk` modulo `chunks`, and of these the residues that are
// `own` modulo `sharing`. Parts with equal `own` are neighbours, so that what is left of the tree
// are the results of parts, as a column.
template <class Index>
struct ColumnPart {
  Index chunk;
  Index chunks;
  Index own;
  Index sharing;
};
template <class Index>
KILN_FN ColumnPart<Index> part_of_column(Index length, Index split, Index splits) {
  Index chunks = 1;
  while (chunks < splits && chunks * kTreeChunk < length) chunks *= 2;
  return {split % chunks, chunks, split / chunks, splits / chunks};
}

#if KILN_HOST

template <bool Value>
struct Flag {
  enum : bool { value = Value };
};

// One or two elements of a residue, in the order in which they are combined: whether they are its
// first, and its last; how often the two partial results on top of the stack are combined then;
// whether no others follow, or which ones.
template <bool Begins, bool Two>
struct TreeStep {
  enum : bool { begins = Begins, two = Two };
  bool ends;
  int merges;
  bool last;
  u32 next;
  u32 after_next;
};

// Visits the elements of a chunk of a column whose residues are `own` modulo `sharing`, residue by
// residue, up to `Most` of one at a time.
template <int Most, class Index, class Visit>
KILN_FN void walk_elements(Index count, u32 own, u32 sharing, const Visit& visit) {
  const u32 size = u32(count);
  const u32 residues = visited_residues(count);
  if (own >= size || own >= residues) return;
  const u32 mine = residues > sharing ? residues / sharing : 1;
  u32 residue = 0;
  for (u32 turn = 0; turn < mine; ++turn) {
    const int merges = merges_after(turn);
    const bool last = turn + 1 == mine;
    const u32 next_own = next_residue(residue, mine);
    const u32 following = own + next_own * sharing;
    u32 i = own + residue * sharing;
    const auto next = [&](auto begins) KILN_INLINED {
      constexpr bool kBegins = begins.value;
      const u32 second = i + residues;
      const u32 after = i + (Most == 2 && second < size ? 2 : 1) * residues;
      const bool ends = after >= size;
      const u32 ahead = ends ? following : after;
      const u32 beside = Most == 2 && ahead + residues < size ? ahead + residues : ahead;
      if constexpr (Most == 2) {
        if (second < size) {
          visit(Index(i), Index(second),
                TreeStep<kBegins, true>{ends, merges, ends && last, ahead, beside});
          i = after;
          return;
        }
      }
      visit(Index(i), Index(i),
            TreeStep<kBegins, false>{ends, merges, ends && last, ahead, beside});
      i = after;
    };
    next(Flag<true>());
    while (i < size) next(Flag<false>());
    residue = next_own;
  }
}

#endif

// The sums or products of columns side by side: a stack of partial results, above them the residue
// that is being added up.
template <class Reduction, class T, int Width>
struct TreeColumns {
  enum : int { kOpen = 40 };
  alignas(64) Lanes<T, Width> stack[kOpen];
  int open;
  KILN_MEMBER TreeColumns() : open(0) {}

  KILN_MEMBER Lanes<T, Width>& residue() { return stack[open]; }
  template <class Step>
  KILN_MEMBER static T combine(Step, T sum, T first, T second) {
    const T begun = Step::begins ? Reduction::template identity<T>() : sum;
    const T one = Reduction::combine(begun, first);
    return Step::two ? Reduction::combine(one, second) : one;
  }
  KILN_MEMBER void end(int merges) {
    ++open;
    merge(merges);
  }
  KILN_MEMBER Lanes<T, Width>& last() { return stack[open - 1]; }
  KILN_MEMBER void merge(int merges) {
    for (; merges != 0; --merges, --open) {
      Lanes<T, Width>& to = stack[open - 2];
      const Lanes<T, Width>& from = stack[open - 1];
      for (int i = 0; i < Width; ++i) to.lane[i] = Reduction::combine(to.lane[i], from.lane[i]);
    }
  }
  KILN_MEMBER const Lanes<T, Width>& result() {
    if (open == 0) stack[0] = identity_lanes<Reduction, T, Width>();
    return stack[0];
  }
};

// ---- rows of GPUs -------------------------------------------------------------------------------

#if !KILN_HOST

#if KILN_NVIDIA && __CUDA_ARCH__ >= 900
KILN_FN u32 block_of_cluster() {
  u32 block;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
  return block;
}
#else
__device__ u32 block_of_cluster();
#endif

// The threads of a row, numbered as the vectors that they take. A few lanes of a wave have
// neighbouring vectors, the next few those behind the vectors of all other waves: residues that are
// far apart are then in one wave, so that a thread is left with few partial results to be combined
// with those of other waves. Eight neighbours read a whole line of 128 bytes.
//
// Several blocks of a cluster may share a chunk: then all of their threads are numbered, block
// after block.
template <int Threads, int Width, int Blocks = 1>
struct TreeThreads {
  enum : int {
    kOfBlock = Threads / Blocks,
    kTogether = Threads < kWave ? Threads : kWave,
    kWaves = Threads / kTogether,
    kFewest = kWave / Width < 8 ? 8 : kWave / Width,
    kNear = kWaves == 1 ? kTogether : kFewest,
    kApart = kTogether / kNear,
    kLeft = Width > kApart ? Width / kApart : 1,  // partial results for those of other waves
    kColumns = kTogether * kLeft,                 // all of a wave
    kShared = kWaves < 16 ? 0 : kColumns / kWaves,
    kPitch = kColumns + kShared,
  };
  KILN_MEMBER static u32 lane() { return threadIdx.x % kTogether; }
  KILN_MEMBER static u32 wave_of_block() { return threadIdx.x % kOfBlock / kTogether; }
  KILN_MEMBER static u32 wave() {
    if constexpr (Blocks == 1) {
      return wave_of_block();
    } else {
      return block_of_cluster() % Blocks * (kOfBlock / kTogether) + wave_of_block();
    }
  }
  KILN_MEMBER static u32 thread() {
    return lane() % kNear + kNear * (wave() + kWaves * (lane() / kNear));
  }
  KILN_MEMBER static u32 wave_of(u32 thread) { return thread / kNear % kWaves; }
};

// How many threads have residues of their own.
template <int Threads, int Width, int Sets, class Index>
KILN_FN u32 threads_with_residues(Index count) {
  return least(tree_residues(count) / (Width * Sets), u32(Threads));
}

// Where waves leave what they have for others. All have to have read it before it is written again.
template <int Bytes, int Threads, int Width>
struct TreeSlots {
  using Row = TreeThreads<Threads, Width>;
  enum : int {
    kResults = Row::kShared == 0 ? 0 : Row::kColumns,
    kBytes = Threads <= kWave ? 16 : (Row::kWaves * Row::kPitch + kResults) * Bytes,
  };
  alignas(16) u8 byte[kBytes];
};

// Of two values: compilers of HIP take the choice of two lanes for one of their addresses, for
// which the lanes have to be in memory.
template <class T>
KILN_FN T second_if(bool second, T a, T b) {
  return second ? b : a;
}

// The elements of an unaligned row before its first aligned vector and after its last one are lanes
// of two more vectors, the one before vector 0 and the one after the last. Where elements are
// numbered from a vector on, their residues are rotated: the tree is the same, and the vector
// before vector 0 has the accumulators of the last one of all. Each such lane is computed by a
// thread of its own, in the wave that has the accumulators of its vector: the first lanes of a wave
// take those of the vector before, the next ones those of the vector after.
template <int Threads, int Width, class Index, int Blocks = 1>
struct TreeEnds {
  using Row = TreeThreads<Threads, Width, Blocks>;
  Index head;
  Index vectors;
  Index size;
  u32 threads;  // that have residues of their own, a power of two

  KILN_MEMBER u32 thread_before() const { return threads - 1; }
  KILN_MEMBER u32 thread_after() const { return u32(vectors) & (threads - 1); }
  KILN_MEMBER static u32 own() { return Row::lane(); }
  // Whether this thread has a lane of those vectors, and whether that is an element of the row.
  KILN_MEMBER bool has_lane() const {
    const u32 wave = Row::wave_of(own() < Width ? thread_before() : thread_after());
    return own() < 2 * Width && wave == Row::wave();
  }
  KILN_MEMBER bool has_element() const { return has_lane() && element() < size; }
  // Of lanes before the row, far beyond its end.
  KILN_MEMBER Index element() const {
    return own() + head + (own() < Width ? Index(0) : vectors * Width) - Width;
  }
};

// What threads have computed of the ends of each row of a block, for those that add it up. Lanes
// that are no elements change nothing. Each wave has a place of its own, also where it has no end:
// compilers of HIP read it before they know which thread needs it.
template <class Reduction, class T, int Threads, int Width, int Rows, int Blocks = 1>
struct TreeEndSlots {
  using Row = TreeThreads<Threads, Width, Blocks>;
  alignas(16) T value[Rows][Row::kWaves][2 * Width];
  KILN_MEMBER T* own() { return value[Rows == 1 ? 0 : threadIdx.x / Threads][Row::wave()]; }
  template <class Index>
  KILN_MEMBER void put(const TreeEnds<Threads, Width, Index, Blocks>& ends, bool at_end,
                       T element) {
    if (ends.has_lane()) own()[ends.own()] = at_end ? element : Reduction::template identity<T>();
  }
};

// Combines what threads have that differ in the bits of their lanes from `Mask` down to `End`.
// While each has results of more than one lane of its vectors, both keep half of them: the one
// whose bit is set has the upper ones.
template <class Reduction, int Mask, int End, int Count, class T, int Width>
KILN_FN void combine_far(Lanes<T, Width>& lanes) {
  if constexpr (Mask >= End) {
    constexpr int kHalf = Count / 2;
    if constexpr (Count == 1) {
      lanes.lane[0] = Reduction::combine(lanes.lane[0], exchange<Mask, false>(lanes.lane[0]));
    } else {
      const bool upper = (threadIdx.x & u32(Mask)) != 0;
      KILN_UNROLL for (int i = 0; i < kHalf; ++i) {
        const T low = lanes.lane[i];
        const T high = lanes.lane[i + kHalf];
        const T given = second_if(!upper, low, high);
        lanes.lane[i] =
            Reduction::combine(second_if(upper, low, high), exchange<Mask, false>(given));
      }
    }
    combine_far<Reduction, Mask / 2, End, (Count > 1 ? kHalf : 1)>(lanes);
  }
}
// Then combines the lanes of vectors, which lanes of the wave have been keeping since.
template <class Reduction, int Mask, int Count, int Left, class T, int Width>
KILN_FN T combine_kept(Lanes<T, Width>& lanes) {
  if constexpr (Count > Left) {
    KILN_UNROLL for (int i = 0; i < Left; ++i) {
      lanes.lane[i] = Reduction::combine(lanes.lane[i], exchange<Mask, false>(lanes.lane[i]));
    }
    return combine_kept<Reduction, Mask / 2, Count / 2, Left>(lanes);
  } else {
    return fold<Reduction, Left>(lanes);
  }
}
// Combines slots in pairs, those half of all apart first.
template <class Reduction, int Count, int Step, class T>
KILN_FN T combine_apart(const T* slot) {
  if constexpr (Count == 1) {
    return *slot;
  } else {
    return Reduction::combine(combine_apart<Reduction, Count / 2, 2 * Step>(slot),
                              combine_apart<Reduction, Count / 2, 2 * Step>(slot + Step));
  }
}

// The accumulators of a thread of a row of one chunk: `Sets` times one for each lane of a vector.
// Vectors that are as many apart as threads have accumulators for have the same ones.
template <class Reduction, class T, int Threads, int Width, int Sets, int Blocks = 1>
struct RowTree {
  using Row = TreeThreads<Threads, Width, Blocks>;
  enum : int { kFar = Row::kTogether / 2 };
  Lanes<T, Width> set[Sets];
  KILN_MEMBER RowTree() {
    KILN_UNROLL for (int i = 0; i < Sets; ++i) set[i] = identity_lanes<Reduction, T, Width>();
  }
  KILN_MEMBER Lanes<T, Width>& of(int slot) { return set[slot % Sets]; }

  // Elements before vector 0 are the first of their residues.
  template <class Index, class Slots>
  KILN_MEMBER void begin(const TreeEnds<Threads, Width, Index, Blocks>& ends, Slots& slots) {
    if (Row::thread() == ends.thread_before()) combine_end(of(Sets - 1), slots.own());
  }
  // Those after the last vector, which is a thread's number `From` to `To`, are the last. Where
  // more than one set may have them there is no branch, in which compilers of HIP read slots for
  // threads that have none.
  template <int From, int To, class Index, class Slots>
  KILN_MEMBER void end(const TreeEnds<Threads, Width, Index, Blocks>& ends, Slots& slots) {
    const bool own = Row::thread() == ends.thread_after();
    if constexpr (From == To) {
      if (own) combine_end(of(From), slots.own() + Width);
    } else {
      const int last = int(u32(ends.vectors) / ends.threads % Sets);
      KILN_UNROLL for (int i = 0; i < Width; ++i) {
        const T element = slots.own()[Width + i];
        KILN_UNROLL for (int slot = From; slot <= To && slot < From + Sets; ++slot) {
          T& lane = of(slot).lane[i];
          lane = second_if(own && last == slot % Sets, lane, Reduction::combine(lane, element));
        }
      }
    }
  }
  KILN_MEMBER static void combine_end(Lanes<T, Width>& lanes, const T* end) {
    KILN_UNROLL for (int i = 0; i < Width; ++i) {
      lanes.lane[i] = Reduction::combine(lanes.lane[i], end[i]);
    }
  }

  // Of all sets of accumulators.
  KILN_MEMBER Lanes<T, Width>& joined() {
    join_sets<Sets / 2>();
    return set[0];
  }
  template <int Half>
  KILN_MEMBER void join_sets() {
    if constexpr (Half != 0) {
      KILN_UNROLL for (int k = 0; k < Half; ++k) {
        KILN_UNROLL for (int i = 0; i < Width; ++i) {
          set[k].lane[i] = Reduction::combine(set[k].lane[i], set[k + Half].lane[i]);
        }
      }
      join_sets<Half / 2>();
    }
  }
  // What lanes of a wave have before waves exchange what is left, and after.
  KILN_MEMBER static void combine_far_lanes(Lanes<T, Width>& lanes) {
    combine_far<Reduction, kFar, (Row::kWaves == 1 ? 1 : Row::kNear), Width>(lanes);
  }
  KILN_MEMBER static T combine_last(Lanes<T, Width>& lanes) {
    if constexpr (Row::kWaves != 1) {
      combine_far<Reduction, Row::kNear / 2, 1, Row::kLeft>(lanes);
    }
    constexpr int kKept = Width > Row::kTogether ? Width / Row::kTogether : 1;
    return combine_kept<Reduction, kFar, Width, kKept>(lanes);
  }
  // Every thread of the row gets the result.
  template <class Slots>
  KILN_MEMBER T result(Slots& slots) {
    Lanes<T, Width>& lanes = joined();
    combine_far_lanes(lanes);
    if constexpr (Row::kWaves != 1) combine_waves(lanes, reinterpret_cast<T*>(slots.byte));
    return combine_last(lanes);
  }

 private:
  KILN_MEMBER static void combine_waves(Lanes<T, Width>& lanes, T* columns) {
    constexpr int kLeft = Row::kLeft;
    T* const own = columns + Row::wave() * Row::kPitch + Row::lane() * kLeft;
    KILN_UNROLL for (int i = 0; i < kLeft; ++i) own[i] = lanes.lane[i];
    KILN_SYNCHRONIZE();
    if constexpr (Row::kShared == 0) {
      const T* const column = columns + Row::lane() * kLeft;
      KILN_UNROLL for (int i = 0; i < kLeft; ++i) {
        lanes.lane[i] = combine_apart<Reduction, Row::kWaves, Row::kPitch>(column + i);
      }
    } else {
      // Neighbouring lanes have neighbouring columns. As many waves as lanes have one are apart.
      constexpr int kShared = Row::kShared;
      constexpr int kLanes = Row::kTogether / kShared;
      T* const results = columns + Row::kWaves * Row::kPitch;
      const u32 number = Row::wave() * kShared + Row::lane() % kShared;
      const T* const column = columns + number + Row::lane() / kShared * Row::kPitch;
      const T part = combine_apart<Reduction, Row::kWaves / kLanes, kLanes * Row::kPitch>(column);
      const T result = combine_lanes<Row::kTogether / 2, kShared>(part);
      if (Row::lane() < kShared) results[number] = result;
      KILN_SYNCHRONIZE();
      KILN_UNROLL for (int i = 0; i < kLeft; ++i) {
        lanes.lane[i] = results[Row::lane() * kLeft + i];
      }
    }
  }
  // Of lanes that differ in the bits of their numbers from `Mask` down to `End`.
  template <int Mask, int End>
  KILN_MEMBER static T combine_lanes(T value) {
    if constexpr (Mask < End) {
      return value;
    } else {
      return combine_lanes<Mask / 2, End>(Reduction::combine(value, exchange<Mask, false>(value)));
    }
  }
};

#endif

}  // namespace kiln
