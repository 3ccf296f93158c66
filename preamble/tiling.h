// Which thread has which weights and which part of x, where a matrix instruction multiplies them
// (product_tiles.h). A group is the weights that share a scale, and a bias or a zero point.
//
// A wave has a tile of sixteen rows and takes four neighbouring vectors of each at a time: a step.
// Thread 4 g + t has vector t of rows g and g + 8. Column n of the instruction's result comes to
// the threads t = n / 2, for their two rows.
#pragma once

#include "dependents.h"
#include "weight_pairs.h"

#if KILN_NVIDIA

namespace kiln {

// `Shape` is of the kernel, and says:
//   Weight, Activation     the types of weights and of x
//   lanes                  elements of a vector
//   vectors_per_group      of the four vectors of a step, those that share a scale: 1, 2 or 4
//   steps_per_group        if all four do, the steps that share it
//   columns                vectors x
//   sums                   of each row: 1, or 2 whose weights take turns as the rows of a tile
//   has_bias               a weight is weight * scale + bias
//   has_zero_point         a weight is (weight - zero point) * scale
//   threads                of a block
//   steps, sets            a row has `sets` sets of `steps` steps; waves take one set at a time
//   whole                  the last set is complete
//   prefetch               waves load the next set before they multiply
//   x_in_smem              a block keeps x in shared memory; else it is loaded for each tile
//   prologue               a block computes x (prologue.h), and has it in shared memory then
//
// Vectors of different groups go to different columns of the instruction, as different x do. Where
// that leaves columns over, they repeat, and threads with equal columns take different steps on.
template <class Shape>
struct Tiling {
  using T = typename Shape::Weight;
  using X = typename Shape::Activation;
  enum : int {
    kLanes = Shape::lanes,
    kVectorsPerGroup = Shape::vectors_per_group,
    kStepsPerGroup = Shape::steps_per_group,
    kColumns = Shape::columns,
    kSums = Shape::sums,
    kThreads = Shape::threads,
    kSteps = Shape::steps,
    kSets = Shape::sets,
  };
  enum : bool {
    kHasBias = Shape::has_bias,
    kHasZeroPoint = Shape::has_zero_point,
    kHasOffset = kHasBias || kHasZeroPoint,
    kPrefetch = Shape::prefetch,
    kXInSmem = Shape::x_in_smem,
    kPrologue = Shape::prologue,
    kWhole = Shape::whole,
  };
  enum : int {
    kWaves = kThreads / 32,
    kTurns = (kSets + kWaves - 1) / kWaves,  // of a wave
    kGroups = 4 / kVectorsPerGroup,          // of a step
    kVectors = kColumns <= 2                  ? int(kColumns)
               : kColumns <= 4 && kGroups > 1 ? 4
                                              : 8,
    kLeast = 8 / kSteps < 2 ? 2 : 8 / kSteps,
    kUsed = kVectors * kGroups < kLeast ? kLeast : kVectors * kGroups,  // columns
  };
  static_assert(kUsed <= 8, "Tiling: the instruction has eight columns");
  enum : int {
    kColumnThreads = kUsed / 2,               // threads with different columns
    kOwnSteps = kSteps * kColumnThreads / 4,  // that a thread takes on
  };
  // The two columns of a thread are of two groups, or of two vectors, or the same.
  enum : bool { kByGroups = kVectors == 1 };
  enum : int {
    kOwnGroups = kByGroups && kGroups == kUsed ? 2 : 1,
    kOwnVectors = kByGroups ? 1 : 2,
    kTerms = kByGroups ? kOwnGroups : kOwnVectors,
  };
  enum : bool {
    kRepeats = kVectors * kGroups < kUsed && kColumnThreads > kGroups
  };  // in neighbours

  // Chunks of 16 bytes: of a vector, of a step and of a set of x (all columns); and zeros.
  enum : int {
    kChunks = kLanes / 8,
    kStepChunks = kChunks * kColumns * 4,
    kSetChunks = kSteps * kStepChunks,
    kAllChunks = kXInSmem ? kSets * kSetChunks : 0,
    kZeroChunks = kXInSmem && kGroups > 1 ? kSetChunks : 0,
    // Half the banks away from x, so that one thread reading x and another zeros do not conflict.
    kZeros = kAllChunks + 4,
  };

  static __device__ __forceinline__ int thread() { return int(threadIdx.x) % 4; }
  static __device__ __forceinline__ int row() { return int(threadIdx.x) % 32 / 4; }
  static __device__ __forceinline__ int group_of_column(int n) {
    return (!kByGroups ? n / kVectors : kOwnGroups == 2 ? n : n / 2) % kGroups;
  }
  static __device__ __forceinline__ int vector_of_column(int n) {
    const int vector = kByGroups ? 0 : n % kVectors;
    return vector < kColumns ? vector : kColumns - 1;
  }
  // Which of its four threads has a group's columns.
  static __device__ __forceinline__ int owner_of_group(int group) {
    return !kByGroups ? group * kVectors / 2 : kOwnGroups == 2 ? group / 2 : group;
  }
  // The index within the row of group `group` of a step, clamped to the last group.
  static __device__ __forceinline__ u32 group_of_step(u32 step, int group, u32 vectors) {
    const u32 number = step * kGroups + group;  // as if groups had no more than the step
    const u32 most = (vectors - 1) / kVectorsPerGroup;
    return (kWhole || number < most ? number : most) / (kVectorsPerGroup == 4 ? kStepsPerGroup : 1);
  }
  static __device__ __forceinline__ int first_column() { return thread() % kColumnThreads * 2; }
  static __device__ __forceinline__ int first_step() {
    return thread() / kColumnThreads * kOwnSteps;
  }
};

// Where x is there already.
struct NoPrologue {
  static __device__ __forceinline__ void load_early() {}
  static __device__ __forceinline__ void load() {}
  static __device__ __forceinline__ void finish() {}
};

template <class Tiles>
struct TileMemory {
  // x permuted as weights are (in_order), by step, chunk, column and thread; then zeros for the
  // threads whose group is not that of their column.
  alignas(16) u32 x[(Tiles::kXInSmem ? Tiles::kZeros + Tiles::kZeroChunks : 1) * 4];
  // The sums of x for each step.
  f32 sum[Tiles::kXInSmem ? Tiles::kAllChunks / Tiles::kStepChunks : 1][Tiles::kGroups]
         [Tiles::kColumns];
  f32 wave[2][Tiles::kWaves][16 * Tiles::kColumns];
  f32 result[16 * Tiles::kColumns];
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

KILN_FN f32 sum_of_pair(bf16, u32 pair) {
  return bit_cast<f32>(pair << 16) + bit_cast<f32>(pair & 0xffff0000u);
}
KILN_FN f32 sum_of_pair(f16, u32 pair) {
  return to<f32>(f16{u16(pair)}) + to<f32>(f16{u16(pair >> 16)});
}

// Copies this wave's part of x to shared memory, with zeros past its end, and sums it over the
// groups of each step; also writes this thread's share of the zeros that all waves read. All
// threads of the block call it.
template <class Tiles, class Vector>
KILN_FN void stage_vectors(TileMemory<Tiles>& memory, const Vector& vector_of, u32 vectors) {
  using X = typename Tiles::X;
  constexpr int kOfColumn = Tiles::kSteps * 4 * Tiles::kChunks;  // chunks of a set
  constexpr int kOfGroup = Tiles::kChunks * Tiles::kVectorsPerGroup;
  constexpr int kParts = (kOfColumn + 31) / 32;
  Chunk<16>* const to = (Chunk<16>*)memory.x;
  const u32 lane = threadIdx.x % 32;
  KILN_EACH(i, (Tiles::kZeroChunks + Tiles::kThreads - 1) / Tiles::kThreads) {
    const u32 at = i * Tiles::kThreads + threadIdx.x;
    if (at < Tiles::kZeroChunks) to[Tiles::kZeros + at] = {};
  }
  KILN_EACH(turn, Tiles::kTurns) {
    const u32 set = turn * Tiles::kWaves + threadIdx.x / 32;
    if (Tiles::kSets % Tiles::kWaves != 0 && set >= Tiles::kSets) break;
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
        if constexpr (Tiles::kHasOffset) {
          f32 sum = (sum_of_pair(X{}, chunk.word[0]) + sum_of_pair(X{}, chunk.word[1])) +
                    (sum_of_pair(X{}, chunk.word[2]) + sum_of_pair(X{}, chunk.word[3]));
          sum = reduce_wave<Sum, kOfGroup>(sum);
          if (there && at % kOfGroup == 0) {
            memory.sum[step][vector % 4 / Tiles::kVectorsPerGroup][column] = sum;
          }
        }
      }
    }
  }
  // A wave reads only its own part of x, but all of the zeros.
  if constexpr (Tiles::kZeroChunks > 0)
    __syncthreads();
  else
    __syncwarp();
}

}  // namespace kiln

#endif
