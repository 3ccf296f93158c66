// How the host goes through rows: its lanes are stretches of a row, of which the compiler makes
// SIMD vectors, and the last elements, of which there are no whole vectors, are computed with as
// others are. Also what stands on the host for the threads of a GPU's row.
#pragma once

#if KILN_HOST

// Lanes whose number is fixed, or a multiple of what SIMD vectors have: without that, and unrolled
// before they become vectors, many would be computed one by one. `part` is what the lanes are of.
#if defined(__clang__)
// clang-format off
#define KILN_FOR_EACH_LANE_OF(lane, part) \
  _Pragma("clang loop vectorize(assume_safety) interleave_count(part.interleave) unroll(disable)") \
  for (int lane = 0; lane < part.lanes; ++lane)
#define KILN_FOR_EIGHT_LANES(lane) \
  _Pragma("clang loop vectorize(assume_safety) interleave_count(1) unroll(disable)") \
  for (int lane = 0; lane < 8; ++lane)
// clang-format on
#else
#define KILN_FOR_EACH_LANE_OF(lane, part) \
  _Pragma("GCC ivdep") _Pragma("GCC unroll 1") for (int lane = 0; lane < part.lanes; ++lane)
#define KILN_FOR_EIGHT_LANES(lane) \
  _Pragma("GCC ivdep") _Pragma("GCC unroll 1") for (int lane = 0; lane < 8; ++lane)
#endif

namespace kiln {

// ---- parts of a row -----------------------------------------------------------------------------

// Floats in the widest SIMD vector.
#if defined(__AVX512F__)
enum : int { kSimd = 16 };
#elif defined(__AVX__)
enum : int { kSimd = 8 };
#else
enum : int { kSimd = 4 };
#endif

// What rows of up to `Most` elements at a time are cut into: a few SIMD vectors that do not wait
// for each other, but no more than the shortest of these rows has. Of those of eight it may have
// one.
template <int Most>
struct PartOf {
  enum : int {
    few = kSimd < 8 ? 8 : kSimd,
    size = Most > 64    ? 32
           : Most > 32  ? 16
           : Most < few ? Most
                        : few,
    interleave = size < kSimd ? 1 : size / kSimd,
  };
  enum : bool { copies = size > Most / 2 };
};

// All `Most` lanes, the whole parts among them, and the part at the end of a row, of whose lanes
// the first ones, `others`, are none of its own. `at` is the first lane's place among all. Lanes
// that are no part's own are computed too, from elements of the same row, and nothing is done with
// the results.
template <int Most>
struct AllLanes {
  enum : int { lanes = Most, most = Most, at = 0, others = 0 };
  enum : int { interleave = Most < kSimd ? 1 : PartOf<Most>::interleave };
  enum : bool { copies = false, last = false };
  KILN_MEMBER bool has(int) const { return true; }
};
template <int Most>
struct WholeParts {
  enum : int { most = Most, at = 0, others = 0, interleave = PartOf<Most>::interleave };
  enum : bool { copies = false, last = false };
  int lanes;
  KILN_MEMBER bool has(int) const { return true; }
};

// Which lanes are not before a place: as many bits as a float, which is what they choose most
// often.
enum : int { kMostOthers = 32 };
#define KILN_EIGHT(word) word, word, word, word, word, word, word, word
alignas(64) constexpr u32 kFromPlace[2 * kMostOthers] = {
    KILN_EIGHT(0u),  KILN_EIGHT(0u),  KILN_EIGHT(0u),  KILN_EIGHT(0u),
    KILN_EIGHT(~0u), KILN_EIGHT(~0u), KILN_EIGHT(~0u), KILN_EIGHT(~0u)};
#undef KILN_EIGHT

template <int Most>
struct LastPart {
  enum : int { lanes = PartOf<Most>::size, most = lanes, interleave = PartOf<Most>::interleave };
  enum : bool { copies = PartOf<Most>::copies, last = true };
  int at;
  int others;
  const u32* own;
  KILN_MEMBER LastPart(int from, int count)
      : at(from), others(lanes - count), own(kFromPlace + kMostOthers - (lanes - count)) {}
  KILN_MEMBER bool has(int lane) const { return i32(own[lane]) < 0; }
};

// The last vector of a row may have fewer lanes.
template <int Most, class Index>
KILN_FN int lanes_from(Index first, Index size) {
  return int(size - first < Most ? size - first : Most);
}

// The body gets a part, and where its first lane is in the row.
template <int Most, class Index, class Body>
KILN_FN void for_each_part(Index first, Index size, const Body& body) {
  constexpr int kPart = PartOf<Most>::size;
  const int lanes = lanes_from<Most>(first, size);
  const int whole = lanes & -kPart;
  if constexpr (kPart < Most) {
    if (whole >= kPart) body(WholeParts<Most>{whole}, first);
  }
  if (whole != lanes) body(LastPart<Most>(whole, lanes - whole), size - Index(kPart));
}

// ---- their elements -----------------------------------------------------------------------------

template <int Count, class T>
KILN_FN void copy_both_ends(T* to, const T* from, int count) {
  T first[Count];
  T last[Count];
  __builtin_memcpy(first, from, sizeof first);
  __builtin_memcpy(last, from + count - Count, sizeof last);
  __builtin_memcpy(to, first, sizeof first);
  __builtin_memcpy(to + count - Count, last, sizeof last);
}
// From 1 to 31 elements.
template <class T>
KILN_FN void copy_few(T* to, const T* from, int count) {
  if (count >= 16)
    copy_both_ends<16>(to, from, count);
  else if (count >= 8)
    copy_both_ends<8>(to, from, count);
  else if (count >= 4)
    copy_both_ends<4>(to, from, count);
  else if (count >= 2)
    copy_both_ends<2>(to, from, count);
  else
    *to = *from;
}

// The lanes that are not the part's own are elements before it; a row that is shorter has none
// there, and is copied.
template <class Part, class T, class Index>
KILN_FN auto load(const Part& part, const T* row, Index first) {
  if constexpr (Part::copies) {
    const T* const from = row + Index(first + Index(part.others));
    Collected<T, Part::lanes> copy;
    for (int lane = 0; lane < Part::lanes; ++lane) copy.lane[lane] = *from;
    copy_few(copy.lane + part.others, from, part.lanes - part.others);
    return copy;
  } else {
    return Row<const T>{row + first};
  }
}
template <class Part, class T, class Index, class Stride>
KILN_FN auto gather(const Part& part, const T* row, Index first, Stride stride) {
  if constexpr (Part::copies) {
    Collected<T, Part::lanes> copy;
    for (int lane = 0; lane < Part::lanes; ++lane) {
      const int own = lane < part.others ? part.others : lane;
      copy.lane[lane] = row[Stride(Index(first + Index(own))) * stride];
    }
    return copy;
  } else {
    return StridedRow<const T, Stride>{row + Stride(first) * stride, stride};
  }
}

// The results of the last part are collected: where they replace what is read, lanes before its own
// have other results by then.
template <class Part, class T, class Index>
KILN_FN auto results(const Part&, T* row, Index first) {
  if constexpr (Part::last)
    return Collected<T, Part::lanes>();
  else
    return Row<T>{row + first};
}
template <class Part, class T, class Index, class Stride>
KILN_FN auto results(const Part&, T* row, Index first, Stride stride) {
  if constexpr (Part::last)
    return Collected<T, Part::lanes>();
  else
    return StridedRow<T, Stride>{row + Stride(first) * stride, stride};
}
template <class Part, class T, class Index, class Lanes>
KILN_FN void store(const Part& part, T* row, Index first, const Lanes& values) {
  if constexpr (Part::last) {
    copy_few(row + Index(first + Index(part.others)), values.lane + part.others,
             part.lanes - part.others);
  }
}
template <class Part, class T, class Index, class Stride, class Lanes>
KILN_FN void scatter(const Part& part, T* row, Index first, Stride stride, const Lanes& values) {
  if constexpr (Part::last) {
    for (int lane = part.others; lane < part.lanes; ++lane) {
      row[Stride(Index(first + Index(lane))) * stride] = values.lane[lane];
    }
  }
}

// f16 is converted before and after, where that is faster (halves.h).
template <class Part, class Index>
KILN_FN auto load_halves(const Part& part, const f16* row, Index first) {
#if KILN_STAGED_HALVES
  const auto halves = load(part, row, first);
  Collected<f32, Part::most> wide;
  int lane = 0;
  for (; lane + kHalvesAtOnce <= part.lanes; lane += kHalvesAtOnce) {
    widen(&halves[lane], wide.lane + lane);
  }
  for (; lane < part.lanes; ++lane) wide.lane[lane] = to<f32>(halves[lane]);
  return wide;
#else
  return load(part, row, first);
#endif
}
template <class Part, class Index>
KILN_FN auto half_results(const Part& part, f16* row, Index first) {
#if KILN_STAGED_HALVES
  return Collected<f32, Part::most>();
#else
  return results(part, row, first);
#endif
}
template <class Part, class Index, class Lanes>
KILN_FN void put_halves(const Part& part, f16* row, Index first, const Lanes& values) {
#if KILN_STAGED_HALVES
  if constexpr (Part::last)
    store(part, row, first, narrowed(part.lanes, values));
  else
    put(row, first, part.lanes, narrowed(part.lanes, values));
#else
  store(part, row, first, values);
#endif
}

// One element for all lanes.
template <class T>
struct Repeated {
  T value;
  KILN_MEMBER T operator[](int) const { return value; }
};
template <int Lanes, class T>
KILN_FN Repeated<T> repeat(const T* from) {
  return {*from};
}

// ---- what has been joined -----------------------------------------------------------------------

// As `start`, in the type in which the host's lanes hold what they have joined.
template <class Reduction, class T>
struct Held {
  using Type = T;
};
template <>
struct Held<Max, f32> {
  using Type = Rising;
};
template <>
struct Held<Min, f32> {
  using Type = Falling;
};
template <class Reduction, class T, int Width>
KILN_FN Lanes<typename Held<Reduction, T>::Type, Width> start_held() {
  using Type = typename Held<Reduction, T>::Type;
  if constexpr (is_same<Type, T>()) {
    return start<Reduction, T, Width>();
  } else {
    Lanes<Type, Width> lanes;
    for (int i = 0; i < Width; ++i) lanes.lane[i] = Type::of(Reduction::template start<T>());
    return lanes;
  }
}
template <class Reduction, class T>
KILN_FN T joined(T result) {
  return result;
}
template <class Reduction, u32 Least>
KILN_FN f32 joined(Ordered<Least> result) {
  return result.value();
}

template <class T>
KILN_FN T chosen(bool first, T a, T b) {
  return first ? a : b;
}
template <u32 Least>
KILN_FN Ordered<Least> chosen(bool first, Ordered<Least> a, Ordered<Least> b) {
  return {first ? a.place : b.place};
}

template <class Reduction, class Part, class T, int Width, class Value>
KILN_FN void join_lane(const Part& part, Lanes<T, Width>& lanes, int lane, Value value) {
  T& to = lanes.lane[part.at + lane];
  to = chosen(part.has(lane), Reduction::join(to, value), to);
}

// Each half of the lanes with the other, and again, until one is left: from all to eight in one
// loop, which is made of SIMD vectors.
template <class Reduction, int Count, int Step, class T, int Most>
KILN_FN T fold_every(const Lanes<T, Most>& lanes, int first) {
  if constexpr (Count == 1) {
    return lanes.lane[first];
  } else {
    return Reduction::join(fold_every<Reduction, Count / 2, 2 * Step>(lanes, first),
                           fold_every<Reduction, Count / 2, 2 * Step>(lanes, first + Step));
  }
}
template <class Reduction, int Width, class T, int Most>
KILN_FN T fold(const Lanes<T, Most>& lanes) {
  if constexpr (Width > 8) {
    alignas(32) Lanes<T, 8> eight;
    KILN_FOR_EIGHT_LANES(i) eight.lane[i] = fold_every<Reduction, Width / 8, 8>(lanes, i);
    return fold_every<Reduction, 8, 1>(eight, 0);
  } else {
    return fold_every<Reduction, Width, 1>(lanes, 0);
  }
}

// ---- what a GPU has threads for -----------------------------------------------------------------

template <class T, int Threads>
struct Slots {};
template <class Reduction, int Threads, class T, class Part, int Width>
KILN_FN T reduce(Lanes<Part, Width>& lanes, Slots<T, Threads>&) {
  return joined<Reduction>(fold<Reduction, Width>(lanes));
}
template <int Threads>
KILN_FN bool is_first() {
  return true;
}
template <int Threads, int Rows, class Index>
KILN_FN Index row_of(Index item) {
  return item;
}

// Vectors of a row one after the other.
#define KILN_FOR_EACH_VECTOR(Index, threads, vectors, slot, vector, count) \
  for (Index vector = 0; vector < count; ++vector)

}  // namespace kiln
#endif
