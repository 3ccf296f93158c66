#include "fusion/schedule/merged_axes.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>

namespace kiln::fusion {
namespace {

bool varies_along(const MergedAxis& axis, const SizedOperand& operand) {
  return differs_along(axis, operand.index_operands);
}

}  // namespace

bool differs_along(const MergedAxis& axis, std::uint64_t operands) {
  for (; operands != 0; operands &= operands - 1) {
    const auto i = static_cast<std::size_t>(std::countr_zero(operands));
    if (i < axis.strides.size() && axis.strides[i] != 0) return true;
  }
  return false;
}

Size element_count(const Sizes& shape) {
  Size count = 1;
  for (const Size& size : shape) count *= size;
  return count;
}

Size element_count(const Sizes& shape, const Sizes& strides) {
  Size count = 1;
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (strides[k] != 0) count *= shape[k];
  }
  return count;
}

void reserve_operands(SizedLayout& layout, std::size_t operands) {
  layout.schedule.operands.reserve(operands);
  layout.offsets.reserve(operands);
}

void take_axes(SizedLayout& layout, ScratchVector<MergedAxis>& axes) {
  layout.shape.resize(axes.size());
  layout.strides.reserve(axes.size());
  for (std::size_t k = 0; k < axes.size(); ++k) {
    layout.shape[k] = axes[k].size;
    layout.strides.add_axis(std::move(axes[k].strides));
  }
}

std::uint64_t outer_axes_of(const ScratchVector<MergedAxis>& axes, std::size_t operand) {
  std::uint64_t outer = 0;
  for (std::size_t k = 0; k + 1 < axes.size(); ++k) {
    if (axes[k].strides[operand] != 0) outer |= std::uint64_t{1} << k;
  }
  return outer;
}

std::size_t first_output(std::span<const SizedOperand> operands) {
  const auto found = std::ranges::find_if(operands, &SizedOperand::output);
  return found == operands.end() ? 0 : static_cast<std::size_t>(found - operands.begin());
}

bool is_bounded(std::span<const AxisBound> bounds, std::size_t axis) {
  return std::ranges::find(bounds, axis, &AxisBound::axis) != bounds.end();
}

ScratchVector<int> bounded_axes(const ScratchVector<MergedAxis>& axes,
                                std::span<const AxisBound> bounds) {
  ScratchVector<int> found;
  for (const AxisBound& bound : bounds) {
    const auto axis = std::ranges::find_if(axes, [&](const MergedAxis& one) {
      return std::ranges::find(one.from, bound.axis) != one.from.end();
    });
    found.push_back(static_cast<int>(axis - axes.begin()));
  }
  return found;
}

bool ends_by_lane(const ScratchVector<MergedAxis>& axes, std::span<const AxisBound> bounds) {
  return std::ranges::any_of(
      bounds, [&](const AxisBound& bound) { return differs_along(axes.back(), bound.operands); });
}

MergedAxis& add_axis(ScratchVector<MergedAxis>& axes, const Sizes& shape, std::size_t k,
                     std::span<const SizedOperand> operands) {
  MergedAxis& axis = axes.emplace_back();
  axis.size = shape[k];
  axis.strides.resize(operands.size());
  Size* stride = axis.strides.data();
  for (const SizedOperand& operand : operands) *stride++ = operand.strides[k];
  axis.from.push_back(k);
  return axis;
}

ScratchVector<MergedAxis> axes_where(const ReduceSpace& space, const Sizes& shape,
                                     std::span<const SizedOperand> operands, bool reduced,
                                     std::span<const AxisBound> bounds) {
  ScratchVector<MergedAxis> axes;
  axes.reserve(shape.size() + 1);  // planners add one where there is none
  for (std::size_t k = 0; k < shape.size(); ++k) {
    const bool bounded = !bounds.empty() && is_bounded(bounds, k);
    if (space.reduced[k] != reduced || (shape[k] == 1 && !bounded)) continue;
    add_axis(axes, shape, k, operands).bounded = bounded;
  }
  return axes;
}

void sort_by_memory(ScratchVector<MergedAxis>& axes, std::span<const SizedOperand> operands,
                    std::size_t operand) {
  if (axes.size() < 2) return;
  const SizedOperand& own = operands[operand];
  const auto distance = [&](const MergedAxis& axis) {
    const Size stride = axis.strides[operand];
    return abs(stride == 0 && varies_along(axis, own) ? own.indexed.stride : stride);
  };
  sort_axes(axes,
            [&](const MergedAxis& a, const MergedAxis& b) { return distance(a) > distance(b); });
}

Indexing indexing_of(const ScratchVector<MergedAxis>& axes, const SizedOperand& operand) {
  if (!operand.indexed.exists()) return Indexing::none;
  return varies_along(axes.back(), operand) ? Indexing::lane : Indexing::row;
}

bool has_indexed(std::span<const SizedOperand> operands) {
  return std::ranges::any_of(operands,
                             [](const SizedOperand& operand) { return operand.indexed.exists(); });
}

void merge(ScratchVector<MergedAxis>& axes) {
  if (axes.size() < 2) return;
  std::size_t last = 0;
  for (std::size_t k = 1; k < axes.size(); ++k) {
    MergedAxis& outer = axes[last];
    MergedAxis& axis = axes[k];
    bool one_axis = !outer.bounded && !axis.bounded;
    for (std::size_t i = 0; i < axis.strides.size() && one_axis; ++i) {
      one_axis = outer.strides[i] == axis.strides[i] * axis.size;
    }
    if (one_axis) {
      outer.size *= axis.size;
      outer.strides = std::move(axis.strides);
      outer.from.append(axis.from.data(), axis.from.size());
    } else if (++last != k) {
      axes[last] = std::move(axis);
    }
  }
  axes.shorten(last + 1);
}

namespace {

// Splits an axis in two: `size` steps, and the elements of one step.
std::pair<MergedAxis, MergedAxis> split(const MergedAxis& axis, Size size) {
  MergedAxis steps = axis;
  MergedAxis rest = axis;
  steps.size = size;
  rest.size = axis.size / size;
  for (Size& stride : steps.strides) stride *= rest.size;
  return {steps, rest};
}

// The axis along which inputs repeat that are too large for the caches near the threads and that
// are a good part of what is moved.
std::optional<std::size_t> repeating_axis(const ScratchVector<MergedAxis>& axes,
                                          std::span<const SizedOperand> operands) {
  constexpr std::int64_t kNearBits = 64 << 13;
  for (std::size_t k = 0; k + 1 < axes.size(); ++k) {
    int repeated = 0;  // bits of an element of each
    int once = 0;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].iota || axes.back().strides[i] == 0) continue;
      const bool repeats =
          axes[k].strides[i] == 0 && !operands[i].output && !varies_along(axes[k], operands[i]);
      const bool near = repeats && extent_of(axes, operands[i], i) <= kNearBits;
      if (!near) (repeats ? repeated : once) += bits(operands[i].dtype);
    }
    if (2 * repeated >= once) return k;
  }
  return std::nullopt;
}

ScratchVector<MergedAxis> interleave_steps(ScratchVector<MergedAxis> axes, std::size_t k) {
  constexpr std::int64_t kPart = 512;
  constexpr std::int64_t kSteps = 8;
  const MergedAxis inner = axes.back();
  const MergedAxis repeating = axes[k];
  if (inner.size % kPart != 0 || inner.size == kPart || repeating.size % kSteps != 0) {
    return axes;
  }
  const auto [parts, part] = split(inner, inner.size / kPart);
  axes.pop_back();
  if (repeating.size == kSteps) {
    axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(k));
    axes.insert(axes.end(), {parts, repeating, part});
  } else {
    const auto [others, few] = split(repeating, repeating.size / kSteps);
    axes[k] = others;
    axes.insert(axes.end(), {parts, few, part});
  }
  return axes;
}

}  // namespace

namespace {

// Whether some operand is to be read through tiles.
bool has_columns(const ScratchVector<MergedAxis>& axes) {
  constexpr std::int64_t kNear = 4;
  return std::ranges::any_of(axes.back().strides, [](Size stride) { return stride > kNear; });
}

}  // namespace

ScratchVector<MergedAxis> follow_largest_input(ScratchVector<MergedAxis> axes,
                                               std::span<const SizedOperand> operands,
                                               int line_bytes, Size most) {
  if (axes.empty() || has_columns(axes)) return axes;
  std::size_t largest = operands.size();
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].output || operands[i].iota) continue;
    const bool larger =
        largest == operands.size() ||
        extent_of(axes, operands[i], i) > extent_of(axes, operands[largest], largest);
    if (larger) largest = i;
  }
  if (largest == operands.size()) return axes;
  const MergedAxis& inner = axes.back();
  if (inner.size * bits(operands[largest].dtype) >= 8 * line_bytes) return axes;
  for (std::size_t k = 0; k + 2 < axes.size(); ++k) {
    if (axes[k].strides[largest] != inner.size * inner.strides[largest]) continue;
    if (axes[k].size > most) continue;
    std::rotate(axes.begin() + static_cast<std::ptrdiff_t>(k),
                axes.begin() + static_cast<std::ptrdiff_t>(k) + 1, axes.end() - 1);
    break;
  }
  return axes;
}

ScratchVector<MergedAxis> order_for_reuse(ScratchVector<MergedAxis> axes,
                                          std::span<const SizedOperand> operands) {
  constexpr int kSector = 32;  // bytes that a GPU reads or writes at least
  if (has_columns(axes)) return axes;
  if (const auto k = repeating_axis(axes, operands)) return interleave_steps(std::move(axes), *k);
  return follow_largest_input(std::move(axes), operands, kSector,
                              std::numeric_limits<std::int64_t>::max());
}

Access access_of(const ScratchVector<MergedAxis>& axes, std::size_t operand) {
  const Size stride = axes.back().strides[operand];
  if (stride == 1) return Access::contiguous;
  if (stride != 0) return Access::strided;
  const bool moves =
      std::ranges::any_of(axes, [&](const MergedAxis& axis) { return axis.strides[operand] != 0; });
  return moves ? Access::broadcast : Access::scalar;
}

int alignment_of(const SizedOperand& operand, Size offset, Size strides, int width) {
  const int parts = is_packed(operand.dtype) ? 2 : 1;  // of a byte
  const int element = bits(operand.dtype) * parts / 8;
  if (operand.indexed.exists()) strides |= operand.indexed.stride;
  const Size all = (operand.address * parts + offset * element) | (strides * element) |
                   (width * element) | (16 * parts);
  return std::max(1, static_cast<int>(lowest_bit(all)) / parts);
}

int alignment_of(const SizedOperand& operand, Size offset, const ScratchVector<MergedAxis>& axes,
                 std::size_t inner, std::size_t index, int width) {
  Size strides = 0;
  for (std::size_t k = 0; k < axes.size(); ++k) {
    if (k != inner) strides |= axes[k].strides[index];
  }
  return alignment_of(operand, offset, strides, width);
}

bool are_one_range(const ScratchVector<MergedAxis>& axes, std::size_t operand) {
  Size before = axes.back().size;
  for (std::size_t k = axes.size() - 1; k-- > 0;) {
    if (axes[k].size != 1 && axes[k].strides[operand] != before) return false;
    before *= axes[k].size;
  }
  return true;
}

Size extent_of(const ScratchVector<MergedAxis>& axes, const SizedOperand& operand,
               std::size_t index) {
  Size extent = bits(operand.dtype);
  for (const MergedAxis& axis : axes) {
    if (axis.strides[index] != 0) extent *= axis.size;
  }
  return extent;
}

bool needs_wide_index(const ScratchVector<MergedAxis>& axes, std::span<const SizedOperand> operands,
                      Size elements, int width) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 31;
  if (elements < 0 || elements >= kLimit) return true;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    Size span = abs(axes.back().strides[i]) * width;
    for (const MergedAxis& axis : axes) {
      if (axis.size > 1) span += abs(axis.strides[i]) * (axis.size - 1);
    }
    const auto& indexed = operands[i].indexed;
    if (indexed.exists() && indexed.extent > 1) {
      span += abs(indexed.stride) * (indexed.extent - 1);
    }
    if (span < 0 || span >= kLimit) return true;
  }
  return false;
}

}  // namespace kiln::fusion
