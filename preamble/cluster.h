// Rows that the blocks of a cluster (blocks.h) share.
//
// Asked for by: ClusterSlots ClusterChunks
#pragma once

#include "chunks.h"
#include "reduce.h"

#if !KILN_HOST

namespace kiln {

// One slot for every wave of this block, and one for every block.
template <class T, int Threads, int Blocks>
struct ClusterSlots {
  Slots<T, Threads> own;
  T block[Blocks];
};

// Like reduce() of a block. Every block writes its result to all blocks of the cluster, which must
// have started.
template <class Reduction, int Threads, int Blocks, class T, int Width>
KILN_FN T reduce(Lanes<T, Width>& lanes, ClusterSlots<T, Threads, Blocks>& slots) {
  const T value = reduce<Reduction>(lanes, slots.own);
  if (threadIdx.x < Blocks) *in_block(slots.block + block_of_cluster(), threadIdx.x) = value;
  arrive_in_cluster();
  await_cluster();
  if constexpr ((Blocks & (Blocks - 1)) == 0) {
    return reduce_wave<Reduction, Blocks>(slots.block[threadIdx.x % Blocks]);
  } else {
    T all = slots.block[0];
    KILN_UNROLL for (int block = 1; block < Blocks; ++block) {
      all = Reduction::combine(all, slots.block[block]);
    }
    return all;
  }
}

template <int Count>
struct PowerOfTwoFrom {
  enum : int { value = 2 * PowerOfTwoFrom<(Count + 1) / 2>::value };
};
template <>
struct PowerOfTwoFrom<1> {
  enum : int { value = 1 };
};

// The results of all chunks of a row, of which each `Sharing` blocks of a cluster keep as many
// (chunks.h), and each block has a copy: as many as pairs are combined of. All blocks must have
// started.
template <class Reduction, class T, int Threads, int Width, int Chunks, int Blocks, int Sharing = 1>
struct ClusterChunks : ChunkResults<Reduction, T, Threads, Width, Chunks, Sharing> {
  using Results = ChunkResults<Reduction, T, Threads, Width, Chunks, Sharing>;
  using Row = TreeThreads<Threads, Width, Sharing>;
  enum : int {
    kWavesOfBlock = Row::kWaves / Sharing,
    kChunks = Chunks * Blocks / Sharing,
    kPairs = PowerOfTwoFrom<kChunks>::value,
  };
  T all[kPairs];

  // Of blocks that share chunks, one combines each: the others leave what they have there.
  template <int Sets, class Columns>
  KILN_MEMBER void leave(RowTree<Reduction, T, Threads, Width, Sets, Sharing>& tree,
                         Columns& columns, u32 number) {
    if constexpr (Sharing == 1) {
      Results::leave(tree, columns, number);
    } else {
      using Tree = RowTree<Reduction, T, Threads, Width, Sets, Sharing>;
      Lanes<T, Width>& lanes = tree.joined();
      Tree::combine_far_lanes(lanes);
      const u32 block = block_of_cluster() / Sharing * Sharing + number % Sharing;
      T* const own = in_block(this->template column<T>(columns, number, Row::wave()), block);
      KILN_UNROLL for (int i = 0; i < Row::kLeft; ++i) own[i] = lanes.lane[i];
    }
  }
  // After a barrier of the cluster the results are there.
  template <class Columns>
  KILN_MEMBER void combine(Columns& columns, u32 count) {
    if (threadIdx.x >= kChunks && threadIdx.x < kPairs) {
      all[threadIdx.x] = Reduction::template identity<T>();
    }
    const u32 sharing = block_of_cluster() % Sharing;
    for (u32 number = sharing + Row::wave_of_block() * Sharing; number < count;
         number += kWavesOfBlock * Sharing) {
      const T result = this->combine_chunk(columns, number);
      T* const own = all + block_of_cluster() / Sharing * Chunks + number;
      if (Row::lane() < Blocks) *in_block(own, Row::lane()) = result;
    }
  }
  KILN_MEMBER T result() const { return combine_apart<Reduction, kPairs, 1>(all); }
};

}  // namespace kiln

#endif
