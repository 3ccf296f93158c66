// The lanes of a work item on GPUs: registers, loaded and stored in vectors of known alignment.
#pragma once

#include "access.h"

#if !KILN_HOST
namespace kiln {

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

}  // namespace kiln

// As many bytes as the launch asks for. Copies of a wave are faster where they write whole 128-byte
// lines of shared memory.
#define KILN_DYNAMIC_SHARED(alignment, name) \
  extern __shared__ __attribute__((aligned(alignment))) ::kiln::Chunk<16> name[]
#endif
