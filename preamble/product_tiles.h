// Tiles of sixteen rows of weights times up to eight vectors x, by the matrix instruction of NVIDIA
// GPUs (mma.sync, from sm_80 on), which adds exact products of 16-bit floats up in f32.
// fusion/schedule/products/tile_layout.cpp decides which kernels use it.
//
// The instruction may truncate its terms to 24 bits below the largest of them (Fasi, Higham,
// Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ CS 2021): with sixteen
// products its error is at most 34 u times the sum of their sizes, u being half a unit in the last
// place of 1. Each of w threads adds W / 4 of them for each of its vectors of W elements, scales
// that and adds it to its sum. So a sum of n elements has an error of at most (8.5 W + n / (W w) +
// log2(w) + 1) u times the sum of the sizes of its terms, and three times that where weights have a
// bias or a zero point (products.h).
#pragma once

#include "copies.h"
#include "tiling.h"

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

// The numbers of a group as they are loaded.
struct TileGroup {
  f32 scale;
  f32 offset;  // bias or zero point
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

// 16 bytes of x, which another kernel may have written, or a prologue. Loads from global memory are
// issued in the order in which they are written here.
template <class Tiles>
KILN_FN Chunk<16> load_volatile(const Chunk<16>* from) {
  if constexpr (Tiles::kPrologue) return *from;
  Chunk<16> chunk;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(chunk.word[0]), "=r"(chunk.word[1]), "=r"(chunk.word[2]), "=r"(chunk.word[3])
               : "l"(from)
               : "memory");
  return chunk;
}

template <class Tiles>
struct StepVector {
  Chunk<16> chunk[Tiles::kChunks];
};

template <class Tiles>
KILN_FN StepVector<Tiles> smem_step(const Chunk<16>* x) {
  StepVector<Tiles> result;
  KILN_EACH(i, Tiles::kChunks) result.chunk[i] = x[i * (Tiles::kColumns * 4)];
  return result;
}

template <class Tiles>
KILN_FN StepVector<Tiles> global_step(bool wanted, const typename Tiles::X* x) {
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

// The sums of (weight - zero point) x of a step, in units of weight_unit().
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

// The factors of a group in scale * (sum of (weight - zero point) x) + offset * (sum of x); the
// former sum is in units of weight_unit().
struct TileFactors {
  f32 scale;
  f32 offset;
};
template <class Tiles>
KILN_FN TileFactors tile_factors(TileGroup group, f32& zero_point) {
  using T = typename Tiles::T;
  const f32 scale = group.scale * (1.0f / weight_unit<typename Tiles::X, T>());
  if constexpr (Tiles::kHasBias) {
    zero_point = nearest_weight<T>(-group.offset, group.scale);
    return {scale, fma(zero_point, group.scale, group.offset)};
  } else if constexpr (Tiles::kHasZeroPoint) {
    zero_point = nearest_weight<T>(group.offset, 1.0f);
    return {scale, (zero_point - group.offset) * group.scale};
  } else {
    zero_point = 0.0f;
    return {scale, 0.0f};
  }
}

// What a wave loads at a time.
template <class Tiles>
struct TileSet {
  TileWords<Tiles> words[Tiles::kSteps][2];
  TileGroup groups[2][Tiles::kOwnSteps][Tiles::kOwnGroups];
};

// Combines what the waves have left in shared memory to the results of a tile.
template <class Tiles, class Again, class Store>
KILN_FN void combine_waves(TileMemory<Tiles>& memory, u32 round, u32 tile, const Again& recompute,
                           const Store& store_of) {
  const f32(&partial)[Tiles::kWaves][16 * Tiles::kColumns] = memory.wave[round % 2];
  const u32 i = (threadIdx.x + round * 32) % Tiles::kThreads;
  const bool has_result = i < 16 * Tiles::kColumns;
  f32 result = 0.0f;
  if (has_result) {
    Lanes<f32, Tiles::kWaves> waves;
    KILN_EACH(w, Tiles::kWaves) waves[w] = partial[w][i];
    result = fold<Sum, Tiles::kWaves>(waves);
    memory.result[i] = result;
  }
  if (!__syncthreads_and(isfinite(result))) {
    recompute(tile);
    __syncthreads();
    if (has_result) result = memory.result[i];
  }
  const u32 row = tile * 16 + i / Tiles::kColumns;
  if constexpr (Tiles::kSums == 2) {
    if (has_result && row % 2 == 0) {
      store_of(row / 2, i % Tiles::kColumns, result, memory.result[i + Tiles::kColumns]);
    }
  } else {
    if (has_result) store_of(row, i % Tiles::kColumns, result);
  }
}

// Multiplies the rows of weights of a block's tiles by the vectors x. `weights_of(row)` and
// `vector_of(column)` are where they begin, `group_of(row, group)` has the numbers of a group. The
// block's tiles are `tile`, `tile + tile_stride`, ...; without kPrefetch it has one. Where a result
// of a tile is not finite, `recompute(tile)` replaces such rows; `store_of(row, column, result)`
// takes each result. Where kSums is 2, rows are those of both sums in turn, and
// `store_of(row, column, result, second)` takes a row's two results. `weights_first`: kernels that
// this one depends on may still be running and writing x, so weights and groups are loaded while
// they end. `prologue` (prologue.h) computes x.
template <class Tiles, class Weights, class Vector, class Line, class Again, class Store,
          class Prologue = NoPrologue>
KILN_FN void sum_tiles(TileMemory<Tiles>& memory, u32 vectors, u32 row_count, u32 tile,
                       u32 tile_stride, bool weights_first, const Weights& weights_of,
                       const Vector& vector_of, const Line& group_of, const Again& recompute,
                       const Store& store_of, const Prologue& prologue = {}) {
  using T = typename Tiles::T;
  using X = typename Tiles::X;
  constexpr int kSteps = Tiles::kSteps;
  constexpr int kSets = Tiles::kSets;
  constexpr int kOwnSteps = Tiles::kOwnSteps;
  constexpr int kOwnGroups = Tiles::kOwnGroups;
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
  // For a tile past the end these are the groups of the last row. A branch that skipped the loads
  // would make the compiler convert the numbers within it, and wait for them before it multiplies.
  const auto load_groups = [&](TileSet<Tiles>& loaded, u32 of_tile, u32 set) {
    KILN_EACH(r, 2) {
      const u32 row = row_or_last(of_tile * 16 + Tiles::row() + r * 8, row_count);
      KILN_EACH(i, kOwnSteps) KILN_EACH(k, kOwnGroups) {
        const u32 step = set * kSteps + Tiles::first_step() + i;
        const int group = Tiles::group_of_column(Tiles::first_column() + k);
        loaded.groups[r][i][k] = group_of(row, Tiles::group_of_step(step, group, vectors));
      }
    }
  };
  const auto load_set = [&](TileSet<Tiles>& loaded, u32 of_tile, u32 set) {
    load_groups(loaded, of_tile, set);
    load_words(loaded, of_tile, set);
  };
  TileSet<Tiles> now;
  prologue.load_early();
  if (!weights_first) {
    await_prerequisites();
    prologue.load();
  }
  if (kSets >= Tiles::kWaves || wave < kSets) load_set(now, tile, wave);
  if (weights_first) {
    await_prerequisites();
    prologue.load();
  }
  prologue.finish();

  // The column whose x this thread has, if the column is of the same group as this thread's
  // vectors.
  const int column = Tiles::row() % Tiles::kUsed;
  const int own_group = t / Tiles::kVectorsPerGroup;
  const bool wanted = Tiles::group_of_column(column) == own_group;
  const int place = Tiles::vector_of_column(column) * 4 + t;
  const X* x = nullptr;
  if constexpr (Tiles::kXInSmem) {
    stage_vectors(memory, vector_of, vectors);
  } else {
    x = vector_of(u32(Tiles::vector_of_column(column)));
  }
  // Which thread has the zero point of that group.
  const int owner = int(threadIdx.x) % 32 / 4 * 4 + Tiles::owner_of_group(own_group);
  const u32 pick = kOwnGroups == 2 && own_group % 2 == 1 ? 0x3232u : 0x1010u;

  const u32 tiles = (row_count + 15) / 16;
  for (u32 round = 0; round == 0 || (Tiles::kPrefetch && tile < tiles);
       tile += tile_stride, ++round) {
    f32 sum[2][Tiles::kOwnVectors] = {};
    _Pragma("unroll 1") for (int turn = 0; turn < Tiles::kTurns; ++turn) {
      const u32 set = turn * Tiles::kWaves + wave;
      if (kSets % Tiles::kWaves != 0 && set >= kSets) break;
      TileSet<Tiles> next;
      const bool last = Tiles::kTurns == 1 || set + Tiles::kWaves >= kSets;
      const u32 next_set = last ? wave : set + Tiles::kWaves;
      const u32 next_tile = last ? tile + tile_stride : tile;
      if constexpr (Tiles::kPrefetch) {
        load_groups(next, next_tile, next_set);
        if (next_tile < tiles) load_words(next, next_tile, next_set);
      }
      TileFactors factors[2][kOwnSteps][kOwnGroups];
      u32 terms[2][kOwnSteps];
      KILN_EACH(r, 2) KILN_EACH(i, kOwnSteps) {
        f32 term[2] = {};
        KILN_EACH(k, kOwnGroups) {
          f32 zero_point;
          factors[r][i][k] = tile_factors<Tiles>(now.groups[r][i][k], zero_point);
          term[k] = zero_point_term<X, T>(zero_point);
        }
        terms[r][i] = exact_pair<X>(term[0], term[1]);
      }
      TileSums own[kOwnSteps];
      TileSums shared[kOwnSteps];
      const Chunk<16>* const placed =
          (const Chunk<16>*)memory.x + (wanted ? set * Tiles::kSetChunks : Tiles::kZeros) + place;
      KILN_EACH(step, kSteps) {
        StepVector<Tiles> of_step;
        if constexpr (Tiles::kXInSmem) {
          of_step = smem_step<Tiles>(placed + step * Tiles::kStepChunks);
        } else {
          const u32 at = (set * kSteps + step) * 4 + t;
          of_step =
              global_step<Tiles>(wanted && (Tiles::kWhole || at < vectors), x + at * Tiles::kLanes);
        }
        PairTerms of_rows;
        KILN_EACH(r, 2) {
          u32 term = terms[r][step % kOwnSteps];
          if constexpr (Tiles::kHasOffset) {
            term = __shfl_sync(0xffffffffu, term, owner + step / kOwnSteps * Tiles::kColumnThreads);
          }
          of_rows.of[r] = zero_point_terms<X, T>(__byte_perm(term, 0, pick));
        }
        const TileSums sums = multiply_step<Tiles>(now.words[step], of_rows, of_step);
        // Only the threads with columns of these steps keep the sums.
        const bool kept = step < kOwnSteps || Tiles::first_step() == step / kOwnSteps * kOwnSteps;
        KILN_EACH(i, 4) {
          own[step % kOwnSteps].of[i] = kept ? sums.of[i] : own[step % kOwnSteps].of[i];
        }
        if constexpr (Tiles::kHasOffset && !Tiles::kXInSmem) {
          const TileSums of_x = sum_step<Tiles>(of_step);
          KILN_EACH(i, 2) {
            shared[step % kOwnSteps].of[i] = kept ? of_x.of[i] : shared[step % kOwnSteps].of[i];
          }
        }
      }
      KILN_EACH(i, kOwnSteps) {
        if constexpr (Tiles::kHasOffset && Tiles::kXInSmem) {
          KILN_EACH(k, 2) {
            const int n = Tiles::first_column() + k;
            shared[i].of[k] = memory.sum[set * kSteps + Tiles::first_step() + i]
                                        [Tiles::group_of_column(n)][Tiles::vector_of_column(n)];
          }
        }
        KILN_EACH(r, 2) KILN_EACH(k, Tiles::kTerms) {
          const TileFactors& group = factors[r][i][Tiles::kByGroups ? k : 0];
          f32& all = sum[r][Tiles::kByGroups ? 0 : k];
          all = fma(own[i].of[r * 2 + k], group.scale, all);
          if constexpr (Tiles::kHasOffset) all = fma(shared[i].of[k], group.offset, all);
        }
      }
      if constexpr (Tiles::kPrefetch) {
        now = next;
      } else {
        if (!last) load_set(now, tile, next_set);
      }
    }
    // First the threads of a row are combined, then the waves.
    f32(&partial)[Tiles::kWaves][16 * Tiles::kColumns] = memory.wave[round % 2];
    KILN_EACH(r, 2) KILN_EACH(k, Tiles::kOwnVectors) {
      f32 value = sum[r][k];
      if constexpr (Tiles::kVectors <= 2 && !Tiles::kRepeats) value += exchange<1, true>(value);
      if constexpr (Tiles::kVectors <= 4) value += exchange<2, true>(value);
      const int c = t * 2 + k;
      if (c < Tiles::kColumns) {
        partial[wave][(Tiles::row() + r * 8) * Tiles::kColumns + c] = value;
      }
    }
    __syncthreads();
    combine_waves<Tiles>(memory, round, tile, recompute, store_of);
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
