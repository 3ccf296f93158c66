// How much a multiprocessor has on chip and in flight at a time, and what part of a copy's speed
// that allows: blocks load what they keep, compute, and store, and while some wait the others move
// data.
#pragma once

#include <cstdint>

namespace kiln::fusion {

/// What a multiprocessor has for its blocks: the NVIDIA GPUs whose blocks keep rows and columns in
/// shared memory, from 9.0 to 10.3.
inline constexpr int kSharedOfMultiprocessor = 228 << 10;
inline constexpr int kSharedBesideBlock = 1 << 10;
inline constexpr int kRegistersOfMultiprocessor = 1 << 16;
inline constexpr int kThreadsOfMultiprocessor = 2048;

/// A block that keeps all that it reads until it stores.
struct ResidentBlock {
  int threads = 0;
  int registers = 0;       ///< that a thread needs
  int shared = 0;          ///< bytes
  std::int64_t moved = 0;  ///< bytes that it loads and stores, each once
  int passes = 1;          ///< over what it keeps, each of which ends with a barrier
  bool cluster = false;    ///< at which other blocks wait too
};

/// How many of them a multiprocessor has room for.
int blocks_of_multiprocessor(const ResidentBlock& block);

/// The part of a copy's speed, in thousandths, that `blocks` of them reach: what they move at a
/// time beside what memory could move while one of them starts, loads, waits at its barriers and
/// stores.
std::int64_t share_of_copy(const ResidentBlock& block, std::int64_t blocks);

}  // namespace kiln::fusion
