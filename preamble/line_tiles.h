// Weights of tiles (product_tiles.h) whose neighbours in memory are of neighbouring rows, as those
// of a transposed matrix: the waves of the tiles side by side copy whole lines of them to shared
// memory together, and take them from there by an instruction that transposes blocks of 8 by 8
// units of 16 bits. A unit has the same element of two rows of 8-bit weights, or of four rows of
// 4-bit ones; what a thread gets of some units, it puts into the order in which it would have
// loaded a row's weights.
#pragma once

#include "product_tiles.h"

#if KILN_NVIDIA

namespace kiln {

// Thread 4 g + t gets unit g of rows 2 t and 2 t + 1 of each of four blocks. Row r of block b is
// where thread 8 b + r says.
KILN_FN void load_transposed(u32 (&units)[4], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(units[0]), "=r"(units[1]), "=r"(units[2]), "=r"(units[3])
               : "r"(row));
}

// A set of the rows of the tiles side by side. The elements of a row are in the order in which
// blocks take them: eight neighbours are what the four threads of a row take of a block.
template <class Tiles>
struct StagedLines {
  enum : int {
    kBits = lane_bits<typename Tiles::T>(),
    kStepElements = 4 * Tiles::kLanes,
    kElements = Tiles::kSteps * kStepElements,
    kLineChunks = Tiles::kBeside / Tiles::kTilesOfChunk,
    kTeam = 32 * Tiles::kBeside,  // threads
    kCopies = kElements * kLineChunks / kTeam,
    kParts = Tiles::kCopied < 4 ? 1 : 16 / Tiles::kCopied,  // of a chunk
    kCopiedRows = Tiles::kCopied < 4 ? 8 / kBits : Tiles::kCopied * 8 / kBits,
  };
  static_assert(kCopies * kTeam == kElements * kLineChunks && kLineChunks <= 8 &&
                    (kLineChunks & (kLineChunks - 1)) == 0,
                "StagedLines: all threads copy as much, of lines of up to 128 bytes");
  Chunk<16> chunk[kElements][kLineChunks];

  // Chunks are swizzled, so that the rows of a block are in different banks.
  static __device__ __forceinline__ u32 swizzle(u32 place) {
    return kLineChunks == 8 ? place % 8 : place * kLineChunks / 8 % kLineChunks;
  }
  // The element of a set at a place. Of 4-bit weights two blocks have even elements, and two odd
  // ones, which become the lower and the upper halves of bytes.
  static __device__ __forceinline__ u32 element_at(u32 place) {
    const u32 block = place % kStepElements / 8;
    const u32 second = place % 2;
    const u32 of_thread = kBits == 8 ? block * 2 + second
                                     : block / 4 * 8 + block / 2 % 2 + (block % 2 * 2 + second) * 2;
    return place / kStepElements * kStepElements + place % 8 / 2 * Tiles::kLanes + of_thread;
  }

  // What a thread has in registers of lines that begin anywhere, until it is in shared memory: of
  // each chunk the aligned words that have its bytes, and the bytes before these.
  enum : bool { kAnywhere = Tiles::kCopied < 4 };
  struct Loaded {
    u32 words[kAnywhere ? int(kCopies) : 1][5];
    u32 past[kAnywhere ? int(kCopies) : 1];
  };

  // Begins to copy a set; what has been loaded for that is put there by finish(). Past the end of
  // rows it repeats their last element, past the last row the last ones. `weights_of(row)` gives a
  // function that finds an element of a row.
  template <class Weights>
  __device__ __forceinline__ void begin(Loaded& loaded, u32 block, u32 set, u32 vectors,
                                        u32 row_count, const Weights& weights_of) {
    const u32 of_line = threadIdx.x % kTeam % kLineChunks;
    const u32 last = vectors * Tiles::kLanes - 1;
    const u32 rows = row_count / Tiles::kSums;
    KILN_EACH(part, kParts) {
      const u32 first =
          block * Tiles::kRowsBeside + of_line / Tiles::kSums * (128 / kBits) + part * kCopiedRows;
      const u32 row = least(first, rows - kCopiedRows);
      const auto from = weights_of(row * Tiles::kSums + of_line % Tiles::kSums);
      KILN_EACH(i, kCopies) {
        const u32 at = set * kElements + element_at(place_of(i));
        const u8* const element = (const u8*)from(Tiles::kWhole ? at : least(at, last));
        if constexpr (kAnywhere) {
          load_anywhere(loaded.words[i], loaded.past[i], element, row * kBits / 8,
                        (rows - row) * kBits / 8);
        } else {
          copy_aligned((u8*)&chunk_of(i) + part * Tiles::kCopied, element);
        }
      }
    }
  }
  __device__ __forceinline__ void finish(const Loaded& loaded) {
    if constexpr (kAnywhere) {
      KILN_EACH(i, kCopies) {
        Chunk<16> bytes;
        KILN_EACH(k, 4) {
          bytes.word[k] = __byte_perm(loaded.words[i][k], loaded.words[i][k + 1],
                                      0x3210 + loaded.past[i] * 0x1111);
        }
        chunk_of(i) = bytes;
      }
    }
  }

  // The words of a thread of a step.
  __device__ __forceinline__ void take(TileWords<Tiles> (&words)[2], int step) const {
    const u32 lane = threadIdx.x % 32;
    const u32 tile = Tiles::beside() / Tiles::kSums;
    const u32 of_line = tile / Tiles::kTilesOfChunk * Tiles::kSums + Tiles::beside() % Tiles::kSums;
    const u32 own = u32(__cvta_generic_to_shared(&chunk[lane][of_line ^ swizzle(lane)]));
    KILN_EACH(k, Tiles::kLanes / 8) {
      u32 units[4];
      load_transposed(units, own + (step * kStepElements + k * 32) * kLineChunks * 16);
      if constexpr (kBits == 8) {
        KILN_EACH(r, 2) KILN_EACH(half, 2) {
          words[r].word[k * 2 + half] =
              __byte_perm(units[half * 2], units[half * 2 + 1], r == 0 ? 0x6420 : 0x7531);
        }
      } else {
        const u32 bytes = tile % 2 == 0 ? 0x6420 : 0x7531;
        const u32 even = __byte_perm(units[0], units[1], bytes);
        const u32 odd = __byte_perm(units[2], units[3], bytes);
        words[0].word[k] = select_bits(even, 0x0f0f0f0f, odd << 4 & 0xf0f0f0f0);
        words[1].word[k] = select_bits(even >> 4, 0x0f0f0f0f, odd & 0xf0f0f0f0);
      }
    }
  }

  // The waves of the tiles side by side copy for each other.
  static __device__ __forceinline__ void synchronize() { synchronize_team<kTeam>(Tiles::wave()); }

 private:
  // Of the copies of a thread.
  static __device__ __forceinline__ u32 place_of(int copy) {
    return threadIdx.x % kTeam / kLineChunks + copy * (kTeam / kLineChunks);
  }
  __device__ __forceinline__ Chunk<16>& chunk_of(int copy) {
    const u32 of_line = threadIdx.x % kTeam % kLineChunks;
    return chunk[place_of(copy)][of_line ^ swizzle(place_of(copy))];
  }

  static __device__ __forceinline__ void copy_aligned(const void* to, const u8* from) {
    if constexpr (Tiles::kCopied == 16) {
      copy_chunk(to, from);
    } else {
      copy_part<Tiles::kCopied>(u32(__cvta_generic_to_shared(to)), from);
    }
  }

  // Loads 16 bytes of a line, `before` bytes behind its beginning, with `left` bytes to its end: in
  // aligned words where all of these are of the line.
  static __device__ __forceinline__ void load_anywhere(u32 (&words)[5], u32& past, const u8* from,
                                                       u32 before, u32 left) {
    past = u32(u64(from) % 4);
    if (past <= before && left + past >= 20) {
      KILN_EACH(i, 5) words[i] = ((const u32*)(from - past))[i];
      return;
    }
    past = 0;
    words[4] = 0;
    KILN_EACH(i, 4) {
      words[i] = 0;
      KILN_EACH(k, 4) words[i] |= u32(from[least(u32(i * 4 + k), left - 1)]) << k * 8;
    }
  }
};

}  // namespace kiln

#endif
