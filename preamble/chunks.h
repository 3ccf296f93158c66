// Rows of GPUs of several chunks (tree.h). The threads of a row leave what they have of each chunk
// in shared memory and synchronise once for several chunks, which waves then combine, a chunk each.
#pragma once

#include "tree.h"

#if !KILN_HOST
namespace kiln {

// The chunks of a row that the threads of a block keep on chip, from number `first` on. The vectors
// of a thread are those of chunk after chunk, kSlots of each. Where the block has all of the row,
// every chunk but the last one is `Whole`.
template <int Threads, int Width, int Sets, int Parts, bool Whole, class Index, int Blocks = 1>
struct RowChunks {
  enum : int { kVectors = kTreeChunk / Width, kSlots = kVectors / Threads };
  using Ends = TreeEnds<Threads, Width, Index, Blocks>;
  Index size;
  Index head;
  Index first;
  u32 threads[Parts];  // that have residues of their own

  KILN_MEMBER RowChunks(Index row_size, Index row_head, Index first_chunk)
      : size(row_size), head(row_head), first(first_chunk) {
    KILN_UNROLL for (int part = 0; part < Parts; ++part) {
      threads[part] =
          is_whole(part) ? u32(Threads) : threads_with_residues<Threads, Width, Sets>(count(part));
    }
  }
  KILN_MEMBER static bool is_whole(int part) { return Whole && part < Parts - 1; }
  KILN_MEMBER Index start(int part) const { return (first + Index(part)) * kTreeChunk; }
  KILN_MEMBER Index count(int part) const {
    if (is_whole(part)) return kTreeChunk;
    return start(part) < size ? least(size - start(part), Index(kTreeChunk)) : 0;
  }
  KILN_MEMBER Index vectors(int part) const {
    return count(part) < head ? 0 : (count(part) - head) / Width;
  }
  KILN_MEMBER Ends ends(int part) const {
    return {head, vectors(part), count(part), threads[part]};
  }
  // The number in the row of a thread's vector in a chunk, or one beyond all if there is none.
  KILN_MEMBER Index vector_in(int part, int slot) const {
    const u32 thread = TreeThreads<Threads, Width, Blocks>::thread();
    const Index own = Index(slot) * threads[part] + thread;
    // A chunk that is whole lacks its last vector at most.
    if (is_whole(part) && slot != kSlots - 1) return Index(part) * kVectors + own;
    const bool exists = thread < threads[part] && own < vectors(part);
    return exists ? (first + Index(part)) * kVectors + own : ~Index(0);
  }
  template <int Part>
  KILN_MEMBER Index vector(int slot) const {
    return vector_in(Part, slot);
  }
  KILN_MEMBER Index vector(int slot) const { return vector_in(slot / kSlots, slot % kSlots); }
};

// Where the waves of a block leave what they have of up to `Chunks` chunks.
template <int Bytes, int Threads, int Width, int Chunks, int Blocks = 1>
struct ChunkColumns {
  using Row = TreeThreads<Threads, Width, Blocks>;
  enum : int { kBytes = Row::kWaves == 1 ? 16 : Chunks * Row::kWaves * Row::kColumns * Bytes };
  alignas(16) u8 byte[kBytes];
};

// The results of up to `Chunks` chunks of a row, of which a block has one.
template <class Reduction, class T, int Threads, int Width, int Chunks, int Blocks = 1>
struct ChunkResults {
  using Row = TreeThreads<Threads, Width, Blocks>;
  T chunk[Chunks];

  template <int Sets, class Columns>
  KILN_MEMBER void leave(RowTree<Reduction, T, Threads, Width, Sets, Blocks>& tree,
                         Columns& columns, u32 number) {
    using Tree = RowTree<Reduction, T, Threads, Width, Sets, Blocks>;
    Lanes<T, Width>& lanes = tree.joined();
    Tree::combine_far_lanes(lanes);
    if constexpr (Row::kWaves == 1) {
      const T result = Tree::combine_last(lanes);
      if (Row::lane() == 0) chunk[number] = result;
    } else {
      T* const own = column<T>(columns, number, Row::wave());
      KILN_UNROLL for (int i = 0; i < Row::kLeft; ++i) own[i] = lanes.lane[i];
    }
  }
  // Combines `count` chunks of which all threads have left what they have. Another barrier, and
  // the results are there.
  template <class Columns>
  KILN_MEMBER void combine(Columns& columns, u32 count) {
    if constexpr (Row::kWaves != 1) {
      for (u32 number = Row::wave(); number < count; number += Row::kWaves) {
        const T result = combine_chunk(columns, number);
        if (Row::lane() == 0) chunk[number] = result;
      }
    }
  }
  // Of one chunk, by one wave.
  template <class Columns>
  KILN_MEMBER static T combine_chunk(Columns& columns, u32 number) {
    const T* const from = column<T>(columns, number, 0);
    Lanes<T, Width> lanes;
    KILN_UNROLL for (int i = 0; i < Row::kLeft; ++i) {
      lanes.lane[i] = combine_apart<Reduction, Row::kWaves, Row::kColumns>(from + i);
    }
    return RowTree<Reduction, T, Threads, Width, 1, Blocks>::combine_last(lanes);
  }
  // Of all chunks, as the elements of a row.
  KILN_MEMBER T result() const { return combine_apart<Reduction, Chunks, 1>(chunk); }

 protected:
  template <class Value, class Columns>
  KILN_MEMBER static Value* column(Columns& columns, u32 number, u32 wave) {
    return reinterpret_cast<Value*>(columns.byte) + (number * Row::kWaves + wave) * Row::kColumns +
           Row::lane() * Row::kLeft;
  }
};

// The results of a row of any number of chunks, which come in the order of for_each_chunk: a stack
// of partial results, on which one thread puts them.
template <class Reduction, class T, int Threads, int Width, int Chunks>
struct ChunkStack : ChunkResults<Reduction, T, Threads, Width, Chunks> {
  enum : int { kOpen = 40 };
  T partial[kOpen];
  int open;
  int merges[Chunks];

  KILN_MEMBER void begin() {
    if (threadIdx.x == 0) open = 0;
  }
  KILN_MEMBER void merge_after(u32 number, int count) {
    if (threadIdx.x == 0) merges[number] = count;
  }
  KILN_MEMBER void push(u32 count) {
    if (threadIdx.x != 0) return;
    int top = open;
    for (u32 number = 0; number < count; ++number) {
      T value = this->chunk[number];
      for (int left = merges[number]; left != 0; --left) {
        value = Reduction::combine(partial[--top], value);
      }
      partial[top++] = value;
    }
    open = top;
  }
  KILN_MEMBER T result() const { return partial[0]; }
};

}  // namespace kiln
#endif
