// Loads and stores of known alignment for the lanes of a work item, and division by run-time
// constants, which turns a work item's number into coordinates.
#pragma once

namespace kiln {

// The largest number of lanes, as a type. for_each_vector calls its body with it, the first
// element, and the number of lanes, which on a GPU is always the largest. Several vectors begin
// `Stride` elements after each other, so that neighbouring threads access whole cache lines at once
// though each has more than one vector.
template <int Lanes, int Vectors = 1, int Stride = 0>
struct Width {
  enum : int {
    size = Lanes * Vectors,
    each = Lanes,
    vectors = Vectors,
    stride = Stride,
    interleave = Lanes >= 128  ? 4
                 : Lanes >= 64 ? 2
                               : 1,  // SIMD vectors, on the CPU
  };
};

#if KILN_HOST
#define KILN_INLINED __attribute__((always_inline))

// On the CPU the lanes of a work item are part of the row itself: the compiler vectorises the loop
// over them, and nothing is copied.
template <class T>
struct Row {
  T* start;
  inline __attribute__((always_inline)) T& operator[](int lane) const { return start[lane]; }
};

template <class T, class Stride>
struct StridedRow {
  T* start;
  Stride stride;
  inline __attribute__((always_inline)) T& operator[](int lane) const {
    return start[lane * stride];
  }
};

template <int Lanes, int Align, class T, class Index>
KILN_FN Row<const T> load(const T* row, Index first) {
  return {row + first};
}
template <int Lanes, class T, class Index, class Stride>
KILN_FN StridedRow<const T, Stride> gather(const T* row, Index first, Stride stride) {
  return {row + Stride(first) * stride, stride};
}
template <int Lanes, class T, class Index>
KILN_FN Row<T> results(T* row, Index first) {
  return {row + first};
}
template <int Lanes, class T, class Index, class Stride>
KILN_FN StridedRow<T, Stride> results(T* row, Index first, Stride stride) {
  return {row + Stride(first) * stride, stride};
}
// Nothing to do: the lanes were written in place.
template <int Lanes, int Align, class T, class Index>
KILN_FN void store(T*, Index, const Row<T>&) {}
template <int Lanes, class T, class Index, class Stride>
KILN_FN void scatter(T*, Index, Stride, const StridedRow<T, Stride>&) {}

// Up to this length the time for the last lanes of a row matters.
enum : int { kShortRow = 128 };
template <int Most>
struct FewerLanes : Width<Most> {
  enum : int { interleave = 1 };
};
template <int Count>
struct FixedLanes {
  constexpr operator int() const { return Count; }
};
template <int Most, class Index, class Body>
KILN_FN void for_each_vector(Index start, Index size, const Body& body) {
  const int lanes = int(size - start < Most ? size - start : Most);
  if constexpr (Most > kShortRow) {
    body(Width<Most>(), start, lanes);
  } else if (lanes == Most) {
    body(Width<Most>(), start, FixedLanes<Most>());
  } else {
    body(FewerLanes<Most>(), start, lanes);
  }
}

// Large outputs bypass the caches, which would fetch every line before it is overwritten: they are
// collected here and stored in whole vectors.
template <class T, int Lanes>
struct Collected {
  alignas(64) T lane[Lanes];
  inline __attribute__((always_inline)) T& operator[](int i) { return lane[i]; }
  inline __attribute__((always_inline)) const T& operator[](int i) const { return lane[i]; }
};
template <int Lanes, class T>
KILN_FN Collected<T, Lanes> collect(const T*) {
  Collected<T, Lanes> lanes;
  return lanes;
}

#ifdef __AVX512F__
typedef long long StreamVector __attribute__((vector_size(64)));
#elif defined(__AVX__)
typedef long long StreamVector __attribute__((vector_size(32)));
#else
typedef long long StreamVector __attribute__((vector_size(16)));
#endif
KILN_FN void stream_vector(StreamVector* to, StreamVector value) {
#if defined(__clang__)
  __builtin_nontemporal_store(value, to);
#elif defined(__AVX512F__)
  __builtin_ia32_movntdq512(to, value);
#elif defined(__AVX__)
  __builtin_ia32_movntdq256(to, value);
#elif defined(__SSE2__)
  __builtin_ia32_movntdq(to, value);
#else
  *to = value;
#endif
}

template <class T, int Lanes, class Index>
KILN_FN void stream(T* row, Index first, int lanes, const Collected<T, Lanes>& values) {
  constexpr u64 kBytes = sizeof(StreamVector);
  u8* to = reinterpret_cast<u8*>(row + first);
  const u8* from = reinterpret_cast<const u8*>(values.lane);
  u64 bytes = u64(lanes) * sizeof(T);
  const u64 past = reinterpret_cast<u64>(to) % kBytes;
  if (past == 0 && lanes == Lanes) {  // the usual case, of known length
    for (u64 at = 0; at < sizeof(T) * Lanes; at += kBytes) {
      StreamVector value;
      __builtin_memcpy(&value, from + at, kBytes);
      stream_vector(reinterpret_cast<StreamVector*>(to + at), value);
    }
    return;
  }
  const u64 head = past == 0 ? 0 : kBytes - past < bytes ? kBytes - past : bytes;
  if (head != 0) __builtin_memcpy(to, from, head);
  for (to += head, from += head, bytes -= head; bytes >= kBytes;
       to += kBytes, from += kBytes, bytes -= kBytes) {
    StreamVector value;
    __builtin_memcpy(&value, from, kBytes);
    stream_vector(reinterpret_cast<StreamVector*>(to), value);
  }
  if (bytes != 0) __builtin_memcpy(to, from, bytes);
}

// Non-temporal stores are not ordered with others: this makes them visible before the kernel
// returns.
KILN_FN void finish_streams() {
#ifdef __SSE2__
  __builtin_ia32_sfence();
#else
  __atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

#else

// On a GPU the lanes of a work item are `Lanes` elements in registers.
template <class T, int Lanes>
struct Vec {
  enum : int { kBytes = int(sizeof(T)) * Lanes };
  alignas(kBytes % 16 == 0 ? 16 : kBytes & -kBytes) T lane[Lanes];
  __device__ __forceinline__ T& operator[](int i) { return lane[i]; }
  __device__ __forceinline__ const T& operator[](int i) const { return lane[i]; }
};

// Parts of elements of any type: without the attribute the compiler of HIP 5.2 takes a copy by
// words for one that no element can see, and drops it.
#if KILN_AMD
#define KILN_MAY_ALIAS [[gnu::may_alias]]
#else
#define KILN_MAY_ALIAS
#endif

template <int Bytes>
struct alignas(Bytes) KILN_MAY_ALIAS Chunk {
  u8 byte[Bytes];
};
template <>
struct alignas(16) KILN_MAY_ALIAS Chunk<16> {
  u32 word[4];
};
template <>
struct alignas(8) KILN_MAY_ALIAS Chunk<8> {
  u32 word[2];
};
template <>
struct KILN_MAY_ALIAS Chunk<4> {
  u32 word;
};
template <>
struct KILN_MAY_ALIAS Chunk<2> {
  u16 half;
};

template <int Count>
struct Words {
  u32 word[Count];
};

// Copies Bytes between registers and memory that is aligned to Align, in the widest accesses that
// the alignment allows.
template <int Bytes, int Align>
KILN_FN void copy_bytes(void* to, const void* from) {
  constexpr int kLargest = Align < 16 ? Align : 16;
  constexpr int kChunk = kLargest < (Bytes & -Bytes) ? kLargest : (Bytes & -Bytes);
  _Pragma("unroll") for (int i = 0; i < Bytes / kChunk; ++i) {
    static_cast<Chunk<kChunk>*>(to)[i] = static_cast<const Chunk<kChunk>*>(from)[i];
  }
}

// Elements [first, first + Lanes) of a row that is aligned to Align bytes at every multiple of
// Lanes.
template <int Lanes, int Align, class T, class Index>
KILN_FN Vec<T, Lanes> load(const T* row, Index first) {
  Vec<T, Lanes> result;
  copy_bytes<Vec<T, Lanes>::kBytes, Align>(result.lane, row + first);
  return result;
}

// Like load(), in 32-bit words. A bf16 in the upper half of a word is an f32 after one instruction
// if NVIDIA's compiler sees the word, else after two; but words take more registers.
template <int Lanes, int Align, class T, class Index>
KILN_FN Vec<T, Lanes> load_words(const T* row, Index first) {
  if constexpr (is_same<T, bf16>() && Lanes % 2 == 0) {
    Words<Lanes / 2> words;
    copy_bytes<Vec<T, Lanes>::kBytes, Align>(words.word, row + first);
    Vec<T, Lanes> result;
    _Pragma("unroll") for (int i = 0; i < Lanes; ++i) {
      result.lane[i].bits = u16(words.word[i / 2] >> (i % 2 * 16));
    }
    return result;
  } else {
    return load<Lanes, Align>(row, first);
  }
}

// Like load(), where neighbours are `stride` elements apart.
template <int Lanes, class T, class Index, class Stride>
KILN_FN Vec<T, Lanes> gather(const T* row, Index first, Stride stride) {
  Vec<T, Lanes> result;
  _Pragma("unroll") for (int lane = 0; lane < Lanes; ++lane) {
    result.lane[lane] = row[Stride(first + lane) * stride];
  }
  return result;
}

// Like load(), for a row that is aligned where `first` is not a multiple of Lanes: takes the
// elements out of the two aligned vectors that they straddle. The second may be past the end of the
// row, unless `inner`, which saves a branch that other loads would wait for.
template <int Lanes, class T, class Index>
KILN_FN Vec<T, Lanes> load_unaligned(const T* row, Index first, Index size, bool inner) {
  using Vector = Vec<T, Lanes>;
  constexpr int kWords = Vector::kBytes / 4;
  const u32 past = u32(first) % Lanes;
  if (!inner && first - past + 2 * Lanes > size) return gather<Lanes>(row, first, Index(1));
  const auto low = bit_cast<Words<kWords>>(load<Lanes, Vector::kBytes>(row, first - past));
  const auto high = bit_cast<Words<kWords>>(load<Lanes, Vector::kBytes>(row, first - past + Lanes));
  u32 word[2 * kWords];
  _Pragma("unroll") for (int i = 0; i < kWords; ++i) {
    word[i] = low.word[i];
    word[kWords + i] = high.word[i];
  }
  const u32 bytes = past * u32(sizeof(T));
  _Pragma("unroll") for (int step = kWords / 2; step > 0; step /= 2) {
    const bool by_step = (bytes & u32(step * 4)) != 0;
    _Pragma("unroll") for (int i = 0; i + step < 2 * kWords; ++i) {
      word[i] = by_step ? word[i + step] : word[i];
    }
  }
  Words<kWords> result;
  _Pragma("unroll") for (int i = 0; i < kWords; ++i) {
    const u64 two = u64(word[i + 1]) << 32 | word[i];
    result.word[i] = sizeof(T) < 4 ? u32(two >> (bytes % 4 * 8)) : word[i];
  }
  return bit_cast<Vector>(result);
}

// The lanes of an output, until they are stored.
template <int Lanes, class T, class Index>
KILN_FN Vec<T, Lanes> results(T*, Index) {
  return {};
}
template <int Lanes, class T, class Index, class Stride>
KILN_FN Vec<T, Lanes> results(T*, Index, Stride) {
  return {};
}

template <int Lanes, int Align, class T, class Index>
KILN_FN void store(T* row, Index first, const Vec<T, Lanes>& value) {
  copy_bytes<Vec<T, Lanes>::kBytes, Align>(row + first, value.lane);
}

// Copies 16 bytes to shared memory, where this thread sees them after wait_copies(). They bypass
// registers on GPUs that can do that.
template <int Lanes, class T, class Index>
KILN_FN void copy_async(T* to, int place, const T* row, Index first) {
  static_assert(sizeof(T) * Lanes == 16, "copy_async: not 16 bytes");
#if KILN_NVIDIA && __CUDA_ARCH__ >= 800
  copy_chunk(to + place, row + first);
  commit_copies();
#else
  store<Lanes, 16>(to, place, load<Lanes, 16>(row, first));
#endif
}
// Waits until at most `Left` of the latest copies are in flight.
template <int Left>
KILN_FN void wait_copies() {
#if KILN_NVIDIA && __CUDA_ARCH__ >= 800
  wait_copy_groups<Left>();
#endif
}

template <int Lanes, class T, class Index, class Stride>
KILN_FN void scatter(T* row, Index first, Stride stride, const Vec<T, Lanes>& value) {
  _Pragma("unroll") for (int lane = 0; lane < Lanes; ++lane) {
    row[Stride(first + lane) * stride] = value.lane[lane];
  }
}

// All vectors of a work item, with `Ways` interleaved elements for every lane.
template <int Ways, int Align, class W, class T, class Index>
KILN_FN Vec<T, Ways * W::size> load_vectors(W, const T* row, Index first) {
  Vec<T, Ways * W::size> result;
  _Pragma("unroll") for (int i = 0; i < W::vectors; ++i) {
    const auto part = load<Ways * W::each, Align>(row, Index(Ways) * (first + i * W::stride));
    _Pragma("unroll") for (int k = 0; k < Ways * W::each; ++k) {
      result.lane[i * Ways * W::each + k] = part.lane[k];
    }
  }
  return result;
}
template <class W, class T, class Index, class Stride>
KILN_FN Vec<T, W::size> gather_vectors(W, const T* row, Index first, Stride stride) {
  Vec<T, W::size> result;
  _Pragma("unroll") for (int lane = 0; lane < W::size; ++lane) {
    result.lane[lane] = row[Stride(first + lane / W::each * W::stride + lane % W::each) * stride];
  }
  return result;
}
template <int Ways, int Align, class W, class T, class Index>
KILN_FN void store_vectors(W, T* row, Index first, const Vec<T, Ways * W::size>& value) {
  _Pragma("unroll") for (int i = 0; i < W::vectors; ++i) {
    Vec<T, Ways * W::each> part;
    _Pragma("unroll") for (int k = 0; k < Ways * W::each; ++k) {
      part.lane[k] = value.lane[i * Ways * W::each + k];
    }
    store<Ways * W::each, Align>(row, Index(Ways) * (first + i * W::stride), part);
  }
}
template <class W, class T, class Index, class Stride>
KILN_FN void scatter_vectors(W, T* row, Index first, Stride stride, const Vec<T, W::size>& value) {
  _Pragma("unroll") for (int lane = 0; lane < W::size; ++lane) {
    row[Stride(first + lane / W::each * W::stride + lane % W::each) * stride] = value.lane[lane];
  }
}

// The first element of a work item: `Threads` neighbouring items interleave their vectors.
template <int Threads, int Vectors, int Lanes, class Index>
KILN_FN Index first_of(Index item) {
  return item / Threads * (Threads * Vectors * Lanes) + item % Threads * Lanes;
}

// Full vectors have no branch, so that all their loads are in flight at once; the end of a row goes
// element by element.
template <int Most, class Index, class Body>
KILN_FN void for_each_vector(Index start, Index size, const Body& body) {
  if (Most == 1 || start + Most <= size) {
    body(Width<Most>(), start, Most);
  } else {
    for (Index first = start; first < size; ++first) body(Width<1>(), first, 1);
  }
}
template <int Lanes, int Vectors, int Stride, class Index, class Body>
KILN_FN void for_each_vectors(Index start, Index size, const Body& body) {
  if (start + (Vectors - 1) * Stride + Lanes <= size) {
    body(Width<Lanes, Vectors, Stride>(), start, Lanes * Vectors);
  } else {
    for (Index first = start; first < size && first < start + Vectors * Stride; first += Stride) {
      for_each_vector<Lanes>(first, size, body);
    }
  }
}

#endif

// n / divisor as multiply and shift, prepared on the host
// (fusion/schedule/elementwise/elementwise.cpp). Exact for n < 2^31 and divisor <= 2^31: Granlund
// and Montgomery, "Division by Invariant Integers using Multiplication", PLDI 1994.
struct Divisor32 {
  u32 divisor;
  u32 multiplier;
  u32 shift;
};

KILN_FN u32 divide(u32 n, Divisor32 by) {
  return (u32((u64(n) * by.multiplier) >> 32) + n) >> by.shift;
}

// 64-bit indices are for operands that span more than 2^31 elements: plain division.
struct Divisor64 {
  u64 divisor;
};

KILN_FN u64 divide(u64 n, Divisor64 by) { return n / by.divisor; }

}  // namespace kiln
