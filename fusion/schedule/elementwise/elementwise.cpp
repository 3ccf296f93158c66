#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>

#include "fusion/schedule/elementwise/choices.hpp"
#include "fusion/schedule/layout.hpp"
#include "fusion/schedule/merged_axes.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

constexpr int kMostRank = 64;

// On the CPU streamed outputs are collected first, in parts so short that the store buffer can
// continue while memory takes the last part, but not so short that each ends within a cache line:
// copies with 4096 / 1024 / 512 / 256 bytes at a time reach 27, 31, 39 and 40 GB/s with one thread
// of a Zen 3.
constexpr int kStreamedBytes = 512;

// On the CPU kernels for short rows have the rows' width: no lanes of whole rows are computed one
// by one.
constexpr std::int64_t kShortRow = 128;
int short_width(Size size) {
  constexpr int kLeast = 4;
  return static_cast<int>(bit_ceil(std::max<Size>(kLeast, size)));
}

// Of short rows that do not follow each other in memory the CPU prefetches those that are so many
// bytes later, but not what stays in its first cache: heads that are transposed, of 64 to 256 bf16,
// took twice to three times as long without.
constexpr int kPrefetchedBytes = 2048;
constexpr int kMostRowsAhead = 16;
constexpr std::int64_t kLongestPrefetched = 1024;  // elements
constexpr std::int64_t kCachedBits = 16384 * 8;

void prefetch_rows(Schedule& schedule, const ScratchVector<MergedAxis>& axes,
                   std::span<const SizedOperand> operands) {
  if (schedule.backend != Backend::host || schedule.tile != 0 || axes.size() < 2 ||
      axes.back().size > kLongestPrefetched) {
    return;
  }
  int widest = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    OperandSchedule& own = schedule.operands[i];
    own.prefetched = own.access == Access::contiguous && own.outer_axes != 0 &&
                     own.indexing == Indexing::none && !is_packed(operands[i].dtype) &&
                     !operands[i].iota && !(operands[i].output && schedule.streamed) &&
                     !are_one_range(axes, i) && extent_of(axes, operands[i], i) > kCachedBits;
    if (own.prefetched) widest = std::max(widest, bits(operands[i].dtype) / 8 * schedule.width);
  }
  if (widest != 0) schedule.rows_ahead = std::clamp(kPrefetchedBytes / widest, 1, kMostRowsAhead);
}

// For the CPU: a row of few elements takes as long as one of many, and the last ones of a vector
// are computed one by one. So many of the innermost axes are one row instead, of which a work item
// has up to kRowElements; where operands are no range of memory, a table has the offsets of their
// elements. x.transpose(0, 2, 1) of bf16 with 2 to 12 channels takes 0.12 to 0.5 of the time, of
// 20 to 28 elements of 16 bits 0.6 to 0.75, but of f32 1.25.
constexpr std::int64_t kFewElements = 16;
constexpr std::int64_t kFewNarrowElements = 32;
constexpr int kRowElements = 512;

std::size_t axes_of_row(const ScratchVector<MergedAxis>& axes,
                        std::span<const SizedOperand> operands) {
  if (axes.size() < 2) return 1;
  const bool narrow = std::ranges::all_of(
      operands, [](const SizedOperand& operand) { return bits(operand.dtype) <= 16; });
  const Size inner = axes.back().size;
  if (inner >= (narrow ? kFewNarrowElements : kFewElements) || inner == kFewElements) return 1;
  const bool plain = std::ranges::none_of(operands, [](const SizedOperand& operand) {
    return operand.iota || operand.indexed.exists() || is_packed(operand.dtype);
  });
  if (!plain) return 1;
  Size elements = 1;
  std::size_t row = 0;
  while (row < axes.size() && elements * 2 <= kRowElements) {
    elements *= axes[axes.size() - 1 - row].size;
    ++row;
  }
  return row;
}

// Of the first axis of a row so many elements that vectors and stores past the caches are whole.
Size elements_of_part(Size axis, Size beside) {
  constexpr std::int64_t kWhole = 32;
  const Size most = kRowElements / beside;
  if (axis <= most) return axis;
  return most < kWhole ? most : most / kWhole * kWhole;
}

// The axes with those of a row as one, along which an operand's elements follow each other, repeat,
// or lie anywhere.
ScratchVector<MergedAxis> with_row_as_axis(ScratchVector<MergedAxis> axes, std::size_t row_axes) {
  for (std::size_t k = 1; k < row_axes; ++k) {
    const MergedAxis inner = std::move(axes.back());
    axes.pop_back();
    MergedAxis& row = axes.back();
    for (std::size_t i = 0; i < row.strides.size(); ++i) {
      constexpr int kAnywhere = 2;
      Size& stride = row.strides[i];
      stride = stride == inner.size * inner.strides[i] ? inner.strides[i] : Size(kAnywhere);
    }
    row.size *= inner.size;
  }
  return axes;
}

// At most this many outputs, or parts of one, are written side by side where that reads whole cache
// lines.
constexpr int kHostLine = 64;
constexpr std::int64_t kMostStreams = 32;

// The axes of more than one element. Without any elements they are one axis of size 0.
ScratchVector<MergedAxis> merged_axes_of(const Sizes& shape, std::span<const SizedOperand> operands,
                                         std::span<const AxisBound> bounds) {
  ScratchVector<MergedAxis> axes;
  if (std::ranges::find(shape, 0) != shape.end()) {
    MergedAxis none{0, SizedStrides(operands.size(), 1), {}};
    for (std::size_t k = 0; k < shape.size(); ++k) none.from.push_back(k);
    axes.push_back(std::move(none));
    return axes;
  }
  axes.reserve(shape.size() + 1);  // of one element there is none, and one is added
  for (std::size_t k = 0; k < shape.size(); ++k) {
    const bool bounded = is_bounded(bounds, k);
    if (shape[k] == 1 && !bounded) continue;
    add_axis(axes, shape, k, operands).bounded = bounded;
  }
  return axes;
}

// Reverses axes along which the first output runs backwards, in every operand.
void reverse_axes(ScratchVector<MergedAxis>& axes, std::size_t output,
                  ScratchVector<Size>& offsets) {
  for (MergedAxis& axis : axes) {
    if (axis.strides[output] >= 0 || axis.bounded) continue;
    for (std::size_t i = 0; i < axis.strides.size(); ++i) {
      offsets[i] += axis.strides[i] * (axis.size - 1);
      axis.strides[i] = -axis.strides[i];
    }
  }
}

// The offset that the kernel adds, because a pointer cannot express it.
Size start_of(const SizedOperand& operand, Size offset) {
  if (operand.iota) return offset;
  return is_packed(operand.dtype) ? offset & 1 : 0;
}

// 4 if all vectors of an iota begin at multiples of four, for which one call of the random number
// generator gives the numbers; else 0.
int count_alignment(const ScratchVector<MergedAxis>& axes, std::size_t operand, Size start,
                    int width) {
  Size steps = start | width;
  for (std::size_t k = 0; k + 1 < axes.size(); ++k) steps |= axes[k].strides[operand];
  return axes.back().strides[operand] == 1 && steps % 4 == 0 ? 4 : 0;
}

// Whether every row of a packed operand begins at a whole byte.
bool rows_are_bytes(const ScratchVector<MergedAxis>& axes, std::size_t operand, Size offset) {
  bool whole = offset % 2 == 0;
  for (std::size_t k = 0; k + 1 < axes.size(); ++k) {
    whole = whole && axes[k].strides[operand] % 2 == 0;
  }
  return whole;
}

}  // namespace

bool rows_are_lines(const SizedOperand& operand, Size offset, const ScratchVector<MergedAxis>& axes,
                    std::size_t index) {
  constexpr std::int64_t kLine = 64;
  const int width = bits(operand.dtype) / 8;
  bool whole = (operand.address % kLine + offset * width) % kLine == 0;
  for (std::size_t k = 0; k + 1 < axes.size(); ++k) {
    whole = whole && axes[k].strides[index] * width % kLine == 0;
  }
  return whole;
}

bool is_streamed(std::span<const SizedOperand> operands,
                 const ScratchVector<OperandSchedule>& schedules,
                 const ScratchVector<MergedAxis>& axes, std::span<const Size> offsets,
                 bool short_stores, Backend backend) {
  constexpr std::uint64_t kLongRow = 2048;
  const std::uint64_t least = device_model(backend).work.stream_bytes;
  Size elements = 1;
  for (const MergedAxis& axis : axes) elements *= axis.size;
  bool any = false;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const SizedOperand& written = operands[i];
    if (!written.output || schedules[i].row_invariant) continue;
    if (written.indexed.exists()) return false;
    const int width = bits(written.dtype) / 8;
    if (least == 0 || elements * width < least) return false;
    const bool everywhere =
        std::popcount(schedules[i].outer_axes) == static_cast<int>(axes.size()) - 1;
    const bool alone = std::ranges::count_if(operands, [&](const SizedOperand& operand) {
                         return !operand.iota && operand.address == written.address;
                       }) == 1;
    const bool is_long = !short_stores && axes.back().size * width >= kLongRow;
    if (!everywhere || !alone || schedules[i].access != Access::contiguous ||
        !(is_long || rows_are_lines(written, offsets[i], axes, i))) {
      return false;
    }
    any = true;
  }
  return any;
}

int tile_lanes(DType dtype, int alignment) { return std::max(1, alignment * 8 / bits(dtype)); }

template <class Number>
NumbersOf<Number>::Count LayoutOf<Number>::threads() const {
  const bool blocks = schedule.tile != 0 || schedule.reduction.axes != 0 ||
                      schedule.scan == ScanSchedule::along || schedule.attention.threads != 0;
  return blocks && schedule.backend != Backend::host ? work_items * static_cast<Count>(block())
                                                     : work_items;
}

bool Schedule::has_stride(std::size_t operand, std::uint32_t axis) const {
  const OperandSchedule& own = operands[operand];
  const bool transposed = own.access == Access::transposed;
  const auto along = static_cast<int>(axis);
  if (flat && !own.addressed && (tile == 0 || along == tile_axis)) return false;
  if (along + 1 == rank) {
    return transposed || own.access == Access::strided || own.access == Access::offsets;
  }
  if (transposed && tile != 0 && along == tile_axis) return false;
  return (own.outer_axes >> axis & 1) != 0;
}

template <class Number>
Number LayoutOf<Number>::block() const {
  if (schedule.attention.threads != 0) return schedule.attention.threads;
  const bool rows = schedule.reduction.axes != 0 || schedule.scan == ScanSchedule::along;
  const bool gpu = schedule.backend != Backend::host;
  if (!rows && (gpu || schedule.scan == ScanSchedule::none)) {
    const DeviceModel& model = device_model(schedule.backend);
    return schedule.tile != 0 ? model.work.tile_block : model.work.block;
  }
  if (gpu) return schedule.reduction.block();
  // Enough items to keep a core busy for longer than it takes to wake it.
  constexpr std::int64_t kWorthwhile = 16 * 1024;
  const int side_by_side = schedule.reduction.columns != 0 ? schedule.width : 1;
  const Number elements = std::max<Number>(1, reduced / splits) * side_by_side;
  return std::max<Number>(1, kWorthwhile / elements);
}

template <class Number>
Number LayoutOf<Number>::row_items() const {
  Number inner = shape[shape.size() - 1];
  for (int k = 1; k < schedule.products.vector_axes; ++k) {
    inner *= shape[shape.size() - 1 - static_cast<std::size_t>(k)];
  }
  if (schedule.tile != 0) return (inner + schedule.tile - 1) / schedule.tile;
  if (schedule.row_axes > 1) {
    const Number size = shape[shape.size() - static_cast<std::size_t>(schedule.row_axes)];
    return (size + row_part - 1) / row_part;
  }
  const std::int64_t together = std::int64_t{schedule.width} * schedule.vectors * schedule.threads;
  return (inner + together - 1) / together * schedule.threads;
}

template struct LayoutOf<std::int64_t>;
template struct LayoutOf<Size>;

SizedLayout plan_layout(const Sizes& shape, std::span<const SizedOperand> operands, Backend backend,
                        std::span<const AxisBound> bounds) {
  SizedLayout layout;
  layout.schedule.backend = backend;
  reserve_operands(layout, operands.size());
  layout.starts.reserve(operands.size());
  layout.indexed.reserve(operands.size());
  for (const SizedOperand& operand : operands) layout.offsets.push_back(operand.offset);
  ScratchVector<MergedAxis> axes = merged_axes_of(shape, operands, bounds);
  const std::size_t output = first_output(operands);
  reverse_axes(axes, output, layout.offsets);
  sort_by_memory(axes, operands, output);
  merge(axes);
  std::size_t row_axes = 1;
  if (!bounds.empty()) {
    // An axis in which every element ends elsewhere is no row: each element is one.
    if (ends_by_lane(axes, bounds)) {
      axes.push_back({1, SizedStrides(operands.size(), 0), {}});
    }
    layout.schedule.bounds = bounded_axes(axes, bounds);
  } else if (backend == Backend::host) {
    row_axes = axes_of_row(axes, operands);
    if (row_axes == 1) {
      axes = follow_largest_input(std::move(axes), operands, kHostLine, kMostStreams);
    }
  } else if (!axes.empty()) {
    axes = order_for_reuse(std::move(axes), operands);
  }
  if (axes.empty()) {
    axes.push_back({1, SizedStrides(operands.size(), 1), {}});  // one element: a contiguous row
  }
  if (axes.size() > kMostRank) {
    throw Error(Code::unsupported,
                fmt::format("layout: {} axes remain after merging, at most {} are supported",
                            axes.size(), kMostRank));
  }
  layout.schedule.row_axes = static_cast<int>(row_axes);
  ScratchVector<MergedAxis> joined;
  if (row_axes > 1) joined = with_row_as_axis(axes, row_axes);
  const ScratchVector<MergedAxis>& rows = row_axes > 1 ? joined : axes;
  const MergedAxis& inner = rows.back();
  ScratchVector<OperandSchedule>& schedules = layout.schedule.operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    OperandSchedule& schedule = schedules.emplace_back();
    schedule.access = access_of(rows, i);
    if (row_axes > 1 && schedule.access == Access::strided) schedule.access = Access::offsets;
    schedule.outer_axes = outer_axes_of(schedule.access == Access::offsets ? axes : rows, i);
    schedule.start = start_of(operands[i], layout.offsets[i]) != 0;
    schedule.indexing = indexing_of(axes, operands[i]);
    if (operands[i].output && is_packed(operands[i].dtype) && schedule.indexing == Indexing::lane) {
      throw Error(
          Code::unsupported,
          fmt::format("put: {} is stored where the elements of a place are whole bytes, got "
                      "single elements",
                      name(operands[i].dtype)));
    }
    if (is_packed(operands[i].dtype) && schedule.access == Access::contiguous &&
        !rows_are_bytes(axes, i, layout.offsets[i])) {
      schedule.access = Access::strided;
    }
  }
  if (row_axes == 1) find_interleaved(axes, operands, layout.offsets, schedules);
  if (bounds.empty() && row_axes == 1) {
    choose_tile(axes, operands, device_model(backend), layout.schedule);
  }
  const int tile = layout.schedule.tile;
  const int tile_rows = layout.schedule.tile_rows;
  const auto tile_axis = static_cast<std::size_t>(layout.schedule.tile_axis);
  layout.schedule.streamed =
      bounds.empty() && is_streamed(operands, schedules, rows, layout.offsets, tile != 0, backend);
  int most = tile == 0 ? 1024 : tile;
  if (layout.schedule.streamed &&
      rows_are_lines(operands[output], layout.offsets[output], rows, output)) {
    most = std::min(most, kStreamedBytes * 8 / bits(operands[output].dtype));
  }
  layout.schedule.table = bounds.empty() && tile == 0 && backend == Backend::host &&
                          inner.size >= kLeastLookedUp && is_table(operands, schedules);
  if (row_axes > 1) {
    Size beside = 1;  // an element of the first axis of a row
    for (std::size_t k = 1; k < row_axes; ++k) beside *= axes[axes.size() - k].size;
    layout.row_part = elements_of_part(axes[axes.size() - row_axes].size, beside);
  } else if (backend == Backend::host && tile == 0 && !layout.schedule.table && axes.size() > 1 &&
             inner.size <= kShortRow) {
    most = std::min(most, short_width(inner.size));
  }
  layout.schedule.width =
      row_axes > 1
          ? kRowElements
          : std::min(choose_width(inner.size, operands, schedules, device_model(backend)), most);
  const auto blocks = [](Size size, Size step) { return (size + step - 1) / step; };
  layout.schedule.rank = static_cast<int>(axes.size());
  if (tile != 0 && backend != Backend::host) {
    choose_tile_vectors(axes, operands, layout.offsets, layout.schedule);
  }
  const DeviceModel& model = device_model(backend);
  if (!bounds.empty() ||
      !choose_interleaved_vectors(axes, operands, layout.offsets, model, layout.schedule)) {
    choose_vectors(inner.size, operands, model, layout.schedule);
  }
  const int width = layout.schedule.width;
  const int vectors = layout.schedule.vectors;
  const int threads = layout.schedule.threads;
  Size run = inner.size;
  const bool counted = layout.schedule.flat && tile == 0;
  if (counted) {
    for (std::size_t k = 0; k + 1 < axes.size(); ++k) run *= axes[k].size;
  }
  layout.work_items =
      blocks(run, tile == 0 ? width * vectors * threads : tile) * (tile == 0 ? threads : 1);
  if (row_axes > 1) layout.work_items = blocks(axes[axes.size() - row_axes].size, layout.row_part);
  for (std::size_t k = 0; k + 1 < rows.size() && !counted; ++k) {
    layout.work_items *= blocks(rows[k].size, tile != 0 && k == tile_axis ? tile_rows : 1);
  }
  // On the CPU a short row has fewer elements than a work item could, and beyond what is in a table
  // no element is addressed.
  const Size filled =
      backend == Backend::host ? std::min<Size>(inner.size, width) : Size{width} * vectors;
  Size elements = layout.work_items * (tile == 0 ? filled : tile_rows * tile);
  if (row_axes > 1) {
    elements = 1;
    for (const MergedAxis& axis : axes) elements *= axis.size;
  }
  layout.schedule.wide_index =
      needs_wide_index(axes, operands, elements, row_axes > 1 ? 1 : width * vectors * threads);
  if (row_axes == 1) prefetch_rows(layout.schedule, axes, operands);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    // A CPU loads from any address at the same cost, so alignment there is no reason for another
    // kernel. An interleaved operand is aligned as the first one is.
    const bool aligned = backend != Backend::host && !operands[i].iota && schedules[i].way == 0;
    schedules[i].alignment =
        operands[i].iota ? count_alignment(axes, i, start_of(operands[i], layout.offsets[i]), width)
                         : std::max(1, bits(operands[i].dtype) / 8);
    const bool in_rows =
        schedules[i].access == Access::contiguous || schedules[i].access == Access::interleaved;
    if (aligned && in_rows) {
      // A run over all axes begins once, one of a tile where the others do.
      const bool run = layout.schedule.flat && !schedules[i].addressed;
      ScratchVector<MergedAxis> others;
      if (run && tile != 0) others = axes_beside(axes, tile_axis);
      schedules[i].alignment =
          run ? alignment_of(operands[i], layout.offsets[i], others, others.size(), i, width)
              : alignment_of(operands[i], layout.offsets[i], axes, axes.size() - 1, i,
                             width * schedules[i].ways);
    } else if (aligned && schedules[i].access == Access::transposed) {
      schedules[i].alignment = alignment_of(operands[i], layout.offsets[i], axes, tile_axis, i,
                                            128 / bits(operands[i].dtype));
    }
    layout.starts.push_back(start_of(operands[i], layout.offsets[i]));
    layout.indexed.push_back(operands[i].indexed);
  }
  if (tile != 0 && backend != Backend::host) choose_preloaded(operands, model, layout.schedule);
  take_axes(layout, axes);
  layout.axes.reserve(axes.size());
  for (MergedAxis& axis : axes) layout.axes.push_back(std::move(axis.from));
  return layout;
}

Divisor make_divisor(std::uint32_t divisor) {
  Divisor result;
  result.divisor = divisor;
  result.shift = divisor <= 1 ? 0 : static_cast<std::uint32_t>(32 - std::countl_zero(divisor - 1));
  // floor(2^32 * (2^shift - divisor) / divisor) + 1
  const std::uint64_t power = std::uint64_t{1} << result.shift;
  result.multiplier = static_cast<std::uint32_t>(((power - divisor) << 32) / divisor + 1);
  return result;
}

}  // namespace kiln::fusion
