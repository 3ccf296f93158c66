// Tiles of sixteen rows of weights times five to eight vectors x (product_tiles.h), with x in
// registers: a block is wide enough that each of its waves takes the same part of every row, and
// keeps that part of x. Weights are staged in shared memory, one tile being multiplied while the
// next is copied. The error bound of a sum is that of product_tiles.h.
#pragma once

#include "product_tiles.h"

#if KILN_NVIDIA

namespace kiln {

// The factors of the groups of a wave's steps. One thread computes them for all threads of its row.
struct StagedGroup {
  f32 scale;
  f32 offset;
  u32 term;  // pair of zero_point_term()
  u32 none;
};
template <class Tiles>
struct StagedGroups {
  alignas(16) StagedGroup of[Tiles::kWaves][Tiles::kSteps][16];
};

template <class Tiles, class Weights>
KILN_FN void stage_weights(StagedWeights<Tiles>& to, u32 tile, u32 row_count,
                           const Weights& weights_of) {
  using Set = StagedWeights<Tiles>;
  KILN_EACH(r, 2) {
    const int own = Tiles::row() + r * 8;
    const u32 row = row_or_last(tile * 16 + own, row_count);
    const u8* const from = (const u8*)weights_of(row) + threadIdx.x / 32 * (Set::kRowChunks * 16);
    KILN_EACH(i, Set::kRowChunks / 4) {
      const int chunk = i * 4 + Tiles::thread();
      copy_chunk(&to.chunk[own][Set::chunk_index(own, chunk)], from + chunk * 16);
    }
  }
}

// Like sum_tiles(), for persistent blocks. `sets` has room for two tiles of every wave. x is loaded
// before the weights, since loads arrive in the order in which they were issued, unless
// `weights_first`.
template <class Tiles, class Weights, class Vector, class Line, class Again, class Store,
          class Prologue = NoPrologue>
KILN_FN void sum_register_tiles(TileMemory<Tiles>& memory, StagedGroups<Tiles>& staged_groups,
                                Chunk<16>* sets, u32 vectors, u32 row_count, u32 tile,
                                u32 tile_stride, bool weights_first, const Weights& weights_of,
                                const Vector& vector_of, const Line& group_of,
                                const Again& recompute, const Store& store_of,
                                const Prologue& prologue = {}) {
  using T = typename Tiles::T;
  using X = typename Tiles::X;
  using Set = StagedWeights<Tiles>;
  constexpr int kSteps = Tiles::kSteps;
  constexpr int kColumns = Tiles::kColumns;
  static_assert(kSteps == 4 && Tiles::kRun == 1 && Tiles::kSlots == Tiles::kWaves &&
                    Tiles::kWhole && Tiles::kVectors == 8,
                "sum_register_tiles: a thread has a step and two vectors");
  const int t = Tiles::thread();
  const int g = Tiles::row();
  const u32 wave = threadIdx.x / 32;
  const u32 tiles = (row_count + 15) / 16;
  Set* const own_sets = (Set*)sets + wave * 2;
  const X* const x = vector_of(u32(Tiles::vector_of_column(g)));
  StepVector<Tiles> of_step[kSteps];
  const auto load_vectors = [&] {
    KILN_EACH(step, kSteps) KILN_EACH(i, Tiles::kChunks) {
      const u32 chunk = ((wave * kSteps + step) * 4 + t) * Tiles::kChunks + i;
      of_step[step].chunk[i] = load_volatile<Tiles>((const Chunk<16>*)x + chunk);
    }
  };
  prologue.load_early();
  if (!weights_first) {
    await_prerequisites();
    prologue.load();
    if constexpr (!Tiles::kPrologue) load_vectors();
  }
  stage_weights<Tiles>(own_sets[0], tile, row_count, weights_of);
  commit_copies();
  const auto load_groups = [&](TileGroup(&groups)[2], u32 of_tile) {
    const u32 group = Tiles::group_of_step(wave * kSteps + t, vectors);
    KILN_EACH(r, 2) groups[r] = group_of(row_or_last(of_tile * 16 + g + r * 8, row_count), group);
  };
  TileGroup now[2];
  load_groups(now, tile);
  if (weights_first) {
    await_prerequisites();
    prologue.load();
  }
  prologue.finish();
  if (Tiles::kPrologue || weights_first) load_vectors();

  TileSums of_x[kSteps] = {};
  KILN_EACH(step, kSteps) {
    KILN_EACH(i, Tiles::kChunks) {
      of_step[step].chunk[i] = in_order<Tiles>(of_step[step].chunk[i]);
    }
    if constexpr (Tiles::kHasOffset) of_x[step] = sum_step<Tiles>(of_step[step]);
  }

  StagedGroup(&groups)[kSteps][16] = staged_groups.of[wave];
  for (u32 round = 0; tile < tiles; tile += tile_stride, ++round) {
    TileGroup next[2];
    load_groups(next, tile + tile_stride);
    KILN_EACH(r, 2) {
      f32 zero_point;
      const TileFactors factors = tile_factors<Tiles>(now[r], zero_point);
      const f32 term = zero_point_term<X, T>(zero_point);
      groups[t][g + r * 8] = {factors.scale, factors.offset, exact_pair<X>(term, term), 0};
    }
    wait_all_copies();
    __syncwarp();
    if (tile + tile_stride < tiles) {
      stage_weights<Tiles>(own_sets[(round + 1) % 2], tile + tile_stride, row_count, weights_of);
    }
    const Set& set = own_sets[round % 2];
    // As few registers as can be are in use: steps are combined as soon as they are there.
    Turns<f32, kSteps, 4> of_steps;
    f32 sum[4];
    KILN_EACH(step, kSteps) {
      TileWords<Tiles> words[2];
      TileFactors factors[2];
      PairTerms terms;
      KILN_EACH(r, 2) {
        const int first = t * Set::kVectorBytes;
        const int chunk_index = Set::chunk_index(g + r * 8, step * Set::kStepChunks + first / 16);
        const u8* const from = (const u8*)&set.chunk[g + r * 8][chunk_index] + first % 16;
        words[r] = *(const TileWords<Tiles>*)__builtin_assume_aligned(from, Set::kVectorBytes);
        const Chunk<16> of_group = *(const Chunk<16>*)&groups[step][g + r * 8];
        const StagedGroup group = bit_cast<StagedGroup>(of_group);
        factors[r] = {group.scale, group.offset};
        terms.of[r] = zero_point_terms<X, T>(group.term);
      }
      const TileSums own = multiply_step<Tiles>(words, terms, of_step[step]);
      KILN_EACH(r, 2) KILN_EACH(k, 2) {
        sum[r * 2 + k] = value_of_step<Tiles>(own.of[r * 2 + k], of_x[step].of[k], factors[r]);
      }
      of_steps.template add<Sum>(step, sum);
    }
    __syncwarp();
    KILN_EACH(r, 2) now[r] = next[r];

    f32(&partial)[Tiles::kSlots][16 * kColumns] = memory.slot[round % Tiles::kRounds];
    KILN_EACH(r, 2) KILN_EACH(k, 2) {
      const int c = t * 2 + k;
      if (c < kColumns) partial[wave][(g + r * 8) * kColumns + c] = sum[r * 2 + k];
    }
    __syncthreads();
    combine_slots_of_tile<Tiles>(memory, round, tile, recompute, store_of);
  }
}

}  // namespace kiln

#endif
