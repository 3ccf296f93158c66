// Tiles of sixteen rows of weights times five to eight vectors, as product_tiles.h multiplies them,
// where a block is wide enough that each of its waves has the same part of every row: it holds that
// part of the vectors in registers, and takes the weights of one tile after the other out of memory
// of the block, into which the next are copied meanwhile. The bound of a sum is the same.
#pragma once

#if KILN_NVIDIA

namespace kiln {

// What becomes of the lines of a wave's steps, each computed by one thread for all of its row.
struct HeldLine {
  f32 scale;
  f32 rest;
  u32 term;  // pair of point_term()
  u32 none;
};
template <class Tiles>
struct HeldLines {
  alignas(16) HeldLine of[Tiles::kWaves][Tiles::kSteps][16];
};

// A wave's part of the rows of two tiles: in pieces of 16 bytes, turned by rows so that threads of
// neighbouring rows do not wait for each other.
template <class Tiles>
struct HeldSet {
  enum : int {
    kVectorBytes = Tiles::kLanes * lane_bits<typename Tiles::T>() / 8,
    kStepPieces = 4 * kVectorBytes / 16,
    kRowPieces = Tiles::kSteps * kStepPieces,
  };
  Chunk<16> piece[16][kRowPieces];
  static __device__ __forceinline__ int place(int row, int piece) {
    return piece ^ (row * kStepPieces & 7);
  }
};

template <class Tiles, class Weights>
KILN_FN void fetch_held(HeldSet<Tiles>& to, u32 tile, u32 row_count, const Weights& weights_of) {
  using Set = HeldSet<Tiles>;
  KILN_EACH(r, 2) {
    const int own = Tiles::row() + r * 8;
    const u32 row = row_or_last(tile * 16 + own, row_count);
    const u8* const from = (const u8*)weights_of(row) + threadIdx.x / 32 * (Set::kRowPieces * 16);
    KILN_EACH(i, Set::kRowPieces / 4) {
      const int piece = i * 4 + Tiles::thread();
      copy_piece(&to.piece[own][Set::place(own, piece)], from + piece * 16);
    }
  }
}

// As sum_tiles(), of blocks that stay; `sets` are two of each wave's. Unless weights are first, x
// is: what is asked for after weights comes after them.
template <class Tiles, class Weights, class Vector, class Line, class Again, class Store>
KILN_FN void sum_held_tiles(TileMemory<Tiles>& memory, HeldLines<Tiles>& held_lines,
                            Chunk<16>* sets, u32 vectors, u32 row_count, u32 tile, u32 apart,
                            bool weights_first, const Weights& weights_of, const Vector& vector_of,
                            const Line& line_of, const Again& add_again, const Store& store_of) {
  using T = typename Tiles::T;
  using X = typename Tiles::X;
  using Set = HeldSet<Tiles>;
  constexpr int kSteps = Tiles::kSteps;
  constexpr int kColumns = Tiles::kColumns;
  static_assert(kSteps == 4 && Tiles::kSharers == 4 && Tiles::kTurns == 1 && Tiles::kWhole &&
                    Tiles::kVectors == 8,
                "sum_held_tiles: a thread has a step and two vectors");
  const int t = Tiles::thread();
  const int g = Tiles::row();
  const u32 wave = threadIdx.x / 32;
  const u32 tiles = (row_count + 15) / 16;
  Set* const own_sets = (Set*)sets + wave * 2;
  const X* const x = vector_of(u32(Tiles::vector_of_column(g)));
  StepVector<Tiles> of_step[kSteps];
  const auto load_vectors = [&] {
    KILN_EACH(step, kSteps) KILN_EACH(i, Tiles::kChunks) {
      const u32 piece = ((wave * kSteps + step) * 4 + t) * Tiles::kChunks + i;
      of_step[step].chunk[i] = load_in_turn((const Chunk<16>*)x + piece);
    }
  };
  if (!weights_first) {
    await_prerequisites();
    load_vectors();
  }
  fetch_held<Tiles>(own_sets[0], tile, row_count, weights_of);
  end_copies();
  const auto load_lines = [&](TileLine(&lines)[2], u32 of_tile) {
    const u32 line = Tiles::line_of_step(wave * kSteps + t, 0, vectors);
    KILN_EACH(r, 2) lines[r] = line_of(row_or_last(of_tile * 16 + g + r * 8, row_count), line);
  };
  TileLine now[2];
  load_lines(now, tile);
  if (weights_first) {
    await_prerequisites();
    load_vectors();
  }

  TileSums of_x[kSteps];
  KILN_EACH(step, kSteps) {
    KILN_EACH(i, Tiles::kChunks) {
      of_step[step].chunk[i] = in_order<Tiles>(of_step[step].chunk[i]);
    }
    if constexpr (Tiles::kHasRest) of_x[step] = sum_step<Tiles>(of_step[step]);
  }

  HeldLine(&lines)[kSteps][16] = held_lines.of[wave];
  for (u32 round = 0; tile < tiles; tile += apart, ++round) {
    TileLine next[2];
    load_lines(next, tile + apart);
    KILN_EACH(r, 2) {
      f32 point;
      const TileFactors factors = tile_factors<Tiles>(now[r], point);
      const f32 term = point_term<X, T>(point);
      lines[t][g + r * 8] = {factors.scale, factors.rest, exact_pair<X>(term, term), 0};
    }
    await_all_copies();
    __syncwarp();
    if (tile + apart < tiles) {
      fetch_held<Tiles>(own_sets[(round + 1) % 2], tile + apart, row_count, weights_of);
    }
    const Set& set = own_sets[round % 2];
    f32 sum[2][2] = {};
    KILN_EACH(step, kSteps) {
      TileWords<Tiles> words[2];
      HeldLine line[2];
      PairTerms terms;
      KILN_EACH(r, 2) {
        const int first = t * Set::kVectorBytes;
        const int place = Set::place(g + r * 8, step * Set::kStepPieces + first / 16);
        const u8* const from = (const u8*)&set.piece[g + r * 8][place] + first % 16;
        words[r] = *(const TileWords<Tiles>*)__builtin_assume_aligned(from, Set::kVectorBytes);
        const Chunk<16> of_line = *(const Chunk<16>*)&lines[step][g + r * 8];
        line[r] = bit_cast<HeldLine>(of_line);
        terms.of[r] = point_terms<X, T>(line[r].term);
      }
      const TileSums own = multiply_step<Tiles>(words, terms, of_step[step]);
      KILN_EACH(r, 2) KILN_EACH(k, 2) {
        sum[r][k] = fma(own.of[r * 2 + k], line[r].scale, sum[r][k]);
        if constexpr (Tiles::kHasRest) sum[r][k] = fma(of_x[step].of[k], line[r].rest, sum[r][k]);
      }
    }
    __syncwarp();
    KILN_EACH(r, 2) now[r] = next[r];

    f32(&joined)[Tiles::kWaves][16 * kColumns] = memory.wave[round % 2];
    KILN_EACH(r, 2) KILN_EACH(k, 2) {
      const int c = t * 2 + k;
      if (c < kColumns) joined[wave][(g + r * 8) * kColumns + c] = sum[r][k];
    }
    __syncthreads();
    join_waves<Tiles>(memory, round, tile, add_again, store_of);
  }
}

}  // namespace kiln

#endif
