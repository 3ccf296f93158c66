// Who writes which memory of a block: the device code of tiles for NVIDIA's GPUs
// (preamble/tiling.h), run by the host one thread after the other.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#define __CUDACC__ 1
#define __CUDA_ARCH__ 0
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __global__
#define __shared__ static
#define __launch_bounds__(...)
#define __syncthreads() (void(++barriers))
#define __syncwarp() (void(0))
#define __syncthreads_and(value) (value)

namespace {

struct Place {
  unsigned x, y, z;
};
Place threadIdx, blockIdx, gridDim;
int barriers = 0;

unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(high) << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<unsigned>(bytes >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
  return result;
}
// No other thread runs beside this one.
unsigned __shfl_xor_sync(unsigned, unsigned value, int) { return value; }
unsigned __shfl_up_sync(unsigned, unsigned value, int) { return value; }
unsigned __shfl_sync(unsigned, unsigned value, int) { return value; }
unsigned __cvta_generic_to_shared(const void*) { return 0; }
unsigned atomicCAS(unsigned* at, unsigned, unsigned) { return *at; }
float rsqrtf(float x) { return 1 / std::sqrt(x); }
double rsqrt(double x) { return 1 / std::sqrt(x); }
float normcdff(float);
double normcdf(double);
float erfinvf(float);
double erfinv(double);

}  // namespace

#include "preamble/tiling.h"

namespace kiln {
namespace {

// Which threads of a block write each byte: what differs from either of two patterns.
template <class Tiles>
std::vector<std::vector<int>> writers_of_bytes(u32 vectors) {
  std::vector<Chunk<16>> x(Tiles::kSets * Tiles::kSetChunks);
  std::memset(x.data(), 0x11, x.size() * sizeof x[0]);
  std::vector<std::vector<int>> writers(sizeof(TileMemory<Tiles>));
  for (int thread = 0; thread < Tiles::kThreads; ++thread) {
    threadIdx = {unsigned(thread), 0, 0};
    std::vector<unsigned char> seen(writers.size());
    for (const int pattern : {0x55, 0xaa}) {
      alignas(16) TileMemory<Tiles> memory;
      std::memset(&memory, pattern, sizeof memory);
      stage_vectors(
          memory, [&](u32) { return x.data(); }, vectors);
      const auto* bytes = reinterpret_cast<const unsigned char*>(&memory);
      for (std::size_t i = 0; i < writers.size(); ++i) seen[i] |= bytes[i] != pattern;
    }
    for (std::size_t i = 0; i < writers.size(); ++i)
      if (seen[i] != 0) writers[i].push_back(thread);
  }
  return writers;
}

template <class Tiles>
void expect_one_writer(u32 vectors) {
  barriers = 0;
  const auto writers = writers_of_bytes<Tiles>(vectors);
  for (std::size_t i = 0; i < writers.size(); ++i)
    ASSERT_LE(writers[i].size(), 1U)
        << "byte " << i << ", threads " << writers[i][0] << " and " << writers[i].back();
  // What threads of other waves read, a barrier comes after.
  EXPECT_EQ(barriers, Tiles::kZeroChunks > 0 ? 2 * Tiles::kThreads : 0);
  constexpr std::size_t kZeros = std::size_t{Tiles::kZeros} * 16;
  for (std::size_t i = kZeros; i < kZeros + std::size_t{Tiles::kZeroChunks} * 16; ++i)
    ASSERT_EQ(writers[i].size(), 1U) << "no thread makes byte " << i << " zero";
}

template <class W, int Lanes, int VectorsPerGroup, int Columns, bool HasBias, int Threads,
          int Steps, int Sets, bool Whole>
struct Shape {
  using Weight = W;
  using Activation = bf16;
  enum : int {
    lanes = Lanes,
    vectors_per_group = VectorsPerGroup,
    steps_per_group = 1,
    columns = Columns,
    sums = 1,
    threads = Threads,
    steps = Steps,
    sets = Sets,
  };
  enum : bool {
    has_bias = HasBias,
    has_zero_point = false,
    whole = Whole,
    prefetch = false,
    x_in_smem = true,
  };
};

TEST(Tiling, NoTwoThreadsWriteTheSameMemory) {
  expect_one_writer<Tiling<Shape<u4, 32, 1, 1, true, 256, 4, 8, true>>>(128);
  expect_one_writer<Tiling<Shape<u4, 32, 2, 2, false, 128, 4, 6, false>>>(90);
  expect_one_writer<Tiling<Shape<i4, 32, 1, 2, false, 128, 2, 16, true>>>(128);
  expect_one_writer<Tiling<Shape<u4, 32, 4, 1, true, 256, 4, 8, true>>>(128);
}

}  // namespace
}  // namespace kiln
