// Rows of the CPU whose elements lie in memory in another order than that of their count, and how
// much of them is moved through buffers in that order (preamble/host_segments.h).
#pragma once

#include "fusion/schedule/merged_axes.hpp"

namespace kiln::fusion {

/// Elements of a row from which on a buffer is worth it: of 128, means take 1.4 times as long with
/// one as without, of 256 they take as long, and variances half of that.
inline constexpr int kLeastBuffered = 256;

/// Of an operand that varies within rows, the reduced axis along which its neighbours are
/// neighbours in memory, if that is not the innermost one; -1: it is read as it lies. `axes` are
/// those of the kernel, of which the ones from `first` on are reduced; `bytes` is of an element.
int buffered_along(const ScratchVector<MergedAxis>& axes, std::size_t first, std::size_t operand,
                   int bytes);

/// What buffers of a kernel have in common.
struct BufferedRows {
  Size length = 0;  ///< elements of a row
  Size splits = 1;  ///< that it is cut in; 1: it is not
  Size behind = 1;  ///< elements from one neighbour in memory to the next, the most of all operands
  int bytes = 0;    ///< of an element in all buffers
  int narrowest = 0;  ///< of one in the narrowest
};

/// RowSchedule::buffered.
int buffered_elements(const BufferedRows& rows);

}  // namespace kiln::fusion
