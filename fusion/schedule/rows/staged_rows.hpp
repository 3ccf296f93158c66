// Short rows of a GPU that are no whole vectors. Those of a block are one range of memory, which is
// moved through shared memory in whole vectors (preamble/staging.h).
#pragma once

#include <span>

#include "fusion/schedule/layout.hpp"
#include "fusion/schedule/merged_axes.hpp"
#include "fusion/schedule/scratch.hpp"

namespace kiln::fusion {

/// Threads of a block.
inline constexpr int kStagedBlock = 128;

/// Whether what an operand has of neighbouring rows is one range of elements.
bool can_stage(const ScratchVector<MergedAxis>& axes, const SizedOperand& operand, std::size_t i);

/// How many threads share a row along the last of the axes, of `count` rows whose vectors would
/// have `width` elements; 0: they are not staged. `forced`: as a test asks for, or 0.
int threads_of_staged(const ScratchVector<MergedAxis>& axes, std::span<const SizedOperand> operands,
                      const ScratchVector<bool>& row_invariant, int width, Size count, int forced);

/// How many elements of a row each of its threads has.
void keep_staged(RowSchedule& rows, Size length);

}  // namespace kiln::fusion
