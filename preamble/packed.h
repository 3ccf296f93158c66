// Packed elements, two to a byte, the first in the low half. Loads unpack whole bytes into lanes,
// stores pack lanes into whole bytes; rows that begin in the middle of a byte, and strided
// elements, go one by one.
//
// Asked for by: packed Packed Unpacked
#pragma once

#include "access_gpu.h"
#include "convert.h"

namespace kiln {

// The address of a packed element: half bytes from `data`.
template <class T, class Index>
struct Packed {
  T* data;
  Index element;
};

template <class T, class Index>
KILN_FN Packed<T, Index> packed(T* data, Index element) {
  return {data, element};
}

template <class T, class Index, class Offset>
KILN_FN Packed<T, Index> operator+(Packed<T, Index> from, Offset elements) {
  return {from.data, from.element + Index(elements)};
}

template <class T, int Lanes>
struct Unpacked {
  T lane[Lanes];
#if KILN_HOST
  T& operator[](int i) { return lane[i]; }
  const T& operator[](int i) const { return lane[i]; }
#else
  __device__ __forceinline__ T& operator[](int i) { return lane[i]; }
  __device__ __forceinline__ const T& operator[](int i) const { return lane[i]; }
#endif
};

template <class T, class Index>
KILN_FN T element(Packed<const T, Index> from) {
  return T{u8((from.data[from.element >> 1].bits >> ((from.element & 1) * 4)) & 15)};
}

// Writes one half of a byte whose other half no other thread writes.
template <class T, class Index>
KILN_FN void put_alone(Packed<T, Index> to, T value) {
  u8& byte = to.data[to.element >> 1].bits;
  const int shift = int(to.element & 1) * 4;
  byte = u8((byte & (0xf0 >> shift)) | (value.bits & 15) << shift);
}

// Writes one half of a byte whose other half another work item may be writing.
template <class T, class Index>
KILN_FN void put_shared(Packed<T, Index> to, T value) {
  T* const place = to.data + (to.element >> 1);
  const u32 half = u32(to.element & 1) * 4;
#if KILN_HOST
  u8* const byte = &place->bits;
  u8 old = __atomic_load_n(byte, __ATOMIC_RELAXED);
  u8 wanted;
  do {
    wanted = u8((old & (0xf0 >> half)) | (value.bits & 15) << half);
  } while (
      !__atomic_compare_exchange_n(byte, &old, wanted, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
#else
  // GPUs compare and exchange whole words.
  const u64 address = u64(place);
  u32* const word = (u32*)(address & ~u64(3));
  const u32 shift = u32(address & 3) * 8 + half;
  const u32 keep = ~(u32(15) << shift);
  const u32 bits = (u32(value.bits) & 15) << shift;
  u32 old = *(volatile u32*)word;
#if KILN_NVIDIA
  for (u32 seen = atomicCAS(word, old, (old & keep) | bits); seen != old;
       seen = atomicCAS(word, old, (old & keep) | bits)) {
    old = seen;
  }
#else
  while (!__atomic_compare_exchange_n(word, &old, (old & keep) | bits, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
#endif
#endif
}

// Elements [first, first + lanes) of a row that begins with a byte and is aligned to Align bytes at
// every multiple of Lanes. `first` is even, unless it is the only lane.
template <int Lanes, int Align, class T, class Index, class First>
KILN_FN Unpacked<T, Lanes> load(Packed<const T, Index> row, First first, int lanes) {
  Unpacked<T, Lanes> result;
  const Index begin = row.element + Index(first);
#if KILN_HOST
  const T* from = row.data + (begin >> 1);
  for (int i = 0; i < lanes / 2; ++i) {
    const u8 pair = from[i].bits;
    result.lane[2 * i] = T{u8(pair & 15)};
    result.lane[2 * i + 1] = T{u8(pair >> 4)};
  }
  if (lanes % 2 != 0) result.lane[lanes - 1] = T{u8(from[lanes / 2].bits & 15)};
#else
  if constexpr (Lanes == 1) {
    result.lane[0] = element(packed(row.data, begin));
  } else {
    alignas(16) u8 bytes[Lanes / 2];
    copy_bytes<Lanes / 2, Align>(bytes, row.data + (begin >> 1));
    _Pragma("unroll") for (int i = 0; i < Lanes / 2; ++i) {
      result.lane[2 * i] = T{u8(bytes[i] & 15)};
      result.lane[2 * i + 1] = T{u8(bytes[i] >> 4)};
    }
  }
#endif
  return result;
}

#if !KILN_HOST
template <int Ways, int Align, class W, class T, class Index, class First>
KILN_FN Unpacked<T, W::size> load_vectors(W, Packed<const T, Index> row, First first) {
  Unpacked<T, W::size> result;
  _Pragma("unroll") for (int i = 0; i < W::vectors; ++i) {
    const auto part = load<W::each, Align>(row, first + i * W::stride, W::each);
    _Pragma("unroll") for (int k = 0; k < W::each; ++k) {
      result.lane[i * W::each + k] = part.lane[k];
    }
  }
  return result;
}
#endif

// Like load(), for any row and neighbours `stride` elements apart.
template <int Lanes, class T, class Index, class First>
KILN_FN Unpacked<T, Lanes> gather(Packed<const T, Index> row, First first, Index stride,
                                  int lanes) {
  Unpacked<T, Lanes> result;
#if !KILN_HOST
  _Pragma("unroll")
#endif
      for (int lane = 0; lane < (KILN_HOST ? lanes : Lanes); ++lane) {
    result.lane[lane] = element(packed(row.data, row.element + Index(first + lane) * stride));
  }
  return result;
}

template <int Lanes, class T, class Index, class First>
KILN_FN Unpacked<T, Lanes> results(Packed<T, Index>, First) {
  Unpacked<T, Lanes> result;
  return result;
}
template <int Lanes, class T, class Index, class First, class Stride>
KILN_FN Unpacked<T, Lanes> results(Packed<T, Index>, First, Stride) {
  Unpacked<T, Lanes> result;
  return result;
}

// For a row that begins at a whole byte. Work items have an even number of elements, so each byte
// belongs to one work item; only the upper half of the last byte may belong to something else, and
// is kept.
template <int Lanes, int Align, class T, class Index, class First>
KILN_FN void store(Packed<T, Index> row, First first, const Unpacked<T, Lanes>& value, int lanes) {
  const Index begin = row.element + Index(first);
#if KILN_HOST
  T* to = row.data + (begin >> 1);
  for (int i = 0; i < lanes / 2; ++i) {
    to[i] = T{u8((value.lane[2 * i].bits & 15) | value.lane[2 * i + 1].bits << 4)};
  }
  if (lanes % 2 != 0) put_alone(packed(to, lanes - 1), value.lane[lanes - 1]);
#else
  if constexpr (Lanes == 1) {
    put_alone(packed(row.data, begin), value.lane[0]);
  } else {
    alignas(16) u8 bytes[Lanes / 2];
    _Pragma("unroll") for (int i = 0; i < Lanes / 2; ++i) {
      bytes[i] = u8((value.lane[2 * i].bits & 15) | value.lane[2 * i + 1].bits << 4);
    }
    copy_bytes<Lanes / 2, Align>(row.data + (begin >> 1), bytes);
  }
#endif
}

template <int Lanes, class T, class Index, class First>
KILN_FN void scatter(Packed<T, Index> row, First first, Index stride,
                     const Unpacked<T, Lanes>& value, int lanes) {
#if !KILN_HOST
  _Pragma("unroll")
#endif
      for (int lane = 0; lane < (KILN_HOST ? lanes : Lanes); ++lane) {
    put_shared(packed(row.data, row.element + Index(first + lane) * stride), value.lane[lane]);
  }
}

#if KILN_HOST
// The same for a part of a row (host_parts.h), of whose lanes those of the part before are left
// out.
template <class Part, class T, class Index, class First>
KILN_FN Unpacked<T, Part::most> results(const Part&, Packed<T, Index>, First) {
  Unpacked<T, Part::most> result;
  return result;
}
template <class Part, class T, class Index, class First, class Stride>
KILN_FN Unpacked<T, Part::most> results(const Part&, Packed<T, Index>, First, Stride) {
  Unpacked<T, Part::most> result;
  return result;
}
template <class Part, class T, class Index, class First>
KILN_FN void store(const Part& part, Packed<T, Index> row, First first,
                   const Unpacked<T, Part::most>& value) {
  int lane = part.overlap;
  const Index begin = row.element + Index(first);
  if (lane % 2 != 0 && lane < part.lanes) {
    put_alone(packed(row.data, begin + Index(lane)), value.lane[lane]);
    ++lane;
  }
  T* const to = row.data + (begin >> 1);
  for (; lane + 1 < part.lanes; lane += 2) {
    to[lane / 2] = T{u8((value.lane[lane].bits & 15) | value.lane[lane + 1].bits << 4)};
  }
  if (lane < part.lanes) put_alone(packed(row.data, begin + Index(lane)), value.lane[lane]);
}
template <class Part, class T, class Index, class First>
KILN_FN void scatter(const Part& part, Packed<T, Index> row, First first, Index stride,
                     const Unpacked<T, Part::most>& value) {
  for (int lane = part.overlap; lane < part.lanes; ++lane) {
    put_shared(packed(row.data, row.element + Index(first + First(lane)) * stride),
               value.lane[lane]);
  }
}
#endif

}  // namespace kiln
