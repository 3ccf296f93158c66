// Several vectors for each work item, on GPUs.
#pragma once

#include "access_gpu.h"
#include "divide.h"
#include "strides.h"

#if !KILN_HOST
namespace kiln {

// All vectors of a work item, with `Ways` interleaved elements for every lane.
template <int Ways, int Align, class W, class T, class Index>
KILN_FN Vec<T, Ways * W::size> load_vectors(W, const T* row, Index first) {
  Vec<T, Ways * W::size> result;
  _Pragma("unroll") for (int i = 0; i < W::vectors; ++i) {
    const auto part = load<Ways * W::each, Align>(row, Index(Ways) * (first + i * W::stride));
    _Pragma("unroll") for (int k = 0; k < Ways * W::each; ++k) {
      result.lane[i * Ways * W::each + k] = part.lane[k];
    }
  }
  return result;
}
template <class W, class T, class Index, class Stride>
KILN_FN Vec<T, W::size> gather_vectors(W, const T* row, Index first, Stride stride) {
  Vec<T, W::size> result;
  _Pragma("unroll") for (int lane = 0; lane < W::size; ++lane) {
    result.lane[lane] = row[Stride(first + lane / W::each * W::stride + lane % W::each) * stride];
  }
  return result;
}
template <int Ways, int Align, class W, class T, class Index>
KILN_FN void store_vectors(W, T* row, Index first, const Vec<T, Ways * W::size>& value) {
  _Pragma("unroll") for (int i = 0; i < W::vectors; ++i) {
    Vec<T, Ways * W::each> part;
    _Pragma("unroll") for (int k = 0; k < Ways * W::each; ++k) {
      part.lane[k] = value.lane[i * Ways * W::each + k];
    }
    store<Ways * W::each, Align>(row, Index(Ways) * (first + i * W::stride), part);
  }
}
template <class W, class T, class Index, class Stride>
KILN_FN void scatter_vectors(W, T* row, Index first, Stride stride, const Vec<T, W::size>& value) {
  _Pragma("unroll") for (int lane = 0; lane < W::size; ++lane) {
    row[Stride(first + lane / W::each * W::stride + lane % W::each) * stride] = value.lane[lane];
  }
}

// The same where `address(n)` is that of element n of the space: vectors lie in one run, or their
// elements `stride` apart.
template <class T, int Align, class W, class Index, class Address>
KILN_FN Vec<T, W::size> load_addressed(W, Index first, const Address& address) {
  Vec<T, W::size> result;
  _Pragma("unroll") for (int i = 0; i < W::vectors; ++i) {
    const auto part = load<W::each, Align>(address(Index(first + i * W::stride)), 0);
    _Pragma("unroll") for (int k = 0; k < W::each; ++k) result.lane[i * W::each + k] = part.lane[k];
  }
  return result;
}
template <class T, class W, class Index, class Address, class Stride>
KILN_FN Vec<T, W::size> gather_addressed(W, Index first, const Address& address, Stride stride) {
  Vec<T, W::size> result;
  _Pragma("unroll") for (int i = 0; i < W::vectors; ++i) {
    const auto part = gather<W::each>(address(Index(first + i * W::stride)), 0, stride);
    _Pragma("unroll") for (int k = 0; k < W::each; ++k) result.lane[i * W::each + k] = part.lane[k];
  }
  return result;
}
// The same for a vector in which a row may end: its elements are of one row of `extent` elements,
// which are `step` apart, or of two.
template <class T, class W, class Index, class Divisor, class Address, class Stride>
KILN_FN Vec<T, W::size> load_straddling(W, Index first, Divisor extent, const Address& address,
                                        Stride step) {
  const Index next = (divide(first, extent) + 1) * extent.divisor;
  const int whole = next - first < W::size ? int(next - first) : W::size;  // lanes of the first row
  const T* const row = address(first);
  const T* const after = whole < W::size ? address(next) : row;
  Vec<T, W::size> result;
  _Pragma("unroll") for (int lane = 0; lane < W::size; ++lane) {
    result.lane[lane] =
        *(lane < whole ? row + Stride(lane) * step : after + Stride(lane - whole) * step);
  }
  return result;
}
// Where a row is one element.
template <class T, class W, class Index, class Divisor, class Address>
KILN_FN Vec<T, W::size> load_straddling(W, Index first, Divisor extent, const Address& address) {
  const Index next = (divide(first, extent) + 1) * extent.divisor;
  const T row = *address(first);
  const T after = *address(next - first < W::size ? next : first);
  Vec<T, W::size> result;
  _Pragma("unroll") for (int lane = 0; lane < W::size; ++lane) {
    result.lane[lane] = first + lane < next ? row : after;
  }
  return result;
}
template <int Align, class W, class T, class Index, class Address>
KILN_FN void store_addressed(W, Index first, const Address& address, const Vec<T, W::size>& value) {
  _Pragma("unroll") for (int i = 0; i < W::vectors; ++i) {
    Vec<T, W::each> part;
    _Pragma("unroll") for (int k = 0; k < W::each; ++k) part.lane[k] = value.lane[i * W::each + k];
    store<W::each, Align>(address(Index(first + i * W::stride)), 0, part);
  }
}
template <class W, class T, class Index, class Address, class Stride>
KILN_FN void scatter_addressed(W, Index first, const Address& address, Stride stride,
                               const Vec<T, W::size>& value) {
  _Pragma("unroll") for (int i = 0; i < W::vectors; ++i) {
    Vec<T, W::each> part;
    _Pragma("unroll") for (int k = 0; k < W::each; ++k) part.lane[k] = value.lane[i * W::each + k];
    scatter<W::each>(address(Index(first + i * W::stride)), 0, stride, part);
  }
}

// The first element of a work item: `Threads` neighbouring items interleave their vectors.
template <int Threads, int Vectors, int Lanes, class Index>
KILN_FN Index first_of(Index item) {
  return item / Threads * (Threads * Vectors * Lanes) + item % Threads * Lanes;
}

template <int Lanes, int Vectors, int Stride, class Index, class Body>
KILN_FN void for_each_vectors(Index start, Index size, const Body& body) {
  if (start + (Vectors - 1) * Stride + Lanes <= size) {
    body(Width<Lanes, Vectors, Stride>(), start, Lanes * Vectors);
  } else {
    for (Index first = start; first < size && first < start + Vectors * Stride; first += Stride) {
      for_each_vector<Lanes>(first, size, body);
    }
  }
}

}  // namespace kiln
#endif
