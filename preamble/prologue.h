// The prologue of a product on GPUs: what its rows share of each column's vector is computed by
// every block before its rows, with statistics of the vector such as the mean square of rms_norm,
// and kept in shared memory. Sums follow the tree (tree.h), so that their bits are those of a
// kernel of rows.
#pragma once

#include "products.h"
#include "tree.h"

#if !KILN_HOST

namespace kiln {

// Of `Columns` vectors of up to `Threads` * `Elements` elements, which threads take in vectors of
// `Width`. A block may have more threads: those do what others do. `SlotBytes` are those of a
// partial result.
template <class Staged, int Columns, int Threads, int Elements, int Width, int SlotBytes>
struct PrologueMemory {
  using StagedType = Staged;
  using Row = TreeThreads<Threads, Width>;
  enum : int {
    kColumns = Columns,
    kThreads = Threads,
    kWidth = Width,
    kSlots = Elements / Width,
    kLength = Threads * Elements,
    // tree_residues() of more than half of that many elements.
    kResidues = kLength / kTreeTerms < kLeastResidues  ? int(kLeastResidues)
                : kLength / kTreeTerms > kMostResidues ? int(kMostResidues)
                                                       : kLength / kTreeTerms,
    kSets = kResidues / (Threads * Width),
  };
  static_assert(kSets * Threads * Width == kResidues, "PrologueMemory: each residue has a thread");
  alignas(16) Staged staged[Columns * kLength];
  TreeSlots<SlotBytes, Threads, Width> slots[Columns];

  KILN_MEMBER Staged* column(u32 c) { return staged + c * kLength; }
  // Visits this thread's vectors: their numbers, and their first elements.
  template <class Visit>
  KILN_MEMBER static void each_own(u32 length, const Visit& visit) {
    KILN_UNROLL for (int slot = 0; slot < kSlots; ++slot) {
      const u32 first = (u32(slot) * kThreads + Row::thread()) * kWidth;
      if (first < length) visit(slot, first);
    }
  }
};

// Reduces each column: `add(c, slot, first, sums)` combines a vector with the partial results of
// its lanes. All threads get all results.
template <class Reduction, class T, class Memory, class Add>
KILN_FN void reduce_columns(T (&result)[Memory::kColumns], Memory& memory, u32 length,
                            const Add& add) {
  KILN_UNROLL for (int c = 0; c < Memory::kColumns; ++c) {
    RowTree<Reduction, T, Memory::kThreads, Memory::kWidth, Memory::kSets> tree;
    Memory::each_own(length,
                     [&](int slot, u32 first) KILN_INLINED { add(c, slot, first, tree.of(slot)); });
    result[c] = tree.result(memory.slots[c]);
  }
}

// Stores what `value(c, slot, first, lanes)` makes of each vector, for all threads of the block.
template <class Memory, class Value>
KILN_FN void stage_columns(Memory& memory, u32 length, const Value& value) {
  using Staged = typename Memory::StagedType;
  constexpr int kBytes = Memory::kWidth * int(sizeof(Staged));
  Memory::each_own(length, [&](int slot, u32 first) KILN_INLINED {
    KILN_UNROLL for (int c = 0; c < Memory::kColumns; ++c) {
      Vec<Staged, Memory::kWidth> lanes;
      value(c, slot, first, lanes);
      store<Memory::kWidth, (kBytes < 16 ? kBytes : 16)>(memory.column(c), first, lanes);
    }
  });
  KILN_SYNCHRONIZE();
}

// The parts of a prologue: `load_early()` loads what no kernel before writes, before the PDL wait,
// and `load()` what is first needed after it, which may be some time before `finish()` computes and
// stages the vectors.
template <class Early, class Load, class Finish>
struct Prologue {
  const Early& load_early;
  const Load& load;
  const Finish& finish;
};
template <class Early, class Load, class Finish>
KILN_FN Prologue<Early, Load, Finish> prologue_of(const Early& load_early, const Load& load,
                                                  const Finish& finish) {
  return {load_early, load, finish};
}

}  // namespace kiln

#endif
