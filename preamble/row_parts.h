// Rows of weights times one vector, by the instruction of product_tiles.h: the waves of a team have
// eight rows at a time, each a part of all of them, and so need only that part of x, which stays in
// their registers. Weights are copied into memory of the wave in the order in which they lie. Which
// kernels are made of them is decided in fusion/schedule/products/tile_layout.cpp.
//
// The instruction's rows g and g + 8 are not rows of the matrix but step g of eight neighbouring
// ones, a chain, of either row of a pair; its columns are the same eight steps of x. Of each row
// one column is of use. The second chain has its steps of x in another order, and the second of two
// pairs its steps of weights: so each of the four threads of row g has this column of one of the
// four chains, which is one line, whose numbers it looks after. A sum is off by no more than one of
// product_tiles.h.
#pragma once

#if KILN_NVIDIA

namespace kiln {

// `Tiles` are of one vector and of weights of which a step's four vectors of 8 bytes are of one
// line; a line's scale, and its bias or point, are each a `Line` of an array whose rows are whole
// pieces of 16 bytes. `Once`: no team has more than a tile, which needs so few registers that the
// block of another kernel finds room beside.
template <class Tiles, class Line, int StepsOfLine, bool Once>
struct RowParts {
  using LineType = Line;
  enum : int {
    kSteps = Tiles::kSets * Tiles::kSteps,
    kPartSteps = 16,  // two chains
    kParts = kSteps / kPartSteps,
    kTeams = Tiles::kWaves / kParts,
    kRows = 8,
    kPairs = kRows / 2,
    kStepsOfLine = StepsOfLine,
    kOperands = Tiles::kHasRest ? 2 : 1,  // of lines
    kLines = kPartSteps / StepsOfLine,
    kInPiece = 16 / int(sizeof(Line)),  // lines
    kLinePieces = kLines < kInPiece ? 1 : kLines / kInPiece,
    kVectorPieces = kSteps * 4 * Tiles::kChunks,
    kOnce = Once,
  };
  static_assert(kSteps % kPartSteps == 0 && Tiles::kWaves % kParts == 0 && kTeams < 16 &&
                    Tiles::kColumns == 1 && Tiles::kSharers == 4 && Tiles::kWhole &&
                    Tiles::kLanes * lane_bits<typename Tiles::T>() == 64,
                "RowParts: a thread has 8 bytes of a step, and a line of four chains");

  struct Stage {
    Chunk<16> weights[kRows][32];
    Chunk<16> lines[kOperands][kRows][kLinePieces];
  };
  struct Memory {
    Chunk<16> x[kVectorPieces];
    f32 sum[kSteps];  // of x
    Arrivals arrivals[Tiles::kWaves][kPairs];
    f32 sums[kTeams][2][kParts][kRows];  // of a tile and the next one
  };
  // Steps of even and odd numbers are next to each other, so that threads that read both do not
  // wait.
  static __device__ __forceinline__ u32 place(u32 step, u32 chunk, u32 thread) {
    return ((step / 2 * Tiles::kChunks + chunk) * 2 + step % 2) * 4 + thread;
  }
};

// Pieces of x of a thread. They come by way of the cache of the multiprocessor: requests around the
// cache of every multiprocessor for the same few lines would wait for each other.
template <class Tiles, class Parts>
struct OwnVector {
  enum : int { kOwn = (Parts::kVectorPieces + Tiles::kThreads - 1) / Tiles::kThreads };
  Chunk<16> piece[kOwn];
  static __device__ __forceinline__ u32 at(int i) { return i * Tiles::kThreads + threadIdx.x; }
  static __device__ __forceinline__ bool has(int i) {
    return Parts::kVectorPieces % Tiles::kThreads == 0 || at(i) < Parts::kVectorPieces;
  }
};
template <class Tiles, class Parts, class X>
KILN_FN void load_vector(OwnVector<Tiles, Parts>& own, const X* x) {
  KILN_EACH(i, own.kOwn) {
    Chunk<16>& piece = own.piece[i];
    piece = {};
    if (own.has(i)) piece = load_in_turn((const Chunk<16>*)x + own.at(i));
  }
}
// Puts it in order, and adds up each step. It goes to memory as it is first, which an assembler
// takes for a reason to ask for weights before it waits for x.
template <class Tiles, class Parts>
KILN_FN void place_vector(typename Parts::Memory& memory, OwnVector<Tiles, Parts>& own) {
  using X = typename Tiles::X;
  KILN_EACH(i, own.kOwn) {
    Chunk<16> piece = own.piece[i];
    const u32 vector = own.at(i) / Tiles::kChunks;
    Chunk<16>& placed = memory.x[Parts::place(vector / 4, own.at(i) % Tiles::kChunks, vector % 4)];
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

// Waits for the other threads of a team of waves. Each has a barrier; the first one is the block's.
template <int Threads>
KILN_FN void synchronize_team(u32 team) {
  asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(Threads) : "memory");
}

// The rows of weights of the teams of a block times x: `weights_of(row)`, `scales_of(row)` and
// `rests_of(row)` are where they begin, those of weights `apart` bytes from each other;
// `line_from(scale, rest)` is what they are. A block has `share` tiles of eight rows, or one more.
// `add_again(row)` is a sum, term by term, for one that is not finite; `store_of(row, 0, result)`
// takes each.
//
// x is asked for first, since nothing can be multiplied without it, and what is asked for after
// weights comes after them. But where kernels before this one may still be running that write x,
// `weights_first`, all of them come while those end.
template <class Tiles, class Parts, class X, class Offset, class Weights, class Scales, class Rests,
          class LineFrom, class Again, class Store>
KILN_FN void sum_row_parts(typename Parts::Memory& memory, Chunk<16>* stages, u32 row_count,
                           u32 block, u32 blocks, u32 share, bool weights_first, const X* x,
                           Offset apart, const Weights& weights_of, const Scales& scales_of,
                           const Rests& rests_of, const LineFrom& line_from, const Again& add_again,
                           const Store& store_of) {
  using T = typename Tiles::T;
  using Line = typename Parts::LineType;
  using Stage = typename Parts::Stage;
  OwnVector<Tiles, Parts> own_vector;
  if (!weights_first) {
    await_prerequisites();
    load_vector<Tiles, Parts>(own_vector, x);
  }

  const u32 lane = threadIdx.x % 32;
  const u32 wave = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);  // the same for all, as is seen
  const u32 team = wave / Parts::kParts;
  const u32 part = wave % Parts::kParts;
  Stage& stage = ((Stage*)stages)[wave];
  Arrivals(&arrivals)[Parts::kPairs] = memory.arrivals[wave];
  if (lane == 0) KILN_EACH(pair, Parts::kPairs) begin_arrivals(arrivals[pair], 32);
  __syncwarp();

  // Tiles of a block follow each other: fewer pages of memory for each multiprocessor.
  const u32 tiles = (row_count + Parts::kRows - 1) / Parts::kRows;
  const u32 longer = tiles - share * blocks;
  const u32 begin = block * share + (block < longer ? block : longer);
  const u32 end = begin + share + (block < longer ? 1 : 0);
  // The last tile may begin with rows of the one before it.
  const auto first_of = [&](u32 tile) {
    const u32 first = tile * Parts::kRows;
    return first < row_count - Parts::kRows ? first : row_count - Parts::kRows;
  };
  const auto fetch_lines = [&](u32 tile) {
    constexpr u32 kPieces = Parts::kOperands * Parts::kRows * Parts::kLinePieces;
    const u32 row = lane / Parts::kLinePieces % Parts::kRows;
    const u32 piece = part * Parts::kLines / Parts::kInPiece + lane % Parts::kLinePieces;
    const bool is_scale = lane / Parts::kLinePieces < Parts::kRows;
    const u32 of_tile = first_of(tile) + row;
    const Line* const from = is_scale ? scales_of(of_tile) : rests_of(of_tile);
    if (kPieces == 32 || lane < kPieces) {
      copy_piece(&stage.lines[0][0][0] + lane, (const Chunk<16>*)from + piece);
    }
  };
  // Where the wave's part of a tile is, and what it becomes. An assembler would compute them again
  // for each pair.
  u32 weights = u32(__cvta_generic_to_shared(&stage.weights[0][lane]));
  asm volatile("" : "+r"(weights));
  const auto weights_from = [&](u32 tile) {
    const u8* from = (const u8*)weights_of(first_of(tile)) + (part * 32 + lane) * 16;
    asm volatile("" : "+l"(from));
    return from;
  };
  const auto fetch_pair = [&](const u8* from, int pair) {
    KILN_EACH(r, 2) {
      const int row = pair * 2 + r;
      copy_piece(weights + row * u32(sizeof stage.weights[0]), from + i64(row) * apart);
    }
    arrive_with_copies(arrivals[pair]);
  };
  // What waves ask for first, all of them, comes first: each has little left to do with the last.
  // One without a tile asks for another's.
  u32 tile = begin + team;
  fetch_lines(tile);
  const u8* from = weights_from(tile);
  KILN_EACH(pair, Parts::kPairs) {
    if (pair > 0) __syncthreads();
    fetch_pair(from, pair);
  }
  if (weights_first) {
    await_prerequisites();
    load_vector<Tiles, Parts>(own_vector, x);
  }
  place_vector<Tiles, Parts>(memory, own_vector);
  __syncthreads();

  const u32 g = lane / 4;
  const u32 t = lane % 4;
  const u32 own = t ^ g / 2;  // of four chains
  const u32 own_chain = own % 2;
  const u32 own_pair = own / 2;
  const u32 own_step = own_chain * 8 + (g ^ own_pair * 4);
  const u32 own_line = part * Parts::kLines % (Parts::kLinePieces * Parts::kInPiece) +
                       own_step / Parts::kStepsOfLine;
  StepVector<Tiles> held[2];
  KILN_EACH(chain, 2) KILN_EACH(k, Tiles::kChunks) {
    const u32 step = part * Parts::kPartSteps + chain * 8 + (g ^ chain * 2);
    held[chain].chunk[k] = memory.x[Parts::place(step, k, t)];
  }

  if (tile >= end) return await_all_copies();
  for (u32 round = 0; tile < end; tile += Parts::kTeams, ++round) {
    const u32 next = tile + Parts::kTeams;
    const bool has_next = !Parts::kOnce && next < end;
    if constexpr (!Parts::kOnce) from = weights_from(next);
    f32 scales[2][2];
    u32 terms[2];  // of both rows of a pair
    f32 sum[2][2];
    KILN_EACH(quad, 2) {
      f32 own_sum[2][2];
      KILN_EACH(half, 2) {
        const int pair = quad * 2 + half;
        await_arrivals(arrivals[pair], round % 2);
        __syncwarp();
        KILN_EACH(q, 2) {
          // Those of all rows at once where the next tile's lines take their place.
          if (Parts::kOnce ? half > 0 || q != quad : pair > 0) continue;
          f32 term[2];
          const f32 sum_of_x =
              Tiles::kHasRest ? memory.sum[part * Parts::kPartSteps + own_step] : 0.0f;
          KILN_EACH(r, 2) {
            const u32 row = q * 4 + own_pair * 2 + r;
            const Line scale = ((const Line*)stage.lines[0][row])[own_line];
            const Line rest = ((const Line*)stage.lines[Parts::kOperands - 1][row])[own_line];
            f32 point;
            const TileFactors factors = tile_factors<Tiles>(line_from(scale, rest), point);
            scales[q][r] = factors.scale;
            sum[q][r] = Tiles::kHasRest ? sum_of_x * factors.rest : 0.0f;
            term[r] = point_term<typename Tiles::X, T>(point);
          }
          terms[q] = exact_pair<typename Tiles::X>(term[0], term[1]);
        }
        TileWords<Tiles> words[2][2];
        KILN_EACH(chain, 2) KILN_EACH(r, 2) {
          const TileWords<Tiles>* const row = (const TileWords<Tiles>*)stage.weights[pair * 2 + r];
          words[chain][r] = row[chain * 32 + (lane ^ half * 16)];
        }
        if (has_next) {
          __syncwarp();
          if (pair == 0) fetch_lines(next);
          fetch_pair(from, pair);
        }
        KILN_EACH(chain, 2) {
          const int of_quad = half * 2 + chain;
          const u32 both = __shfl_sync(0xffffffffu, terms[quad], (lane & 28) | (g / 2 ^ of_quad));
          const TileSums sums = multiply_step<Tiles>(
              words[chain], terms_of_pair<typename Tiles::X, T>(both), held[chain]);
          KILN_EACH(r, 2) KILN_EACH(k, 2) {
            const bool kept = of_quad == 0 || own == u32(of_quad);
            own_sum[r][k] = kept ? sums.of[r * 2 + k] : own_sum[r][k];
          }
        }
      }
      KILN_EACH(r, 2) {
        sum[quad][r] =
            fma(g % 2 == 0 ? own_sum[r][0] : own_sum[r][1], scales[quad][r], sum[quad][r]);
      }
    }
    // A thread has sums of four of the rows; which ones of each four is up to bits 1 and 4 of its
    // number, which no step changes apart.
    f32 halves[2];
    KILN_EACH(r, 2) {
      const bool upper = g % 2 == 1;
      halves[r] = upper ? sum[1][r] : sum[0][r];
      halves[r] += __shfl_xor_sync(0xffffffffu, upper ? sum[0][r] : sum[1][r], 4);
    }
    const bool second = g / 2 % 2 == 1;
    f32 value = second ? halves[1] : halves[0];
    value += __shfl_xor_sync(0xffffffffu, second ? halves[0] : halves[1], 8);
    value += __shfl_xor_sync(0xffffffffu, value, 1);
    value += __shfl_xor_sync(0xffffffffu, value, 18);
    f32(&sums)[Parts::kParts][Parts::kRows] = memory.sums[team][round % 2];
    if (t % 2 == 0 && g < 4) sums[part][g % 2 * 4 + own_pair * 2 + g / 2] = value;
    synchronize_team<Parts::kParts * 32>(team);
    if (part == round % Parts::kParts) {
      Lanes<f32, Parts::kParts> of_parts;
      KILN_EACH(i, Parts::kParts) of_parts[i] = sums[i][lane % Parts::kRows];
      f32 result = fold<Sum, Parts::kParts>(of_parts);
      // An assembler would keep both numbers of rows all the time.
      u32 stored = tile;
      asm volatile("" : "+r"(stored));
      const u32 first = first_of(stored);
      if (!__all_sync(0xffffffffu, isfinite(result))) {
        _Pragma("unroll 1") for (u32 row = 0; row < Parts::kRows; ++row) {
          const f32 again = add_again(first + row);
          if (row == lane) result = again;
        }
      }
      const u32 row = first + lane;
      if (lane < Parts::kRows && row >= stored * Parts::kRows) store_of(row, 0, result);
    }
    if constexpr (Parts::kOnce) break;
  }
}

}  // namespace kiln

#endif
