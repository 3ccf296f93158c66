// How kernels reach memory: short vectors of elements, loads and stores of known alignment, and the
// division by run-time constants that turns a work item's number into coordinates.
#pragma once

namespace kiln {

// `Width` elements that one work item loads, computes and stores together.
template <class T, int Width>
struct Vec {
  static constexpr int kBytes = int(sizeof(T)) * Width;
  alignas(kBytes % 16 == 0 ? 16 : kBytes & -kBytes) T lane[Width];
};

// Copies Bytes between a vector and memory that is aligned to Align, in the widest accesses that the
// alignment allows.
template <int Bytes, int Align>
KILN_FN void copy_bytes(void* to, const void* from) {
#if KILN_HOST
  __builtin_memcpy(to, from, Bytes);
#else
  constexpr int kLargest = Align < 16 ? Align : 16;
  constexpr int kChunk = kLargest < (Bytes & -Bytes) ? kLargest : (Bytes & -Bytes);
  if constexpr (kChunk == 16) {
    struct alignas(16) Chunk { u32 word[4]; };
    _Pragma("unroll") for (int i = 0; i < Bytes / 16; ++i) ((Chunk*)to)[i] = ((const Chunk*)from)[i];
  } else if constexpr (kChunk == 8) {
    struct alignas(8) Chunk { u32 word[2]; };
    _Pragma("unroll") for (int i = 0; i < Bytes / 8; ++i) ((Chunk*)to)[i] = ((const Chunk*)from)[i];
  } else if constexpr (kChunk == 4) {
    _Pragma("unroll") for (int i = 0; i < Bytes / 4; ++i) ((u32*)to)[i] = ((const u32*)from)[i];
  } else if constexpr (kChunk == 2) {
    _Pragma("unroll") for (int i = 0; i < Bytes / 2; ++i) ((u16*)to)[i] = ((const u16*)from)[i];
  } else {
    _Pragma("unroll") for (int i = 0; i < Bytes; ++i) ((u8*)to)[i] = ((const u8*)from)[i];
  }
#endif
}

// Elements [first, first + Width) of a row of `size` elements at `row`, which is aligned to Align
// bytes at every multiple of Width. Lanes past the end of the row are zero.
template <int Width, int Align, class T, class Index>
KILN_FN Vec<T, Width> load(const T* row, Index first, Index size) {
  Vec<T, Width> result;
  if (Width == 1 || first + Width <= size) {
    copy_bytes<Vec<T, Width>::kBytes, Align>(result.lane, row + first);
  } else {
    _Pragma("GCC unroll 1") for (int lane = 0; lane < Width; ++lane) {
      result.lane[lane] = first + lane < size ? row[first + lane] : T{};
    }
  }
  return result;
}

// The same where neighbours in the row lie `stride` elements apart; a stride of 0 repeats one.
template <int Width, class T, class Index, class Stride>
KILN_FN Vec<T, Width> gather(const T* row, Index first, Index size, Stride stride) {
  Vec<T, Width> result;
  KILN_FOR_EACH_LANE(lane, Width) {
    const Index i = first + lane;
    result.lane[lane] = Width == 1 || i < size ? row[Stride(i) * stride] : T{};
  }
  return result;
}

// Stores the lanes that lie inside the row.
template <int Width, int Align, class T, class Index>
KILN_FN void store(T* row, Index first, Index size, const Vec<T, Width>& value) {
  if (Width == 1 || first + Width <= size) {
    copy_bytes<Vec<T, Width>::kBytes, Align>(row + first, value.lane);
  } else {
    _Pragma("GCC unroll 1") for (int lane = 0; lane < Width; ++lane) {
      if (first + lane < size) row[first + lane] = value.lane[lane];
    }
  }
}

template <int Width, class T, class Index, class Stride>
KILN_FN void scatter(T* row, Index first, Index size, Stride stride, const Vec<T, Width>& value) {
  for (int lane = 0; lane < Width; ++lane) {
    const Index i = first + lane;
    if (Width == 1 || i < size) row[Stride(i) * stride] = value.lane[lane];
  }
}

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
