// What schedules and emitters know of the tree by which floats are added up (preamble/tree.h,
// numerics.md).
#pragma once

namespace kiln::fusion {

inline constexpr int kTreeChunk = 1 << 15;
inline constexpr int kLeastResidues = 256;
inline constexpr int kMostResidues = 4096;
inline constexpr int kTreeTerms = 4;
inline constexpr int kMostParts = 512;

}  // namespace kiln::fusion
