// How kernels reach memory: the lanes of a work item, loads and stores of known alignment, and the
// division by run-time constants that turns a work item's number into coordinates.
#pragma once

namespace kiln {

#if KILN_HOST

// On the host the lanes of a work item are a stretch of the row itself: the loop over
// them is what the compiler vectorises, and nothing is copied.
template <class T>
struct Row {
  T* start;
  inline __attribute__((always_inline)) T& operator[](int lane) const { return start[lane]; }
};

template <class T, class Stride>
struct StridedRow {
  T* start;
  Stride stride;
  inline __attribute__((always_inline)) T& operator[](int lane) const { return start[lane * stride]; }
};

template <int Width, int Align, class T, class Index>
KILN_FN Row<const T> load(const T* row, Index first, Index) {
  return {row + first};
}
template <int Width, class T, class Index, class Stride>
KILN_FN StridedRow<const T, Stride> gather(const T* row, Index first, Index, Stride stride) {
  return {row + Stride(first) * stride, stride};
}
template <int Width, class T, class Index>
KILN_FN Row<T> results(T* row, Index first) {
  return {row + first};
}
template <int Width, class T, class Index, class Stride>
KILN_FN StridedRow<T, Stride> results(T* row, Index first, Stride stride) {
  return {row + Stride(first) * stride, stride};
}
// The lanes were written where they belong.
template <int Width, int Align, class T, class Index>
KILN_FN void store(T*, Index, Index, const Row<T>&) {}
template <int Width, class T, class Index, class Stride>
KILN_FN void scatter(T*, Index, Index, Stride, const StridedRow<T, Stride>&) {}

#else

// On a GPU the lanes of a work item are `Width` elements in registers.
template <class T, int Width>
struct Vec {
  static constexpr int kBytes = int(sizeof(T)) * Width;
  alignas(kBytes % 16 == 0 ? 16 : kBytes & -kBytes) T lane[Width];
  __device__ __forceinline__ T& operator[](int i) { return lane[i]; }
  __device__ __forceinline__ const T& operator[](int i) const { return lane[i]; }
};

template <int Bytes>
struct alignas(Bytes) Chunk {
  u8 byte[Bytes];
};
template <>
struct alignas(16) Chunk<16> {
  u32 word[4];
};
template <>
struct alignas(8) Chunk<8> {
  u32 word[2];
};
template <>
struct Chunk<4> {
  u32 word;
};
template <>
struct Chunk<2> {
  u16 half;
};

template <int Bytes> struct WordOf;
template <> struct WordOf<1> { using Type = u8; };
template <> struct WordOf<2> { using Type = u16; };
template <> struct WordOf<4> { using Type = u32; };
template <> struct WordOf<8> { using Type = u64; };

// Copies Bytes between registers and memory that is aligned to Align, in the widest accesses that the
// alignment allows.
template <int Bytes, int Align>
KILN_FN void copy_bytes(void* to, const void* from) {
  constexpr int kLargest = Align < 16 ? Align : 16;
  constexpr int kChunk = kLargest < (Bytes & -Bytes) ? kLargest : (Bytes & -Bytes);
  _Pragma("unroll") for (int i = 0; i < Bytes / kChunk; ++i) {
    static_cast<Chunk<kChunk>*>(to)[i] = static_cast<const Chunk<kChunk>*>(from)[i];
  }
}

// Accesses to one element at the end of a row. Volatile, so that the compiler does not take them
// together with what the full vectors of the other branch access, and split those.
template <class T>
KILN_FN T load_apart(const T* from) {
  using Word = typename WordOf<sizeof(T)>::Type;
  return bit_cast<T>(*reinterpret_cast<const volatile Word*>(from));
}
template <class T>
KILN_FN void store_apart(T* to, T value) {
  using Word = typename WordOf<sizeof(T)>::Type;
  *reinterpret_cast<volatile Word*>(to) = bit_cast<Word>(value);
}

// Elements [first, first + Width) of a row of `size` elements at `row`, which is aligned to Align
// bytes at every multiple of Width. Lanes past the end of the row are zero.
template <int Width, int Align, class T, class Index>
KILN_FN Vec<T, Width> load(const T* row, Index first, Index size) {
  Vec<T, Width> result;
  if (Width == 1 || first + Width <= size) {
    copy_bytes<Vec<T, Width>::kBytes, Align>(result.lane, row + first);
  } else {
    _Pragma("unroll") for (int lane = 0; lane < Width; ++lane) {
      result.lane[lane] = first + lane < size ? load_apart(row + first + lane) : T{};
    }
  }
  return result;
}

// The same where neighbours in the row lie `stride` elements apart.
template <int Width, class T, class Index, class Stride>
KILN_FN Vec<T, Width> gather(const T* row, Index first, Index size, Stride stride) {
  Vec<T, Width> result;
  _Pragma("unroll") for (int lane = 0; lane < Width; ++lane) {
    const Index i = first + lane;
    result.lane[lane] = Width == 1 || i < size ? row[Stride(i) * stride] : T{};
  }
  return result;
}

// Where the lanes of an output are put until they are stored.
template <int Width, class T, class Index>
KILN_FN Vec<T, Width> results(T*, Index) {
  return {};
}
template <int Width, class T, class Index, class Stride>
KILN_FN Vec<T, Width> results(T*, Index, Stride) {
  return {};
}

// Stores the lanes that lie inside the row.
template <int Width, int Align, class T, class Index>
KILN_FN void store(T* row, Index first, Index size, const Vec<T, Width>& value) {
  if (Width == 1 || first + Width <= size) {
    copy_bytes<Vec<T, Width>::kBytes, Align>(row + first, value.lane);
  } else {
    _Pragma("unroll") for (int lane = 0; lane < Width; ++lane) {
      if (first + lane < size) store_apart(row + first + lane, value.lane[lane]);
    }
  }
}

template <int Width, class T, class Index, class Stride>
KILN_FN void scatter(T* row, Index first, Index size, Stride stride, const Vec<T, Width>& value) {
  _Pragma("unroll") for (int lane = 0; lane < Width; ++lane) {
    const Index i = first + lane;
    if (Width == 1 || i < size) row[Stride(i) * stride] = value.lane[lane];
  }
}

#endif

// n / divisor as multiply and shift, prepared on the host (fusion/layout.cpp). Exact for n < 2^31 and
// divisor <= 2^31: Granlund and Montgomery, "Division by Invariant Integers using Multiplication",
// PLDI 1994.
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
