// Ranges of memory that the threads of a block move between global and shared memory in vectors of
// 16 bytes, however they are aligned and whatever the threads compute of them: consecutive rows, or
// a part of a row. On GPUs.
#pragma once

#include "access_gpu.h"
#include "blocks.h"
#include "copies.h"
#include "strides.h"

#if !KILN_HOST
namespace kiln {

enum : int { kStagedBytes = 16, kMostStagedLanes = 8 };

// Room for a range of up to `Elements`, which begins as many elements after a multiple of 16 bytes
// as in global memory, and for the lanes of a vector before it and after it.
template <class T, int Elements>
struct StagedRange {
  enum : int {
    kLanes = kStagedBytes / int(sizeof(T)),
    kBefore = (kMostStagedLanes + kLanes - 1) / kLanes,
    kVectors = (Elements + 2 * kLanes - 2) / kLanes,
  };
  Chunk<kStagedBytes> vector[kBefore + kVectors + kBefore + 1];
  KILN_FN T* elements() { return reinterpret_cast<T*>(vector); }
  // The element at which the range begins that begins there in global memory.
  static KILN_FN u32 begin(const T* range) {
    return u32(kBefore * kLanes) +
           u32(reinterpret_cast<u64>(range) % u64(kStagedBytes)) / u32(sizeof(T));
  }
};

// Calls `whole` for the vectors of elements [begin, end) and `single` for what is before
// the first and after the last of them, each of which one thread of the block has.
template <int Threads, int Elements, int Lanes, class Vector, class Element>
KILN_FN void for_each_staged(u32 begin, u32 end, const Vector& whole, const Element& single) {
  constexpr int kSteps = (Elements / Lanes + Threads - 1) / Threads;
  const u32 first = (begin + u32(Lanes) - 1u) / u32(Lanes);
  const u32 last = end / u32(Lanes);
  _Pragma("unroll") for (int step = 0; step < kSteps; ++step) {
    const u32 at = first + threadIdx.x + u32(step * Threads);
    if (at < last) whole(at * u32(Lanes));
  }
  const u32 head = first * u32(Lanes) < end ? first * u32(Lanes) : end;
  const u32 tail = (first < last ? last : first) * u32(Lanes);
  // Threads beyond those ends have elements past `end`.
  constexpr int kEnds = (2 * Lanes + Threads - 1) / Threads;
  _Pragma("unroll") for (int step = 0; step < kEnds; ++step) {
    const u32 k = threadIdx.x + u32(step * Threads);
    const bool before = k < u32(Lanes);
    const u32 at = before ? begin + k : tail + (k - u32(Lanes));
    if (at < (before ? head : end)) single(at);
  }
}

// Begins to copy `count` elements to shared memory, where threads see them after
// finish_staging(). Returns where they begin.
template <int Threads, class T, int Elements>
KILN_FN u32 stage(StagedRange<T, Elements>& to, const T* range, u32 count) {
  constexpr int kLanes = StagedRange<T, Elements>::kLanes;
  const u32 begin = to.begin(range);
  T* const staged = to.elements();
  const T* const aligned = range - begin;
  for_each_staged<Threads, Elements, kLanes>(
      begin, begin + count,
      [&](u32 at) KILN_INLINED { copy_async<kLanes>(staged, int(at), aligned, at); },
      [&](u32 at) KILN_INLINED { staged[at] = aligned[at]; });
  return begin;
}

// All threads of the block come here.
KILN_FN void finish_staging() {
  end_copies();
  wait_copies<0>();
  KILN_SYNCHRONIZE();
}

// Stores what threads have left in shared memory before they synchronised.
template <int Threads, class T, int Elements>
KILN_FN void store_staged(StagedRange<T, Elements>& from, T* range, u32 count) {
  constexpr int kLanes = StagedRange<T, Elements>::kLanes;
  const u32 begin = from.begin(range);
  const T* const staged = from.elements();
  T* const aligned = range - begin;
  for_each_staged<Threads, Elements, kLanes>(
      begin, begin + count,
      [&](u32 at)
          KILN_INLINED { copy_bytes<kStagedBytes, kStagedBytes>(aligned + at, staged + at); },
      [&](u32 at) KILN_INLINED { aligned[at] = staged[at]; });
}

// A vector of a range, from any element on; its last lanes may be past the end of the range. Whole
// words are read, and shifted: threads side by side would need a bank each for single elements, of
// which they have but every so many-th.
template <int Lanes, class T, int Elements>
KILN_FN Vec<T, Lanes> staged_lanes(StagedRange<T, Elements>& range, u32 at) {
  constexpr int kWord = 4 / int(sizeof(T)) > 1 ? 4 / int(sizeof(T)) : 1;
  constexpr int kWhole = Lanes < kWord ? kWord : Lanes;
  constexpr int kMost = StagedRange<T, Elements>::kLanes;
  constexpr int kPart = kWhole < kMost ? kWhole : kMost;
  Vec<T, Lanes> result;
  _Pragma("unroll") for (int first = 0; first < Lanes; first += kPart) {
    const auto part = load_unaligned<kPart>(range.elements(), at + u32(first), u32(0), true);
    _Pragma("unroll") for (int lane = 0; lane < kPart && first + lane < Lanes; ++lane) {
      result.lane[first + lane] = part.lane[lane];
    }
  }
  return result;
}

// Leaves the first `count` lanes of a vector in a range, from any element on. Of whole vectors of
// 16-bit elements pairs that share a word are written at once.
template <int Lanes, class T, int Elements>
KILN_FN void leave_lanes(StagedRange<T, Elements>& range, u32 at, const Vec<T, Lanes>& value,
                         int count) {
  T* const elements = range.elements();
  if constexpr (sizeof(T) == 2 && Lanes > 2) {
    if (count == Lanes) {
      constexpr int kWords = Lanes / 2;
      const auto words = bit_cast<Words<kWords>>(value);
      const u32 odd = at & 1u;
      T* const whole = elements + (at + odd);
      _Pragma("unroll") for (int i = 0; i + 1 < kWords; ++i) {
        const u32 word = funnel_right(words.word[i], words.word[i + 1], odd * 16u);
        copy_bytes<4, 4>(whole + 2 * i, &word);
      }
      elements[at + (odd != 0 ? 0u : u32(Lanes - 2))] =
          odd != 0 ? value.lane[0] : value.lane[Lanes - 2];
      elements[at + u32(Lanes - 1)] = value.lane[Lanes - 1];
      return;
    }
  }
  _Pragma("unroll") for (int lane = 0; lane < Lanes; ++lane) {
    if (lane < count) elements[at + lane] = value.lane[lane];
  }
}

// The same of a range whose elements are counted backwards: lane i is `i` elements before `at`.
template <int Lanes, class T, int Elements>
KILN_FN Vec<T, Lanes> staged_lanes_before(StagedRange<T, Elements>& range, u32 at) {
  const auto reversed = staged_lanes<Lanes>(range, at - u32(Lanes - 1));
  Vec<T, Lanes> result;
  _Pragma("unroll") for (int lane = 0; lane < Lanes; ++lane) {
    result.lane[lane] = reversed.lane[Lanes - 1 - lane];
  }
  return result;
}
template <int Lanes, class T, int Elements>
KILN_FN void leave_lanes_before(StagedRange<T, Elements>& range, u32 at, const Vec<T, Lanes>& value,
                                int count) {
  if (count == Lanes) {
    Vec<T, Lanes> reversed;
    _Pragma("unroll") for (int lane = 0; lane < Lanes; ++lane) {
      reversed.lane[lane] = value.lane[Lanes - 1 - lane];
    }
    return leave_lanes(range, at - u32(Lanes - 1), reversed, count);
  }
  T* const elements = range.elements();
  _Pragma("unroll") for (int lane = 0; lane < Lanes; ++lane) {
    if (lane < count) elements[at - u32(lane)] = value.lane[lane];
  }
}

}  // namespace kiln
#endif
