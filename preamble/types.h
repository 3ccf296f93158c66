// Base of kiln's device code: which compiler this is, the number types under kiln's names, and the
// frame of a kernel. Nothing is included; everything used here is built into hiprtc, NVRTC and the
// host compilers.
#pragma once

#if defined(__HIP__) || defined(__HIPCC_RTC__) || defined(__AMDGCN__)
#define KILN_AMD 1
#define KILN_NVIDIA 0
#define KILN_HOST 0
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KILN_AMD 0
#define KILN_NVIDIA 1
#define KILN_HOST 0
#else
#define KILN_AMD 0
#define KILN_NVIDIA 0
#define KILN_HOST 1
#endif

#if KILN_AMD && defined(KILN_CONTRACT)
// Contracts products and sums across statements, but not in functions of the compiler's library.
#pragma clang fp contract(fast)
#endif

#if KILN_HOST && !defined(__clang__)
// g++ vectorises a choice between two numbers only if it does not give each a path of its own. A
// call of memset costs short loops that clear lanes more than the loop.
#pragma GCC optimize("no-thread-jumps", "no-tree-pre", "no-tree-loop-distribute-patterns")
// Where it vectorises straight-line code, g++ 12 contracts a product and a sum against
// -ffp-contract=off, and omits the rounding of an f64 to f32 and back.
#pragma GCC optimize("no-tree-slp-vectorize")
#endif

#if KILN_HOST
#define KILN_FN static inline __attribute__((always_inline, unused))
#else
#define KILN_FN __device__ __forceinline__
#endif

// For arrays of lanes, where host compilers make vectors of the loops over them: g++ 12 stores
// these as if the arrays were aligned to them, which it does not always do.
#if KILN_HOST
#define KILN_LANES alignas(64)
#else
#define KILN_LANES
#endif

// For the bodies of loops over vectors: clang before 18 calls long ones, which then find in memory
// what they have captured, and load without knowing from where.
#if KILN_HOST || KILN_AMD
#define KILN_INLINED __attribute__((always_inline))
#else
#define KILN_INLINED
#endif

namespace kiln {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i8 = signed char;
using i16 = short;
using i32 = int;
using i64 = long long;
using f32 = float;
using f64 = double;

// Numbers as they lie in memory. Their arithmetic is done in f32; to<f32>(x) and to<f16>(y)
// convert.
struct b8 {
  u8 bits;
};
struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
struct f8e4m3 {
  u8 bits;
};
struct f8e5m2 {
  u8 bits;
};
struct f8e4m3fnuz {
  u8 bits;
};
struct f8e5m2fnuz {
  u8 bits;
};

template <class To, class From>
KILN_FN To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast: the sizes differ");
#if KILN_NVIDIA
  To to;
  memcpy(&to, &from, sizeof(To));  // NVRTC has it under this name only
  return to;
#else
  return __builtin_bit_cast(To, from);
#endif
}

}  // namespace kiln

// How a kernel is declared. On a GPU it is an extern "C" __global__ function and a work item is a
// thread; on the CPU it is a function over a range of work items, called by the entry at the end of
// the text. With 32-bit indices every thread has at most one item; with 64-bit ones the grid may be
// smaller than the work.
//
//   KILN_KERNEL(256, name, const f32* x, f32* y, u32 work_items) {
//     KILN_FOR_EACH_WORK_ITEM(u32, 256, item, work_items) { ... }
//   }
#if KILN_HOST
#define KILN_KERNEL(threads, name, ...)                                            \
  static inline __attribute__((flatten)) void name##_range(::kiln::u64 kiln_begin, \
                                                           ::kiln::u64 kiln_end, __VA_ARGS__)
#define KILN_FOR_EACH_WORK_ITEM(Index, threads, item, count) \
  for (Index item = Index(kiln_begin); item < Index(kiln_end); ++item)
#else
#define KILN_KERNEL(threads, name, ...) \
  extern "C" __global__ void __launch_bounds__(threads) name(__VA_ARGS__)
#define KILN_FOR_EACH_WORK_ITEM(Index, threads, item, count)                               \
  for (Index item = Index(blockIdx.x) * Index(threads) + Index(threadIdx.x); item < count; \
       item = ::kiln::next_work_item(item, Index(threads), count))
namespace kiln {
KILN_FN u32 next_work_item(u32, u32, u32 count) { return count; }
KILN_FN u64 next_work_item(u64 item, u64 threads, u64) { return item + gridDim.x * threads; }
}  // namespace kiln
#endif

// A loop over the elements of one work item: unrolled into registers on a GPU, SIMD on the CPU.
// Iterations are independent, also where an output is an input. Four SIMD vectors at a time keep a
// CPU busy while each step of a polynomial waits for the one before; short rows have fewer. `lanes`
// may be of a type that fixes the number (FixedLanes): unrolled early, such loops would not be
// vectorised.
#if KILN_HOST && defined(__clang__)
// clang-format off
#define KILN_FOR_EACH_LANE(lane, width, lanes)                                                      \
  _Pragma("clang loop vectorize(assume_safety) interleave_count(width.interleave) unroll(disable)") \
  for (int lane = 0; lane < lanes; ++lane)
// clang-format on
#elif KILN_HOST
   // g++ forgets pragmas of loops whose condition calls a conversion.
#define KILN_FOR_EACH_LANE(lane, width, lanes)                                          \
  _Pragma("GCC ivdep") _Pragma("GCC unroll 1") for (int lane = 0, lane##_count = lanes; \
                                                    lane < lane##_count; ++lane)
#else
#define KILN_FOR_EACH_LANE(lane, width, lanes) \
  _Pragma("unroll") for (int lane = 0; lane < width.size; ++lane)
#endif
