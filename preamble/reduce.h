// Reductions: how partial results become one, in the lanes of a thread, across the threads of a wave
// and across the waves of a block. The order is the same tree for every wave size and every grid, so
// that a result has the same bits on every run.
#pragma once

#if KILN_HOST
#define KILN_MEMBER inline __attribute__((always_inline))
#define KILN_UNROLL  // the compiler makes vectors of the loop
#else
#define KILN_MEMBER __device__ __forceinline__
#define KILN_UNROLL _Pragma("unroll")
#endif

namespace kiln {

// ---- how two partial results become one ---------------------------------------------------------

// What a maximum or minimum of nothing is.
template <class T>
KILN_FN T lowest() {
  if constexpr (kSame<T, f32> || kSame<T, f64>) return -exact::from_bits<T>(exact::kInfinity<T>);
  else if constexpr (kSame<T, bool>) return false;
  else if constexpr (Type<T>::kSigned) return T(Unsigned<T>(1) << (sizeof(T) * 8 - 1));
  else return T(0);
}
template <class T>
KILN_FN T highest() {
  if constexpr (kSame<T, f32> || kSame<T, f64>) return exact::from_bits<T>(exact::kInfinity<T>);
  else if constexpr (kSame<T, bool>) return true;
  else if constexpr (Type<T>::kSigned) return T(~(Unsigned<T>(1) << (sizeof(T) * 8 - 1)));
  else return T(~T(0));
}

struct Sum {
  template <class T> KILN_MEMBER static T start() { return T{}; }
  template <class T> KILN_MEMBER static T join(T a, T b) { return add(a, b); }
};
struct Prod {
  template <class T> KILN_MEMBER static T start() {
    if constexpr (kSame<T, c64>) return c64{1.0f, 0.0f};
    else return T(1);
  }
  template <class T> KILN_MEMBER static T join(T a, T b) { return mul(a, b); }
};
struct Max {
  template <class T> KILN_MEMBER static T start() { return lowest<T>(); }
  template <class T> KILN_MEMBER static T join(T a, T b) { return maximum(a, b); }
};
struct Min {
  template <class T> KILN_MEMBER static T start() { return highest<T>(); }
  template <class T> KILN_MEMBER static T join(T a, T b) { return minimum(a, b); }
};
struct Any {
  template <class T> KILN_MEMBER static T start() { return false; }
  template <class T> KILN_MEMBER static T join(T a, T b) { return a | b; }
};
struct All {
  template <class T> KILN_MEMBER static T start() { return true; }
  template <class T> KILN_MEMBER static T join(T a, T b) { return a & b; }
};

// A value and where it stands in its row. The first of equals wins, NaN before every number.
template <class T, class Index>
struct Found {
  T value;
  Index index;
};
template <class T>
KILN_FN bool is_nan(T value) {
  if constexpr (kSame<T, f32> || kSame<T, f64>) return exact::isnan(value);
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
  template <class P> KILN_MEMBER static P start() { return {lowest<decltype(P::value)>(), ~decltype(P::index)(0)}; }
  template <class P> KILN_MEMBER static P join(P a, P b) { return earlier(a, b, b.value > a.value); }
};
struct ArgMin {
  template <class P> KILN_MEMBER static P start() { return {highest<decltype(P::value)>(), ~decltype(P::index)(0)}; }
  template <class P> KILN_MEMBER static P join(P a, P b) { return earlier(a, b, b.value < a.value); }
};

// ---- the lanes of a thread ----------------------------------------------------------------------

// One partial result per lane: neighbours in a row never wait for each other.
template <class T, int Width>
struct Lanes {
  T lane[Width];
  KILN_MEMBER T& operator[](int i) { return lane[i]; }
};

template <class Reduction, class T, int Width>
KILN_FN Lanes<T, Width> start() {
  Lanes<T, Width> lanes;
  KILN_UNROLL for (int i = 0; i < Width; ++i) lanes.lane[i] = Reduction::template start<T>();
  return lanes;
}

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

// A long row is summed in stretches: the lanes of one are added to those of all, and start again. Of n
// elements shared out to a threads of b lanes, a sum is then off by at most
//   (kStretch + n / (a b kStretch) + log2(a b) + 1) u
// of the sum of their sizes, u being half a unit in the last place of 1.
constexpr int kStretch = 64;

template <int Threads, class Index>
KILN_FN bool ends_stretch(Index vector) {
  return vector / Threads % kStretch == kStretch - 1;
}

template <class Reduction, class T, int Width>
KILN_FN void carry(Lanes<T, Width>& all, Lanes<T, Width>& stretch) {
  KILN_UNROLL for (int i = 0; i < Width; ++i) {
    all.lane[i] = Reduction::join(all.lane[i], stretch.lane[i]);
    stretch.lane[i] = Reduction::template start<T>();
  }
}

// ---- the threads of a row -----------------------------------------------------------------------

#if KILN_HOST

template <class T, int Threads>
struct Slots {};
template <class Reduction, int Threads, class T, int Width>
KILN_FN T reduce(Lanes<T, Width>& lanes, Slots<T, Threads>&) {
  return fold<Reduction, Width>(lanes);
}
template <int Threads> KILN_FN bool is_first() { return true; }
template <int Threads, int Rows, class Index>
KILN_FN Index row_of(Index item) { return item; }

// Vectors of a row one after the other. The last one may have fewer lanes.
#define KILN_FOR_EACH_VECTOR(Index, threads, vectors, slot, vector, count) \
  for (Index vector = 0; vector < count; ++vector)

template <int Most, class Index>
KILN_FN int lanes_from(Index first, Index size) {
  return int(size - first < Most ? size - first : Most);
}

#else

#if KILN_AMD
#if defined(__AMDGCN_WAVEFRONT_SIZE__)
constexpr int kWave = __AMDGCN_WAVEFRONT_SIZE__;
#elif defined(__AMDGCN_WAVEFRONT_SIZE)
constexpr int kWave = __AMDGCN_WAVEFRONT_SIZE;
#elif defined(__GFX9__) || defined(__GFX8__)
constexpr int kWave = 64;
#else
constexpr int kWave = 32;
#endif
#else
constexpr int kWave = 32;
#endif

// What the lane has whose number differs from this one's in the bit `Mask`. On AMD the masks below 16
// are moves within the vector unit; 4 and 8 are its mirrors, which meet the same partial result as
// long as all masks below have been joined.
template <int Mask>
KILN_FN u32 exchange_word(u32 value) {
#if KILN_AMD
  if constexpr (Mask == 1) return u32(__builtin_amdgcn_mov_dpp(int(value), 0xb1, 0xf, 0xf, true));
  if constexpr (Mask == 2) return u32(__builtin_amdgcn_mov_dpp(int(value), 0x4e, 0xf, 0xf, true));
  if constexpr (Mask == 4) return u32(__builtin_amdgcn_mov_dpp(int(value), 0x141, 0xf, 0xf, true));
  if constexpr (Mask == 8) return u32(__builtin_amdgcn_mov_dpp(int(value), 0x140, 0xf, 0xf, true));
  if constexpr (Mask == 16) return u32(__builtin_amdgcn_ds_swizzle(int(value), 0x401f));
  return u32(__builtin_amdgcn_ds_bpermute(int((threadIdx.x ^ u32(Mask)) << 2), int(value)));
#else
  return __shfl_xor_sync(0xffffffffu, value, Mask);
#endif
}

template <int Count>
struct Words {
  u32 word[Count];
};

template <int Mask, class T>
KILN_FN T exchange(T value) {
  if constexpr (sizeof(T) % 4 == 0) {
    auto words = bit_cast<Words<int(sizeof(T) / 4)>>(value);
    _Pragma("unroll") for (int i = 0; i < int(sizeof(T) / 4); ++i) {
      words.word[i] = exchange_word<Mask>(words.word[i]);
    }
    return bit_cast<T>(words);
  } else {
    return T(exchange_word<Mask>(u32(value)));
  }
}
template <int Mask, class T, class Index>
KILN_FN Found<T, Index> exchange(Found<T, Index> place) {
  return {exchange<Mask>(place.value), exchange<Mask>(place.index)};
}

template <class Reduction, int Threads, int Mask = 1, class T>
KILN_FN T reduce_wave(T value) {
  if constexpr (Mask >= Threads) {
    return value;
  } else {
    return reduce_wave<Reduction, Threads, Mask * 2>(
        Reduction::join(value, exchange<Mask>(value)));
  }
}

// One place for every wave of a row.
template <class T, int Threads>
struct Slots {
  T wave[(Threads + kWave - 1) / kWave];
};

// Every thread of the row gets the result. Slots are used once; a kernel that takes several rows one
// after the other synchronises between them.
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

template <int Threads> KILN_FN bool is_first() { return threadIdx.x % Threads == 0; }
template <int Threads, int Rows, class Index>
KILN_FN Index row_of(Index item) { return item * Rows + Index(threadIdx.x / Threads); }

// The vectors of a row that this thread handles. With `vectors` of them the loop is unrolled, so that
// what is held for each stays in registers; with none the row may have any length.
#define KILN_FOR_EACH_VECTOR(Index, threads, vectors, slot, vector, count)                       \
  _Pragma("unroll") for (int slot = 0; slot < (vectors > 0 ? vectors : 1); ++slot)               \
    for (Index vector = Index(slot) * (threads) + Index(threadIdx.x) % (threads); vector < count; \
         vector = ::kiln::next_vector<vectors>(vector, Index(threads), Index(count)))

template <int Vectors, class Index>
KILN_FN Index next_vector(Index vector, Index threads, Index count) {
  return Vectors > 0 ? count : vector + threads;
}

template <int Most, class Index>
KILN_FN int lanes_from(Index, Index) { return Most; }

#endif

}  // namespace kiln
