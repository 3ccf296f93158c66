// Tiles of f16 on the CPU, whose lines are converted in blocks when they are read.
//
// Asked for by: fill_halves
#pragma once

#include "halves.h"
#include "tile.h"

#if KILN_HOST
namespace kiln {

template <int Threads, int Align, int Rows, int Columns, int Vector, class Index, class Stride>
KILN_FN void fill_halves(Tile<f16_lane, Rows, Columns, Vector>& tile, const f16* data, Index top,
                         Index left, Index rows, Index size, Stride stride) {
  using Word = typename Slot<f16_lane>::Type;
  const auto take = [](const f16* from, Word* line, auto count) KILN_INLINED {
    const auto wide = load_halves<Rows>(from, 0, count);
    constexpr Width<Rows> width{};
    KILN_FOR_EACH_LANE(row, width, count) line[row] = Slot<f16_lane>::of(wide[row]);
  };
  fill_lines(tile, data, top, left, rows, size, stride, take);
}

}  // namespace kiln
#endif
