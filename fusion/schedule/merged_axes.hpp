// The axes of an iteration space with the strides of every operand along them: put in order, merged
// where several are one, and what follows from them for alignment and indices. What kernels make of
// the axes is in schedule/elementwise/elementwise.cpp and schedule/rows/row_layout.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fusion/schedule/layout.hpp"

namespace kiln::fusion {

/// One axis with its stride in every operand, and the call's axes that it is.
struct MergedAxis {
  std::int64_t size;
  std::vector<std::int64_t> strides;
  std::vector<std::size_t> from;
};

/// Largest stride first, so that neighbours in the operand's memory are handled by neighbouring
/// threads; equal ones keep their order.
void sort_by_memory(std::vector<MergedAxis>& axes, std::size_t operand);

/// Neighbours that are one longer axis in every operand become that.
std::vector<MergedAxis> merge(std::vector<MergedAxis> axes);

/// Where rows of the largest input have fewer bytes than a line, the axis along which they follow
/// each other comes next to the innermost one, if it has no more than `most` elements.
std::vector<MergedAxis> follow_largest_input(std::vector<MergedAxis> axes,
                                             std::span<const Operand> operands, double line,
                                             std::int64_t most);

/// Of a GPU's axes: an order in which threads that run at about the same time read what they share.
/// Where large inputs repeat along an axis, a few steps along that one come between stretches of
/// the innermost; and the largest input is followed.
std::vector<MergedAxis> bring_together(std::vector<MergedAxis> axes,
                                       std::span<const Operand> operands);

/// How the operand lies along the innermost axis.
Access access_of(const std::vector<MergedAxis>& axes, std::size_t operand);

/// What the start of every row along axis `inner` and every vector of `width` in it is aligned to.
int alignment_of(const Operand& operand, std::int64_t offset, const std::vector<MergedAxis>& axes,
                 std::size_t inner, std::size_t index, int width);

/// Whether every row of the operand begins with a line of a CPU's caches.
bool rows_are_lines(const Operand& operand, std::int64_t offset,
                    const std::vector<MergedAxis>& axes, std::size_t index);

/// Whether every output is so large that it had better not be stored by way of the caches, in rows
/// of its own memory that are long or whole lines; lines, if a row is written in pieces.
bool is_streamed(std::span<const Operand> operands, const std::vector<OperandSchedule>& schedules,
                 const std::vector<MergedAxis>& axes, std::span<const std::int64_t> offsets,
                 bool in_pieces, Backend backend);

/// Whether an operand spans, or the elements are, more than 32-bit indices reach. Lanes past the
/// end of a row are addressed, though not touched.
bool needs_wide_index(const std::vector<MergedAxis>& axes, std::size_t operands,
                      std::uint64_t elements, int width);

}  // namespace kiln::fusion
