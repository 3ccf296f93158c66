// The axes of an iteration space with the strides of every operand along them: sorted, merged where
// several are one, and what follows for alignment and index width. What kernels do with the axes is
// decided in schedule/elementwise/elementwise.cpp and schedule/rows/row_layout.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "fusion/infer/reduce_space.hpp"
#include "fusion/schedule/layout.hpp"

namespace kiln::fusion {

/// One axis with its stride in every operand, and the call's axes that it is.
struct MergedAxis {
  Size size = 0;
  SizedStrides strides;
  CallAxes from;
  bool bounded = false;  ///< ends where a value says: stays an axis of its own
};

/// Of that shape; of an operand, without axes of stride 0 (graph/broadcast.hpp).
Size element_count(const Sizes& shape);
Size element_count(const Sizes& shape, const Sizes& strides);

/// Takes the memory of what all layouts have for each operand at once.
void reserve_operands(SizedLayout& layout, std::size_t operands);
/// Gives a layout the sizes of its axes, and each operand's strides along them. Takes the strides.
void take_axes(SizedLayout& layout, ScratchVector<MergedAxis>& axes);
/// The axes but the innermost one along which an operand moves: OperandSchedule::outer_axes.
std::uint64_t outer_axes_of(const ScratchVector<MergedAxis>& axes, std::size_t operand);

/// The place of the first output; 0 if none is one.
std::size_t first_output(std::span<const SizedOperand> operands);

/// Sorts a few axes, equal ones in the order in which they are; unlike std::stable_sort without
/// memory of its own.
template <class Before>
void sort_axes(ScratchVector<MergedAxis>& axes, const Before& before) {
  for (auto next = axes.begin(); next != axes.end(); ++next) {
    std::rotate(std::upper_bound(axes.begin(), next, *next, before), next, next + 1);
  }
}

/// Adds an axis of the call.
MergedAxis& add_axis(ScratchVector<MergedAxis>& axes, const Sizes& shape, std::size_t k,
                     std::span<const SizedOperand> operands);

/// The axes that are reduced, or those that are not, without those of one element that no value
/// bounds. `shape`: of the space.
ScratchVector<MergedAxis> axes_where(const ReduceSpace& space, const Sizes& shape,
                                     std::span<const SizedOperand> operands, bool reduced,
                                     std::span<const AxisBound> bounds = {});

/// Whether one of the operands, given as bits, differs along that axis.
bool differs_along(const MergedAxis& axis, std::uint64_t operands);

/// Whether one of the bounds is of that axis.
bool is_bounded(std::span<const AxisBound> bounds, std::size_t axis);

/// Of each bound, which of the axes it is of.
ScratchVector<int> bounded_axes(const ScratchVector<MergedAxis>& axes,
                                std::span<const AxisBound> bounds);

/// Whether an axis ends at places that differ along the innermost one.
bool ends_by_lane(const ScratchVector<MergedAxis>& axes, std::span<const AxisBound> bounds);

/// Largest stride first, so that neighbours in the operand's memory are handled by neighbouring
/// threads; equal ones keep their order. Axes of places that a value says are as far apart as
/// those.
void sort_by_memory(ScratchVector<MergedAxis>& axes, std::span<const SizedOperand> operands,
                    std::size_t operand);

/// Neighbours that are one longer axis in every operand become that.
void merge(ScratchVector<MergedAxis>& axes);

/// If rows of the largest input are shorter than a cache line, moves the axis along which they
/// follow each other next to the innermost one, if it has at most `most` elements.
ScratchVector<MergedAxis> follow_largest_input(ScratchVector<MergedAxis> axes,
                                               std::span<const SizedOperand> operands,
                                               int line_bytes, Size most);

/// For GPUs: orders the axes so that threads that run at about the same time read the same data.
/// Where large inputs repeat along an axis, a few steps along it come between parts of the
/// innermost axis; else the largest input is followed.
ScratchVector<MergedAxis> order_for_reuse(ScratchVector<MergedAxis> axes,
                                          std::span<const SizedOperand> operands);

/// Where the value that says an operand's places is the same along the innermost axis.
Indexing indexing_of(const ScratchVector<MergedAxis>& axes, const SizedOperand& operand);

/// Whether an operand's places are said by a value.
bool has_indexed(std::span<const SizedOperand> operands);

/// The access of an operand along the innermost axis.
Access access_of(const ScratchVector<MergedAxis>& axes, std::size_t operand);

/// The alignment of the start of every row along axis `inner` and of every vector of `width` in it.
int alignment_of(const SizedOperand& operand, Size offset, const ScratchVector<MergedAxis>& axes,
                 std::size_t inner, std::size_t index, int width);
/// The same where the strides from row to row are, or-ed, these.
int alignment_of(const SizedOperand& operand, Size offset, Size strides, int width);

/// Whether rows along the innermost axis follow each other in memory without gaps, in their order.
bool are_one_range(const ScratchVector<MergedAxis>& axes, std::size_t operand);

/// Of two packed elements 1.
inline int element_bytes(const SizedOperand& operand) {
  return std::max(1, bits(operand.dtype) / 8);
}

/// Whether every row of the operand begins at a cache line of a CPU.
bool rows_are_lines(const SizedOperand& operand, Size offset, const ScratchVector<MergedAxis>& axes,
                    std::size_t index);

/// Whether the outputs had better bypass the caches: all of them large, in memory of their own, in
/// rows that are long or whole cache lines; whole cache lines where each store writes a short part
/// of a row (`short_stores`).
bool is_streamed(std::span<const SizedOperand> operands,
                 const ScratchVector<OperandSchedule>& schedules,
                 const ScratchVector<MergedAxis>& axes, std::span<const Size> offsets,
                 bool short_stores, Backend backend);

/// The bits of all elements of an operand, each once.
Size extent_of(const ScratchVector<MergedAxis>& axes, const SizedOperand& operand,
               std::size_t index);

/// Whether 32-bit indices are too narrow for the elements, or for what an operand spans. Lanes past
/// the end of a row are addressed, though not accessed.
bool needs_wide_index(const ScratchVector<MergedAxis>& axes, std::span<const SizedOperand> operands,
                      Size elements, int width);

}  // namespace kiln::fusion
