#include "fusion/schedule/residency.hpp"

#include <algorithm>

namespace kiln::fusion {
namespace {

constexpr int kRegistersTogether = 8;  // that a thread is given at a time

// What memory could move for a multiprocessor while a block waits, in bytes: for each pass, and
// where blocks of a cluster start and end together. On an H100 one block of 512 threads that keeps
// 128 KiB of columns reaches 0.94 of a copy (softmax of 2,048 f32); on an H200 two blocks of 64 KiB
// each in clusters of eight reach 0.67 (4,096 f16 and f32, three passes), one of 128 KiB 0.51 to
// 0.60 (16,384 bf16).
constexpr std::int64_t kWaitOfPass = 20 << 10;
constexpr std::int64_t kWaitOfClusterPass = 70 << 10;
constexpr std::int64_t kWaitOfCluster = 70 << 10;

// The part of the time of what a block moves that it waits for it; else it computes meanwhile.
constexpr std::int64_t kWaitsPercent = 85;

}  // namespace

int blocks_of_multiprocessor(const ResidentBlock& block) {
  const int registers =
      (block.registers + kRegistersTogether - 1) / kRegistersTogether * kRegistersTogether;
  return std::min({kSharedOfMultiprocessor / (block.shared + kSharedBesideBlock),
                   kRegistersOfMultiprocessor / std::max(1, block.threads * registers),
                   kThreadsOfMultiprocessor / std::max(1, block.threads)});
}

std::int64_t share_of_copy(const ResidentBlock& block, std::int64_t blocks) {
  constexpr std::int64_t kAll = 1000;
  const std::int64_t waits = block.cluster ? kWaitOfCluster + block.passes * kWaitOfClusterPass
                                           : block.passes * kWaitOfPass;
  const std::int64_t whole = waits + block.moved * kWaitsPercent / 100;
  return whole == 0 ? 0 : std::min(kAll, kAll * blocks * block.moved / whole);
}

}  // namespace kiln::fusion
