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

int narrowest_contiguous(const Axis& inner, std::span<const SizedOperand> operands) {
  int narrowest = kScanVectorBits;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (inner.strides[i] == 1) narrowest = std::min(narrowest, bits(operands[i].dtype));
  }
  return narrowest;
}

int choose_width(const Axis& inner, bool across, std::span<const SizedOperand> operands,
                 Backend backend, const ForcedRows& forced) {
  const int narrowest = narrowest_contiguous(inner, operands);
  const int most = across ? kMostColumns : kMostScanLanes;
  int width =
      backend == Backend::host ? kHostScanLanes : std::min(kScanVectorBits / narrowest, most);
  if (backend != Backend::host && forced.width != 0) width = std::min(width, forced.width);
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
  schedule.width = !across && backend == Backend::host
                       ? choose_host_width(axes.back().size)
                       : choose_width(axes.back(), across, operands, backend, forced);
  // A vector ends with the row, and no column of it before another one.
  const bool ends_within = axes.back().bounded || ends_by_lane(axes, bounds);
  if (ends_within && (across || backend != Backend::host)) schedule.width = 1;
  schedule.bounds = bounded_axes(axes, bounds);
  layout.reduced = shape[axis];
  Size others = 1;
  for (const Axis& axis : axes) others *= axis.size;
  schedule.wide_index = needs_wide_index(axes, operands, others, schedule.width);
  if (shape[axis] != 0) others /= shape[axis];
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
  for (std::size_t i = 0; i < operands.size(); ++i) {
    OperandSchedule& operand = schedule.operands.emplace_back();
    operand.access = access_of(axes, i);
    operand.alignment = std::max(1, bits(operands[i].dtype) / 8);
    if (backend != Backend::host && operand.access == Access::contiguous) {
      operand.alignment = alignment_of(operands[i], 0, axes, axes.size() - 1, i, schedule.width);
    }
    operand.outer_axes = outer_axes_of(axes, i);
    layout.offsets.push_back(0);
  }
  take_axes(layout, axes);
  return layout;
}

}  // namespace kiln::fusion
