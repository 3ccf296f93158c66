#include "fusion/schedule/rows/row_buffers.hpp"

#include "fusion/infer/sum_tree.hpp"

namespace kiln::fusion {

int buffered_along(const ScratchVector<MergedAxis>& axes, std::size_t first, std::size_t operand,
                   int bytes) {
  // Few neighbours are worth it where each line of memory has those of one element of the innermost
  // axis: means of 224 x 224 pixels of three channels take twice as long with a buffer as without.
  constexpr int kFew = 8;
  constexpr int kLine = 64;
  const std::size_t inner = axes.size() - 1;
  std::size_t along = inner;
  for (std::size_t k = first; k < inner; ++k) {
    const Size stride = abs(axes[k].strides[operand]);
    const Size least = abs(axes[along].strides[operand]);
    if (stride != 0 && (least == 0 || stride < least)) along = k;
  }
  const Size step = abs(axes[inner].strides[operand]);
  if (along == inner || step == 0) return -1;
  if (axes[along].size < kFew && step * bytes < kLine) return -1;
  return static_cast<int>(along);
}

int buffered_elements(const BufferedRows& rows) {
  // What stays in the L2 cache of a core, beside the lines of memory that it is read from.
  constexpr std::int64_t kKept = 512 << 10;
  constexpr std::int64_t kMost = 4 << 20;
  constexpr int kMostStretches = 16;
  constexpr int kNeighbours = 256;  // bytes of a line, and of the page that it is in
  const bool split = rows.splits > 1;
  if (!split && (rows.length <= kTreeChunk || rows.length * rows.bytes <= kKept)) return 0;
  // Chunks of neighbouring parts are neighbours, and have whole lines of memory together.
  int elements = kTreeChunk;
  const Size stretches = (rows.length - 1) / (rows.splits * kTreeChunk) + 1;  // chunks of a part
  if (!split || stretches > kMostStretches) return elements;
  while (rows.behind * (kNeighbours / rows.narrowest) > elements &&
         stretches * 2 * elements * rows.bytes <= kMost) {
    elements *= 2;
  }
  return elements;
}

}  // namespace kiln::fusion
