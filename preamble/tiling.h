// Which thread has which weights and which part of x, where a matrix instruction multiplies them
// (product_tiles.h). A group is the weights that share a scale, and a bias or a zero point.
//
// A wave has a tile of sixteen rows and takes four neighbouring vectors of each at a time: a step.
// All of a step are of one group. Thread 4 g + t has vector t of rows g and g + 8. Column n of the
// instruction's result comes to the threads t = n / 2, for their two rows.
//
// The order of adding follows from the length of a row, the width of its vectors and the dtypes
// alone, not from the number of rows, vectors x, waves, or steps that are loaded at a time. What a
// step gives is a value. Sixteen neighbouring steps are a part, whose values are combined in pairs
// of neighbours, then pairs of these, and so on. Parts whose numbers are equal modulo sixteen are
// added one after the other, and what these give is combined as the values of a part are. Where
// there is no step, the value is 0.
//
// Where neighbours in memory are of neighbouring rows (line_tiles.h), a block has several tiles
// side by side, each with waves of its own, and thread 4 g + t has two neighbouring rows of its
// tile.
#pragma once

#include "dependents.h"
#include "weight_pairs.h"

#if KILN_NVIDIA

namespace kiln {

enum : int {
  kTilePartSteps = 16,
  kTileParts = 16,  // that are not added one after the other, at most
};

// `Shape` is of the kernel, and says:
//   Weight, Activation     the types of weights and of x
//   lanes                  elements of a vector
//   steps_per_group        that share a scale
//   columns                vectors x
//   sums                   of each row: 1, or 2 whose weights take turns as the rows of a tile
//   has_bias               a weight is weight * scale + bias
//   has_zero_point         a weight is (weight - zero point) * scale
//   threads                of a block
//   steps, sets            a row has `sets` sets of `steps` steps; waves take one set at a time
//   run                    sets that a wave takes one after the other: a part of a part
//   whole                  the last set is complete
//   prefetch               waves load the next set before they multiply
//   x_in_smem              a block keeps x in shared memory; else it is loaded for each tile
//   prologue               a block computes x (prologue.h), and has it in shared memory then
//   staged                 waves copy sets of weights to shared memory, in chunks of 16 bytes
//   beside                 tiles of a block, side by side in memory; 0: a row's weights are
//                          neighbours, and a block has one tile at a time
//   copied                 then: bytes of rows that are copied at a time; less than 4: rows begin
//                          with any byte
//   rounds                 of tiles whose runs are in shared memory at a time: 1, or 2 where blocks
//                          take several tiles
//
// Different x go to different columns of the instruction. Where that leaves columns over, they
// repeat, and threads with equal columns take different steps on.
template <class Shape>
struct Tiling {
  using T = typename Shape::Weight;
  using X = typename Shape::Activation;
  enum : int {
    kLanes = Shape::lanes,
    kStepsPerGroup = Shape::steps_per_group,
    kColumns = Shape::columns,
    kSums = Shape::sums,
    kThreads = Shape::threads,
    kSteps = Shape::steps,
    kSets = Shape::sets,
    kRun = Shape::run,
    kRounds = Shape::rounds,
    kBeside = Shape::beside == 0 ? 1 : int(Shape::beside),
    kCopied = Shape::copied,
  };
  enum : bool {
    kHasBias = Shape::has_bias,
    kHasZeroPoint = Shape::has_zero_point,
    kHasOffset = kHasBias || kHasZeroPoint,
    kPrefetch = Shape::prefetch,
    kXInSmem = Shape::x_in_smem,
    kPrologue = Shape::prologue,
    kWhole = Shape::whole,
    kStaged = Shape::staged,
    kAcross = Shape::beside != 0,
  };
  enum : int {
    kBlockWaves = kThreads / 32,
    kWaves = kBlockWaves / kBeside,                    // of a tile
    kTurns = (kSets + kBlockWaves - 1) / kBlockWaves,  // of a wave that stages x
    kRuns = (kSets + kRun - 1) / kRun,
    // Of runs that are not added one after the other.
    kSlots = kSets * kSteps <= kTilePartSteps * kTileParts ? int(kRuns) : int(kTileParts),
    kVectors = kColumns <= 2                 ? int(kColumns)
               : kColumns <= 4 && kSteps > 4 ? 4
                                             : 8,
    kLeast = 8 / kSteps < 2 ? 2 : 8 / kSteps,
    kUsed = kVectors < kLeast ? kLeast : kVectors,  // columns
  };
  static_assert((kRun & (kRun - 1)) == 0 && (kSteps & (kSteps - 1)) == 0 &&
                    (kSets * kSteps <= kTilePartSteps * kTileParts ||
                     kRun * kSteps == kTilePartSteps),
                "Tiling: runs are parts, or are combined in pairs as parts and their steps are");
  enum : int {
    kColumnThreads = kUsed / 2,               // threads with different columns
    kOwnSteps = kSteps * kColumnThreads / 4,  // that a thread takes on
    // Whose groups' factors a thread computes for all four threads of its row.
    kGroupSteps = kSteps < 4 ? 1 : kSteps / 4,
    kOwnVectors = kVectors == 1 ? 1 : 2,  // of a thread's two columns
  };

  // Chunks of 16 bytes: of a vector, of a step and of a set of x (all columns).
  enum : int {
    kChunks = kLanes / 8,
    kStepChunks = kChunks * kColumns * 4,
    kSetChunks = kSteps * kStepChunks,
    kAllChunks = kXInSmem ? kSets * kSetChunks : 0,
  };

  static __device__ __forceinline__ int thread() { return int(threadIdx.x) % 4; }
  static __device__ __forceinline__ int row() { return int(threadIdx.x) % 32 / 4; }
  // The tile of a wave among those side by side, and the number of the wave among those of its
  // tile.
  static __device__ __forceinline__ u32 beside() { return threadIdx.x / 32 % kBeside; }
  static __device__ __forceinline__ u32 wave() { return threadIdx.x / 32 / kBeside; }
  // Of a tile: the two rows of a thread.
  static __device__ __forceinline__ int own_row(int r) {
    return kAcross ? row() * 2 + r : row() + r * 8;
  }

  // Rows side by side. A matrix instruction takes those of 16 bits of a line: where weights have
  // four bits, two tiles share the rows of a chunk of 16 bytes. Tiles of two sums take turns.
  enum : int {
    kUnitRows = 16 / lane_bits<T>(),
    kTilesOfChunk = kAcross ? kUnitRows / 2 : 1,
    kRowsBeside = 16 * kBeside / kSums,  // of one sum
  };
  static_assert(kBeside % (kAcross ? kSums * kTilesOfChunk : 1) == 0,
                "Tiling: whole chunks of each sum");
  // Row `i` of the block's tiles.
  static __device__ __forceinline__ u32 row_of(u32 block, u32 i) {
    if constexpr (!kAcross) return block * 16 + i;
    const u32 tile = i / 16 / kSums;
    const u32 of_chunk = i % 16 / 2 * kUnitRows + tile % kTilesOfChunk * 2 + i % 2;
    const u32 of_sum = block * kRowsBeside + tile / kTilesOfChunk * (8 * kUnitRows) + of_chunk;
    return of_sum * kSums + i / 16 % kSums;
  }
  static __device__ __forceinline__ u32 own_row_of(u32 block, int r) {
    return row_of(block, beside() * 16 + own_row(r));
  }
  static __device__ __forceinline__ int vector_of_column(int n) {
    const int vector = n % kVectors;
    return vector < kColumns ? vector : kColumns - 1;
  }
  // The group of a step, of the last one for those past the end of a row.
  static __device__ __forceinline__ u32 group_of_step(u32 step, u32 vectors) {
    const u32 most = (vectors - 1) / 4;
    return (kWhole || step < most ? step : most) / kStepsPerGroup;
  }
  static __device__ __forceinline__ int first_column() { return thread() % kColumnThreads * 2; }
  static __device__ __forceinline__ int first_step() {
    return thread() / kColumnThreads * kOwnSteps;
  }
};

// A barrier for the threads of a team of waves. Each team has its own; barrier 0 is the block's.
template <int Threads>
KILN_FN void synchronize_team(u32 team) {
  asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(Threads) : "memory");
}

// Where x is there already.
struct NoPrologue {
  static __device__ __forceinline__ void load_early() {}
  static __device__ __forceinline__ void load() {}
  static __device__ __forceinline__ void finish() {}
};

// What steps give, combined in pairs of neighbours, then pairs of these, and so on.
template <int Step = 1, int Count>
KILN_FN f32 sum_of_neighbours(f32 (&values)[Count]) {
  if constexpr (Step >= Count) {
    return values[0];
  } else {
    KILN_EACH(i, Count - Step) {
      if (i % (2 * Step) == 0) values[i] += values[i + Step];
    }
    return sum_of_neighbours<Step * 2>(values);
  }
}

// The sets of a wave, in the order in which it takes them: those of a run, then the other runs that
// are added to that one, then the next ones.
template <class Tiles>
struct SetPlace {
  u32 slot;
  u32 run;
  u32 of_run;
  __device__ __forceinline__ u32 set() const { return run * Tiles::kRun + of_run; }
  __device__ __forceinline__ bool ends_run() const {
    return Tiles::kRun == 1 || of_run == Tiles::kRun - 1 ||
           (Tiles::kSets % Tiles::kRun != 0 && set() == Tiles::kSets - 1);
  }
  __device__ __forceinline__ bool ends_slot() const {
    return ends_run() && (Tiles::kRuns == Tiles::kSlots || run + Tiles::kSlots >= Tiles::kRuns);
  }
  __device__ __forceinline__ bool is_last() const {
    return ends_slot() && (Tiles::kSlots <= Tiles::kWaves || slot + Tiles::kWaves >= Tiles::kSlots);
  }
  __device__ __forceinline__ SetPlace next() const {
    if (!ends_run()) return {slot, run, of_run + 1};
    if (!ends_slot()) return {slot, run + Tiles::kSlots, 0};
    return {slot + Tiles::kWaves, slot + Tiles::kWaves, 0};
  }
};

// What the sets of a wave give, one after the other. Those of a run are combined in pairs.
template <class Tiles>
struct RunSums {
  Turns<f32, Tiles::kRun, 1> of_run;
  f32 of_slot = 0.0f;
  // Adds a set; where it is the last one of a slot, gives what the slot has come to. Sets past the
  // end of a row are 0.
  __device__ __forceinline__ f32 add(const SetPlace<Tiles>& place, f32 of_set) {
    f32 value[1] = {of_set};
    of_run.template add<Sum>(place.of_run, value);
    if constexpr (Tiles::kSets % Tiles::kRun != 0) {
      if (place.ends_run()) {
        _Pragma("unroll 1") for (u32 past = place.of_run + 1; past < Tiles::kRun; ++past) {
          value[0] = 0.0f;
          of_run.template add<Sum>(past, value);
        }
      }
    }
    if constexpr (Tiles::kRuns > Tiles::kSlots) {
      if (place.ends_run()) of_slot += value[0];
      value[0] = of_slot;
      if (place.ends_slot()) of_slot = 0.0f;
    }
    return value[0];
  }
};

template <class Tiles>
struct TileMemory {
  // x permuted as weights are (in_order), by step, chunk, column and thread.
  alignas(16) u32 x[(Tiles::kXInSmem ? int(Tiles::kAllChunks) : 1) * 4];
  // The sums of x for each step.
  f32 sum[Tiles::kXInSmem ? Tiles::kAllChunks / Tiles::kStepChunks : 1][Tiles::kColumns];
  f32 slot[Tiles::kRounds * Tiles::kBeside][Tiles::kSlots][16 * Tiles::kColumns];
  f32 result[Tiles::kBeside * 16 * Tiles::kColumns];
};

// A chunk of x in the order in which weight_pair() takes weights out of a word.
template <class Tiles>
KILN_FN Chunk<16> in_order(const Chunk<16>& natural) {
  if constexpr (!is_packed<typename Tiles::T>()) return natural;
  Chunk<16> pairs;
  KILN_EACH(half, 2) {
    pairs.word[2 * half] = __byte_perm(natural.word[half], natural.word[half + 2], 0x5410);
    pairs.word[2 * half + 1] = __byte_perm(natural.word[half], natural.word[half + 2], 0x7632);
  }
  return pairs;
}

// Copies this wave's share of x to shared memory, with zeros past its end. All threads of the block
// call it, and synchronise before they read what others have copied.
template <class Tiles, class Vector>
KILN_FN void stage_vectors(TileMemory<Tiles>& memory, const Vector& vector_of, u32 vectors) {
  constexpr int kOfColumn = Tiles::kSteps * 4 * Tiles::kChunks;  // chunks of a set
  constexpr int kParts = (kOfColumn + 31) / 32;
  Chunk<16>* const to = (Chunk<16>*)memory.x;
  const u32 lane = threadIdx.x % 32;
  KILN_EACH(turn, Tiles::kTurns) {
    const u32 set = turn * Tiles::kBlockWaves + threadIdx.x / 32;
    if (Tiles::kSets % Tiles::kBlockWaves != 0 && set >= Tiles::kSets) break;
    KILN_EACH(column, Tiles::kColumns) {
      const Chunk<16>* const from = (const Chunk<16>*)vector_of(u32(column)) + set * kOfColumn;
      KILN_EACH(part, kParts) {
        const u32 at = part * 32 + lane;
        const u32 vector = at / Tiles::kChunks;  // of the set
        Chunk<16> chunk = {};
        const bool there = kOfColumn % 32 == 0 || at < kOfColumn;
        if (there && (Tiles::kWhole || set * (Tiles::kSteps * 4) + vector < vectors)) {
          chunk = from[at];
        }
        const u32 step = set * Tiles::kSteps + vector / 4;
        const u32 row = step * Tiles::kChunks + at % Tiles::kChunks;
        if (there) to[(row * Tiles::kColumns + column) * 4 + vector % 4] = in_order<Tiles>(chunk);
      }
    }
  }
}

}  // namespace kiln

#endif
