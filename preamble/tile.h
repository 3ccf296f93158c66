// Transposed operands: a square tile of them is read along the axis in which they are contiguous and
// used along the other, by way of memory that a block of threads shares, or of the first cache on the
// host.
#pragma once

namespace kiln {

// Narrow elements take a word each, so that no two threads write into one.
template <class T>
struct alignas(sizeof(T) < 4 ? 4 : sizeof(T)) Slot {
  T value;
};

// One more column than a power of two: threads that walk down a column then meet different banks.
template <class T, int Edge>
struct Tile {
  Slot<T> at[Edge][Edge + 1];
};

// Where memory has element (row, column) of a tile whose operand is contiguous along the rows.
template <class T, class Index, class Stride>
KILN_FN const T* below(const T* data, Index row, Index column, Stride column_stride) {
  return data + row + Stride(column) * column_stride;
}

#if KILN_HOST

// `top` and `left` are the tile's place, `rows` and `size` how far the array goes.
template <int Threads, int Vector, int Align, class T, int Edge, class Index, class Stride>
KILN_FN void fill(Tile<T, Edge>& tile, const T* data, Index top, Index left, Index rows, Index size,
                  Stride stride) {
  const int height = int(rows - top < Edge ? rows - top : Edge);
  const int width = int(size - left < Edge ? size - left : Edge);
  for (int column = 0; column < width; ++column) {
    const T* from = below(data, top, left + column, stride);
    for (int row = 0; row < height; ++row) tile.at[row][column].value = from[row];
  }
}

template <class T>
struct TileRow {
  const Slot<T>* start;
  inline __attribute__((always_inline)) const T& operator[](int lane) const {
    return start[lane].value;
  }
};
template <int Lanes, class T, int Edge, class Index>
KILN_FN TileRow<T> from_tile(const Tile<T, Edge>& tile, Index row, Index column) {
  return {&tile.at[row][column]};
}

template <int Threads, int Edge, int Most, class Index, class Body>
KILN_FN void for_each_tile_vector(Index top, Index left, Index rows, Index size, const Body& body) {
  const Index end = rows - top < Edge ? rows : top + Edge;
  const int width = int(size - left < Edge ? size - left : Edge);
  for (Index row = top; row < end; ++row) body(Width<Edge>(), row, left, width);
}

#else

// Vector n of a tile whose lines hold PerLine of them: eight vectors of a line, then the same of the
// next line. A wave thus moves whole lines of memory on one side and meets every bank on the other.
template <int PerLine>
struct Place {
  static constexpr int kRun = PerLine < 8 ? PerLine : 8;
  template <int Edge>
  KILN_FN static int line(int n) { return n / kRun % Edge; }
  template <int Edge>
  KILN_FN static int vector(int n) { return n % kRun + n / (kRun * Edge) * kRun; }
};

// `top` and `left` are the tile's place, `rows` and `size` how far the array goes. The operand's
// lines, which are the tile's columns, are aligned to Align at every multiple of Vector.
template <int Threads, int Vector, int Align, class T, int Edge, class Index, class Stride>
KILN_FN void fill(Tile<T, Edge>& tile, const T* data, Index top, Index left, Index rows, Index size,
                  Stride stride) {
  const int thread = int(threadIdx.x);
  if (top + Edge <= rows && left + Edge <= size) {
    using Of = Place<Edge / Vector>;
    constexpr int kVectors = Edge * Edge / Vector;
    constexpr int kEach = (kVectors + Threads - 1) / Threads;
    Vec<T, Vector> held[kEach];
    _Pragma("unroll") for (int i = 0; i < kEach; ++i) {
      const int n = thread + i * Threads;
      if (kVectors % Threads != 0 && n >= kVectors) break;
      const T* line = below(data, top, left + Of::template line<Edge>(n), stride);
      held[i] = load<Vector, Align>(line, Of::template vector<Edge>(n) * Vector);
    }
    _Pragma("unroll") for (int i = 0; i < kEach; ++i) {
      const int n = thread + i * Threads;
      if (kVectors % Threads != 0 && n >= kVectors) break;
      const int row = Of::template vector<Edge>(n) * Vector;
      _Pragma("unroll") for (int lane = 0; lane < Vector; ++lane) {
        tile.at[row + lane][Of::template line<Edge>(n)].value = held[i].lane[lane];
      }
    }
  } else {
    for (int n = thread; n < Edge * Edge; n += Threads) {
      const Index row = top + n % Edge;
      const Index column = left + n / Edge;
      if (row < rows && column < size) {
        tile.at[n % Edge][n / Edge].value = *below(data, row, column, stride);
      }
    }
  }
}

template <int Lanes, class T, int Edge, class Index>
KILN_FN Vec<T, Lanes> from_tile(const Tile<T, Edge>& tile, Index row, Index column) {
  Vec<T, Lanes> result;
  _Pragma("unroll") for (int lane = 0; lane < Lanes; ++lane) {
    result.lane[lane] = tile.at[row][column + lane].value;
  }
  return result;
}

template <int Threads, int Edge, int Most, class Index, class Body>
KILN_FN void for_each_tile_vector(Index top, Index left, Index rows, Index size, const Body& body) {
  const int thread = int(threadIdx.x);
  if (top + Edge <= rows && left + Edge <= size) {
    using Of = Place<Edge / Most>;
    constexpr int kVectors = Edge * Edge / Most;
    _Pragma("unroll") for (int i = 0; i < (kVectors + Threads - 1) / Threads; ++i) {
      const int n = thread + i * Threads;
      if (kVectors % Threads != 0 && n >= kVectors) break;
      const Index first = left + Of::template vector<Edge>(n) * Most;
      body(Width<Most>(), top + Of::template line<Edge>(n), first, Most);
    }
  } else {
    for (int n = thread; n < Edge * Edge; n += Threads) {
      const Index row = top + n / Edge;
      const Index column = left + n % Edge;
      if (row < rows && column < size) body(Width<1>(), row, column, 1);
    }
  }
}

#endif

}  // namespace kiln
