// Rows on the CPU whose elements are those of several axes that are not one in memory: segments of
// equal length, each somewhere. Lanes are parts of the row, whatever the segments: they are memory
// where a part lies in one segment, and a copy elsewhere. Where neighbours in memory are far apart
// in the row, its elements are moved through a buffer in the caches, in which they have the order
// of their count, as blocks that are transposed in registers: memory is read and written in its own
// order, whole lines at a time.
//
// Asked for by: contiguous_segments strided_segments Counted counted_lines
#pragma once

#include "host_indexed.h"
#include "host_parts.h"
#include "tile.h"

#if KILN_HOST
namespace kiln {

struct Neighbours {};
// `start_of` gives the distance of a segment from the row's start. Elements of a segment are
// neighbours, or `stride` apart.
template <class T, class Divisor, class StartOf, class Stride>
struct Segments {
  using Element = T;
  enum : bool { kNeighbours = is_same<Stride, Neighbours>() };
  T* row;
  Divisor length;
  StartOf start_of;
  Stride stride;
};
template <class T, class Divisor, class StartOf>
KILN_FN Segments<T, Divisor, StartOf, Neighbours> contiguous_segments(T* row, Divisor length,
                                                                      const StartOf& start_of) {
  return {row, length, start_of, {}};
}
template <class T, class Divisor, class StartOf, class Stride>
KILN_FN Segments<T, Divisor, StartOf, Stride> strided_segments(T* row, Divisor length,
                                                               const StartOf& start_of,
                                                               Stride stride) {
  return {row, length, start_of, stride};
}

// Calls body(lane, count, element) for the lanes from `lane` to `end` of a part that begins with
// element `first` of the row: those of one segment at a time.
template <class Segments, class Index, class Body>
KILN_FN void for_each_segment(const Segments& row, Index first, int lane, int end,
                              const Body& body) {
  const Index place = first + Index(lane);
  Index segment = divide(place, row.length);
  Index within = place - segment * row.length.divisor;
  while (lane < end) {
    const Index left = row.length.divisor - within;
    const int count = left < Index(end - lane) ? int(left) : end - lane;
    auto* const start = row.row + row.start_of(segment);
    if constexpr (Segments::kNeighbours)
      body(lane, count, start + within);
    else
      body(lane, count, start + decltype(row.stride)(within) * row.stride);
    lane += count;
    ++segment;
    within = 0;
  }
}
template <class T>
KILN_FN void copy_elements(T* to, const T* from, int count) {
  if (count < 32)
    copy_few(to, from, count);
  else
    __builtin_memcpy(to, from, u64(count) * sizeof(T));
}

// `own` has the lanes of a part of several segments. Lanes before the row, which belong to no part
// of it, are like the first one within.
template <class Part, class T, class Divisor, class StartOf, class Stride, class Index, int Lanes>
KILN_FN Row<const T> load(const Part& part, const Segments<const T, Divisor, StartOf, Stride>& row,
                          Index first, Collected<T, Lanes>& own) {
  const T* start = own.lane;
  const int from = Part::copies ? part.overlap : 0;
  for_each_segment(row, first, from, part.lanes,
                   [&](int lane, int count, const T* element) KILN_INLINED {
                     if constexpr (is_same<Stride, Neighbours>()) {
                       if (count == part.lanes)
                         start = element;
                       else
                         copy_elements(own.lane + lane, element, count);
                     } else {
                       for (int i = 0; i < count; ++i) {
                         own.lane[lane + i] = element[Stride(i) * row.stride];
                       }
                     }
                   });
  for (int lane = 0; lane < from; ++lane) own.lane[lane] = own.lane[from];
  return {start};
}

// Of lanes of which some are of the part before: those from `overlap` on.
template <class Segments, class T, class Index>
KILN_FN void put_segments(const Segments& row, Index first, int overlap, int lanes,
                          const T* values) {
  for_each_segment(row, first, overlap, lanes, [&](int lane, int count, T* element) KILN_INLINED {
    if constexpr (Segments::kNeighbours) {
      copy_elements(element, values + lane, count);
    } else {
      for (int i = 0; i < count; ++i) {
        element[decltype(row.stride)(i) * row.stride] = values[lane + i];
      }
    }
  });
}

// Lanes of the last part are not memory, whose overlapping ones inputs may be (host_parts.h).
template <class Part, class T, class Divisor, class StartOf, class Stride, class Index, int Lanes>
KILN_FN Row<T> results(const Part& part, const Segments<T, Divisor, StartOf, Stride>& row,
                       Index first, Collected<T, Lanes>& own) {
  if constexpr (is_same<Stride, Neighbours>() && !Part::last) {
    const Index segment = divide(first, row.length);
    const Index within = first - segment * row.length.divisor;
    if (row.length.divisor - within >= Index(part.lanes)) {
      return {row.row + row.start_of(segment) + within};
    }
  }
  return {own.lane};
}
template <class Part, class T, class Divisor, class StartOf, class Stride, class Index, int Lanes>
KILN_FN void store(const Part& part, const Segments<T, Divisor, StartOf, Stride>& row, Index first,
                   Row<T> values, const Collected<T, Lanes>& own) {
  if (values.start != own.lane) return;
  put_segments(row, first, part.overlap, part.lanes, own.lane);
}

// Results that are collected, to be stored past the caches or only where a place is there.
template <int Lanes, class T, class Divisor, class StartOf, class Stride>
KILN_FN Collected<T, Lanes> collect(const Segments<T, Divisor, StartOf, Stride>& row) {
  return collect<Lanes>(row.row);
}
template <class T, class Divisor, class StartOf, class Stride, class Index, class Value, int Lanes>
KILN_FN void stream(const Segments<T, Divisor, StartOf, Stride>& row, Index first, int lanes,
                    const Collected<Value, Lanes>& values) {
  if constexpr (!is_same<T, Value>()) {
    stream(row, first, lanes, narrowed(lanes, values));
  } else if constexpr (is_same<Stride, Neighbours>()) {
    for_each_segment(row, first, 0, lanes, [&](int lane, int count, T* element) KILN_INLINED {
      stream_bytes(element, values.lane + lane, u64(count) * sizeof(T));
    });
  } else {
    put_segments(row, first, 0, lanes, values.lane);
  }
}
template <class Part, class T, class Divisor, class StartOf, class Stride>
KILN_FN Collected<T, Part::most> part_results(const Part& part,
                                              const Segments<T, Divisor, StartOf, Stride>& row) {
  return part_results(part, row.row);
}
template <class Part, class T, class Divisor, class StartOf, class Stride, class Index, int Lanes>
KILN_FN void put_part_where(bool there, const Part& part,
                            const Segments<T, Divisor, StartOf, Stride>& row, Index first,
                            const Collected<T, Lanes>& values) {
  if (there) put_segments(row, first, part.overlap, part.lanes, values.lane);
}

// f16, as in halves.h.
template <class Part, class Divisor, class StartOf, class Stride, class Index, int Lanes>
KILN_FN auto load_halves(const Part& part, const Segments<const f16, Divisor, StartOf, Stride>& row,
                         Index first, Collected<f16, Lanes>& own) {
#if KILN_STAGED_HALVES
  return load_halves<Lanes>(load(part, row, first, own).start, Index(0), part.lanes);
#else
  return load(part, row, first, own);
#endif
}
template <class Part, class Divisor, class StartOf, class Stride, class Index, int Lanes>
KILN_FN auto half_results(const Part& part, const Segments<f16, Divisor, StartOf, Stride>& row,
                          Index first, Collected<f16, Lanes>& own) {
#if KILN_STAGED_HALVES
  return Collected<f32, Lanes>();
#else
  return results(part, row, first, own);
#endif
}
template <class Part, class Divisor, class StartOf, class Stride, class Index, class Values,
          int Lanes>
KILN_FN void store_halves(const Part& part, const Segments<f16, Divisor, StartOf, Stride>& row,
                          Index first, const Values& values, const Collected<f16, Lanes>& own) {
#if KILN_STAGED_HALVES
  put_segments(row, first, part.overlap, part.lanes, narrowed(part.lanes, values).lane);
#else
  store(part, row, first, values, own);
#endif
}

// ---- rows that are moved through a buffer -------------------------------------------------------

// Where the elements of a row lie. Neighbours in memory are neighbours along one of its axes,
// `step` apart: the row has `lines` along it, for each element of the axes before, each of `size`
// elements of the axes behind it. Of these `segment` are along the innermost axis, `stride` apart.
// `outer_of` and `segment_of` give where what is before, and a segment, is from the row's start.
template <class T, class Index, class Stride, class OuterOf, class SegmentOf>
struct CountedLines {
  T* row;
  Index lines;
  Index size;
  Index segment;
  Stride step;
  Stride stride;
  OuterOf outer_of;
  SegmentOf segment_of;
};
template <class Index, class T, class Stride, class OuterOf, class SegmentOf>
KILN_FN CountedLines<T, Index, Stride, OuterOf, SegmentOf> counted_lines(
    T* row, Index lines, Index size, Index segment, Stride step, Stride stride,
    const OuterOf& outer_of, const SegmentOf& segment_of) {
  return {row, lines, size, segment, step, stride, outer_of, segment_of};
}

// Calls body(memory, element, lines, count) for the elements from `from` on: `count` neighbours
// along the innermost axis of as many lines, of which the first is that element of the row. Lines
// of which only the first or the last have some elements are taken together elsewhere.
template <class Lines, class Index, class Body>
KILN_FN void for_each_box(const Lines& of, Index from, Index count, const Body& body) {
  const Index end = from + count;
  Index line = from / of.size;
  Index begins = from - line * of.size;
  while (from < end) {
    const Index outer = line / of.lines;
    const Index stop = least(end, (outer + 1) * of.lines * of.size);
    const Index last = (stop - 1) / of.size;
    const Index ends = stop - last * of.size;
    const Index cut[4] = {0, least(begins, ends), begins < ends ? ends : begins, of.size};
    auto* const start = of.row + of.outer_of(outer);
    for (int part = 0; part < 3; ++part) {
      const Index top = cut[part] < begins ? line + 1 : line;
      const Index bottom = cut[part + 1] > ends ? last : last + 1;
      if (top >= bottom) continue;
      for (Index at = cut[part]; at < cut[part + 1];) {
        const Index segment = at / of.segment;
        const Index within = at - segment * of.segment;
        const Index left = least(of.segment - within, cut[part + 1] - at);
        body(start + decltype(of.step)(top - outer * of.lines) * of.step + of.segment_of(segment) +
                 decltype(of.stride)(within) * of.stride,
             top * of.size + at, bottom - top, left);
        at += left;
      }
    }
    from = stop;
    line = last + 1;
    begins = 0;
  }
}

// Transposes as many rows as fill a cache line. Lines of the result, which may be in the same set
// of the L1 cache, are written once, as a whole.
template <int Bytes, int Columns>
KILN_FN void transpose_lines(const u8* from, i64 from_step, u8* to, i64 to_step) {
  alignas(64) u8 lines[Columns][64];
  for (int row = 0; row < 64 / Bytes; row += 8) {
    if constexpr (Columns == 16) {
      transpose_halves(from + row * from_step, from_step, lines[0] + row * Bytes, 64);
    } else {
      transpose_block<Bytes>(from + row * from_step, from_step, lines[0] + row * Bytes, 64);
    }
  }
  for (int i = 0; i < Columns; ++i) __builtin_memcpy(to + i * to_step, lines[i], 64);
}

// Where there are few of either, a few lines at a time, along what is longer.
template <int Bytes>
KILN_FN void copy_apart(const u8* from, i64 from_step, u8* to, i64 to_step, i64 count) {
  for (i64 i = 0; i < count; ++i) {
    __builtin_memcpy(to + i * to_step, from + i * from_step, Bytes);
  }
}
template <int Bytes>
KILN_FN void transpose_narrow(const u8* from, i64 from_step, u8* to, i64 to_step, i64 rows,
                              i64 columns) {
  constexpr i64 kTogether = 64;
  const bool tall = rows >= columns;
  const i64 length = tall ? rows : columns;
  for (i64 at = 0; at < length; at += kTogether) {
    const i64 count = least(kTogether, length - at);
    for (i64 i = 0; i < (tall ? columns : rows); ++i) {
      if (tall) {
        copy_apart<Bytes>(from + at * from_step + i * Bytes, from_step,
                          to + i * to_step + at * Bytes, Bytes, count);
      } else {
        copy_apart<Bytes>(from + i * from_step + at * Bytes, Bytes, to + at * to_step + i * Bytes,
                          to_step, count);
      }
    }
  }
}

// Writes element (row, column) of `from` to (column, row) of `to`; a step, in bytes, is that from
// one row to the next. Goes along what is far apart in memory: the rows of `from`, or those of
// `to`. The last blocks overlap those before.
template <int Bytes, bool ByRows>
static __attribute__((noinline, unused)) void transpose_elements(const u8* from, i64 from_step,
                                                                 u8* to, i64 to_step, i64 rows,
                                                                 i64 columns) {
  constexpr i64 kBlock = 8;
  constexpr i64 kRows = 64 / Bytes;
  constexpr i64 kAhead = 4 * kRows;
  if (rows < kBlock || columns < kBlock) {
    return transpose_narrow<Bytes>(from, from_step, to, to_step, rows, columns);
  }
  const bool lines = rows >= kRows;
  const bool wide = lines && Bytes == 2 && columns >= 2 * kBlock;
  const i64 tall = lines ? kRows : kBlock;
  const i64 broad = wide ? 2 * kBlock : kBlock;
  const i64 length = ByRows ? rows : columns;
  const i64 across = ByRows ? columns : rows;
  const i64 step = ByRows ? tall : broad;
  for (i64 at = 0; at < length; at += step) {
    // Into the L2 cache: L1 has the lines of the buffer.
    for (i64 next = at + kAhead; next < at + kAhead + step && next < length; ++next) {
      const u8* const line = ByRows ? from + next * from_step : to + next * to_step;
      for (i64 byte = 0; byte < across * Bytes; byte += 64) __builtin_prefetch(line + byte, 0, 2);
    }
    for (i64 side = 0; side < across; side += ByRows ? broad : tall) {
      const i64 row = least(ByRows ? at : side, rows - tall);
      const i64 column = least(ByRows ? side : at, columns - broad);
      const u8* const block = from + row * from_step + column * Bytes;
      u8* const transposed = to + column * to_step + row * Bytes;
      if (wide) {
        transpose_lines<2, 16>(block, from_step, transposed, to_step);
      } else if (lines) {
        transpose_lines<Bytes, 8>(block, from_step, transposed, to_step);
      } else {
        transpose_block<Bytes>(block, from_step, transposed, to_step);
      }
    }
  }
}

// Some neighbouring elements of a row in the order of their count, or of several stretches of it.
// Before them there is room for the lanes of a part that belong to the part before.
template <class T>
struct Counted {
  KILN_MEMBER explicit Counted(u64 elements, u64 stretches = 1)
      : size_(elements),
        step_((kBefore + elements * sizeof(T) + kLine - 1) / kLine * kLine / sizeof(T)),
        memory_(static_cast<u8*>(__builtin_malloc(stretches * step_ * sizeof(T) + kLine))),
        start_(
            reinterpret_cast<T*>((reinterpret_cast<u64>(memory_) + kLine - 1) & ~u64(kLine - 1))) {
    for (u64 i = 0; i < stretches; ++i) __builtin_memset(start_ + i * step_, 0, kBefore);
  }
  Counted(const Counted&) = delete;
  KILN_MEMBER ~Counted() { __builtin_free(memory_); }

  // A row of which the elements from `from` on are here.
  template <class Index>
  KILN_MEMBER T* row(Index from, u64 stretch = 0) const {
    return start_ + stretch * step_ + kMaxOverlap - i64(from);
  }
  // The same, once they have been read.
  template <class Lines, class Index>
  KILN_MEMBER const T* read(const Lines& lines, Index from, Index count, u64 stretch = 0) const {
    T* const row = this->row(from, stretch);
    for_each_box(
        lines, from, count,
        [&](const T* memory, Index element, Index width, Index length) KILN_INLINED {
          if (lines.step == 1) {
            transpose_elements<int(sizeof(T)), true>(
                as_bytes(memory), i64(lines.stride) * i64(sizeof(T)), as_bytes(row + element),
                i64(lines.size) * i64(sizeof(T)), i64(length), i64(width));
            return;
          }
          for (Index i = 0; i < length; ++i) {
            for (Index k = 0; k < width; ++k) {
              row[element + k * lines.size + i] = memory[decltype(lines.stride)(i) * lines.stride +
                                                         decltype(lines.step)(k) * lines.step];
            }
          }
        });
    return row;
  }
  // The same, with those after them for which there is room: who reads these next finds them here.
  // Elements that are `apart` from each other are in different stretches.
  template <class Lines, class Index>
  KILN_MEMBER const T* read_ahead(const Lines& lines, Index from, Index count, Index length,
                                  Index apart) {
    const Index stretch = from / apart;
    Held& held = held_[stretch];
    if (lines.row != held.row || from < held.first || from + count > held.end) {
      const Index ahead = least(length - from, Index(size_));
      held = {lines.row, from, from + u64(ahead)};
      read(lines, from, ahead, stretch);
    }
    return row(held.first, stretch);
  }
  template <class Lines, class Index>
  KILN_MEMBER void write(const Lines& lines, Index from, Index count) const {
    const T* const row = this->row(from);
    for_each_box(
        lines, from, count, [&](T* memory, Index element, Index width, Index length) KILN_INLINED {
          if (lines.step == 1) {
            transpose_elements<int(sizeof(T)), false>(
                as_bytes(row + element), i64(lines.size) * i64(sizeof(T)), as_bytes(memory),
                i64(lines.stride) * i64(sizeof(T)), i64(width), i64(length));
            return;
          }
          for (Index i = 0; i < length; ++i) {
            for (Index k = 0; k < width; ++k) {
              memory[decltype(lines.stride)(i) * lines.stride +
                     decltype(lines.step)(k) * lines.step] = row[element + k * lines.size + i];
            }
          }
        });
  }

 private:
  enum : u64 { kLine = 64, kBefore = kMaxOverlap * sizeof(T), kMostStretches = 16 };
  struct Held {
    const T* row = nullptr;
    u64 first = 0;
    u64 end = 0;
  };
  KILN_MEMBER static const u8* as_bytes(const T* element) {
    return reinterpret_cast<const u8*>(element);
  }
  KILN_MEMBER static u8* as_bytes(T* element) { return reinterpret_cast<u8*>(element); }
  u64 size_;
  u64 step_;
  u8* memory_;
  T* start_;
  Held held_[kMostStretches];
};

// Calls body(first, count) for so many neighbouring elements of a row at a time.
template <class Index, class Body>
KILN_FN void for_each_stretch(Index length, Index most, const Body& body) {
  for (Index first = 0; first < length; first += most) body(first, least(length - first, most));
}

}  // namespace kiln
#endif
