// Tiles of sixteen rows of weights times up to eight vectors x, by the matrix instruction of NVIDIA
// GPUs (mma.sync, from sm_80 on), which adds exact products of 16-bit floats up in f32.
// fusion/schedule/products/tile_layout.cpp decides which kernels use it.
//
// The instruction may truncate its terms to 24 bits below the largest of them (Fasi, Higham,
// Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ CS 2021): with sixteen
// products its error is at most 34 u times the sum of their sizes, u being half a unit in the last
// place of 1. A step of four vectors of W elements is W / 4 of them, whose sum is scaled. Sums of
// steps are added up in the order of tiling.h. So a sum of n elements has an error of at most
// (8.5 W + n / (1024 W) + 10) u times the sum of the sizes of its terms, and three times that where
// weights have a bias or a zero point (products.h).
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

// A vector of x, from where it begins.
template <class Tiles>
KILN_FN StepVector<Tiles> loaded_vector(const typename Tiles::X* x, u32 vector) {
  StepVector<Tiles> result;
  const Chunk<16>* const from = (const Chunk<16>*)(x + vector * Tiles::kLanes);
  KILN_EACH(i, Tiles::kChunks) result.chunk[i] = from[i];
  return result;
}
// The same of elements that lie anywhere, which a function gathers.
template <class Tiles, class Gather>
KILN_FN StepVector<Tiles> loaded_vector(const Gather& gather, u32 vector) {
  StepVector<Tiles> result;
  const auto near = gather(vector);
  KILN_EACH(i, Tiles::kChunks) result.chunk[i] = ((const Chunk<16>*)near.of)[i];
  return result;
}
template <class Tiles, class From>
KILN_FN StepVector<Tiles> global_step(bool there, const From& x, u32 vector) {
  StepVector<Tiles> result = {};
  if (there) result = loaded_vector<Tiles>(x, vector);
  KILN_EACH(i, Tiles::kChunks) result.chunk[i] = in_order<Tiles>(result.chunk[i]);
  return result;
}

// Vectors of a row of weights from one of them on.
template <class Words>
struct RowWords {
  const u8* from;
  __device__ __forceinline__ Words at(int vector) const {
    return load_once<Words>(from + vector * int(sizeof(Words)));
  }
};
template <class Words, class Gather>
struct GatheredWords {
  Gather gather;
  u32 first;
  __device__ __forceinline__ Words at(int vector) const {
    Words words;
    const auto near = gather(first + u32(vector));
    KILN_EACH(i, int(sizeof(Words)) / 4) words.word[i] = ((const u32*)near.of)[i];
    return words;
  }
};
template <class Words, class T>
KILN_FN RowWords<Words> words_from(const T* row, u32 first) {
  return {(const u8*)row + first * u32(sizeof(Words))};
}
template <class Words, class Gather>
KILN_FN GatheredWords<Words, Gather> words_from(const Gather& row, u32 first) {
  return {row, first};
}

// The sums of x of a step, the same in all rows. Two chains of instructions take half as long as
// one.
template <class Tiles>
KILN_FN TileSums sum_step(const StepVector<Tiles>& x) {
  constexpr u32 kOnes = PairFormat<typename Tiles::X>::kOne * 0x00010001u;
  TileSums sums[2] = {};
  KILN_EACH(i, Tiles::kChunks) {
    KILN_EACH(half, 2) {
      multiply_tile<typename Tiles::X>(sums[half], kOnes, kOnes, kOnes, kOnes,
                                       x.chunk[i].word[2 * half], x.chunk[i].word[2 * half + 1]);
    }
  }
  KILN_EACH(k, 2) sums[0].of[k] += sums[1].of[k];
  return sums[0];
}

// Those of x that is staged: the instruction's columns are neighbouring steps of neighbouring x.
// All threads of the block call it.
template <class Tiles>
KILN_FN void sum_staged(TileMemory<Tiles>& memory) {
  constexpr int kSums = Tiles::kSets * Tiles::kSteps * Tiles::kColumns;
  constexpr int kEach = (kSums + Tiles::kBlockWaves * 8 - 1) / (Tiles::kBlockWaves * 8);
  f32* const to = &memory.sum[0][0];
  KILN_EACH(i, kEach) {
    const int first = (i * Tiles::kBlockWaves + int(threadIdx.x) / 32) * 8;
    if (kSums % (Tiles::kBlockWaves * 8) != 0 && first >= kSums) break;
    const int own = first + Tiles::row() < kSums ? first + Tiles::row() : kSums - 1;
    const int place = own / Tiles::kColumns * Tiles::kStepChunks + own % Tiles::kColumns * 4;
    const TileSums sums =
        sum_step<Tiles>(smem_step<Tiles>((const Chunk<16>*)memory.x + place + Tiles::thread()));
    KILN_EACH(k, 2) {
      const int n = first + Tiles::thread() * 2 + k;
      if (Tiles::row() == 0 && n < kSums) to[n] = sums.of[k];
    }
  }
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

// A set of the rows of a tile, or a wave's part of them, in chunks of 16 bytes. They are swizzled
// by row, so that threads of neighbouring rows meet no bank conflict.
template <class Tiles>
struct StagedWeights {
  enum : int {
    kVectorBytes = Tiles::kLanes * lane_bits<typename Tiles::T>() / 8,
    kStepChunks = 4 * kVectorBytes / 16,
    kRowChunks = Tiles::kSteps * kStepChunks,
  };
  Chunk<16> chunk[16][kRowChunks];
  static __device__ __forceinline__ int chunk_index(int row, int chunk) {
    return chunk ^ (row * kStepChunks & 7 & (kRowChunks - 1));
  }

  // Copies a set of the rows of a tile. Past the end of a row it repeats the last chunk.
  template <class Weights>
  __device__ __forceinline__ void copy(u32 tile, u32 set, u32 vectors, u32 row_count,
                                       const Weights& weights_of) {
    const u32 last = vectors * kVectorBytes / 16 - 1;
    KILN_EACH(r, 2) {
      const int own = Tiles::own_row(r);
      const u8* const from = (const u8*)weights_of(row_or_last(tile * 16 + own, row_count));
      KILN_EACH(i, kRowChunks / 4) {
        const int place = i * 4 + Tiles::thread();
        const u32 at = set * kRowChunks + place;
        copy_chunk(&chunk[own][chunk_index(own, place)],
                   from + (Tiles::kWhole || at < last ? at : last) * 16);
      }
    }
  }

  // The words of a thread of a step.
  __device__ __forceinline__ void take(TileWords<Tiles> (&words)[2], int step) const {
    KILN_EACH(r, 2) {
      const int row = Tiles::own_row(r);
      const int first = Tiles::thread() * kVectorBytes;
      const int place = chunk_index(row, step * kStepChunks + first / 16);
      const u8* const from = (const u8*)&chunk[row][place] + first % 16;
      words[r] = *(const TileWords<Tiles>*)__builtin_assume_aligned(from, kVectorBytes);
    }
  }

  // A wave copies its sets for itself.
  static __device__ __forceinline__ void synchronize() { __syncwarp(); }
};

// What a wave loads at a time.
template <class Tiles>
struct TileSet {
  TileWords<Tiles> words[Tiles::kSteps][2];
  TileGroup groups[2][Tiles::kGroupSteps];
};

// What a step gives: the sums of (weight - zero point) x and of x, scaled.
template <class Tiles>
KILN_FN f32 value_of_step(f32 sum, f32 sum_of_x, const TileFactors& factors) {
  if constexpr (Tiles::kHasOffset) return fma(sum, factors.scale, sum_of_x * factors.offset);
  return sum * factors.scale;
}

// Combines what the waves have left in shared memory to the results of a block's tiles. Adding 0
// makes a result of -0 +0, be there steps past the end of a row or not.
template <class Tiles, class Again, class Store>
KILN_FN void combine_slots_of_tile(TileMemory<Tiles>& memory, u32 round, u32 tile,
                                   const Again& recompute, const Store& store_of) {
  constexpr int kOfTile = 16 * Tiles::kColumns;
  constexpr int kResults = kOfTile * Tiles::kBeside;
  constexpr int kOwn = (kResults + Tiles::kThreads - 1) / Tiles::kThreads;
  const u32 first = (threadIdx.x + round * 32) % Tiles::kThreads;
  f32 result[kOwn] = {};
  bool finite = true;
  KILN_EACH(own, kOwn) {
    const u32 i = own * Tiles::kThreads + first;
    if (i >= kResults) break;
    const u32 tile_slots = round % Tiles::kRounds * Tiles::kBeside + i / kOfTile;
    const f32(&partial)[Tiles::kSlots][kOfTile] = memory.slot[tile_slots];
    f32 slots[Tiles::kSlots];
    KILN_EACH(slot, Tiles::kSlots) slots[slot] = partial[slot][i % kOfTile];
    result[own] = sum_of_neighbours(slots) + 0.0f;
    memory.result[i] = result[own];
    finite = finite && isfinite(result[own]);
  }
  const bool all_are_finite = __syncthreads_and(finite);
  if (!all_are_finite) {
    recompute(tile);
    __syncthreads();
  }
  KILN_EACH(own, kOwn) {
    const u32 i = own * Tiles::kThreads + first;
    if (i >= kResults) break;
    if (!all_are_finite) result[own] = memory.result[i];
    const u32 row = Tiles::row_of(tile, i / Tiles::kColumns);
    if constexpr (Tiles::kSums == 2) {
      // The row of the other sum is the next one, or that of the next tile.
      constexpr int kSecond = Tiles::kAcross ? int(kOfTile) : int(Tiles::kColumns);
      if (row % 2 == 0) {
        store_of(row / 2, i % Tiles::kColumns, result[own], memory.result[i + kSecond]);
      }
    } else {
      store_of(row, i % Tiles::kColumns, result[own]);
    }
  }
}

// Multiplies the rows of weights of a block's tiles by the vectors x. `weights_of(row)` and
// `vector_of(column)` are where they begin, or functions that gather a vector of them, which x that
// is kept in shared memory has not; `group_of(row, group)` has the numbers of a group. The
// block's tiles are `tile`, `tile + tile_stride`, ...; without kPrefetch it has one. `staged` has
// room for two sets of each wave, with kStaged. Where a result
// of a tile is not finite, `recompute(tile)` replaces such rows; `store_of(row, column, result)`
// takes each result. Where kSums is 2, rows are those of both sums in turn, and
// `store_of(row, column, result, second)` takes a row's two results. `weights_first`: kernels that
// this one depends on may still be running and writing x, so weights and groups are loaded while
// they end. `prologue` (prologue.h) computes x.
template <class Tiles, class Stage = StagedWeights<Tiles>, class Weights, class Vector, class Line,
          class Again, class Store, class Prologue = NoPrologue>
KILN_FN void sum_tiles(TileMemory<Tiles>& memory, Chunk<16>* staged, u32 vectors, u32 row_count,
                       u32 tile, u32 tile_stride, bool weights_first, const Weights& weights_of,
                       const Vector& vector_of, const Line& group_of, const Again& recompute,
                       const Store& store_of, const Prologue& prologue = {}) {
  using T = typename Tiles::T;
  using X = typename Tiles::X;
  constexpr int kSteps = Tiles::kSteps;
  constexpr int kOwnSteps = Tiles::kOwnSteps;
  constexpr int kGroupSteps = Tiles::kGroupSteps;
  const int t = Tiles::thread();
  const int first_thread = int(threadIdx.x) % 32 - t;  // of this row
  const u32 wave = Tiles::wave();
  const bool has_sets = Tiles::kSlots >= Tiles::kWaves || wave < Tiles::kSlots;
  const SetPlace<Tiles> first = {wave, wave, 0};

  const auto load_words = [&](TileSet<Tiles>& loaded, u32 of_tile, u32 set) {
    if constexpr (!Tiles::kStaged) {
      KILN_EACH(r, 2) {
        const u32 row = row_or_last(Tiles::own_row_of(of_tile, r), row_count);
        const auto from = words_from<TileWords<Tiles>>(weights_of(row), set * (kSteps * 4) + t);
        KILN_EACH(step, kSteps) {
          const u32 at = (set * kSteps + step) * 4 + t;
          const int over = Tiles::kWhole || at < vectors ? 0 : int(at - (vectors - 1));
          loaded.words[step][r] = from.at(step * 4 - over);
        }
      }
    }
  };
  // For a tile past the end these are the groups of the last row. A branch that skipped the loads
  // would make the compiler convert the numbers within it, and wait for them before it multiplies.
  const auto load_groups = [&](TileSet<Tiles>& loaded, u32 of_tile, u32 set) {
    KILN_EACH(r, 2) {
      const u32 row = row_or_last(Tiles::own_row_of(of_tile, r), row_count);
      KILN_EACH(i, kGroupSteps) {
        const u32 step = set * kSteps + t * kGroupSteps % kSteps + i;
        loaded.groups[r][i] = group_of(row, Tiles::group_of_step(step, vectors));
      }
    }
  };
  // One set is multiplied while the next one is copied.
  Stage* const own_sets = (Stage*)staged + wave * 2;
  u32 taken = 0;
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
  if (has_sets) load_set(now, tile, first.set());
  if constexpr (Tiles::kStaged) {
    if (has_sets) own_sets[0].copy(tile, first.set(), vectors, row_count, weights_of);
    commit_copies();
  }
  if (weights_first) {
    await_prerequisites();
    prologue.load();
  }
  prologue.finish();

  // The column whose x this thread has.
  const int column = Tiles::vector_of_column(Tiles::row() % Tiles::kUsed);
  const auto x = vector_of(u32(column));
  if constexpr (Tiles::kXInSmem) {
    stage_vectors(memory, vector_of, vectors);
    __syncthreads();
    if constexpr (Tiles::kHasOffset) {
      sum_staged(memory);
      __syncthreads();
    }
  }

  const u32 tiles = (row_count + 16 * Tiles::kBeside - 1) / (16 * Tiles::kBeside);
  for (u32 round = 0; round == 0 || (Tiles::kPrefetch && tile < tiles);
       tile += tile_stride, ++round) {
    f32(&partial)[Tiles::kSlots][16 * Tiles::kColumns] =
        memory.slot[round % Tiles::kRounds * Tiles::kBeside + Tiles::beside()];
    RunSums<Tiles> all[2][Tiles::kOwnVectors];
    SetPlace<Tiles> place = first;
    _Pragma("unroll 1") for (bool more = has_sets; more;) {
      const u32 set = place.set();
      TileSet<Tiles> next;
      const bool last = place.is_last();
      const SetPlace<Tiles> next_place = last ? first : place.next();
      const u32 next_tile = last ? tile + tile_stride : tile;
      const Stage& copied = own_sets[taken % 2];
      if constexpr (Tiles::kStaged) {
        ++taken;
        if (Tiles::kPrefetch ? next_tile < tiles : !last) {
          own_sets[taken % 2].copy(next_tile, next_place.set(), vectors, row_count, weights_of);
        }
        commit_copies();
      }
      if constexpr (Tiles::kPrefetch) {
        load_groups(next, next_tile, next_place.set());
        if (next_tile < tiles) load_words(next, next_tile, next_place.set());
      }
      TileFactors factors[2][kGroupSteps];
      u32 terms[2][kGroupSteps];
      KILN_EACH(r, 2) KILN_EACH(i, kGroupSteps) {
        f32 zero_point;
        factors[r][i] = tile_factors<Tiles>(now.groups[r][i], zero_point);
        const f32 term = zero_point_term<X, T>(zero_point);
        terms[r][i] = exact_pair<X>(term, term);
      }
      if constexpr (Tiles::kStaged) {
        wait_copy_groups<1>();
        Stage::synchronize();
      }
      TileSums own[kOwnSteps];
      TileSums of_x[kOwnSteps] = {};
      KILN_EACH(step, kSteps) {
        StepVector<Tiles> of_step;
        if constexpr (Tiles::kXInSmem) {
          of_step = smem_step<Tiles>((const Chunk<16>*)memory.x + set * Tiles::kSetChunks +
                                     step * Tiles::kStepChunks + column * 4 + t);
        } else {
          const u32 at = (set * kSteps + step) * 4 + t;
          of_step = global_step<Tiles>(Tiles::kWhole || at < vectors, x, at);
        }
        PairTerms of_rows;
        KILN_EACH(r, 2) {
          u32 term = terms[r][step % kGroupSteps];
          if constexpr (Tiles::kHasOffset) {
            term = __shfl_sync(0xffffffffu, term, first_thread + step / kGroupSteps);
          }
          of_rows.of[r] = zero_point_terms<X, T>(term);
        }
        if constexpr (Tiles::kStaged) copied.take(now.words[step], step);
        const TileSums sums = multiply_step<Tiles>(now.words[step], of_rows, of_step);
        // Only the threads with columns of these steps keep the sums.
        const bool kept = step < kOwnSteps || Tiles::first_step() == step / kOwnSteps * kOwnSteps;
        KILN_EACH(i, 4) {
          own[step % kOwnSteps].of[i] = kept ? sums.of[i] : own[step % kOwnSteps].of[i];
        }
        if constexpr (Tiles::kHasOffset && !Tiles::kXInSmem) {
          const TileSums all_x = sum_step<Tiles>(of_step);
          KILN_EACH(i, 2) {
            of_x[step % kOwnSteps].of[i] = kept ? all_x.of[i] : of_x[step % kOwnSteps].of[i];
          }
        }
      }
      if constexpr (Tiles::kHasOffset && Tiles::kXInSmem) {
        KILN_EACH(i, kOwnSteps) KILN_EACH(k, Tiles::kOwnVectors) {
          of_x[i].of[k] = memory.sum[set * kSteps + Tiles::first_step() + i]
                                    [Tiles::vector_of_column(Tiles::first_column() + k)];
        }
      }
      TileFactors own_factors[2][kOwnSteps];
      KILN_EACH(r, 2) KILN_EACH(i, kOwnSteps) {
        own_factors[r][i] = factors[r][i % kGroupSteps];
        if constexpr (Tiles::kColumnThreads > 1) {
          const int owner = first_thread + (Tiles::first_step() + i) / kGroupSteps;
          f32& scale = own_factors[r][i].scale;
          f32& offset = own_factors[r][i].offset;
          scale = __shfl_sync(0xffffffffu, scale, owner);
          if constexpr (Tiles::kHasOffset) offset = __shfl_sync(0xffffffffu, offset, owner);
        }
      }
      KILN_EACH(r, 2) KILN_EACH(k, Tiles::kOwnVectors) {
        f32 values[kOwnSteps];
        KILN_EACH(i, kOwnSteps) {
          values[i] = value_of_step<Tiles>(own[i].of[r * 2 + k], of_x[i].of[k], own_factors[r][i]);
        }
        // Of this thread's steps, of the others of the set, and of those before it.
        f32 value = sum_of_neighbours(values);
        if constexpr (Tiles::kColumnThreads == 1) value += exchange<1, true>(value);
        if constexpr (Tiles::kColumnThreads <= 2) value += exchange<2, true>(value);
        value = all[r][k].add(place, value);
        const int c = t * 2 + k;
        if (place.ends_slot() && c < Tiles::kColumns) {
          partial[place.slot][Tiles::own_row(r) * Tiles::kColumns + c] = value;
        }
      }
      if constexpr (Tiles::kPrefetch) {
        now = next;
      } else {
        if (!last) load_set(now, tile, next_place.set());
      }
      if constexpr (Tiles::kStaged) Stage::synchronize();  // before this set is overwritten
      place = next_place;
      more = !last;
    }
    __syncthreads();
    combine_slots_of_tile<Tiles>(memory, round, tile, recompute, store_of);
  }
}

// Whether all results of a row of the block's tiles are finite.
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
