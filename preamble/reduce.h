// Reductions: how partial results are combined, in the lanes of a thread, across the threads of a
// wave and across the waves of a block. The order is the same tree for every wave size and every
// grid, so a result has the same bits on every run. What is for the CPU only is in host_rows.h.
#pragma once

#include "access_gpu.h"
#include "arithmetic.h"
#include "blocks.h"
#include "convert.h"
#include "integer.h"
#include "order.h"
#include "signs.h"

#if KILN_HOST
#define KILN_MEMBER inline __attribute__((always_inline))
#define KILN_UNROLL  // the compiler makes vectors of the loop
#else
#define KILN_MEMBER __device__ __forceinline__
#define KILN_UNROLL _Pragma("unroll")
#define KILN_UNROLL_TWICE _Pragma("unroll 2")
#define KILN_UNROLL_FOUR_TIMES _Pragma("unroll 4")
#endif

namespace kiln {

// ---- how two partial results are combined -------------------------------------------------------

// The maximum and the minimum of no elements.
template <class T>
KILN_FN T lowest() {
  if constexpr (is_real<T>())
    return -exact::from_bits<T>(exact::infinity_bits<T>());
  else if constexpr (is_same<T, bool>())
    return false;
  else if constexpr (Type<T>::kSigned)
    return T(Unsigned<T>(1) << (sizeof(T) * 8 - 1));
  else
    return T(0);
}
template <class T>
KILN_FN T highest() {
  if constexpr (is_real<T>())
    return exact::from_bits<T>(exact::infinity_bits<T>());
  else if constexpr (is_same<T, bool>())
    return true;
  else if constexpr (Type<T>::kSigned)
    return T(~(Unsigned<T>(1) << (sizeof(T) * 8 - 1)));
  else
    return T(~T(0));
}

#if KILN_HOST
// A float as an integer of the same order, -0 before +0 and NaN at one end: host compilers make one
// instruction of the larger of two. `Least` is the code that becomes 0.
template <u32 Least>
struct Ordered {
  u32 order;
  static KILN_MEMBER Ordered of(f32 x) { return {turned(bit_cast<u32>(x)) - Least}; }
  KILN_MEMBER f32 value() const { return bit_cast<f32>(turned(order + Least)); }

 private:
  static KILN_MEMBER u32 turned(u32 bits) { return bits ^ (u32(i32(bits) >> 31) >> 1); }
};
using Rising = Ordered<0x807fffffu>;   // from -infinity to +infinity and then every NaN
using Falling = Ordered<0x7f800001u>;  // from every NaN and then -infinity to +infinity
#endif

struct Sum {
  template <class T>
  KILN_MEMBER static T identity() {
    return T{};
  }
  template <class T>
  KILN_MEMBER static T combine(T a, T b) {
    return add(a, b);
  }
};
struct Prod {
  template <class T>
  KILN_MEMBER static T identity() {
    if constexpr (is_same<T, c64>())
      return c64{1.0f, 0.0f};
    else
      return T(1);
  }
  template <class T>
  KILN_MEMBER static T combine(T a, T b) {
    return mul(a, b);
  }
};
struct Max {
  template <class T>
  KILN_MEMBER static T identity() {
    return lowest<T>();
  }
  template <class T>
  KILN_MEMBER static T combine(T a, T b) {
    return maximum(a, b);
  }
#if KILN_HOST
  KILN_MEMBER static Rising combine(Rising a, Rising b) {
    return {a.order < b.order ? b.order : a.order};
  }
  KILN_MEMBER static Rising combine(Rising a, f32 b) { return combine(a, Rising::of(b)); }
#endif
#if KILN_NVIDIA && __CUDA_ARCH__ >= 800
  // One instruction, whose NaN is its own.
  KILN_MEMBER static f32 combine(f32 a, f32 b) {
    f32 result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
  }
#endif
};
struct Min {
  template <class T>
  KILN_MEMBER static T identity() {
    return highest<T>();
  }
  template <class T>
  KILN_MEMBER static T combine(T a, T b) {
    return minimum(a, b);
  }
#if KILN_HOST
  KILN_MEMBER static Falling combine(Falling a, Falling b) {
    return {b.order < a.order ? b.order : a.order};
  }
  KILN_MEMBER static Falling combine(Falling a, f32 b) { return combine(a, Falling::of(b)); }
#endif
#if KILN_NVIDIA && __CUDA_ARCH__ >= 800
  KILN_MEMBER static f32 combine(f32 a, f32 b) {
    f32 result;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
  }
#endif
};
#if KILN_HOST
// The type in which the CPU accumulates.
template <class Reduction, class T>
struct Accumulator {
  using Type = T;
};
template <>
struct Accumulator<Max, f32> {
  using Type = Rising;
};
template <>
struct Accumulator<Min, f32> {
  using Type = Falling;
};
#endif
struct Any {
  template <class T>
  KILN_MEMBER static T identity() {
    return false;
  }
  template <class T>
  KILN_MEMBER static T combine(T a, T b) {
    return a | b;
  }
};
struct All {
  template <class T>
  KILN_MEMBER static T identity() {
    return true;
  }
  template <class T>
  KILN_MEMBER static T combine(T a, T b) {
    return a & b;
  }
};

// A value and its position in the row. The first of equal values wins, and NaN wins over every
// number.
template <class T, class Index>
struct Found {
  T value;
  Index index;
};
template <class T>
KILN_FN bool is_nan(T value) {
  if constexpr (is_same<T, f32>() || is_same<T, f64>()) return exact::isnan(value);
  return false;
}
// Equal to each other, as all NaN are.
template <class T>
KILN_FN bool are_same(T a, T b) {
  return (a == b) | (is_nan(a) & is_nan(b));
}
// Whether the second of two is taken, which `exceeds` the first or not. Without branches, so that
// the CPU compares lanes of vectors.
template <class T, class Index>
KILN_FN bool replaces(Found<T, Index> first, Found<T, Index> second, bool exceeds) {
  const bool alone_nan = is_nan(second.value) & !is_nan(first.value);
  return alone_nan | exceeds | (are_same(first.value, second.value) & (second.index < first.index));
}
// Appends an element that comes after all that `first` was found among, if there were any: an index
// that is greater is the one it begins with. What `exceeds` is not true of is equal or less; of NaN
// it is true.
template <class T, class Index>
KILN_FN Found<T, Index> append(Found<T, Index> first, Found<T, Index> second, bool exceeds) {
  const bool is_second = (exceeds & !is_nan(first.value)) | (second.index < first.index);
  return {is_second ? second.value : first.value, is_second ? second.index : first.index};
}
struct ArgMax {
  using Values = Max;
  template <class P>
  KILN_MEMBER static P identity() {
    return {lowest<decltype(P::value)>(), decltype(P::index)(~decltype(P::index)(0)) >> 1};
  }
  template <class P>
  KILN_MEMBER static bool replaces(P first, P second) {
    return ::kiln::replaces(first, second, second.value > first.value);
  }
  template <class P>
  KILN_MEMBER static P combine(P a, P b) {
    const bool second = replaces(a, b);
    return {second ? b.value : a.value, second ? b.index : a.index};
  }
  template <class P>
  KILN_MEMBER static P append(P a, P b) {
    return ::kiln::append(a, b, !(b.value <= a.value));
  }
};
struct ArgMin {
  using Values = Min;
  template <class P>
  KILN_MEMBER static P identity() {
    return {highest<decltype(P::value)>(), decltype(P::index)(~decltype(P::index)(0)) >> 1};
  }
  template <class P>
  KILN_MEMBER static bool replaces(P first, P second) {
    return ::kiln::replaces(first, second, second.value < first.value);
  }
  template <class P>
  KILN_MEMBER static P combine(P a, P b) {
    const bool second = replaces(a, b);
    return {second ? b.value : a.value, second ? b.index : a.index};
  }
  template <class P>
  KILN_MEMBER static P append(P a, P b) {
    return ::kiln::append(a, b, !(b.value >= a.value));
  }
};

// ---- the lanes of a thread ----------------------------------------------------------------------

// One partial result per lane, so that neighbours in a row do not wait for each other.
template <class T, int Width>
struct Lanes {
  T lane[Width];
  KILN_MEMBER T& operator[](int i) { return lane[i]; }
  KILN_MEMBER const T& operator[](int i) const { return lane[i]; }
};

template <class Reduction, class T, int Width>
KILN_FN Lanes<T, Width> identity_lanes() {
  Lanes<T, Width> lanes;
  KILN_UNROLL for (int i = 0; i < Width; ++i) lanes.lane[i] = Reduction::template identity<T>();
  return lanes;
}
#if !KILN_HOST
template <class Reduction, int Width, class T, int Most>
KILN_FN T fold(Lanes<T, Most>& lanes) {
  if constexpr (Width == 1) {
    return lanes.lane[0];
  } else {
    KILN_UNROLL for (int i = 0; i < Width / 2; ++i) {
      lanes.lane[i] = Reduction::combine(lanes.lane[i], lanes.lane[i + Width / 2]);
    }
    return fold<Reduction, Width / 2>(lanes);
  }
}
#endif

// Blocked summation: the sums of kSumBlock vectors of a long row are added to those of the whole
// row and start again at 0. A sum of n elements by a threads with b lanes each then has an error of
// at most
//   (kSumBlock + n / (a b kSumBlock) + log2(a b) + 1) u
// times the sum of their sizes, u being half a unit in the last place of 1. Products with small
// weights on the CPU (products.h) are added up so; other sums of rows follow the tree (tree.h).
enum : int { kSumBlock = 64 };

// Whether a thread, which takes `Batch` vectors at a time, ends such a block with vector `done` of
// the row.
template <int Threads, int Batch, class Index>
KILN_FN bool ends_sum_block(Index done) {
  constexpr int kBatches = kSumBlock / Batch;
  return done / (Threads * Batch) % kBatches == kBatches - 1;
}

template <class Reduction, class T, int Width>
KILN_FN void carry(Lanes<T, Width>& all, Lanes<T, Width>& block) {
  KILN_UNROLL for (int i = 0; i < Width; ++i) {
    all.lane[i] = Reduction::combine(all.lane[i], block.lane[i]);
    block.lane[i] = Reduction::template identity<T>();
  }
}

template <class Index>
KILN_FN Index least(Index a, Index b) {
  return a < b ? a : b;
}

// ---- the threads of a row -----------------------------------------------------------------------

#if !KILN_HOST

#if KILN_AMD
#if defined(__AMDGCN_WAVEFRONT_SIZE__)
enum : int { kWave = __AMDGCN_WAVEFRONT_SIZE__ };
#elif defined(__AMDGCN_WAVEFRONT_SIZE)
enum : int { kWave = __AMDGCN_WAVEFRONT_SIZE };
#elif defined(__GFX9__) || defined(__GFX8__)
enum : int { kWave = 64 };
#else
enum : int { kWave = 32 };
#endif
#else
enum : int { kWave = 32 };
#endif

// The word of the lane whose number differs from this one's in bit `Mask`. On AMD, masks below 16
// are moves within the vector unit; 4 and 8 are mirror moves, which give the right partial result
// if all smaller masks have been `Combined`. A constant is the same in every lane: where both words
// of an i64 are moves of one, the compiler of HIP 6.4 crashes (LLVM 21, GCNDPPCombine).
template <int Mask, bool Combined>
KILN_FN u32 exchange_word(u32 value) {
#if KILN_AMD
  if (__builtin_constant_p(value)) return value;
  if constexpr (Mask == 1) return u32(__builtin_amdgcn_mov_dpp(int(value), 0xb1, 0xf, 0xf, true));
  if constexpr (Mask == 2) return u32(__builtin_amdgcn_mov_dpp(int(value), 0x4e, 0xf, 0xf, true));
  if constexpr (Mask == 4 && Combined)
    return u32(__builtin_amdgcn_mov_dpp(int(value), 0x141, 0xf, 0xf, true));
  if constexpr (Mask == 8 && Combined)
    return u32(__builtin_amdgcn_mov_dpp(int(value), 0x140, 0xf, 0xf, true));
  if constexpr (Mask < 32) return u32(__builtin_amdgcn_ds_swizzle(int(value), Mask << 10 | 0x1f));
  return u32(__builtin_amdgcn_ds_bpermute(int((threadIdx.x ^ u32(Mask)) << 2), int(value)));
#else
  return __shfl_xor_sync(0xffffffffu, value, Mask);
#endif
}

template <int Mask, bool Combined, class T>
KILN_FN T exchange(T value) {
  if constexpr (sizeof(T) % 4 == 0) {
    auto words = bit_cast<Words<int(sizeof(T) / 4)>>(value);
    _Pragma("unroll") for (int i = 0; i < int(sizeof(T) / 4); ++i) {
      words.word[i] = exchange_word<Mask, Combined>(words.word[i]);
#if KILN_AMD
      // Products of complex numbers go on in f64. LLVM 14 (HIP 5.2) makes the move and that
      // conversion one instruction, which gfx90a does not have; behind an asm it does not.
      if constexpr (is_same<T, c64>()) asm("" : "+v"(words.word[i]));
#endif
    }
    return bit_cast<T>(words);
  } else {
    return T(exchange_word<Mask, Combined>(u32(value)));
  }
}
template <int Mask, bool Combined, class T, class Index>
KILN_FN Found<T, Index> exchange(Found<T, Index> place) {
  return {exchange<Mask, Combined>(place.value), exchange<Mask, Combined>(place.index)};
}

template <class Reduction, int Threads, int Mask = 1, class T>
KILN_FN T reduce_wave(T value) {
  if constexpr (Mask >= Threads) {
    return value;
  } else {
    return reduce_wave<Reduction, Threads, Mask * 2>(
        Reduction::combine(value, exchange<Mask, true>(value)));
  }
}

// Combines lanes whose numbers differ in the bits from `Least` up to below `End`, in the highest
// one first.
template <class Reduction, int Least, int End, class T>
KILN_FN T reduce_across(T value) {
  if constexpr (End / 2 < Least) {
    return value;
  } else {
    return reduce_across<Reduction, Least, End / 2>(
        Reduction::combine(value, exchange<End / 2, false>(value)));
  }
}

// The same of `Count` values for each lane, of which two lanes that combine them keep one half each
// as long as there are two: the lane whose bits from `Least` on are k has those from k Count /
// (End / Least) on in the end.
template <class Reduction, int Least, int End, int Count, class T, int Most>
KILN_FN void scatter_across(Lanes<T, Most>& lanes) {
  if constexpr (End / 2 >= Least) {
    if constexpr (Count == 1) {
      lanes.lane[0] = reduce_across<Reduction, Least, End>(lanes.lane[0]);
    } else {
      const bool upper = (threadIdx.x & (End / 2)) != 0;
      KILN_UNROLL for (int i = 0; i < Count / 2; ++i) {
        T kept = lanes.lane[i];
        T given = lanes.lane[i + Count / 2];
        if (upper) {  // not a choice between two places, for which compilers keep lanes in memory
          kept = lanes.lane[i + Count / 2];
          given = lanes.lane[i];
        }
        lanes.lane[i] = Reduction::combine(kept, exchange<End / 2, false>(given));
      }
      scatter_across<Reduction, Least, End / 2, Count / 2>(lanes);
    }
  }
}

// One slot for every wave of a row.
template <class T, int Threads>
struct Slots {
  T wave[(Threads + kWave - 1) / kWave];
};

// Every thread of the row gets the result. Slots are used once: a kernel that takes several rows
// one after the other synchronises between them.
template <class Reduction, int Threads, class T, int Width>
KILN_FN T reduce(Lanes<T, Width>& lanes, Slots<T, Threads>& slots) {
  constexpr int kTogether = Threads < kWave ? Threads : kWave;
  T value = reduce_wave<Reduction, kTogether>(fold<Reduction, Width>(lanes));
  if constexpr (Threads > kWave) {
    constexpr int kWaves = Threads / kWave;
    const int thread = int(threadIdx.x) % Threads;
    if (thread % kWave == 0) slots.wave[thread / kWave] = value;
    KILN_SYNCHRONIZE();
    value = reduce_wave<Reduction, kWaves>(slots.wave[thread % kWaves]);
  }
  return value;
}

// ---- the threads of a row and its vectors -------------------------------------------------------

// The index of this thread among the `Threads` of a row, where neighbours along the row are
// `Stride` threads from each other; and the row of this thread within a work item of the block.
template <int Stride, int Threads>
KILN_FN u32 thread_of() {
  return threadIdx.x / Stride % Threads;
}
template <int Threads>
KILN_FN bool is_first() {
  return threadIdx.x % Threads == 0;
}
template <int Threads, int Rows, class Index>
KILN_FN Index row_of(Index item) {
  if constexpr (Rows == 1) return item;  // of the whole block, which the compiler does not see
  return item * Rows + Index(threadIdx.x / Threads);
}

// The vectors of a row that this thread handles. With `vectors` > 0 the loop is unrolled, so that
// arrays with an element for each stay in registers; with 0 the row may have any length.
#define KILN_FOR_EACH_VECTOR(Index, threads, vectors, slot, vector, count)                   \
  _Pragma("unroll") for (int slot = 0; slot < (vectors > 0 ? vectors : 1);                   \
                         ++slot) for (Index vector = Index(slot) * (threads) +               \
                                                     Index(threadIdx.x) % (threads);         \
                                      vector < count; vector = ::kiln::next_vector<vectors>( \
                                                          vector, Index(threads), Index(count)))

template <int Vectors, class Index>
KILN_FN Index next_vector(Index vector, Index threads, Index count) {
  return Vectors > 0 ? count : vector + threads;
}

template <int Lanes, class T>
KILN_FN Vec<T, Lanes> repeat(const T* from) {
  Vec<T, Lanes> result;
  const T value = *from;
  _Pragma("unroll") for (int lane = 0; lane < Lanes; ++lane) result.lane[lane] = value;
  return result;
}

// ---- unaligned rows -----------------------------------------------------------------------------

// The number of elements of a row before the first aligned vector.
template <int Lanes, class T>
KILN_FN u32 head_of(const T* row) {
  return (0 - u32(u64(row) / sizeof(T))) % Lanes;
}

template <int Most, class Index>
KILN_FN int lanes_from(Index, Index) {
  return Most;
}

#endif

}  // namespace kiln
