// A GPU's built-in names for a host compiler, so that the text of a kernel for GPUs runs on a CPU:
// the threads of a block, or of the blocks of a cluster, are contexts that take turns from one
// exchange of a wave or barrier to the next. What a block shares lies in a section of its own, into
// which each block's is copied before its threads' turn. Included before the preamble;
// EMULATED_WAVE is how many lanes a wave has, EMULATED_NVIDIA whether the names are those of NVIDIA
// GPUs (else of AMD's). What one thread leaves to others lies in two buffers,
// used in turn, since some threads run ahead of others by one exchange.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#if EMULATED_NVIDIA
#define __CUDACC_RTC__ 1
#define __CUDA_ARCH__ 800
#else
#define __HIP__ 1
#endif
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __global__
#define __shared__ static __attribute__((section("emulated_shared")))
#define __constant__
#define __launch_bounds__(...)
#if !EMULATED_NVIDIA
#define __AMDGCN_WAVEFRONT_SIZE__ EMULATED_WAVE
#endif

namespace emulated {

struct Dim3 {
  unsigned x, y, z;
};

constexpr int kMostThreads = 8192;
constexpr int kMostBlocks = 8;  // of a cluster
constexpr std::size_t kStack = 64 << 10;
constexpr std::size_t kLaunched = 208 << 10;

// What a thread waits for: its next turn, or others at the same barrier.
enum class Barrier { none, block, cluster, team };
constexpr unsigned kMostTeams = 16;

struct Thread {
  ucontext_t context;
  std::unique_ptr<char[]> stack;  // of which a thread touches little
  bool done = false;
  int turn = 0;
  Barrier at = Barrier::none;
  unsigned team = 0;  // whose barrier it is, and how many threads have it
  unsigned team_threads = 0;
};

inline std::vector<Thread> threads(kMostThreads);
inline ucontext_t scheduler;
inline unsigned words[2][kMostThreads];
inline unsigned now = 0;
inline void (*entry)(void* const*) = nullptr;
inline void* const* arguments = nullptr;

extern "C" char __start_emulated_shared[] __attribute__((weak));
extern "C" char __stop_emulated_shared[] __attribute__((weak));
inline std::vector<char> shared[kMostBlocks];  // of the blocks whose threads' turn it is not
alignas(16) inline char launched[kMostBlocks][kLaunched];
inline unsigned block_now = 0;

inline void turn_to_block(unsigned block) {
  if (block == block_now) return;
  const auto size = static_cast<std::size_t>(__stop_emulated_shared - __start_emulated_shared);
  shared[block_now].resize(size);
  shared[block].resize(size);
  std::memcpy(shared[block_now].data(), __start_emulated_shared, size);
  std::memcpy(__start_emulated_shared, shared[block].data(), size);
  block_now = block;
}

/// What another block of the cluster has where this one has `own`.
inline void* place_in_block(void* own, unsigned block) {
  if (block == block_now) return own;
  return shared[block].data() + (static_cast<char*>(own) - __start_emulated_shared);
}

/// Ends this thread's turn. The lanes of a wave do so alike, those of others as often as they like.
inline void end_turn() { swapcontext(&threads[now].context, &scheduler); }

inline void wait_at(Barrier barrier) {
  threads[now].at = barrier;
  end_turn();
}

// Where nobody of `count` threads from `first` on runs, those at the barrier go on.
inline void release(unsigned first, unsigned count, Barrier barrier) {
  for (unsigned t = first; t < first + count; ++t) {
    const bool runs = threads[t].at == Barrier::none;
    const bool elsewhere =
        threads[t].at == Barrier::team || (barrier == Barrier::cluster && threads[t].at != barrier);
    if (!threads[t].done && (runs || elsewhere)) return;
  }
  for (unsigned t = first; t < first + count; ++t) {
    if (threads[t].at == barrier) threads[t].at = Barrier::none;
  }
}

// Where as many threads of a block wait for each other as their barrier has, they go on.
inline void release_teams(unsigned first, unsigned count) {
  for (unsigned team = 0; team < kMostTeams; ++team) {
    const auto waits = [&](const Thread& thread) {
      return thread.at == Barrier::team && thread.team == team && !thread.done;
    };
    unsigned there = 0;
    unsigned wanted = 0;
    for (unsigned t = first; t < first + count; ++t) {
      if (waits(threads[t])) ++there, wanted = threads[t].team_threads;
    }
    if (there == 0 || there < wanted) continue;
    for (unsigned t = first; t < first + count; ++t) {
      if (waits(threads[t])) threads[t].at = Barrier::none;
    }
  }
}
inline void wait_for_team(unsigned team, unsigned count) {
  threads[now].team = team;
  threads[now].team_threads = count;
  wait_at(Barrier::team);
}

/// What lane `lane` of this thread's wave gives in the same call.
inline unsigned exchange(unsigned value, unsigned lane) {
  Thread& thread = threads[now];
  const int turn = thread.turn ^= 1;
  words[turn][now] = value;
  end_turn();
  return words[turn][now / EMULATED_WAVE * EMULATED_WAVE + lane];
}
inline unsigned lane() { return now % EMULATED_WAVE; }

inline void body() {
  entry(arguments);
  threads[now].done = true;
  end_turn();
}

/// The moves within 16 lanes that are in use: permutations of four, and mirrors of 8 and 16.
inline unsigned data_parallel_move(unsigned value, int control) {
  const unsigned at = lane();
  if (control < 0x100) return exchange(value, (at & ~3u) | (control >> (at % 4 * 2) & 3));
  return exchange(value, control == 0x141 ? at ^ 7 : at ^ 15);
}

/// A float that is stored in 16 bits.
class Half {
 public:
  Half(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const std::uint32_t sign = bits >> 16 & 0x8000;
    const float size = std::fabs(value);
    if (std::isnan(value)) {
      bits_ = static_cast<std::uint16_t>(sign | 0x7e00);
    } else if (size >= 65520.0f) {
      bits_ = static_cast<std::uint16_t>(sign | 0x7c00);
    } else {
      // The unit in the last place, of which there are whole numbers; a carry goes to the exponent.
      const int exponent = size < 6.103515625e-05f ? -14 : std::ilogb(size);
      const float units = std::nearbyint(std::ldexp(size, 10 - exponent));
      const int stored = size < 6.103515625e-05f ? 0 : exponent + 14;
      bits_ = static_cast<std::uint16_t>(sign + static_cast<std::uint32_t>(stored * 1024) +
                                         static_cast<std::uint32_t>(units));
    }
  }
  operator float() const {
    const int exponent = bits_ >> 10 & 31;
    const int fraction = bits_ & 1023;
    float size = exponent == 31  ? (fraction == 0 ? INFINITY : NAN)
                 : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                 : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
    return bits_ & 0x8000 ? -size : size;
  }

 private:
  std::uint16_t bits_;
};

}  // namespace emulated

static emulated::Dim3 threadIdx, blockIdx, gridDim;

#if !EMULATED_NVIDIA
#define _Float16 emulated::Half
#define __builtin_amdgcn_fence(order, scope) void(0)
#define __builtin_amdgcn_wave_barrier() emulated::end_turn()
#define __builtin_amdgcn_mov_dpp(value, control, ...) \
  int(emulated::data_parallel_move(unsigned(value), control))
#define __builtin_amdgcn_ds_swizzle(value, pattern) \
  int(emulated::exchange(unsigned(value), emulated::lane() ^ unsigned((pattern) >> 10)))
#define __builtin_amdgcn_ds_bpermute(address, value) \
  int(emulated::exchange(unsigned(value), unsigned(address) / 4 % EMULATED_WAVE))
#define __builtin_amdgcn_alignbit(high, low, bits) \
  unsigned(((unsigned long long)(high) << 32 | (low)) >> ((bits)&31))
#define __builtin_canonicalizef(x) (x)
#define __builtin_amdgcn_rcpf(x) (1.0f / (x))
#define __builtin_amdgcn_sqrtf(x) std::sqrt(float(x))
#define __builtin_amdgcn_rsqf(x) (1.0f / std::sqrt(float(x)))
#define __builtin_amdgcn_sinf(x) std::sin(float(x) * 6.2831853f)
#define __builtin_amdgcn_cosf(x) std::cos(float(x) * 6.2831853f)
// The steps of a quotient, of which the last gives what the host's own division does.
#define __builtin_amdgcn_div_scalef(a, b, first, scaled) (*(scaled) = false, (first) ? (a) : (b))
#define __builtin_amdgcn_div_fmasf(a, b, c, scaled) (void(scaled), std::fma(a, b, c))
#define __builtin_amdgcn_div_fixupf(near, b, a) (void(near), (a) / (b))
#define __builtin_amdgcn_rcp(x) (1.0 / (x))
#define __builtin_amdgcn_div_scale(a, b, first, scaled) (*(scaled) = false, (first) ? (a) : (b))
#define __builtin_amdgcn_div_fmas(a, b, c, scaled) (void(scaled), std::fma(a, b, c))
#define __builtin_amdgcn_div_fixup(near, b, a) (void(near), (a) / (b))
#define __builtin_amdgcn_fractf(x) ((x)-std::floor(x))
#define __builtin_amdgcn_exp2f(x) std::exp2(float(x))
#define __builtin_amdgcn_logf(x) std::log2(float(x))
extern "C" float __ocml_native_exp2_f32(float x) { return std::exp2(x); }
extern "C" float __ocml_native_log2_f32(float x) { return std::log2(x); }
#endif
#define __syncthreads() emulated::wait_at(emulated::Barrier::block)
#if EMULATED_NVIDIA
#include "emulated_instructions.h"
#endif
// Of the device library, which the kernels that run here do not call.
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
float normcdff(float);
double normcdf(double);
float erfinvf(float);
double erfinv(double);

/// Runs the clusters of a grid one after the other, the last one first where `backwards`.
inline void emulate(void (*entry)(void* const*), void* const* arguments, unsigned blocks,
                    unsigned block, unsigned cluster, bool backwards) {
  using namespace emulated;
  emulated::entry = entry;
  emulated::arguments = arguments;
  gridDim = {blocks, 1, 1};
  for (unsigned b = 0; b < blocks; b += cluster) {
    const unsigned first = backwards ? blocks - cluster - b : b;
    for (unsigned t = 0; t < block * cluster; ++t) {
      Thread& thread = threads[t];
      if (!thread.stack) thread.stack.reset(new char[kStack]);
      thread.done = false;
      thread.turn = 0;
      thread.at = Barrier::none;
      getcontext(&thread.context);
      thread.context.uc_stack.ss_sp = thread.stack.get();
      thread.context.uc_stack.ss_size = kStack;
      thread.context.uc_link = nullptr;
      makecontext(&thread.context, body, 0);
    }
    for (bool left = true; left;) {
      left = false;
      for (now = 0; now < block * cluster; ++now) {
        left = left || !threads[now].done;
        if (threads[now].done || threads[now].at != Barrier::none) continue;
        turn_to_block(now / block);
        blockIdx = {first + block_now, 0, 0};
        threadIdx = {now % block, 0, 0};
        swapcontext(&scheduler, &threads[now].context);
      }
      for (unsigned b = 0; b < cluster; ++b) {
        release(b * block, block, Barrier::block);
        release_teams(b * block, block);
      }
      release(0, block * cluster, Barrier::cluster);
    }
  }
}
