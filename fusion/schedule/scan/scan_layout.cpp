#include "fusion/schedule/scan/scan_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "fusion/graph/broadcast.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/schedule/merged_axes.hpp"

namespace kiln::fusion {
namespace {

// A row is mapped to as many threads as it has vectors, at most a block; a vector is 16 bytes of
// the narrowest operand, with no more lanes than registers allow for several values of each. The
// CPU takes 256 elements of a row, of which the last ones may be fewer, or columns, at a time.
constexpr int kMostScanThreads = 256;
constexpr int kScanElements = 256;  // of a block (preamble/scan.h)
constexpr int kShortRowThreads = 32;
constexpr int kScanBlock = 128;
constexpr int kScanVectorBits = 128;
constexpr int kMostScanLanes = 8;
constexpr int kMostColumns = 4;  // of a thread, which has ten partial results of each
constexpr int kHostScanLanes = 256;

// Rows that are moved through shared memory leave room there for as many blocks as there are
// threads for.
constexpr int kScanVectorBytes = kScanVectorBits / 8;
constexpr int kStagedScanBytes = 24 << 10;

// Along another axis than the innermost one, a thread goes down its columns element by element. So
// that memory is busy nevertheless, GPUs load some elements of a column before they need the first,
// and where there are few columns each thread takes fewer of them, down to four bytes, and loads
// more of their elements.
constexpr std::int64_t kFillingThreads = 1 << 16;
constexpr std::int64_t kManyThreads = 1 << 18;
constexpr int kLeastVectorBits = 32;
constexpr int kMostAhead = 8;
constexpr int kMostAheadOfFew = 32;
constexpr int kAheadLanes = 32;   // whose code stands in the kernel
constexpr int kAheadBytes = 128;  // in registers

// What the CPU prefetches, of operands and results: parts of rows that are far apart are not what
// it expects next, and a line must be there before a part of it is stored. cumsum(x, -2) of 1,024
// columns of f32 took 1.8 times as long without.
constexpr int kHostRowsAhead = 16;

using Axis = MergedAxis;

// The axes that are not scanned, the last the fastest in the first output.
ScratchVector<Axis> other_axes(const Sizes& shape, std::size_t scanned,
                               std::span<const SizedOperand> operands,
                               std::span<const AxisBound> bounds) {
  ScratchVector<Axis> axes;
  axes.reserve(shape.size() + 1);  // with the scanned one
  for (std::size_t k = 0; k < shape.size(); ++k) {
    const bool bounded = is_bounded(bounds, k);
    if (k == scanned || (shape[k] == 1 && !bounded)) continue;
    add_axis(axes, shape, k, operands).bounded = bounded;
  }
  sort_by_memory(axes, operands, first_output(operands));
  merge(axes);
  return axes;
}

// Of operands whose neighbours are neighbours in memory, also in reverse order.
int narrowest_contiguous(const Axis& inner, std::span<const SizedOperand> operands) {
  int narrowest = kScanVectorBits;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (abs(inner.strides[i]) == 1) narrowest = std::min(narrowest, bits(operands[i].dtype));
  }
  return narrowest;
}

int most_lanes(const Axis& inner, bool across, std::span<const SizedOperand> operands,
               const ForcedRows& forced) {
  const int most = across ? kMostColumns : kMostScanLanes;
  const int width = std::min(kScanVectorBits / narrowest_contiguous(inner, operands), most);
  return forced.width != 0 ? std::min(width, forced.width) : width;
}

int choose_width(const Axis& inner, bool across, std::span<const SizedOperand> operands,
                 Backend backend, const ForcedRows& forced) {
  int width =
      backend == Backend::host ? kHostScanLanes : most_lanes(inner, across, operands, forced);
  while (width > 1 && inner.size % width != 0) width /= 2;
  return width;
}

// The CPU takes a block of a row at a time (preamble/scan.h), or all of a shorter one.
int choose_host_width(Size length) {
  return static_cast<int>(bit_ceil(std::clamp<Size>(length, 1, kHostScanLanes)));
}

// How a thread of a GPU takes `columns` columns: how many side by side, and how many elements of
// each it loads at a time.
void map_columns_to_threads(Schedule& schedule, const Axis& inner,
                            std::span<const SizedOperand> operands, Size columns,
                            const ForcedRows& forced) {
  int& width = schedule.width;
  const int narrowest = narrowest_contiguous(inner, operands);
  while (width % 2 == 0 && width * narrowest > kLeastVectorBits &&
         columns / width < kFillingThreads) {
    width /= 2;
  }
  int bytes = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const int lanes = inner.strides[i] == 0 ? 1 : width;
    if (!operands[i].output) bytes += lanes * std::max(1, bits(operands[i].dtype) / 8);
  }
  const int most = columns / width < kManyThreads ? kMostAheadOfFew : kMostAhead;
  const int ahead = std::min({most, kAheadLanes / width, kAheadBytes / std::max(1, bytes)});
  schedule.reduction.batch =
      static_cast<int>(std::bit_floor(static_cast<unsigned>(std::max(1, ahead))));
  if (forced.batch != 0) schedule.reduction.batch = forced.batch;
}

// Maps `rows` rows along the axis to threads.
void map_scan_to_threads(SizedLayout& layout, Size rows, Backend backend,
                         const ForcedRows& forced) {
  RowSchedule& shares = layout.schedule.reduction;
  if (backend != Backend::host) {
    shares.threads =
        static_cast<int>(bit_ceil(std::clamp<Size>(layout.vectors, 1, kMostScanThreads)));
    if (forced.threads != 0) {
      const int least = std::min(shares.threads, kScanElements / layout.schedule.width);
      shares.threads = std::clamp(forced.threads, least, kMostScanThreads);
    }
    if (shares.threads <= kShortRowThreads) shares.rows = kScanBlock / shares.threads;
  }
  layout.rows = rows;
  layout.units = rows;
  layout.work_items = (rows + shares.rows - 1) / shares.rows;
}

// Whether rows are whole vectors of so many elements, and each vector is one access.
bool are_whole_vectors(const ScratchVector<Axis>& axes, std::span<const SizedOperand> operands,
                       int width) {
  const Axis& inner = axes.back();
  if (inner.size % width != 0) return false;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (inner.strides[i] == -1) return false;
    const int wanted = std::min(kScanVectorBytes, width * element_bytes(operands[i]));
    if (inner.strides[i] == 1 &&
        alignment_of(operands[i], 0, axes, axes.size() - 1, i, width) < wanted) {
      return false;
    }
  }
  return true;
}

// How an operand of rows that are not whole vectors is accessed.
Access ragged_access(const ScratchVector<Axis>& axes, std::span<const SizedOperand> operands,
                     std::size_t i, const RowSchedule& shares) {
  const Size stride = axes.back().strides[i];
  if (abs(stride) != 1) return access_of(axes, i);
  const bool whole = alignment_of(operands[i], 0, axes, axes.size() - 1, i, 1) >=
                     std::min(kScanVectorBytes, element_bytes(operands[i]));
  if (!whole || (shares.rows > 1 && !are_one_range(axes, i))) return Access::strided;
  return stride == 1 ? Access::staged : Access::staged_backwards;
}

// Rows of a GPU that are no whole vectors, or not aligned, are moved through shared memory if all
// operands that lie along them can be: else neighbouring threads take neighbours. On an H200
// running sums of 1,001 bf16 reached 0.15 of a copy, element by element.
bool stage_rows(SizedLayout& layout, const ScratchVector<Axis>& axes,
                std::span<const SizedOperand> operands, Size rows, Backend backend,
                const ForcedRows& forced) {
  const Axis& inner = axes.back();
  int width = most_lanes(inner, false, operands, forced);
  if (are_whole_vectors(axes, operands, width)) return false;
  int bytes = 0;  // of an element of each operand
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (is_packed(operands[i].dtype)) return false;
    if (abs(inner.strides[i]) == 1) bytes += element_bytes(operands[i]);
  }
  width = std::min(width, static_cast<int>(bit_ceil(std::clamp<Size>(inner.size, 1, width))));
  while (width > 1 && width * bytes * kMostScanThreads > kStagedScanBytes) width /= 2;
  if (width == 1) return false;
  SizedLayout staged = layout;
  RowSchedule& shares = staged.schedule.reduction;
  staged.schedule.width = width;
  staged.vectors = (inner.size + width - 1) / width;
  map_scan_to_threads(staged, rows, backend, forced);
  if (shares.rows > 1 && staged.vectors > shares.threads) return false;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const bool moves = std::ranges::any_of(axes.begin(), axes.end() - 1,
                                           [&](const Axis& axis) { return axis.strides[i] != 0; });
    const bool unit = abs(inner.strides[i]) == 1;
    if (unit && (moves || operands[i].output) &&
        !is_staged(ragged_access(axes, operands, i, shares))) {
      return false;
    }
  }
  shares.ragged = true;
  layout = std::move(staged);
  return true;
}

}  // namespace

SizedLayout plan_scan(const Sizes& shape, std::size_t axis, std::span<const SizedOperand> operands,
                      Backend backend, const ForcedRows& forced,
                      std::span<const AxisBound> bounds) {
  SizedLayout layout;
  Schedule& schedule = layout.schedule;
  schedule.backend = backend;
  reserve_operands(layout, operands.size());
  const std::size_t output = first_output(operands);
  ScratchVector<Axis> axes = other_axes(shape, axis, operands, bounds);
  const bool across =
      !axes.empty() && abs(axes.back().strides[output]) < abs(operands[output].strides[axis]);
  schedule.scan = across ? ScanSchedule::across : ScanSchedule::along;
  if (axes.empty()) axes.push_back({1, SizedStrides(operands.size(), 0), {}});
  add_axis(axes, shape, axis, operands).bounded = is_bounded(bounds, axis);
  if (across) std::swap(axes.back(), axes.end()[-2]);
  schedule.rank = static_cast<int>(axes.size());
  schedule.bounds = bounded_axes(axes, bounds);
  layout.reduced = shape[axis];
  Size elements = 1;
  for (const Axis& axis : axes) elements *= axis.size;
  const Size others = shape[axis] != 0 ? elements / shape[axis] : elements;
  const bool may_stage = !across && backend != Backend::host && bounds.empty();
  if (!may_stage || !stage_rows(layout, axes, operands, others, backend, forced)) {
    schedule.width = !across && backend == Backend::host
                         ? choose_host_width(axes.back().size)
                         : choose_width(axes.back(), across, operands, backend, forced);
    // A vector ends with the row, and no column of it before another one.
    const bool ends_within = axes.back().bounded || ends_by_lane(axes, bounds);
    if (ends_within && (across || backend != Backend::host)) schedule.width = 1;
    if (across && backend != Backend::host) {
      map_columns_to_threads(schedule, axes.back(), operands, others, forced);
    }
    layout.vectors = (axes.back().size + schedule.width - 1) / schedule.width;
    if (across) {
      layout.work_items = others / schedule.width;
      layout.reduced *= schedule.width;
    } else {
      map_scan_to_threads(layout, others, backend, forced);
    }
  }
  schedule.wide_index =
      needs_wide_index(axes, operands, elements, std::max(schedule.width, kMostScanLanes));
  for (std::size_t i = 0; i < operands.size(); ++i) {
    OperandSchedule& operand = schedule.operands.emplace_back();
    operand.access = schedule.reduction.ragged
                         ? ragged_access(axes, operands, i, schedule.reduction)
                         : access_of(axes, i);
    operand.alignment = std::max(1, bits(operands[i].dtype) / 8);
    if (backend != Backend::host && operand.access == Access::contiguous) {
      operand.alignment = alignment_of(operands[i], 0, axes, axes.size() - 1, i, schedule.width);
    }
    operand.outer_axes = outer_axes_of(axes, i);
    operand.prefetched = across && backend == Backend::host && !is_packed(operands[i].dtype) &&
                         operand.access == Access::contiguous &&
                         (operand.outer_axes >> (axes.size() - 2) & 1) != 0;
    if (operand.prefetched) schedule.rows_ahead = kHostRowsAhead;
    layout.offsets.push_back(0);
  }
  take_axes(layout, axes);
  return layout;
}

}  // namespace kiln::fusion
