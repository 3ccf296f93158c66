// Rows of weights times one vector x, by the matrix instruction of product_tiles.h, as a split
// reduction within the block: the waves of a team share eight rows at a time, each takes a part of
// the row's length, and so needs only that part of x, which stays in its registers. Weights are
// copied to shared memory as they lie in global memory. fusion/schedule/products/tile_layout.cpp
// decides which kernels use this.
//
// Rows g and g + 8 of the instruction are not rows of the matrix but step g of a chain of eight
// neighbouring steps, of either row of a pair; its columns are the same eight steps of x. Of each
// row one column is of use. The second chain has its steps of x in another order, and the second of
// two pairs its steps of weights: so each of the four threads of row g has the useful column of one
// of the four chains, which is one group, and computes that group's factors. The error bound of a
// sum is that of product_tiles.h.
#pragma once

#include "product_tiles.h"

#if KILN_NVIDIA

namespace kiln {

// `Tiles` has one column, weights of which a vector is 8 bytes, and four vectors to a group.
// Scales, and biases or zero points, are each an array of `Scale` whose rows are whole chunks of 16
// bytes. `Once`: no team has more than one tile; the kernel then needs so few registers that a
// block of another kernel fits beside it.
template <class Tiles, class Scale, bool Once>
struct SplitKTiles {
  using ScaleType = Scale;
  enum : int {
    kSteps = Tiles::kSets * Tiles::kSteps,
    kPartSteps = kTilePartSteps,  // of a wave: two chains
    kParts = kSteps / kPartSteps,
    kTeams = Tiles::kWaves / kParts,
    kRows = 8,
    kPairs = kRows / 2,
    kStepsPerGroup = Tiles::kStepsPerGroup,
    kOperands = Tiles::kHasOffset ? 2 : 1,  // of groups
    kGroups = kPartSteps / kStepsPerGroup,
    kPerChunk = 16 / int(sizeof(Scale)),  // groups
    kGroupChunks = kGroups < kPerChunk ? 1 : kGroups / kPerChunk,
    kVectorChunks = kSteps * 4 * Tiles::kChunks,
    kOnce = Once,
  };
  static_assert(kSteps % kPartSteps == 0 && Tiles::kWaves % kParts == 0 && kTeams < 16 &&
                    kParts <= kTileParts && Tiles::kColumns == 1 && Tiles::kWhole &&
                    Tiles::kLanes * lane_bits<typename Tiles::T>() == 64,
                "SplitKTiles: a thread has 8 bytes of a step, and the group of one of four chains");

  struct Stage {
    Chunk<16> weights[kRows][32];
    Chunk<16> groups[kOperands][kRows][kGroupChunks];
  };
  struct Memory {
    Chunk<16> x[kVectorChunks];
    CopyBarrier arrivals[Tiles::kWaves][kPairs];
    f32 sums[kTeams][2][kParts][kRows];  // of a tile and the next one
  };
  // Even and odd steps are next to each other, so that threads that read both meet no bank
  // conflict.
  static __device__ __forceinline__ u32 chunk_index(u32 step, u32 chunk, u32 thread) {
    return ((step / 2 * Tiles::kChunks + chunk) * 2 + step % 2) * 4 + thread;
  }
};

// Chunks of x of a thread. They are loaded through the L1 cache: uncached requests of every
// multiprocessor for the same few cache lines would queue.
template <class Tiles, class Split>
struct OwnVector {
  enum : int { kOwn = (Split::kVectorChunks + Tiles::kThreads - 1) / Tiles::kThreads };
  Chunk<16> chunk[kOwn];
  static __device__ __forceinline__ u32 at(int i) { return i * Tiles::kThreads + threadIdx.x; }
  static __device__ __forceinline__ bool has(int i) {
    return Split::kVectorChunks % Tiles::kThreads == 0 || at(i) < Split::kVectorChunks;
  }
};
template <class Tiles, class Split, class X>
KILN_FN void load_vector(OwnVector<Tiles, Split>& own, const X* x) {
  KILN_EACH(i, own.kOwn) {
    Chunk<16>& chunk = own.chunk[i];
    chunk = {};
    if (own.has(i)) chunk = load_volatile<Tiles>((const Chunk<16>*)x + own.at(i));
  }
}
// Permutes x (in_order) and puts it into shared memory. It is first stored as it is and read back:
// that makes the assembler issue the loads of weights before it waits for x.
template <class Tiles, class Split>
KILN_FN void stage_vector(typename Split::Memory& memory, OwnVector<Tiles, Split>& own) {
  KILN_EACH(i, own.kOwn) {
    Chunk<16> chunk = own.chunk[i];
    const u32 vector = own.at(i) / Tiles::kChunks;
    Chunk<16>& staged =
        memory.x[Split::chunk_index(vector / 4, own.at(i) % Tiles::kChunks, vector % 4)];
    if (own.has(i)) {
      const u32 address = u32(__cvta_generic_to_shared(&staged));
      asm volatile("st.volatile.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address),
                   "r"(chunk.word[0]), "r"(chunk.word[1]), "r"(chunk.word[2]), "r"(chunk.word[3])
                   : "memory");
      asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(chunk.word[0]), "=r"(chunk.word[1]), "=r"(chunk.word[2]),
                     "=r"(chunk.word[3])
                   : "r"(address)
                   : "memory");
      staged = in_order<Tiles>(chunk);
    }
  }
}

// Multiplies the rows of weights of a block by x. `weights_of(row)`, `scales_of(row)` and
// `offsets_of(row)` are where a row begins; rows of weights are `row_stride` bytes apart.
// `group_from(scale, offset)` makes a TileGroup of a group's numbers. A block has `share` tiles of
// eight rows, or one more. `recompute(row)` sums a row term by term where its result is not finite;
// `store_of(row, 0, result)` takes each result. Where kSums is 2, rows are those of both sums in
// turn, those of one sum are `row_stride` bytes apart, and `store_of(row, 0, result, second)` takes
// a row's two results.
//
// x is loaded first, since nothing can be multiplied without it and loads arrive in the order in
// which they were issued. `weights_first`: kernels that this one depends on may still be running
// and writing x, so weights are loaded while they end.
template <class Tiles, class Split, class X, class Stride, class Weights, class Scales,
          class Offsets, class GroupFrom, class Again, class Store, class Prologue = NoPrologue>
KILN_FN void sum_split_k_tiles(typename Split::Memory& memory, Chunk<16>* stages, u32 row_count,
                               u32 block, u32 blocks, u32 share, bool weights_first, const X* x,
                               Stride row_stride, const Weights& weights_of,
                               const Scales& scales_of, const Offsets& offsets_of,
                               const GroupFrom& group_from, const Again& recompute,
                               const Store& store_of, const Prologue& prologue = {}) {
  using T = typename Tiles::T;
  using Scale = typename Split::ScaleType;
  using Stage = typename Split::Stage;
  OwnVector<Tiles, Split> own_vector;
  prologue.load_early();
  if (!weights_first) {
    await_prerequisites();
    prologue.load();
    if constexpr (!Tiles::kPrologue) load_vector<Tiles, Split>(own_vector, x);
  }

  const u32 lane = threadIdx.x % 32;
  const u32 wave =
      __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);  // tells the compiler that it is uniform
  const u32 team = wave / Split::kParts;
  const u32 part = wave % Split::kParts;
  Stage& stage = ((Stage*)stages)[wave];
  CopyBarrier(&arrivals)[Split::kPairs] = memory.arrivals[wave];
  if (lane == 0) KILN_EACH(pair, Split::kPairs) init_barrier(arrivals[pair], 32);
  __syncwarp();

  // A block's tiles are neighbours, so that each multiprocessor touches fewer pages of memory.
  const u32 tiles = (row_count + Split::kRows - 1) / Split::kRows;
  const u32 longer = tiles - share * blocks;
  const u32 begin = block * share + (block < longer ? block : longer);
  const u32 end = begin + share + (block < longer ? 1 : 0);
  // The last tile may overlap the one before it.
  const auto first_of = [&](u32 tile) {
    const u32 first = tile * Split::kRows;
    return first < row_count - Split::kRows ? first : row_count - Split::kRows;
  };
  // Where the wave's part of a tile is copied to.
  const u32 weights = address_of_once(&stage.weights[0][lane]);
  const auto fetch_groups = [&](u32 tile) {
    constexpr u32 kChunks = Split::kOperands * Split::kRows * Split::kGroupChunks;
    const u32 row = lane / Split::kGroupChunks % Split::kRows;
    const u32 chunk = part * Split::kGroups / Split::kPerChunk + lane % Split::kGroupChunks;
    const bool is_scale = lane / Split::kGroupChunks < Split::kRows;
    const u32 of_tile = first_of(tile) + row;
    const Scale* const from = is_scale ? scales_of(of_tile) : offsets_of(of_tile);
    if (kChunks == 32 || lane < kChunks) {
      copy_chunk_once(weights + u32(sizeof stage.weights), (const Chunk<16>*)from + chunk);
    }
  };
  // The empty asm keeps the assembler from computing the address again for each pair.
  const auto weights_from = [&](u32 tile) {
    const u8* from = (const u8*)weights_of(first_of(tile)) + (part * 32 + lane) * 16;
    asm volatile("" : "+l"(from));
    return from;
  };
  // Of two sums, a pair has a row of each.
  i64 sum_stride = 0;
  if constexpr (Tiles::kSums == 2) {
    sum_stride = (const u8*)weights_of(1) - (const u8*)weights_of(0);
  }
  const auto fetch_pair = [&](const u8* from, int pair) {
    KILN_EACH(r, 2) {
      const int row = pair * 2 + r;
      const auto offset =
          Tiles::kSums == 2 ? i64(pair) * row_stride + r * sum_stride : i64(row) * row_stride;
      copy_chunk_once(weights + row * u32(sizeof stage.weights[0]), from + offset);
    }
    arrive_after_copies(arrivals[pair]);
  };
  // The loads that every wave issues first arrive first. A wave without a tile loads another's.
  u32 tile = begin + team;
  fetch_groups(tile);
  const u8* from = weights_from(tile);
  KILN_EACH(pair, Split::kPairs) {
    if (pair > 0) __syncthreads();
    fetch_pair(from, pair);
  }
  if (weights_first) {
    await_prerequisites();
    prologue.load();
  }
  prologue.finish();
  if (Tiles::kPrologue || weights_first) load_vector<Tiles, Split>(own_vector, x);
  stage_vector<Tiles, Split>(memory, own_vector);
  __syncthreads();

  const u32 g = lane / 4;
  const u32 t = lane % 4;
  const u32 own = t ^ g / 2;  // of four chains
  const u32 own_chain = own % 2;
  const u32 own_pair = own / 2;
  const u32 own_step = own_chain * 8 + (g ^ own_pair * 4);
  const u32 own_group = part * Split::kGroups % (Split::kGroupChunks * Split::kPerChunk) +
                        own_step / Split::kStepsPerGroup;
  StepVector<Tiles> x_part[2];
  KILN_EACH(chain, 2) KILN_EACH(k, Tiles::kChunks) {
    const u32 step = part * Split::kPartSteps + chain * 8 + (g ^ chain * 2);
    x_part[chain].chunk[k] = memory.x[Split::chunk_index(step, k, t)];
  }
  // Column n of the instruction is step n of a chain, or n ^ 2 of the second one.
  f32 sum_of_x = 0.0f;
  if constexpr (Tiles::kHasOffset) {
    const u32 owner = (lane & 28) | ((own_step ^ own_chain * 2) % 8 / 2);
    KILN_EACH(chain, 2) {
      const TileSums of_steps = sum_step<Tiles>(x_part[chain]);
      const f32 sum = __shfl_sync(0xffffffffu, g % 2 == 0 ? of_steps.of[0] : of_steps.of[1], owner);
      if (own_chain == u32(chain)) sum_of_x = sum;
    }
  }

  if (tile >= end) return wait_all_copies();
  for (u32 round = 0; tile < end; tile += Split::kTeams, ++round) {
    const u32 next = tile + Split::kTeams;
    const bool has_next = !Split::kOnce && next < end;
    if constexpr (!Split::kOnce) from = weights_from(next);
    f32 scales[2][2];
    u32 terms[2];  // of both rows of a pair
    f32 sum[2][2];
    KILN_EACH(quad, 2) {
      f32 own_sum[2][2];
      KILN_EACH(half, 2) {
        const int pair = quad * 2 + half;
        wait_barrier(arrivals[pair], round % 2);
        __syncwarp();
        KILN_EACH(q, 2) {
          // For all rows at once, if the next tile's groups are about to overwrite these.
          if (Split::kOnce ? half > 0 || q != quad : pair > 0) continue;
          f32 term[2];
          KILN_EACH(r, 2) {
            const u32 row = q * 4 + own_pair * 2 + r;
            const Scale scale = ((const Scale*)stage.groups[0][row])[own_group];
            const Scale offset = ((const Scale*)stage.groups[Split::kOperands - 1][row])[own_group];
            f32 zero_point;
            const TileFactors factors = tile_factors<Tiles>(group_from(scale, offset), zero_point);
            scales[q][r] = factors.scale;
            sum[q][r] = Tiles::kHasOffset ? sum_of_x * factors.offset : 0.0f;
            term[r] = zero_point_term<typename Tiles::X, T>(zero_point);
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
          if (pair == 0) fetch_groups(next);
          fetch_pair(from, pair);
        }
        KILN_EACH(chain, 2) {
          const int of_quad = half * 2 + chain;
          const u32 both = __shfl_sync(0xffffffffu, terms[quad], (lane & 28) | (g / 2 ^ of_quad));
          const TileSums sums = multiply_step<Tiles>(
              words[chain], terms_of_pair<typename Tiles::X, T>(both), x_part[chain]);
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
    // A thread has sums of four of the rows; which of each four depends on bits 1 and 4 of its
    // number, which no exchange below changes one without the other. Steps are combined in the
    // order of tiling.h: neighbours first.
    f32 halves[2];
    KILN_EACH(r, 2) {
      const bool upper = g % 2 == 1;
      halves[r] = upper ? sum[1][r] : sum[0][r];
      halves[r] += __shfl_xor_sync(0xffffffffu, upper ? sum[0][r] : sum[1][r], 4);
    }
    const bool second = g / 2 % 2 == 1;
    f32 value = second ? halves[1] : halves[0];
    value += __shfl_xor_sync(0xffffffffu, second ? halves[0] : halves[1], 9);
    value += __shfl_xor_sync(0xffffffffu, value, 18);
    value += __shfl_xor_sync(0xffffffffu, value, 1);
    f32(&sums)[Split::kParts][Split::kRows] = memory.sums[team][round % 2];
    if (t % 2 == 0 && g < 4) sums[part][g % 2 * 4 + own_pair * 2 + g / 2] = value;
    synchronize_team<Split::kParts * 32>(team);
    if (part == round % Split::kParts) {
      f32 of_parts[Split::kParts];
      KILN_EACH(i, Split::kParts) of_parts[i] = sums[i][lane % Split::kRows];
      f32 result = sum_of_neighbours(of_parts) + 0.0f;
      // Keeps the assembler from holding both row numbers in registers all the time.
      u32 stored_tile = tile;
      asm volatile("" : "+r"(stored_tile));
      const u32 first = first_of(stored_tile);
      if (!__all_sync(0xffffffffu, isfinite(result))) {
        _Pragma("unroll 1") for (u32 row = 0; row < Split::kRows; ++row) {
          const f32 again = recompute(first + row);
          if (row == lane) result = again;
        }
      }
      const u32 row = first + lane;
      const bool is_stored = lane < Split::kRows && row >= stored_tile * Split::kRows;
      if constexpr (Tiles::kSums == 2) {
        const f32 second = __shfl_xor_sync(0xffffffffu, result, 1);
        if (is_stored && row % 2 == 0) store_of(row / 2, 0, result, second);
      } else {
        if (is_stored) store_of(row, 0, result);
      }
    }
    if constexpr (Split::kOnce) break;
  }
}

}  // namespace kiln

#endif
