// How rows of weights and the vectors that they are multiplied with lie in the threads of a wave
// and in the memory of a block, where the instruction of product_tiles.h multiplies them.
//
// Threads 4 g + t of a wave have the rows g and g + 8 of its tile and, of each step of four
// neighbouring vectors of a row, vector t. Column n of the instruction's result comes to the
// threads t = n / 2, of their rows.
#pragma once

#if KILN_NVIDIA

namespace kiln {

// What there is of a line beside its scale: weight * scale, weight * scale + bias, or
// (weight - point) * scale.
enum class TileRest { none, bias, point };

// `Sharers` of the four vectors of a step (1, 2 or 4) are of one line, and have the same scale.
// What is of different lines goes to different columns, as what is of different vectors x does.
// Where that leaves columns over, they repeat, and threads that have the same ones take different
// steps on. A row has `Sets` of `Steps` each, the last of which may be a part unless `Whole`; waves
// take one at a time, in turn, and with `Ahead` load the next before they multiply. Where four
// vectors are of one line, so are `StepsOfLine` steps. `Placed` blocks keep x in memory that they
// share, others load it for each tile.
template <class Weight, class Factor, int Lanes, int Sharers, int StepsOfLine, int Columns,
          TileRest Rest, int Threads, int Steps, int Sets, bool Whole, bool Ahead, bool Placed>
struct Tiling {
  using T = Weight;
  using X = Factor;
  enum : int {
    kLanes = Lanes,
    kSharers = Sharers,
    kColumns = Columns,
    kThreads = Threads,
  };
  enum : bool {
    kHasRest = Rest != TileRest::none,
    kHasBias = Rest == TileRest::bias,
    kHasPoint = Rest == TileRest::point,
    kAhead = Ahead,
    kPlaced = Placed,
    kWhole = Whole,
  };
  enum : int {
    kSets = Sets,
    kTurns = (Sets + Threads / 32 - 1) / (Threads / 32),  // of a wave
  };

  enum : int {
    kSteps = Steps,
    kWaves = Threads / 32,
    kLines = 4 / Sharers,  // of a step
    kVectors = Columns <= 2   ? Columns
               : Columns <= 4 ? 4
                              : 8,
    kLeast = 8 / Steps < 2 ? 2 : 8 / Steps,
    kUsed = kVectors * kLines < kLeast ? kLeast : kVectors * kLines,  // columns
  };
  static_assert(kUsed <= 8, "Tiling: the instruction has eight columns");
  enum : int {
    kApart = kUsed / 2,              // threads with different columns
    kOwnSteps = Steps * kApart / 4,  // that a thread takes on
  };
  // The two columns of a thread are of two lines, or of two vectors, or the same.
  enum : bool { kByLines = kVectors == 1 };
  enum : int {
    kOwnLines = kByLines && kLines == kUsed ? 2 : 1,
    kOwnVectors = kByLines ? 1 : 2,
    kTerms = kByLines ? kOwnLines : kOwnVectors,
  };
  enum : bool { kRepeats = kVectors * kLines < kUsed && kApart > kLines };  // in neighbours

  // Pieces of x: of a vector, of a step and of a set of all columns; and zeros.
  enum : int {
    kChunks = Lanes / 8,
    kStepChunks = kChunks * Columns * 4,
    kSetChunks = kSteps * kStepChunks,
    kAllChunks = Placed ? Sets * kSetChunks : 0,
    kZeroChunks = kPlaced && kLines > 1 ? kSetChunks : 0,
    // Half the banks away from x, so that neighbours that read one and the other do not wait.
    kZeros = kAllChunks + 4,
  };

  static __device__ __forceinline__ int thread() { return int(threadIdx.x) % 4; }
  static __device__ __forceinline__ int row() { return int(threadIdx.x) % 32 / 4; }
  static __device__ __forceinline__ int line_of_column(int n) {
    return (!kByLines ? n / kVectors : kOwnLines == 2 ? n : n / 2) % kLines;
  }
  static __device__ __forceinline__ int vector_of_column(int n) {
    const int vector = kByLines ? 0 : n % kVectors;
    return vector < Columns ? vector : Columns - 1;
  }
  // Which of its neighbours has a line's columns.
  static __device__ __forceinline__ int owner_of_line(int line) {
    return !kByLines ? line * kVectors / 2 : kOwnLines == 2 ? line / 2 : line;
  }
  // The number in its row of a line of a step, or the last one's.
  static __device__ __forceinline__ u32 line_of_step(u32 step, int line, u32 vectors) {
    const u32 number = step * kLines + line;  // as if lines had no more than the step
    const u32 most = (vectors - 1) / Sharers;
    return (Whole || number < most ? number : most) / (Sharers == 4 ? StepsOfLine : 1);
  }
  static __device__ __forceinline__ int first_column() { return thread() % kApart * 2; }
  static __device__ __forceinline__ int first_step() { return thread() / kApart * kOwnSteps; }
};

template <class Tiles>
struct TileMemory {
  // x in the order in which weights come: for each step, chunk, vector x and thread; then zeros for
  // the threads whose line is not that of their column.
  alignas(16) u32 x[(Tiles::kPlaced ? Tiles::kZeros + Tiles::kZeroChunks : 1) * 4];
  // Of x, for each step.
  f32 sum[Tiles::kPlaced ? Tiles::kAllChunks / Tiles::kStepChunks : 1][Tiles::kLines]
         [Tiles::kColumns];
  f32 wave[2][Tiles::kWaves][16 * Tiles::kColumns];
  f32 result[16 * Tiles::kColumns];
};

// A piece of x in the order in which the weights come.
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

// What this wave needs of x, with zeros past its end, and the sums of the lines of each step; and
// this thread's share of the zeros that all waves read. All threads of the block call it.
template <class Tiles, class Vector>
KILN_FN void place_vectors(TileMemory<Tiles>& memory, const Vector& vector_of, u32 vectors) {
  using X = typename Tiles::X;
  constexpr int kOfColumn = Tiles::kSteps * 4 * Tiles::kChunks;  // pieces of a set
  constexpr int kOfLine = Tiles::kChunks * Tiles::kSharers;
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
        Chunk<16> piece = {};
        const bool there = kOfColumn % 32 == 0 || at < kOfColumn;
        if (there && (Tiles::kWhole || set * (Tiles::kSteps * 4) + vector < vectors)) {
          piece = from[at];
        }
        const u32 step = set * Tiles::kSteps + vector / 4;
        const u32 row = step * Tiles::kChunks + at % Tiles::kChunks;
        if (there) to[(row * Tiles::kColumns + column) * 4 + vector % 4] = in_order<Tiles>(piece);
        if constexpr (Tiles::kHasRest) {
          f32 sum = (sum_of_pair(X{}, piece.word[0]) + sum_of_pair(X{}, piece.word[1])) +
                    (sum_of_pair(X{}, piece.word[2]) + sum_of_pair(X{}, piece.word[3]));
          sum = reduce_wave<Sum, kOfLine>(sum);
          if (there && at % kOfLine == 0) {
            memory.sum[step][vector % 4 / Tiles::kSharers][column] = sum;
          }
        }
      }
    }
  }
  // A wave reads no other one's x, but all of the zeros.
  if constexpr (Tiles::kZeroChunks > 0)
    __syncthreads();
  else
    __syncwarp();
}

}  // namespace kiln

#endif
