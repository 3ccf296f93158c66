// Tiles of sixteen rows of weights times up to eight vectors, by the instruction of NVIDIA GPUs
// (from sm_80 on) that adds up exact products of 16-bit floats in f32. Which kernels are made of
// them is decided in fusion/schedule/products/tile_layout.cpp.
//
// The instruction may cut what it adds to 24 bits below the largest of it (Fasi, Higham, Mikaitis
// and Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ CS 2021): with sixteen products
// it is off by at most 34 u, u being half a unit in the last place of 1, of the sum of their sizes.
// A thread of w adds W / 4 of them for each of its vectors of W elements, scales that and adds it
// to its sum, so that of n elements a sum is off by at most (8.5 W + n / (W w) + log2(w) + 1) u of
// the sum of the sizes of its terms; three times that where they have a bias or a point
// (products.h).
#pragma once

#if KILN_NVIDIA

namespace kiln {

struct TileSums {
  f32 of[4];  // rows g, g, g + 8 and g + 8
};

template <class X>
KILN_FN void multiply_tile(TileSums& sums, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  if constexpr (is_same<X, bf16>()) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums.of[0]), "+f"(sums.of[1]), "+f"(sums.of[2]), "+f"(sums.of[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums.of[0]), "+f"(sums.of[1]), "+f"(sums.of[2]), "+f"(sums.of[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

// The numbers of a line before they are used.
struct TileLine {
  f32 scale;
  f32 bias;  // or point
};

template <class Tiles>
struct TileWords {
  u32 word[Tiles::kLanes * lane_bits<typename Tiles::T>() / 32];
};

template <class Words>
KILN_FN Words load_once(const void* from) {
  Words words;
  constexpr int kWords = int(sizeof(Words)) / 4;
  if constexpr (kWords % 4 == 0) {
    KILN_EACH(i, kWords / 4) {
      asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(words.word[4 * i]), "=r"(words.word[4 * i + 1]),
                     "=r"(words.word[4 * i + 2]), "=r"(words.word[4 * i + 3])
                   : "l"((const u8*)from + 16 * i));
    }
  } else if constexpr (kWords == 2) {
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(words.word[0]), "=r"(words.word[1])
                 : "l"(from));
  } else {
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(words.word[0]) : "l"(from));
  }
  return words;
}

// 16 bytes that others may have written, asked for where this stands among other such statements.
KILN_FN Chunk<16> load_in_turn(const Chunk<16>* from) {
  Chunk<16> piece;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(piece.word[0]), "=r"(piece.word[1]), "=r"(piece.word[2]), "=r"(piece.word[3])
               : "l"(from)
               : "memory");
  return piece;
}

template <class Tiles>
struct StepVector {
  Chunk<16> chunk[Tiles::kChunks];
};

template <class Tiles>
KILN_FN StepVector<Tiles> placed_step(const Chunk<16>* x) {
  StepVector<Tiles> result;
  KILN_EACH(i, Tiles::kChunks) result.chunk[i] = x[i * (Tiles::kColumns * 4)];
  return result;
}

template <class Tiles>
KILN_FN StepVector<Tiles> loaded_step(bool wanted, const typename Tiles::X* x) {
  StepVector<Tiles> result = {};
  if (wanted) {
    KILN_EACH(i, Tiles::kChunks) result.chunk[i] = ((const Chunk<16>*)x)[i];
  }
  KILN_EACH(i, Tiles::kChunks) result.chunk[i] = in_order<Tiles>(result.chunk[i]);
  return result;
}

// The sums of x of a step.
template <class Tiles>
KILN_FN TileSums sum_step(const StepVector<Tiles>& x) {
  constexpr u32 kOnes = PairFormat<typename Tiles::X>::kOne * 0x00010001u;
  TileSums sums = {};
  KILN_EACH(i, Tiles::kChunks) {
    KILN_EACH(half, 2) {
      multiply_tile<typename Tiles::X>(sums, kOnes, kOnes, kOnes, kOnes, x.chunk[i].word[2 * half],
                                       x.chunk[i].word[2 * half + 1]);
    }
  }
  return sums;
}

// The sums of (weight - point) x of a step, in weight_unit()s.
template <class Tiles>
KILN_FN TileSums multiply_step(const TileWords<Tiles> (&weights)[2], const PairTerms& terms,
                               const StepVector<Tiles>& x) {
  using T = typename Tiles::T;
  using X = typename Tiles::X;
  constexpr int kPairs = 16 / lane_bits<T>();  // in a word
  TileSums sums = {};
  KILN_EACH(chunk, Tiles::kChunks) {
    KILN_EACH(half, 2) {
      const int pair = chunk * 4 + half * 2;
      const int first = pair % kPairs;
      const u32 upper = weights[0].word[pair / kPairs];
      const u32 lower = weights[1].word[pair / kPairs];
      multiply_tile<X>(sums, weight_pair<X, T>(upper, first, terms.of[0]),
                       weight_pair<X, T>(lower, first, terms.of[1]),
                       weight_pair<X, T>(upper, first + 1, terms.of[0]),
                       weight_pair<X, T>(lower, first + 1, terms.of[1]),
                       x.chunk[chunk].word[2 * half], x.chunk[chunk].word[2 * half + 1]);
    }
  }
  return sums;
}

// What is added up of a line: scale * (sum of (weight - point) x) + rest * (sum of x), the former
// sum in weight_unit()s.
struct TileFactors {
  f32 scale;
  f32 rest;
};
template <class Tiles>
KILN_FN TileFactors tile_factors(TileLine line, f32& point) {
  using T = typename Tiles::T;
  const f32 scale = line.scale * (1.0f / weight_unit<typename Tiles::X, T>());
  if constexpr (Tiles::kHasBias) {
    point = nearest_weight<T>(-line.bias, line.scale);
    return {scale, fma(point, line.scale, line.bias)};
  } else if constexpr (Tiles::kHasPoint) {
    point = nearest_weight<T>(line.bias, 1.0f);
    return {scale, (point - line.bias) * line.scale};
  } else {
    point = 0.0f;
    return {scale, 0.0f};
  }
}

// What a wave multiplies at once.
template <class Tiles>
struct TileSet {
  TileWords<Tiles> words[Tiles::kSteps][2];
  TileLine lines[2][Tiles::kOwnSteps][Tiles::kOwnLines];
};

// The results of a tile, of what its waves have left in the memory of this round.
template <class Tiles, class Again, class Store>
KILN_FN void join_waves(TileMemory<Tiles>& memory, u32 round, u32 tile, const Again& add_again,
                        const Store& store_of) {
  const f32(&joined)[Tiles::kWaves][16 * Tiles::kColumns] = memory.wave[round % 2];
  const u32 i = (threadIdx.x + round * 32) % Tiles::kThreads;
  const bool has_result = i < 16 * Tiles::kColumns;
  f32 result = 0.0f;
  if (has_result) {
    Lanes<f32, Tiles::kWaves> waves;
    KILN_EACH(w, Tiles::kWaves) waves[w] = joined[w][i];
    result = fold<Sum, Tiles::kWaves>(waves);
    memory.result[i] = result;
  }
  if (!__syncthreads_and(isfinite(result))) {
    add_again(tile);
    __syncthreads();
    if (has_result) result = memory.result[i];
  }
  if (has_result) store_of(tile * 16 + i / Tiles::kColumns, i % Tiles::kColumns, result);
}

// The rows of weights of a block's tiles times the vectors x: `weights_of(row)` and
// `vector_of(column)` are where they begin, `line_of(row, line)` what there is of a line. Tiles
// `tile`, `tile + apart`, ... are the block's; without kAhead it has one. Where not all of a tile's
// results are finite, `add_again(tile)` replaces them; `store_of(row, column, result)` takes each.
// Where kernels ahead may still be running that write x, `weights_first`, weights and lines come
// while those end.
template <class Tiles, class Weights, class Vector, class Line, class Again, class Store>
KILN_FN void sum_tiles(TileMemory<Tiles>& memory, u32 vectors, u32 row_count, u32 tile, u32 apart,
                       bool weights_first, const Weights& weights_of, const Vector& vector_of,
                       const Line& line_of, const Again& add_again, const Store& store_of) {
  using T = typename Tiles::T;
  using X = typename Tiles::X;
  constexpr int kSteps = Tiles::kSteps;
  constexpr int kSets = Tiles::kSets;
  constexpr int kOwnSteps = Tiles::kOwnSteps;
  constexpr int kOwnLines = Tiles::kOwnLines;
  constexpr int kVectorBytes = Tiles::kLanes * lane_bits<T>() / 8;
  const int t = Tiles::thread();
  const u32 wave = threadIdx.x / 32;

  const auto load_words = [&](TileSet<Tiles>& loaded, u32 of_tile, u32 set) {
    KILN_EACH(r, 2) {
      const u32 row = row_or_last(of_tile * 16 + Tiles::row() + r * 8, row_count);
      const u8* const from = (const u8*)weights_of(row) + (set * (kSteps * 4) + t) * kVectorBytes;
      KILN_EACH(step, kSteps) {
        const u32 at = (set * kSteps + step) * 4 + t;
        const int over = Tiles::kWhole || at < vectors ? 0 : int(at - (vectors - 1));
        loaded.words[step][r] =
            load_once<TileWords<Tiles>>(from + (step * 4 - over) * kVectorBytes);
      }
    }
  };
  // Of a tile past the last one, those of the last row: where a branch skipped that, numbers would
  // be converted within it, and be waited for before anything is multiplied.
  const auto load_lines = [&](TileSet<Tiles>& loaded, u32 of_tile, u32 set) {
    KILN_EACH(r, 2) {
      const u32 row = row_or_last(of_tile * 16 + Tiles::row() + r * 8, row_count);
      KILN_EACH(i, kOwnSteps) KILN_EACH(k, kOwnLines) {
        const u32 step = set * kSteps + Tiles::first_step() + i;
        const int line = Tiles::line_of_column(Tiles::first_column() + k);
        loaded.lines[r][i][k] = line_of(row, Tiles::line_of_step(step, line, vectors));
      }
    }
  };
  const auto load_set = [&](TileSet<Tiles>& loaded, u32 of_tile, u32 set) {
    load_lines(loaded, of_tile, set);
    load_words(loaded, of_tile, set);
  };
  TileSet<Tiles> now;
  if (!weights_first) await_prerequisites();
  if (kSets >= Tiles::kWaves || wave < kSets) load_set(now, tile, wave);
  if (weights_first) await_prerequisites();

  // The column of which this thread has x, as far as it is of the line that the column is of.
  const int column = Tiles::row() % Tiles::kUsed;
  const int own_line = t / Tiles::kSharers;
  const bool wanted = Tiles::line_of_column(column) == own_line;
  const int place = Tiles::vector_of_column(column) * 4 + t;
  const X* x = nullptr;
  if constexpr (Tiles::kPlaced) {
    place_vectors(memory, vector_of, vectors);
  } else {
    x = vector_of(u32(Tiles::vector_of_column(column)));
  }
  // Who has the point of that line.
  const int owner = int(threadIdx.x) % 32 / 4 * 4 + Tiles::owner_of_line(own_line);
  const u32 pick = kOwnLines == 2 && own_line % 2 == 1 ? 0x3232u : 0x1010u;

  const u32 tiles = (row_count + 15) / 16;
  for (u32 round = 0; round == 0 || (Tiles::kAhead && tile < tiles); tile += apart, ++round) {
    f32 sum[2][Tiles::kOwnVectors] = {};
    _Pragma("unroll 1") for (int turn = 0; turn < Tiles::kTurns; ++turn) {
      const u32 set = turn * Tiles::kWaves + wave;
      if (kSets % Tiles::kWaves != 0 && set >= kSets) break;
      TileSet<Tiles> next;
      const bool last = Tiles::kTurns == 1 || set + Tiles::kWaves >= kSets;
      const u32 next_set = last ? wave : set + Tiles::kWaves;
      const u32 next_tile = last ? tile + apart : tile;
      if constexpr (Tiles::kAhead) {
        load_lines(next, next_tile, next_set);
        if (next_tile < tiles) load_words(next, next_tile, next_set);
      }
      TileFactors factors[2][kOwnSteps][kOwnLines];
      u32 terms[2][kOwnSteps];
      KILN_EACH(r, 2) KILN_EACH(i, kOwnSteps) {
        f32 term[2] = {};
        KILN_EACH(k, kOwnLines) {
          f32 point;
          factors[r][i][k] = tile_factors<Tiles>(now.lines[r][i][k], point);
          term[k] = point_term<X, T>(point);
        }
        terms[r][i] = exact_pair<X>(term[0], term[1]);
      }
      TileSums own[kOwnSteps];
      TileSums shared[kOwnSteps];
      const Chunk<16>* const placed =
          (const Chunk<16>*)memory.x + (wanted ? set * Tiles::kSetChunks : Tiles::kZeros) + place;
      KILN_EACH(step, kSteps) {
        StepVector<Tiles> of_step;
        if constexpr (Tiles::kPlaced) {
          of_step = placed_step<Tiles>(placed + step * Tiles::kStepChunks);
        } else {
          const u32 at = (set * kSteps + step) * 4 + t;
          of_step =
              loaded_step<Tiles>(wanted && (Tiles::kWhole || at < vectors), x + at * Tiles::kLanes);
        }
        PairTerms of_rows;
        KILN_EACH(r, 2) {
          u32 term = terms[r][step % kOwnSteps];
          if constexpr (Tiles::kHasRest) {
            term = __shfl_sync(0xffffffffu, term, owner + step / kOwnSteps * Tiles::kApart);
          }
          of_rows.of[r] = point_terms<X, T>(__byte_perm(term, 0, pick));
        }
        const TileSums sums = multiply_step<Tiles>(now.words[step], of_rows, of_step);
        // Only the threads of these steps' columns keep them.
        const bool kept = step < kOwnSteps || Tiles::first_step() == step / kOwnSteps * kOwnSteps;
        KILN_EACH(i, 4) {
          own[step % kOwnSteps].of[i] = kept ? sums.of[i] : own[step % kOwnSteps].of[i];
        }
        if constexpr (Tiles::kHasRest && !Tiles::kPlaced) {
          const TileSums of_x = sum_step<Tiles>(of_step);
          KILN_EACH(i, 2) {
            shared[step % kOwnSteps].of[i] = kept ? of_x.of[i] : shared[step % kOwnSteps].of[i];
          }
        }
      }
      KILN_EACH(i, kOwnSteps) {
        if constexpr (Tiles::kHasRest && Tiles::kPlaced) {
          KILN_EACH(k, 2) {
            const int n = Tiles::first_column() + k;
            shared[i].of[k] = memory.sum[set * kSteps + Tiles::first_step() + i]
                                        [Tiles::line_of_column(n)][Tiles::vector_of_column(n)];
          }
        }
        KILN_EACH(r, 2) KILN_EACH(k, Tiles::kTerms) {
          const TileFactors& line = factors[r][i][Tiles::kByLines ? k : 0];
          f32& all = sum[r][Tiles::kByLines ? 0 : k];
          all = fma(own[i].of[r * 2 + k], line.scale, all);
          if constexpr (Tiles::kHasRest) all = fma(shared[i].of[k], line.rest, all);
        }
      }
      if constexpr (Tiles::kAhead) {
        now = next;
      } else {
        if (!last) load_set(now, tile, next_set);
      }
    }
    // The threads of the rows become one, then the waves.
    f32(&joined)[Tiles::kWaves][16 * Tiles::kColumns] = memory.wave[round % 2];
    KILN_EACH(r, 2) KILN_EACH(k, Tiles::kOwnVectors) {
      f32 value = sum[r][k];
      if constexpr (Tiles::kVectors <= 2 && !Tiles::kRepeats) value += exchange<1, true>(value);
      if constexpr (Tiles::kVectors <= 4) value += exchange<2, true>(value);
      const int c = t * 2 + k;
      if (c < Tiles::kColumns) {
        joined[wave][(Tiles::row() + r * 8) * Tiles::kColumns + c] = value;
      }
    }
    __syncthreads();
    join_waves<Tiles>(memory, round, tile, add_again, store_of);
  }
}

// Whether all results of a row of the tile are finite.
template <class Tiles>
KILN_FN bool is_finite_row(const TileMemory<Tiles>& memory, int row) {
  bool finite = true;
  KILN_EACH(c, Tiles::kColumns) {
    finite = finite && isfinite(memory.result[row * Tiles::kColumns + c]);
  }
  return finite;
}

}  // namespace kiln

#endif
