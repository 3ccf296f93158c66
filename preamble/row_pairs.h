// Pairs of rows of weights times one vector, by the instruction of product_tiles.h: a wave has two
// whole rows, copied into memory of the block in the order in which they lie, and waits for no
// other wave. Which kernels are made of them is decided in fusion/product_tile_layout.cpp.
//
// The instruction's rows g and g + 8 are not rows of the matrix but step g of eight neighbouring
// ones, a chain, of either row of the pair; its columns are the same eight steps of x, turned by
// two from one chain to the next. Of each row one column is of use: thread t of the four that have
// row g has it after chain t - g / 2, and so each thread has one line of four chains. A sum is off
// by no more than one of product_tiles.h.
#pragma once

#if KILN_NVIDIA

namespace kiln {

// `Tiles` are of one vector and of weights of which a step's four vectors of 8 bytes are of one
// line; a line's scale, and its bias or point, are each a `Line` of an array whose rows are whole
// pieces of 16 bytes. Blocks keep `Stages` pairs of each wave, so as to have as many copied at
// once; where that is one, a wave has no other.
template <class Tiles, class Line, int StepsOfLine, int Stages>
struct RowPairs {
  using LineType = Line;
  enum : int {
    kStages = Stages,
    kSteps = Tiles::kSets * Tiles::kSteps,
    kChains = kSteps / 8,
    kParts = kChains / 2,  // of a row: 512 bytes, which are waited for together
    kStepsOfLine = StepsOfLine,
    kOperands = Tiles::kHasRest ? 2 : 1,  // of lines
    kLinePieces = kSteps / StepsOfLine * int(sizeof(Line)) / 16,
    kVectorPieces = kSteps * 4 * Tiles::kChunks,
  };
  static_assert(kChains % 4 == 0 && Tiles::kColumns == 1 && Tiles::kSharers == 4 && Tiles::kWhole &&
                    Tiles::kLanes * lane_bits<typename Tiles::T>() == 64,
                "RowPairs: a thread has 8 bytes of a step, and a line of four chains");

  struct Stage {
    Chunk<16> weights[2][kParts * 32];
    Chunk<16> lines[kOperands][2][kLinePieces];
  };
  struct Memory {
    Chunk<16> x[kVectorPieces];
    f32 sum[kSteps];  // of x
  };
  // Steps of even and odd numbers are next to each other, so that threads that read both do not
  // wait.
  static __device__ __forceinline__ u32 place(u32 step, u32 chunk, u32 thread) {
    return ((step / 2 * Tiles::kChunks + chunk) * 2 + step % 2) * 4 + thread;
  }
};

// Pieces of x of a thread. It is asked for first, and by way of the cache of the multiprocessor:
// nothing can be multiplied without it, and requests around the cache of every multiprocessor for
// the same few lines would wait for each other.
template <class Tiles, class Pairs>
struct OwnVector {
  enum : int { kOwn = (Pairs::kVectorPieces + Tiles::kThreads - 1) / Tiles::kThreads };
  Chunk<16> piece[kOwn];
  static __device__ __forceinline__ u32 at(int i) { return i * Tiles::kThreads + threadIdx.x; }
  static __device__ __forceinline__ bool has(int i) {
    return Pairs::kVectorPieces % Tiles::kThreads == 0 || at(i) < Pairs::kVectorPieces;
  }
};
template <class Tiles, class Pairs, class X>
KILN_FN void load_vector(OwnVector<Tiles, Pairs>& own, const X* x) {
  KILN_EACH(i, own.kOwn) {
    Chunk<16>& piece = own.piece[i];
    piece = {};
    if (own.has(i)) {
      asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(piece.word[0]), "=r"(piece.word[1]), "=r"(piece.word[2]),
                     "=r"(piece.word[3])
                   : "l"((const Chunk<16>*)x + own.at(i))
                   : "memory");
    }
  }
}
// Puts it in order, and adds up each step. It goes to memory as it is first, which an assembler
// takes for a reason to ask for weights before it waits for x.
template <class Tiles, class Pairs>
KILN_FN void place_vector(typename Pairs::Memory& memory, OwnVector<Tiles, Pairs>& own) {
  using X = typename Tiles::X;
  KILN_EACH(i, own.kOwn) {
    Chunk<16> piece = own.piece[i];
    const u32 vector = own.at(i) / Tiles::kChunks;
    Chunk<16>& placed = memory.x[Pairs::place(vector / 4, own.at(i) % Tiles::kChunks, vector % 4)];
    if (own.has(i)) {
      const u32 place = u32(__cvta_generic_to_shared(&placed));
      asm volatile("st.volatile.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(place),
                   "r"(piece.word[0]), "r"(piece.word[1]), "r"(piece.word[2]), "r"(piece.word[3])
                   : "memory");
      asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(piece.word[0]), "=r"(piece.word[1]), "=r"(piece.word[2]),
                     "=r"(piece.word[3])
                   : "r"(place)
                   : "memory");
      placed = in_order<Tiles>(piece);
    }
    if constexpr (Tiles::kHasRest) {
      f32 sum = (sum_of_pair(X{}, piece.word[0]) + sum_of_pair(X{}, piece.word[1])) +
                (sum_of_pair(X{}, piece.word[2]) + sum_of_pair(X{}, piece.word[3]));
      sum = reduce_wave<Sum, 4 * Tiles::kChunks>(sum);
      if (own.has(i) && own.at(i) % (4 * Tiles::kChunks) == 0) memory.sum[vector / 4] = sum;
    }
  }
}

// The rows of weights of the pairs of a block's waves times x: `weights_of(row)`, `scales_of(row)`
// and `rests_of(row)` are where they begin, `line_from(scale, rest)` is what they are.
// `add_again(row)` is a sum, term by term, for one that is not finite; `store_of(row, 0, result)`
// takes each.
template <class Tiles, class Pairs, class X, class Weights, class Scales, class Rests,
          class LineFrom, class Again, class Store>
KILN_FN void sum_row_pairs(typename Pairs::Memory& memory, Chunk<16>* stages, u32 row_count,
                           u32 block, u32 blocks, const X* x, const Weights& weights_of,
                           const Scales& scales_of, const Rests& rests_of,
                           const LineFrom& line_from, const Again& add_again,
                           const Store& store_of) {
  using T = typename Tiles::T;
  using Stage = typename Pairs::Stage;
  using Line = typename Pairs::LineType;
  const u32 lane = threadIdx.x % 32;
  const u32 wave = threadIdx.x / 32;
  const u32 g = lane / 4;
  const u32 t = lane % 4;
  const u32 pairs = (row_count + 1) / 2;
  const u32 apart = blocks * Tiles::kWaves;
  Stage* const own_stages = (Stage*)stages + wave * Pairs::kStages;

  OwnVector<Tiles, Pairs> own_vector;
  load_vector<Tiles, Pairs>(own_vector, x);
  __syncthreads();
  const auto fetch = [&](u32 pair, Stage& to) {
    if (Pairs::kStages == 1 && pair >= pairs) return;
    const bool wanted = pair < pairs;
    const u32 rows[2] = {row_or_last(pair * 2, row_count), row_or_last(pair * 2 + 1, row_count)};
    constexpr int kPieces = Pairs::kOperands * 2 * Pairs::kLinePieces;
    KILN_EACH(i, (kPieces + 31) / 32) {
      const u32 at = i * 32 + lane;
      const u32 piece = at % Pairs::kLinePieces;
      const u32 r = at / Pairs::kLinePieces % 2;
      const u32 row = r == 0 ? rows[0] : rows[1];
      const Line* const line = at / (2 * Pairs::kLinePieces) == 0 ? scales_of(row) : rests_of(row);
      if (wanted && (kPieces % 32 == 0 || at < kPieces)) {
        copy_piece(&to.lines[0][0][0] + at, (const Chunk<16>*)line + piece);
      }
    }
    KILN_EACH(part, Pairs::kParts) {
      if (wanted) {
        KILN_EACH(r, 2) {
          const Chunk<16>* const from = (const Chunk<16>*)weights_of(rows[r]);
          copy_piece(&to.weights[r][part * 32 + lane], from + part * 32 + lane);
        }
      }
      end_copies();
    }
  };
  u32 pair = Pairs::kStages == 1 ? block * Tiles::kWaves + wave : wave * blocks + block;
  KILN_EACH(i, Pairs::kStages) fetch(pair + i * apart, own_stages[i]);
  __syncthreads();
  place_vector<Tiles, Pairs>(memory, own_vector);
  __syncthreads();

  const u32 own_chain = (t - g / 2) % 4;
  const auto step_of_x = [&](int chain) {
    const u32 step = chain * 8 + (g - 2 * chain) % 8;
    StepVector<Tiles> of_step;
    KILN_EACH(k, Tiles::kChunks) of_step.chunk[k] = memory.x[Pairs::place(step, k, t)];
    return of_step;
  };
  // With one pair a wave reads x while it waits for weights; with more there are no registers.
  constexpr bool kHolds = Pairs::kStages == 1;
  StepVector<Tiles> held[Pairs::kChains];
  f32 held_sums[Pairs::kChains / 4] = {};
  if constexpr (kHolds) {
    KILN_EACH(chain, Pairs::kChains) held[chain] = step_of_x(chain);
    if constexpr (Tiles::kHasRest) {
      KILN_EACH(quad, Pairs::kChains / 4) {
        held_sums[quad] = memory.sum[(quad * 4 + own_chain) * 8 + g];
      }
    }
  }
  u32 slot = 0;
  for (; pair < pairs; pair += apart) {
    Stage& stage = own_stages[slot];
    f32 sum[2] = {};
    KILN_EACH(quad, Pairs::kChains / 4) {
      const u32 own_step = (quad * 4 + own_chain) * 8 + g;
      TileFactors factors[2];
      u32 terms[2];
      f32 own[2][2];
      KILN_EACH(half, 2) {
        const int part = quad * 2 + half;
        await_groups(Pairs::kStages * Pairs::kParts - 1 - part);
        __syncwarp();
        if (half == 0) {
          KILN_EACH(r, 2) {
            const u32 line = own_step / Pairs::kStepsOfLine;
            const Line scale = ((const Line*)stage.lines[0][r])[line];
            const Line rest = ((const Line*)stage.lines[Pairs::kOperands - 1][r])[line];
            f32 point;
            factors[r] = tile_factors<Tiles>(line_from(scale, rest), point);
            const f32 term = point_term<typename Tiles::X, T>(point);
            terms[r] = exact_pair<typename Tiles::X>(term, term);
          }
        }
        KILN_EACH(i, 2) {
          const int of_quad = half * 2 + i;
          const int chain = quad * 4 + of_quad;
          TileWords<Tiles> words[2];
          u32 term[2];
          KILN_EACH(r, 2) {
            term[r] = __shfl_sync(0xffffffffu, terms[r], (lane & 28) | ((g / 2 + of_quad) % 4));
            words[r] = ((const TileWords<Tiles>*)stage.weights[r])[chain * 32 + lane];
          }
          StepVector<Tiles> of_step;
          if constexpr (kHolds) {
            of_step = held[chain];
          } else {
            of_step = step_of_x(chain);
          }
          const TileSums sums = multiply_step<Tiles>(words, term, of_step);
          KILN_EACH(r, 2) KILN_EACH(k, 2) {
            const bool kept = of_quad == 0 || own_chain == u32(of_quad);
            own[r][k] = kept ? sums.of[r * 2 + k] : own[r][k];
          }
        }
      }
      KILN_EACH(r, 2) {
        sum[r] = fma(g % 2 == 0 ? own[r][0] : own[r][1], factors[r].scale, sum[r]);
        if constexpr (Tiles::kHasRest) {
          sum[r] = fma(kHolds ? held_sums[quad] : memory.sum[own_step], factors[r].rest, sum[r]);
        }
      }
    }
    if constexpr (Pairs::kStages > 1) {
      __syncwarp();
      fetch(pair + Pairs::kStages * apart, stage);
      slot = slot + 1 == Pairs::kStages ? 0 : slot + 1;
    }

    // Either half of the wave takes a row.
    const bool upper = lane >= 16;
    f32 result = upper ? sum[1] : sum[0];
    result += __shfl_xor_sync(0xffffffffu, upper ? sum[0] : sum[1], 16);
    result = reduce_wave<Sum, 16>(result);
    if (!__all_sync(0xffffffffu, isfinite(result))) {
      const f32 lower_again = add_again(row_or_last(pair * 2, row_count));
      const f32 upper_again = add_again(row_or_last(pair * 2 + 1, row_count));
      result = upper ? upper_again : lower_again;
    }
    if (lane % 16 == 0) store_of(pair * 2 + lane / 16, 0, result);
    if constexpr (Pairs::kStages == 1) break;
  }
}

}  // namespace kiln

#endif
