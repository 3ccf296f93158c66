// Transposed operands: a tile of them is read along the axis in which they are contiguous (its
// rows' axis) and used along the other (its columns'), through shared memory, or through the L1
// cache on the CPU.
#pragma once

#include "access_gpu.h"
#include "access_host.h"
#include "blocks.h"
#include "convert.h"
#include "copies.h"
#include "divide.h"

namespace kiln {

// The address of element (row, column) of a tile whose operand is contiguous along the rows.
template <class T, class Index, class Stride>
KILN_FN const T* element_at(const T* data, Index row, Index column, Stride column_stride) {
  return data + row + Stride(column) * column_stride;
}

#if KILN_HOST

// Narrow elements take a word each, for transposes in words.
template <class T, int Bytes = sizeof(T)>
struct Slot {
  using Type = T;
  static inline __attribute__((always_inline)) T of(T element) { return element; }
  static inline __attribute__((always_inline)) T element(T slot) { return slot; }
};
template <class T, class Bits>
struct WordSlot {
  using Type = u32;
  static inline __attribute__((always_inline)) u32 of(T element) { return bit_cast<Bits>(element); }
  static inline __attribute__((always_inline)) T element(u32 slot) {
    return bit_cast<T>(Bits(slot));
  }
};
template <class T>
struct Slot<T, 1> : WordSlot<T, u8> {};
template <class T>
struct Slot<T, 2> : WordSlot<T, u16> {};

// Aligned to cache lines.
template <class T, int Rows, int Columns, int Vector>
struct Tile {
  alignas(64) typename Slot<T>::Type at[Rows][Columns];
};

// Transposes blocks of eight by eight elements in registers. Words have a way of their own, which
// moves no element from one half of a vector to the other until the end.
typedef u8 EightBytes __attribute__((vector_size(8)));
typedef u16 EightHalves __attribute__((vector_size(16)));
typedef i32 EightWords __attribute__((vector_size(32)));
typedef u64 EightLongs __attribute__((vector_size(64)));
template <int Bytes>
struct EightOf;
template <>
struct EightOf<1> {
  using Type = EightBytes;
};
template <>
struct EightOf<2> {
  using Type = EightHalves;
};
template <>
struct EightOf<8> {
  using Type = EightLongs;
};
#if defined(__clang__)
#define KILN_PICK(Type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define KILN_PICK(Type, a, b, ...) __builtin_shuffle(a, b, Type{__VA_ARGS__})
#endif
KILN_FN void transpose_words(const u8* from, i64 from_step, u8* to, i64 to_step) {
  EightWords a[8];
  EightWords b[8];
  _Pragma("GCC unroll 8") for (int i = 0; i < 8; ++i) {
    __builtin_memcpy(&a[i], from + i * from_step, sizeof(EightWords));
  }
  _Pragma("GCC unroll 8") for (int i = 0; i < 8; i += 2) {
    b[i] = KILN_PICK(EightWords, a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    b[i + 1] = KILN_PICK(EightWords, a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  _Pragma("GCC unroll 8") for (int i = 0; i < 8; i += 4) {
    a[i] = KILN_PICK(EightWords, b[i], b[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    a[i + 1] = KILN_PICK(EightWords, b[i], b[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    a[i + 2] = KILN_PICK(EightWords, b[i + 1], b[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
    a[i + 3] = KILN_PICK(EightWords, b[i + 1], b[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  _Pragma("GCC unroll 8") for (int i = 0; i < 4; ++i) {
    const EightWords upper = KILN_PICK(EightWords, a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    const EightWords lower = KILN_PICK(EightWords, a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    __builtin_memcpy(to + i * to_step, &upper, sizeof(EightWords));
    __builtin_memcpy(to + (i + 4) * to_step, &lower, sizeof(EightWords));
  }
}
// Three times, each vector is interleaved with the one four after it.
template <int Bytes>
KILN_FN void transpose_block(const u8* from, i64 from_step, u8* to, i64 to_step) {
  if constexpr (Bytes == 4) {
    transpose_words(from, from_step, to, to_step);
  } else {
    using Eight = typename EightOf<Bytes>::Type;
    Eight a[8];
    Eight b[8];
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; ++i) {
      __builtin_memcpy(&a[i], from + i * from_step, sizeof(Eight));
    }
    _Pragma("GCC unroll 3") for (int turn = 0; turn < 3; ++turn) {
      _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i) {
        b[2 * i] = KILN_PICK(Eight, a[i], a[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
        b[2 * i + 1] = KILN_PICK(Eight, a[i], a[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
      }
      _Pragma("GCC unroll 8") for (int i = 0; i < 8; ++i) a[i] = b[i];
    }
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; ++i) {
      __builtin_memcpy(to + i * to_step, &a[i], sizeof(Eight));
    }
  }
}
// Of 16 bits eight rows of sixteen elements: in each half of a vector as above.
typedef u16 SixteenHalves __attribute__((vector_size(32)));
KILN_FN void transpose_halves(const u8* from, i64 from_step, u8* to, i64 to_step) {
  SixteenHalves a[8];
  SixteenHalves b[8];
  _Pragma("GCC unroll 8") for (int i = 0; i < 8; ++i) {
    __builtin_memcpy(&a[i], from + i * from_step, sizeof(SixteenHalves));
  }
  _Pragma("GCC unroll 3") for (int turn = 0; turn < 3; ++turn) {
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i) {
      b[2 * i] = KILN_PICK(SixteenHalves, a[i], a[i + 4], 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25,
                           10, 26, 11, 27);
      b[2 * i + 1] = KILN_PICK(SixteenHalves, a[i], a[i + 4], 4, 20, 5, 21, 6, 22, 7, 23, 12, 28,
                               13, 29, 14, 30, 15, 31);
    }
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; ++i) a[i] = b[i];
  }
  _Pragma("GCC unroll 8") for (int i = 0; i < 8; ++i) {
    const u8* const halves = reinterpret_cast<const u8*>(&a[i]);
    __builtin_memcpy(to + i * to_step, halves, sizeof(EightHalves));
    __builtin_memcpy(to + (i + 8) * to_step, halves + sizeof(EightHalves), sizeof(EightHalves));
  }
}
#undef KILN_PICK

// Cache lines that are far apart are not expected by the hardware prefetcher of a CPU. Those of the
// columns, and rows, that come so many later are prefetched here, into the L2 cache: L1 is full of
// what they would evict. Prefetching an invalid address does nothing.
enum : int { kPrefetched = 8 };
template <int Elements, class T>
KILN_FN void prefetch(const T* data, i64 element) {
  const u64 from = reinterpret_cast<u64>(data) + u64(element) * sizeof(T);
  for (u64 byte = 0; byte < Elements * sizeof(T); byte += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(from + byte), 0, 2);
  }
}
// Moves lines, which have one element of each row, into rows that have one element of each line.
// What a cache line has is taken before the next ones, which may be in the same set. Lines are
// `step` bytes from each other; those that come next are prefetched.
template <int Bytes, int Lines, int Rows>
KILN_FN void transpose_lines_of_rows(const u8* from, i64 step, u8* to, i64 to_step) {
  for (int line = 0; line < Lines; ++line) {
    __builtin_prefetch(from + (line + Lines) * step, 0, 2);
  }
  if constexpr (Lines % 8 == 0 && Rows % 8 == 0) {
    for (int line = 0; line < Lines; line += 8) {
      for (int row = 0; row < Rows; row += 8) {
        transpose_block<Bytes>(from + line * step + row * Bytes, step,
                               to + row * to_step + line * Bytes, to_step);
      }
    }
  } else {
    for (int line = 0; line < Lines; ++line) {
      for (int row = 0; row < Rows; ++row) {
        __builtin_memcpy(to + row * to_step + line * Bytes, from + line * step + row * Bytes,
                         Bytes);
      }
    }
  }
}
// Vectors of rows that are side by side in memory, whose elements are `step` elements from each
// other.
template <int Lanes, class Vectors, int Rows, class T>
KILN_FN void transpose_vectors(Vectors (&rows)[Rows], const T* from, i64 step) {
  transpose_lines_of_rows<int(sizeof(T)), Lanes, Rows>(
      reinterpret_cast<const u8*>(from), step * i64(sizeof(T)), reinterpret_cast<u8*>(rows[0].of),
      i64(sizeof rows[0]));
}
// Of packed elements each pair of lines becomes one of the lower halves and one of the upper ones,
// which have one byte of each second row.
template <int Lanes, class Vectors, int Rows, class T, class Place,
          template <class, class> class Packed>
KILN_FN void transpose_vectors(Vectors (&rows)[Rows], Packed<const T, Place> from, i64 step) {
  constexpr int kBytes = Rows / 2;
  constexpr int kPairs = (Lanes + 1) / 2;
  const u8* const first = reinterpret_cast<const u8*>(from.data + (from.element >> 1));
  u8 low[kPairs][kBytes];
  u8 high[kPairs][kBytes];
  for (int i = 0; i < kPairs; ++i) {
    const u8* const one = first + 2 * i * (step / 2);
    const u8* const other = Lanes == 1 ? one : one + step / 2;
    __builtin_prefetch(one + Lanes * (step / 2), 0, 2);
    __builtin_prefetch(other + Lanes * (step / 2), 0, 2);
    for (int k = 0; k < kBytes; ++k) {
      low[i][k] = u8((one[k] & 15) | other[k] << 4);
      high[i][k] = u8(one[k] >> 4 | (other[k] & 0xf0));
    }
  }
  for (int i = 0; i < 2; ++i) {
    const u8* const pairs = i == 0 ? low[0] : high[0];
    u8* const to = reinterpret_cast<u8*>(rows[i].of);
    constexpr i64 kStep = 2 * i64(sizeof rows[0]);
    if constexpr (kPairs % 8 == 0 && kBytes % 8 == 0) {
      for (int line = 0; line < kPairs; line += 8) {
        for (int row = 0; row < kBytes; row += 8) {
          transpose_block<1>(pairs + line * kBytes + row, kBytes, to + row * kStep + line, kStep);
        }
      }
    } else {
      for (int line = 0; line < kPairs; ++line) {
        for (int row = 0; row < kBytes; ++row) to[row * kStep + line] = pairs[line * kBytes + row];
      }
    }
  }
}

// For an operand that is contiguous along the columns. After the last row of a tile comes the first
// row of the next tile.
template <int Rows, int Columns, class T, class Index, class Stride>
KILN_FN void prefetch_row(const T* data, Stride stride, Index at, Index top, Index first) {
  const Index row = at - top + kPrefetched;
  prefetch<Columns>(data, i64(top + row % Rows) * stride + i64(first) + (row < Rows ? 0 : Columns));
}

// `top` and `left` are the tile's origin, `rows` and `size` the extents of the array.
// `take(from, line, count)` fills a line of the tile, with `count` elements that lie side by side.
template <class T, int Rows, int Columns, int Vector, class From, class Index, class Stride,
          class Take>
KILN_FN void fill_lines(Tile<T, Rows, Columns, Vector>& tile, const From* data, Index top,
                        Index left, Index rows, Index size, Stride stride, const Take& take) {
  const int height = int(rows - top < Rows ? rows - top : Rows);
  const int width = int(size - left < Columns ? size - left : Columns);
  using Word = typename Slot<T>::Type;
  // Blocks of words are transposed at a time, of which the last ones are filled up.
  constexpr int kTogether = sizeof(Word) == 4 ? 8 : 1;
  const int whole_height = (height + kTogether - 1) / kTogether * kTogether;
  const int whole_width = (width + kTogether - 1) / kTogether * kTogether;
  // Every cache line is read once, before other operands that map to the same cache sets evict it.
  alignas(64) Word lines[Columns][Rows];
  for (int column = 0; column < width; ++column) {
    const From* from = element_at(data, top, left + column, stride);
    prefetch<Rows>(from, i64(kPrefetched) * stride);
    if (height == Rows)
      take(from, lines[column], FixedLanes<Rows>());
    else
      take(from, lines[column], height);
    for (int row = height; row < whole_height; ++row) lines[column][row] = Word();
  }
  for (int column = width; column < whole_width; ++column) {
    for (int row = 0; row < whole_height; ++row) lines[column][row] = Word();
  }
  for (int row = 0; row < whole_height; row += kTogether) {
    for (int column = 0; column < whole_width; column += kTogether) {
      if constexpr (kTogether == 1) {
        tile.at[row][column] = lines[column][row];
      } else {
        transpose_words(reinterpret_cast<const u8*>(&lines[column][row]), sizeof lines[0],
                        reinterpret_cast<u8*>(&tile.at[row][column]), sizeof tile.at[0]);
      }
    }
  }
}

template <int Threads, int Align, class T, int Rows, int Columns, int Vector, class Index,
          class Stride>
KILN_FN void fill(Tile<T, Rows, Columns, Vector>& tile, const T* data, Index top, Index left,
                  Index rows, Index size, Stride stride) {
  const auto take = [](const T* from, typename Slot<T>::Type* line, auto count) KILN_INLINED {
    constexpr Width<Rows> width{};
    KILN_FOR_EACH_LANE(row, width, count) line[row] = Slot<T>::of(from[row]);
  };
  fill_lines(tile, data, top, left, rows, size, stride, take);
}

template <class T>
struct TileRow {
  const typename Slot<T>::Type* start;
  inline __attribute__((always_inline)) T operator[](int lane) const {
    return Slot<T>::element(start[lane]);
  }
};
template <int Lanes, class T, int Rows, int Columns, int Vector, class Index>
KILN_FN TileRow<T> from_tile(const Tile<T, Rows, Columns, Vector>& tile, Index row, Index column) {
  return {&tile.at[row][column]};
}

template <int Threads, int Rows, int Columns, int Most, class Index, class Body>
KILN_FN void for_each_tile_vector(Index top, Index left, Index rows, Index size, const Body& body) {
  static_assert(Columns % Most == 0, "a line of the tile is whole vectors");
  const Index end = rows - top < Rows ? rows : top + Rows;
  const int width = int(size - left < Columns ? size - left : Columns);
  for (Index row = top; row < end; ++row) body(Width<Columns>(), row, left, width, 0);
}

#else

// A word holds neighbouring columns of a row: a thread writes whole words, from as many lines of
// the operand, and reads up to 16 bytes of a row at once. These 16 bytes are swizzled within 128
// bytes, in another way for every Vector rows, which is what a thread reads of a line, so that
// threads that write down the tile's rows use different banks; of rows that are no power of two
// they are rotated within their row.
template <class T, int Rows, int Columns, int Vector>
struct Tile {
  enum : int {
    kLines = sizeof(T) < 4 ? 4 / int(sizeof(T)) : 1,
    kTogether = 16 / int(sizeof(T)),
    kOfRow = Columns / kTogether,
    kOfBanks = kOfRow < 8 ? 8 / kOfRow : 1,
    kSwizzle = Vector > kOfBanks ? Vector : kOfBanks,
  };
  alignas(16) T elements[Rows * Columns];
  __device__ __forceinline__ T* at(int row, int column) {
    constexpr bool kRotates = (kOfRow & (kOfRow - 1)) != 0;
    const int rotated = row * kOfRow + (column / kTogether + row / kSwizzle) % kOfRow;
    const int swizzled = (row * kOfRow + column / kTogether) ^ (row / kSwizzle & 7);
    const int together = kRotates ? rotated : swizzled;
    return elements + together * kTogether + column % kTogether;
  }
};

// Loads for tiles. Lines of a tile are far apart, and NVIDIA GPUs move them a few percent faster
// where the L2 cache evicts them last.
#if KILN_NVIDIA && __CUDA_ARCH__ >= 800
template <int Lanes, int Align, class T, class Index>
KILN_FN Vec<T, Lanes> load_tiled(const T* row, Index first) {
  Vec<T, Lanes> result;
  if (Align < 16 || sizeof(result) % 16 != 0) return load<Lanes, Align>(row, first);
  u64 policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  Chunk<16>* to = reinterpret_cast<Chunk<16>*>(result.lane);
  const Chunk<16>* from = reinterpret_cast<const Chunk<16>*>(row + first);
  _Pragma("unroll") for (int i = 0; i < int(sizeof(result) / 16); ++i) {
    asm volatile("ld.global.L1::evict_last.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(to[i].word[0]), "=r"(to[i].word[1]), "=r"(to[i].word[2]),
                   "=r"(to[i].word[3])
                 : "l"(__cvta_generic_to_global(from + i)), "l"(policy));
  }
  return result;
}
#else
template <int Lanes, int Align, class T, class Index>
KILN_FN Vec<T, Lanes> load_tiled(const T* row, Index first) {
  return load<Lanes, Align>(row, first);
}
#endif

// The largest divisor of a number that is at most `most`.
KILN_FN constexpr int divisor_up_to(int most, int number) {
  return number % most == 0 ? most : divisor_up_to(most - 1, number);
}

// The order in which threads take the vectors of a tile that has PerLine of them in each of its
// Lines: up to 16 of a line, or 32 short ones, then as many of the next line.
template <int PerLine, int Lines, int Lanes>
struct TileOrder {
  enum : int { kRun = divisor_up_to(Lanes < 4 ? 32 : 16, PerLine) };
  KILN_FN static int line(int n) { return n / kRun % Lines; }
  KILN_FN static int vector(int n) { return n % kRun + n / (kRun * Lines) * kRun; }
};

// `top` and `left` are the tile's origin, `rows` and `size` the extents of the array. The operand's
// lines, which are the tile's columns, are aligned to Align at every multiple of Vector. Past the
// edges of the array a thread loads what it does not use, so that no load waits for a branch.
// `Run`: the tile has whole rows, and one begins where the one before it ends.
template <int Threads, int Align, bool Run = false, class T, int Rows, int Columns, int Vector,
          class Index, class Stride>
KILN_FN void fill(Tile<T, Rows, Columns, Vector>& tile, const T* data, Index top, Index left,
                  Index rows, Index size, Stride stride) {
  constexpr int kLines = Tile<T, Rows, Columns, Vector>::kLines;
  constexpr int kCount = Rows / Vector * (Columns / kLines);
  constexpr int kEach = (kCount + Threads - 1) / Threads;
  using Of = TileOrder<Rows / Vector, Columns / kLines, Vector>;
  const int thread = int(threadIdx.x);
  Vec<T, Vector> loaded[kEach][kLines];
  _Pragma("unroll") for (int i = 0; i < kEach; ++i) {
    const int n = thread + i * Threads;
    if (kCount % Threads != 0 && n >= kCount) break;
    const Index row = top + Of::vector(n) * Vector;
    const Index first = row + Vector <= rows ? row : Index(0);
    _Pragma("unroll") for (int line = 0; line < kLines; ++line) {
      const Index column = left + Of::line(n) * kLines + line;
      const T* from = element_at(data, Index(0), column < size ? column : size - 1, stride);
      loaded[i][line] = load_tiled<Vector, Align>(from, first);
    }
  }
  _Pragma("unroll") for (int i = 0; i < kEach; ++i) {
    const int n = thread + i * Threads;
    if (kCount % Threads != 0 && n >= kCount) break;
    const int row = Of::vector(n) * Vector;
    const int column = Of::line(n) * kLines;
    if (Vector > 1 && top + row < rows && top + row + Vector > rows) {
      for (int line = 0; line < kLines && left + column + line < size; ++line) {
        for (int lane = 0; lane < Vector - 1; ++lane) {  // fewer than compilers make a vector of
          if (top + row + lane >= rows) break;
          T* const to = Run ? tile.elements + (row + lane) * int(size) + column + line
                            : tile.at(row + lane, column + line);
          *to = *element_at(data, top + row + lane, left + column + line, stride);
        }
      }
      continue;
    }
    if (Run) {
      _Pragma("unroll") for (int line = 0; line < kLines; ++line) {
        if (column + line >= int(size)) break;
        _Pragma("unroll") for (int lane = 0; lane < Vector; ++lane) {
          tile.elements[(row + lane) * int(size) + column + line] = loaded[i][line].lane[lane];
        }
      }
      continue;
    }
    _Pragma("unroll") for (int lane = 0; lane < Vector; ++lane) {
      Vec<T, kLines> word;
      _Pragma("unroll") for (int line = 0; line < kLines; ++line) {
        word.lane[line] = loaded[i][line].lane[lane];
      }
      copy_bytes<int(sizeof word), int(sizeof word)>(tile.at(row + lane, column), word.lane);
    }
  }
}

// A thread's vectors of an operand that is contiguous along the tile's columns, loaded while the
// tile is being filled. `data` and `stride` are those of the rows.
template <class T, int Most, int Each>
struct Preloaded {
  Vec<T, Most> lanes[Each];
};
template <int Threads, int Rows, int Columns, int Most, int Align, class T, class Index,
          class Stride>
KILN_FN Preloaded<T, Most, (Rows * Columns / Most + Threads - 1) / Threads> preload(
    const T* data, Index top, Index left, Index rows, Index size, Stride stride) {
  static_assert(Columns % Most == 0, "a line of the tile is whole vectors");
  constexpr int kCount = Rows * Columns / Most;
  constexpr int kEach = (kCount + Threads - 1) / Threads;
  using Of = TileOrder<Columns / Most, Rows, Most>;
  Preloaded<T, Most, kEach> preloaded;
  _Pragma("unroll") for (int i = 0; i < kEach; ++i) {
    const int n = int(threadIdx.x) + i * Threads;
    if (kCount % Threads != 0 && n >= kCount) break;
    const Index row = top + Of::line(n);
    const Index first = left + Of::vector(n) * Most;
    const T* from = data + Stride(row < rows ? row : rows - 1) * stride;
    preloaded.lanes[i] = load_tiled<Most, Align>(from, first + Most <= size ? first : Index(0));
  }
  return preloaded;
}
template <int Align, class T, int Most, int Each, class Index>
KILN_FN Vec<T, Most> from_preloaded(Width<Most>, const Preloaded<T, Most, Each>& preloaded,
                                    int slot, const T* row, Index first) {
  return slot < 0 ? load<Most, Align>(row, first) : preloaded.lanes[slot];
}
template <int Align, int Lanes, class T, int Most, int Each, class Index>
KILN_FN Vec<T, Lanes> from_preloaded(Width<Lanes>, const Preloaded<T, Most, Each>&, int,
                                     const T* row, Index first) {
  return load<Lanes, Align>(row, first);
}

template <int Lanes, class T, int Rows, int Columns, int Vector, class Index>
KILN_FN Vec<T, Lanes> from_tile(Tile<T, Rows, Columns, Vector>& tile, Index row, Index column) {
  constexpr int kTogether = Tile<T, Rows, Columns, Vector>::kTogether;
  constexpr int kAtOnce = Lanes < kTogether ? Lanes : kTogether;
  Vec<T, Lanes> result;
  _Pragma("unroll") for (int lane = 0; lane < Lanes; lane += kAtOnce) {
    Vec<T, kAtOnce> part;
    copy_bytes<int(sizeof part), int(sizeof part)>(part.lane,
                                                   tile.at(int(row), int(column) + lane));
    _Pragma("unroll") for (int i = 0; i < kAtOnce; ++i) result.lane[lane + i] = part.lane[i];
  }
  return result;
}

// The body's last argument is the index of the vector among the thread's, -1 for a single element,
// at the end of a row.
template <int Threads, int Rows, int Columns, int Most, class Index, class Body>
KILN_FN void for_each_tile_vector(Index top, Index left, Index rows, Index size, const Body& body) {
  constexpr int kCount = Rows * Columns / Most;
  using Of = TileOrder<Columns / Most, Rows, Most>;
  _Pragma("unroll") for (int i = 0; i < (kCount + Threads - 1) / Threads; ++i) {
    const int n = int(threadIdx.x) + i * Threads;
    if (kCount % Threads != 0 && n >= kCount) break;
    const Index row = top + Of::line(n);
    const Index first = left + Of::vector(n) * Most;
    if (row >= rows) continue;
    if (first + Most <= size) {
      body(Width<Most>(), row, first, Most, i);
    } else {
      for (int lane = 0; lane < Most - 1; ++lane) {  // fewer than compilers make a vector of
        if (first + lane >= size) break;
        body(Width<1>(), row, Index(first + lane), 1, -1);
      }
    }
  }
}

// The same for tiles of whole rows where outputs are one run along both axes: elements [begin, end)
// of it, in vectors in which rows may end.
template <int Threads, int Elements, int Most, int Align, class T, class Index>
KILN_FN Preloaded<T, Most, (Elements / Most + Threads - 1) / Threads> preload_run(const T* data,
                                                                                  Index begin,
                                                                                  Index end) {
  constexpr int kEach = (Elements / Most + Threads - 1) / Threads;
  Preloaded<T, Most, kEach> preloaded;
  _Pragma("unroll") for (int i = 0; i < kEach; ++i) {
    const Index first = begin + Index(int(threadIdx.x) + i * Threads) * Most;
    preloaded.lanes[i] = load_tiled<Most, Align>(data, first + Most <= end ? first : begin);
  }
  return preloaded;
}

template <int Lanes, class T, int Rows, int Columns, int Vector, class Index>
KILN_FN Vec<T, Lanes> from_tile_run(const Tile<T, Rows, Columns, Vector>& tile, Index element) {
  return load<Lanes, Vec<T, Lanes>::kBytes>(tile.elements, element);
}

template <int Threads, int Elements, int Most, class Index, class Body>
KILN_FN void for_each_tile_run(Index begin, Index end, const Body& body) {
  _Pragma("unroll") for (int i = 0; i < (Elements / Most + Threads - 1) / Threads; ++i) {
    const Index first = begin + Index(int(threadIdx.x) + i * Threads) * Most;
    if (first + Most <= end) {
      body(Width<Most>(), first, Most, i);
    } else {
      for (int lane = 0; lane < Most - 1; ++lane) {
        if (first + lane >= end) break;
        body(Width<1>(), Index(first + lane), 1, -1);
      }
    }
  }
}

#endif

}  // namespace kiln
