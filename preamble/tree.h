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
  kTreeTerms = 4,  // of a residue, where there may be as many residues as that takes
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
KILN_FN void walk_tree(Index count, const Visit& visit) {
  const u32 residues = visited_residues(count);
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

// ---- columns ------------------------------------------------------------------------------------

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

// Visits the elements of a chunk of a column, residue by residue, up to `Most` of one at a time.
template <int Most, class Index, class Visit>
KILN_FN void walk_elements(Index count, const Visit& visit) {
  if (count == 0) return;
  const u32 size = u32(count);
  const u32 residues = visited_residues(count);
  u32 residue = 0;
  for (u32 turn = 0; turn < residues; ++turn) {
    const int merges = merges_after(turn);
    const bool last = turn + 1 == residues;
    const u32 following = next_residue(residue, residues);
    u32 i = residue;
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
    residue = following;
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
    for (++open; merges != 0; --merges, --open) {
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

}  // namespace kiln
