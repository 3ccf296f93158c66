// Who writes which memory of a block: the device code of tiles for NVIDIA's GPUs
// (preamble/tiling.h), run by the host one thread after the other.
#include <gtest/gtest.h>

#include <algorithm>
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
unsigned __funnelshift_r(unsigned low, unsigned high, unsigned bits) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> bits % 32);
}
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
  for (std::size_t i = 0; i < std::size_t{Tiles::kAllChunks} * 16; ++i)
    ASSERT_EQ(writers[i].size(), 1U) << "no thread writes byte " << i;
}

template <class W, int Lanes, int Columns, bool HasBias, int Threads, int Steps, int Sets,
          bool Whole, int Run = 1>
struct Shape {
  using Weight = W;
  using Activation = bf16;
  enum : int {
    lanes = Lanes,
    steps_per_group = 1,
    columns = Columns,
    sums = 1,
    threads = Threads,
    steps = Steps,
    sets = Sets,
    run = Run,
    rounds = 1,
    beside = 0,
    copied = 16,
  };
  enum : bool {
    has_bias = HasBias,
    has_zero_point = false,
    whole = Whole,
    prefetch = false,
    x_in_smem = true,
    staged = false,
    prologue = false,
  };
};

TEST(Tiling, NoTwoThreadsWriteTheSameMemory) {
  expect_one_writer<Tiling<Shape<u4, 16, 1, true, 256, 4, 8, true>>>(128);
  expect_one_writer<Tiling<Shape<u4, 16, 2, false, 128, 4, 6, false>>>(90);
  expect_one_writer<Tiling<Shape<i4, 8, 2, false, 128, 2, 16, true>>>(128);
  expect_one_writer<Tiling<Shape<u4, 16, 1, true, 256, 8, 8, true>>>(256);
}

// The order of tiling.h, as it is defined.
float sum_of_steps(const std::vector<float>& steps) {
  const auto in_pairs = [](std::vector<float> values) {
    values.resize(16);
    for (std::size_t step = 1; step < 16; step *= 2)
      for (std::size_t i = 0; i < 16; i += 2 * step) values[i] += values[i + step];
    return values[0];
  };
  std::vector<float> parts;
  for (std::size_t i = 0; i < steps.size(); i += 16) {
    const std::size_t end = std::min(i + 16, steps.size());
    parts.push_back(
        in_pairs({steps.begin() + std::ptrdiff_t(i), steps.begin() + std::ptrdiff_t(end)}));
  }
  std::vector<float> by_number(16);
  for (std::size_t i = 0; i < parts.size(); ++i) by_number[i % 16] += parts[i];
  return in_pairs(by_number);
}

// What the waves of a block come to, with `Steps` steps to a set and runs of `Run` sets.
template <int Threads, int Steps, int Run, int Sets>
float sum_in_waves(const std::vector<float>& steps) {
  using Tiles = Tiling<Shape<u4, 16, 1, true, Threads, Steps, Sets, false, Run>>;
  float slots[Tiles::kSlots] = {};
  std::vector<int> taken(Sets);
  for (u32 wave = 0; wave < Tiles::kWaves; ++wave) {
    if (wave >= Tiles::kSlots) continue;
    RunSums<Tiles> sums;
    SetPlace<Tiles> place = {wave, wave, 0};
    for (bool more = true; more; place = place.next()) {
      float own[Steps];
      for (std::size_t i = 0; i < Steps; ++i) {
        const std::size_t step = place.set() * Steps + i;
        own[i] = step < steps.size() ? steps[step] : 0.0F;
      }
      ++taken[place.set()];
      const float value = sums.add(place, sum_of_neighbours(own));
      if (place.ends_slot()) slots[place.slot] = value;
      more = !place.is_last();
    }
  }
  EXPECT_EQ(taken, std::vector<int>(Sets, 1));
  return sum_of_neighbours(slots);
}

template <int Count>
void expect_one_order() {
  std::vector<float> steps(Count);
  for (int i = 0; i < Count; ++i) steps[std::size_t(i)] = std::sin(float(i) * 12.9898F) * 43.0F;
  const float want = sum_of_steps(steps);
  constexpr int kTwo = (Count + 1) / 2;
  constexpr int kFour = (Count + 3) / 4;
  constexpr int kEight = (Count + 7) / 8;
  EXPECT_EQ((sum_in_waves<128, 2, 8, kTwo>(steps)), want) << Count;
  EXPECT_EQ((sum_in_waves<256, 4, 4, kFour>(steps)), want) << Count;
  EXPECT_EQ((sum_in_waves<128, 8, 2, kEight>(steps)), want) << Count;
  if constexpr (Count <= 256) {
    EXPECT_EQ((sum_in_waves<128, 4, 2, kFour>(steps)), want) << Count;
    EXPECT_EQ((sum_in_waves<256, 2, 4, kTwo>(steps)), want) << Count;
    EXPECT_EQ((sum_in_waves<256, 8, 1, kEight>(steps)), want) << Count;
    EXPECT_EQ((sum_in_waves<128, 4, 1, kFour>(steps)), want) << Count;
    EXPECT_EQ((sum_in_waves<32, 2, 32, kTwo>(steps)), want) << Count;
    EXPECT_EQ((sum_in_waves<64, 4, 16, kFour>(steps)), want) << Count;
  }
}

TEST(Tiling, OrderShowsNeitherWavesNorSets) {
  expect_one_order<1>();
  expect_one_order<3>();
  expect_one_order<16>();
  expect_one_order<50>();
  expect_one_order<64>();
  expect_one_order<224>();
  expect_one_order<256>();
  expect_one_order<257>();
  expect_one_order<1000>();
}

}  // namespace
}  // namespace kiln
