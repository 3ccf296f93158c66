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

  // Copies a set. Past the end of rows it repeats their last element, past the last row the last
  // ones. `weights_of(row)` gives a function that finds an element of a row.
  template <class Weights>
  __device__ __forceinline__ void copy(u32 block, u32 set, u32 vectors, u32 row_count,
                                       const Weights& weights_of) {
    const u32 thread = threadIdx.x % kTeam;
    const u32 of_line = thread % kLineChunks;
    const u32 last = vectors * Tiles::kLanes - 1;
    const u32 rows = row_count / Tiles::kSums;
    KILN_EACH(part, kParts) {
      const u32 first =
          block * Tiles::kRowsBeside + of_line / Tiles::kSums * (128 / kBits) + part * kCopiedRows;
      const u32 row = least(first, rows - kCopiedRows);
      const auto from = weights_of(row * Tiles::kSums + of_line % Tiles::kSums);
      KILN_EACH(i, kCopies) {
        const u32 place = thread / kLineChunks + i * (kTeam / kLineChunks);
        const u32 at = set * kElements + element_at(place);
        const u8* const element = (const u8*)from(Tiles::kWhole ? at : least(at, last));
        u8* const to = (u8*)&chunk[place][of_line ^ swizzle(place)] + part * (16 / kParts);
        if constexpr (kParts == 1 && Tiles::kCopied != 16) {
          copy_unaligned(*(Chunk<16>*)to, element, row * kBits / 8, (rows - row) * kBits / 8);
        } else if constexpr (kParts == 1) {
          copy_chunk(to, element);
        } else {
          copy_part<Tiles::kCopied>(u32(__cvta_generic_to_shared(to)), element);
        }
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
  // 16 bytes of a line that begin anywhere, `before` bytes behind its beginning, with `left` bytes
  // to its end: out of aligned words where these are of the line.
  static __device__ __forceinline__ void copy_unaligned(Chunk<16>& to, const u8* from, u32 before,
                                                        u32 left) {
    const u32 past = u32(u64(from) % 4);
    Chunk<16> result;
    if (past <= before && left + past >= 20) {
      u32 words[5];
      KILN_EACH(i, 5) words[i] = ((const u32*)(from - past))[i];
      KILN_EACH(i, 4) {
        result.word[i] = __byte_perm(words[i], words[i + 1], 0x3210 + past * 0x1111);
      }
    } else {
      KILN_EACH(i, 4) {
        result.word[i] = 0;
        KILN_EACH(k, 4) { result.word[i] |= u32(from[least(u32(i * 4 + k), left - 1)]) << k * 8; }
      }
    }
    to = result;
  }
};

}  // namespace kiln

#endif
