// What schedules and passes know of the tree by which floats are added up (preamble/tree.h,
// numerics.md): constants, and how parts of a split reduction are subtrees.
#pragma once

#include <bit>
#include <cstdint>

namespace kiln::fusion {

inline constexpr int kTreeChunk = 1 << 15;
inline constexpr int kLeastResidues = 256;
inline constexpr int kMostResidues = 4096;
inline constexpr int kTreeTerms = 4;

/// How many chunks columns of `length` elements have, rounded up to a power of two.
constexpr std::int64_t chunks_of(std::int64_t length) {
  const std::int64_t chunks = length <= kTreeChunk ? 1 : (length - 1) / kTreeChunk + 1;
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(chunks)));
}

/// The chunks of which the parts of split columns are. Part p has of chunk p % count the elements
/// whose numbers are p / count modulo splits / count.
struct PartChunks {
  std::int64_t count = 1;
  std::int64_t length = kTreeChunk;
};

/// A reduction of the parts then ends the tree of the columns, if there are as many parts as chunks
/// or at most kLeastResidues. With fewer parts than chunks all elements are one chunk.
constexpr PartChunks part_chunks(std::int64_t length, std::int64_t splits) {
  const std::int64_t count = chunks_of(length);
  return splits % count == 0 ? PartChunks{count, kTreeChunk} : PartChunks{1, length};
}

}  // namespace kiln::fusion
