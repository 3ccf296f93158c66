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

#if KILN_HOST

// Visits up to kTreeChunk partial results in an order in which few have to be kept: residues in
// bit-reversed order. After each is pushed on a stack, the two on top are combined `merges` times.
// Where no residue has two elements, half as many residues of two have the same sums.
template <class Index, class Visit>
KILN_FN void walk_tree(Index count, const Visit& visit) {
  u32 residues = count == 1 ? 1 : tree_residues(count);
  while (residues > 1 && Index(residues) >= count) residues /= 2;
  u32 residue = 0;
  for (u32 turn = 0; turn < residues; ++turn) {
    const int merges = __builtin_ctz(~turn);
    for (Index i = residue; i < count; i += residues) {
      const bool ends = count - i <= residues;
      visit(i, (i == residue ? 0 : 1) + (ends ? merges : 0), ends && turn + 1 == residues);
    }
    u32 bit = residues / 2;
    for (; residue & bit; bit /= 2) residue ^= bit;
    residue |= bit;
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

#endif

}  // namespace kiln
