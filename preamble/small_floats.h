// Outputs of 8-bit floats on NVIDIA GPUs: several are converted at a time when their vector is
// stored. Single conversions are in convert.h.
//
// Asked for by: unrounded_results Unrounded
#pragma once

#include "access_gpu.h"
#include "convert.h"

#if KILN_NVIDIA
namespace kiln {

// Four neighbours, the first in the lowest byte.
template <class T>
KILN_FN u32 encode_four(f32 a, f32 b, f32 c, f32 d) {
#if __CUDA_ARCH__ >= 890
  if constexpr (is_same<T, f8e4m3>()) {
    u32 codes;  // right but for the sign of NaN
    asm("{\n"
        ".reg .b16 low, high;\n"
        "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high};\n"
        "}"
        : "=r"(codes)
        : "f"(a), "f"(b), "f"(c), "f"(d));
    const u32 low = __byte_perm(bit_cast<u32>(a), bit_cast<u32>(b), 0x0073);
    const u32 high = __byte_perm(bit_cast<u32>(c), bit_cast<u32>(d), 0x7300);
    return codes | (__byte_perm(low, high, 0x7610) & 0x80808080u);
  }
  if constexpr (is_same<T, f8e5m2>()) {
    if (a == a && b == b && c == c && d == d) {  // NaN has a payload, which is lost here
      u32 codes;
      asm("{\n"
          ".reg .b16 low, high;\n"
          "cvt.rn.satfinite.e5m2x2.f32 low, %2, %1;\n"
          "cvt.rn.satfinite.e5m2x2.f32 high, %4, %3;\n"
          "mov.b32 %0, {low, high};\n"
          "}"
          : "=r"(codes)
          : "f"(a), "f"(b), "f"(c), "f"(d));
      return codes;
    }
  }
#endif
  return u32(encode<T>(a).bits) | u32(encode<T>(b).bits) << 8 | u32(encode<T>(c).bits) << 16 |
         u32(encode<T>(d).bits) << 24;
}

// Lanes of an output as they are computed.
template <class T, int Lanes>
struct Unrounded {
  f32 lane[Lanes];
  __device__ __forceinline__ f32& operator[](int i) { return lane[i]; }
  __device__ __forceinline__ const f32& operator[](int i) const { return lane[i]; }
};

template <int Lanes, class T, class Index>
KILN_FN Unrounded<T, Lanes> unrounded_results(T*, Index) {
  Unrounded<T, Lanes> lanes;
  return lanes;
}

template <int Lanes, int Align, class T, class Index>
KILN_FN void store(T* row, Index first, const Unrounded<T, Lanes>& value) {
  if constexpr (Lanes % 4 == 0) {
    Words<Lanes / 4> words;
    _Pragma("unroll") for (int i = 0; i < Lanes / 4; ++i) {
      words.word[i] = encode_four<T>(value.lane[4 * i], value.lane[4 * i + 1],
                                     value.lane[4 * i + 2], value.lane[4 * i + 3]);
    }
    store<Lanes, Align>(row, first, bit_cast<Vec<T, Lanes>>(words));
  } else {
    Vec<T, Lanes> rounded;
    _Pragma("unroll") for (int i = 0; i < Lanes; ++i) rounded.lane[i] = encode<T>(value.lane[i]);
    store<Lanes, Align>(row, first, rounded);
  }
}

}  // namespace kiln
#endif
