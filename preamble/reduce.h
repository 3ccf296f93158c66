// Reductions: how partial results become one, in the lanes of a thread, across the threads of a
// wave and across the waves of a block. The order is the same tree for every wave size and every
// grid, so that a result has the same bits on every run. What only the host does is in host_rows.h.
#pragma once

#if KILN_HOST
#define KILN_MEMBER inline __attribute__((always_inline))
#define KILN_UNROLL  // the compiler makes vectors of the loop
#else
#define KILN_MEMBER __device__ __forceinline__
#define KILN_UNROLL _Pragma("unroll")
#define KILN_UNROLL_TWICE _Pragma("unroll 2")
#endif

namespace kiln {

// ---- how two partial results become one ---------------------------------------------------------

// What a maximum or minimum of nothing is.
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
// A float as an integer whose order is that of floats, -0 before +0 and NaN at one end: host
// compilers make one instruction of the larger of two. `Least` is the code that becomes 0.
template <u32 Least>
struct Ordered {
  u32 place;
  static KILN_MEMBER Ordered of(f32 x) { return {turned(bit_cast<u32>(x)) - Least}; }
  KILN_MEMBER f32 value() const { return bit_cast<f32>(turned(place + Least)); }

 private:
  static KILN_MEMBER u32 turned(u32 bits) { return bits ^ (u32(i32(bits) >> 31) >> 1); }
};
using Rising = Ordered<0x807fffffu>;   // from -infinity to +infinity and then every NaN
using Falling = Ordered<0x7f800001u>;  // from every NaN and then -infinity to +infinity
#endif

struct Sum {
  template <class T>
  KILN_MEMBER static T start() {
    return T{};
  }
  template <class T>
  KILN_MEMBER static T join(T a, T b) {
    return add(a, b);
  }
};
struct Prod {
  template <class T>
  KILN_MEMBER static T start() {
    if constexpr (is_same<T, c64>())
      return c64{1.0f, 0.0f};
    else
      return T(1);
  }
  template <class T>
  KILN_MEMBER static T join(T a, T b) {
    return mul(a, b);
  }
};
struct Max {
  template <class T>
  KILN_MEMBER static T start() {
    return lowest<T>();
  }
  template <class T>
  KILN_MEMBER static T join(T a, T b) {
    return maximum(a, b);
  }
#if KILN_HOST
  KILN_MEMBER static Rising join(Rising a, Rising b) {
    return {a.place < b.place ? b.place : a.place};
  }
  KILN_MEMBER static Rising join(Rising a, f32 b) { return join(a, Rising::of(b)); }
#endif
#if KILN_NVIDIA && __CUDA_ARCH__ >= 800
  // One instruction, which gives a NaN of its own.
  KILN_MEMBER static f32 join(f32 a, f32 b) {
    f32 result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
  }
#endif
};
struct Min {
  template <class T>
  KILN_MEMBER static T start() {
    return highest<T>();
  }
  template <class T>
  KILN_MEMBER static T join(T a, T b) {
    return minimum(a, b);
  }
#if KILN_HOST
  KILN_MEMBER static Falling join(Falling a, Falling b) {
    return {b.place < a.place ? b.place : a.place};
  }
  KILN_MEMBER static Falling join(Falling a, f32 b) { return join(a, Falling::of(b)); }
#endif
#if KILN_NVIDIA && __CUDA_ARCH__ >= 800
  KILN_MEMBER static f32 join(f32 a, f32 b) {
    f32 result;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
  }
#endif
};
struct Any {
  template <class T>
  KILN_MEMBER static T start() {
    return false;
  }
  template <class T>
  KILN_MEMBER static T join(T a, T b) {
    return a | b;
  }
};
struct All {
  template <class T>
  KILN_MEMBER static T start() {
    return true;
  }
  template <class T>
  KILN_MEMBER static T join(T a, T b) {
    return a & b;
  }
};

// A value and where it stands in its row. The first of equals wins, NaN before every number.
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
template <class T, class Index>
KILN_FN Found<T, Index> earlier(Found<T, Index> a, Found<T, Index> b, bool b_wins) {
  const bool same = a.value == b.value || (is_nan(a.value) && is_nan(b.value));
  const bool take = is_nan(a.value) != is_nan(b.value) ? is_nan(b.value) : b_wins;
  const bool second = same ? b.index < a.index : take;
  return {second ? b.value : a.value, second ? b.index : a.index};
}
struct ArgMax {
  template <class P>
  KILN_MEMBER static P start() {
    return {lowest<decltype(P::value)>(), decltype(P::index)(~decltype(P::index)(0)) >> 1};
  }
  template <class P>
  KILN_MEMBER static P join(P a, P b) {
    return earlier(a, b, b.value > a.value);
  }
};
struct ArgMin {
  template <class P>
  KILN_MEMBER static P start() {
    return {highest<decltype(P::value)>(), decltype(P::index)(~decltype(P::index)(0)) >> 1};
  }
  template <class P>
  KILN_MEMBER static P join(P a, P b) {
    return earlier(a, b, b.value < a.value);
  }
};

// ---- the lanes of a thread ----------------------------------------------------------------------

// One partial result per lane: neighbours in a row never wait for each other.
template <class T, int Width>
struct Lanes {
  T lane[Width];
  KILN_MEMBER T& operator[](int i) { return lane[i]; }
  KILN_MEMBER const T& operator[](int i) const { return lane[i]; }
};

template <class Reduction, class T, int Width>
KILN_FN Lanes<T, Width> start() {
  Lanes<T, Width> lanes;
  KILN_UNROLL for (int i = 0; i < Width; ++i) lanes.lane[i] = Reduction::template start<T>();
  return lanes;
}
#if !KILN_HOST
template <class Reduction, int Width, class T, int Most>
KILN_FN T fold(Lanes<T, Most>& lanes) {
  if constexpr (Width == 1) {
    return lanes.lane[0];
  } else {
    KILN_UNROLL for (int i = 0; i < Width / 2; ++i) {
      lanes.lane[i] = Reduction::join(lanes.lane[i], lanes.lane[i + Width / 2]);
    }
    return fold<Reduction, Width / 2>(lanes);
  }
}
#endif

// A long row is summed in stretches: the lanes of one are added to those of all, and start again.
// Of n elements shared out to a threads of b lanes, a sum is then off by at most
//   (kStretch + n / (a b kStretch) + log2(a b) + 1) u
// of the sum of their sizes, u being half a unit in the last place of 1. Of columns b is 1, and a
// row in p pieces has the errors of n / p elements and then of p.
enum : int { kStretch = 64 };

// A thread takes `Batch` vectors at a time, of which this one is `done` vectors into the row.
template <int Threads, int Batch, class Index>
KILN_FN bool ends_stretch(Index done) {
  constexpr int kBatches = kStretch / Batch;
  return done / (Threads * Batch) % kBatches == kBatches - 1;
}

template <class Reduction, class T, int Width>
KILN_FN void carry(Lanes<T, Width>& all, Lanes<T, Width>& stretch) {
  KILN_UNROLL for (int i = 0; i < Width; ++i) {
    all.lane[i] = Reduction::join(all.lane[i], stretch.lane[i]);
    stretch.lane[i] = Reduction::template start<T>();
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

// What the lane has whose number differs from this one's in the bit `Mask`. On AMD the masks below
// 16 are moves within the vector unit; 4 and 8 are its mirrors, which meet the same partial result
// if all masks below have been `Joined`.
template <int Mask, bool Joined>
KILN_FN u32 exchange_word(u32 value) {
#if KILN_AMD
  if constexpr (Mask == 1) return u32(__builtin_amdgcn_mov_dpp(int(value), 0xb1, 0xf, 0xf, true));
  if constexpr (Mask == 2) return u32(__builtin_amdgcn_mov_dpp(int(value), 0x4e, 0xf, 0xf, true));
  if constexpr (Mask == 4 && Joined)
    return u32(__builtin_amdgcn_mov_dpp(int(value), 0x141, 0xf, 0xf, true));
  if constexpr (Mask == 8 && Joined)
    return u32(__builtin_amdgcn_mov_dpp(int(value), 0x140, 0xf, 0xf, true));
  if constexpr (Mask < 32) return u32(__builtin_amdgcn_ds_swizzle(int(value), Mask << 10 | 0x1f));
  return u32(__builtin_amdgcn_ds_bpermute(int((threadIdx.x ^ u32(Mask)) << 2), int(value)));
#else
  return __shfl_xor_sync(0xffffffffu, value, Mask);
#endif
}

template <int Mask, bool Joined, class T>
KILN_FN T exchange(T value) {
  if constexpr (sizeof(T) % 4 == 0) {
    auto words = bit_cast<Words<int(sizeof(T) / 4)>>(value);
    _Pragma("unroll") for (int i = 0; i < int(sizeof(T) / 4); ++i) {
      words.word[i] = exchange_word<Mask, Joined>(words.word[i]);
    }
    return bit_cast<T>(words);
  } else {
    return T(exchange_word<Mask, Joined>(u32(value)));
  }
}
template <int Mask, bool Joined, class T, class Index>
KILN_FN Found<T, Index> exchange(Found<T, Index> place) {
  return {exchange<Mask, Joined>(place.value), exchange<Mask, Joined>(place.index)};
}

template <class Reduction, int Threads, int Mask = 1, class T>
KILN_FN T reduce_wave(T value) {
  if constexpr (Mask >= Threads) {
    return value;
  } else {
    return reduce_wave<Reduction, Threads, Mask * 2>(
        Reduction::join(value, exchange<Mask, true>(value)));
  }
}

// One place for every wave of a row.
template <class T, int Threads>
struct Slots {
  T wave[(Threads + kWave - 1) / kWave];
};

// Every thread of the row gets the result. Slots are used once; a kernel that takes several rows
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

// ---- two reductions at once ---------------------------------------------------------------------

template <class T>
KILN_FN bool is_lowest(T value) {
  return value == lowest<T>();
}

// The largest of some elements, and the sum of the exponentials of what they are below it.
struct Exponentials {
  f32 largest;
  f32 sum;
};
// The sum below the smaller of two largest ones is moved to the larger. Both sides of an exchange
// compute the same.
template <bool Narrow>
struct JoinExponentials {
  KILN_MEMBER static f32 exp(f32 x) {
    if constexpr (Narrow)
      return narrow::exp_not_positive(x);
    else
      return kiln::exp(x);
  }
  KILN_MEMBER static Exponentials join(Exponentials a, Exponentials b) {
    const bool first = a.largest > b.largest;
    const f32 smaller = first ? b.largest : a.largest;
    const f32 larger = Max::join(a.largest, b.largest);
    const f32 scale = exp(smaller == larger ? 0.0f : smaller - larger);
    return {larger, (first ? a.sum : b.sum) + (first ? b.sum : a.sum) * scale};
  }
};

// How many elements, their mean, and the sum of the squares of what they are off it.
struct Moments {
  f32 count;
  f32 mean;
  f32 squares;
};
// Of numbers around `centre`, by the sums of what they are off it and of its squares. It is the
// mean of some of them, so that the squares of all are no fewer than the difference that is taken
// from them.
KILN_FN Moments moments_around(f32 centre, f32 count, f32 off, f32 squares) {
  const f32 apart = off / maximum(count, 1.0f);
  return {count, centre + apart, maximum(squares - off * apart, 0.0f)};
}
template <bool Equal>  // counts
struct JoinMoments {
  KILN_MEMBER static Moments join(Moments a, Moments b) {
    const f32 count = a.count + b.count;
    const f32 apart = a.mean - b.mean;
    const f32 squares = a.squares + b.squares;
    if constexpr (Equal) {
      return {count, 0.5f * (a.mean + b.mean), squares + apart * apart * (0.5f * a.count)};
    } else {
      const f32 each = 1.0f / maximum(count, 1.0f);
      return {count, (a.count * a.mean + b.count * b.mean) * each,
              squares + apart * apart * (a.count * b.count * each)};
    }
  }
};

// ---- the threads of a row and its vectors -------------------------------------------------------

// Which of the `Threads` threads of a row this is, where the neighbours along the row stand `Apart`
// threads apart, and which row or columns a block's item gives it.
template <int Apart, int Threads>
KILN_FN u32 thread_of() {
  return threadIdx.x / Apart % Threads;
}
template <int Threads>
KILN_FN bool is_first() {
  return threadIdx.x % Threads == 0;
}
template <int Threads, int Rows, class Index>
KILN_FN Index row_of(Index item) {
  return item * Rows + Index(threadIdx.x / Threads);
}

// The vectors of a row that this thread handles. With `vectors` of them the loop is unrolled, so
// that what is held for each stays in registers; with none the row may have any length.
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

// ---- rows that begin within a vector ------------------------------------------------------------

// How many elements of a row come before the first vector that is aligned.
template <int Lanes, class T>
KILN_FN u32 head_of(const T* row) {
  return (0 - u32(u64(row) / sizeof(T))) % Lanes;
}

// ---- the threads of a column --------------------------------------------------------------------

// They stand `Columns` apart. Those of a wave exchange what they have, and the waves, or the
// threads where a wave is all columns, meet in shared memory: one place for each lane of each.
template <int Columns, int Threads>
struct Meeting {
  enum : int {
    kWithin = Columns >= kWave ? 1 : kWave / Columns,
    kTogether = Threads < kWithin ? Threads : kWithin,
    kGroups = Threads / kTogether,
  };
};
template <int Bytes, int Columns, int Threads, int Rows, int Width>
struct ColumnSlots {
  enum : int { kGroups = Meeting<Columns, Threads>::kGroups };
  alignas(16) u8 byte[kGroups == 1 ? 16 : kGroups * Columns * Rows * Width * Bytes];
};

template <class Reduction, int Mask, int End, class T>
KILN_FN T reduce_across(T value) {
  if constexpr (Mask >= End) {
    return value;
  } else {
    return reduce_across<Reduction, Mask * 2, End>(
        Reduction::join(value, exchange<Mask, false>(value)));
  }
}

template <class Reduction, int Apart, int Count, class T>
KILN_FN T join_slots(const T* slots) {
  if constexpr (Count == 1) {
    return *slots;
  } else {
    return Reduction::join(join_slots<Reduction, Apart, Count / 2>(slots),
                           join_slots<Reduction, Apart, Count / 2>(slots + Count / 2 * Apart));
  }
}

// Every thread of a column gets its result, joined in the order in which the threads of a row are.
template <class Reduction, int Columns, int Threads, class T, int Width, class Slots>
KILN_FN void reduce_columns(Lanes<T, Width>& lanes, Slots& slots) {
  using Meet = Meeting<Columns, Threads>;
  KILN_UNROLL for (int i = 0; i < Width; ++i) {
    lanes.lane[i] = reduce_across<Reduction, Columns, Columns * Meet::kTogether>(lanes.lane[i]);
  }
  if constexpr (Meet::kGroups > 1) {
    constexpr int kApart = Columns * Width;
    T* const own = reinterpret_cast<T*>(slots.byte) +
                   threadIdx.x / (Columns * Threads) * (Meet::kGroups * kApart) +
                   threadIdx.x % Columns;
    const int thread = int(thread_of<Columns, Threads>());
    KILN_SYNCHRONIZE();  // what was joined here before has been read
    if (thread % Meet::kTogether == 0) {
      KILN_UNROLL for (int i = 0; i < Width; ++i) {
        own[thread / Meet::kTogether * kApart + i * Columns] = lanes.lane[i];
      }
    }
    KILN_SYNCHRONIZE();
    KILN_UNROLL for (int i = 0; i < Width; ++i) {
      lanes.lane[i] = join_slots<Reduction, kApart, Meet::kGroups>(own + i * Columns);
    }
  }
}

template <int Most, class Index>
KILN_FN int lanes_from(Index, Index) {
  return Most;
}

#endif

}  // namespace kiln
