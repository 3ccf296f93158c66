// What schedules and emitters know of the tree by which floats are added up (preamble/tree.h,
// numerics.md).
#pragma once

namespace kiln::fusion {

inline constexpr int kTreeChunk = 1 << 15;
inline constexpr int kLeastResidues = 256;
inline constexpr int kMostResidues = 4096;
inline constexpr int kTreeTerms = 4;

/// Rows of GPUs follow the tree up to this many elements.
inline constexpr int kLongestTreeRow = kTreeChunk;

}  // namespace kiln::fusion
