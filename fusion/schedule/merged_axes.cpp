#include "fusion/schedule/merged_axes.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>

namespace kiln::fusion {
namespace {

bool varies_along(const MergedAxis& axis, const Operand& operand) {
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

void reserve_operands(Layout& layout, std::size_t operands) {
  layout.schedule.operands.reserve(operands);
  layout.offsets.reserve(operands);
}

void take_axes(Layout& layout, ScratchVector<MergedAxis>& axes) {
  layout.shape = Dims(axes.size());
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

std::size_t first_output(std::span<const Operand> operands) {
  const auto found = std::ranges::find_if(operands, &Operand::output);
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

MergedAxis& add_axis(ScratchVector<MergedAxis>& axes, const Dims& shape, std::size_t k,
                     std::span<const Operand> operands) {
  MergedAxis& axis = axes.emplace_back();
  axis.size = shape[k];
  axis.strides.resize(operands.size());
  std::int64_t* stride = axis.strides.data();
  for (const Operand& operand : operands) *stride++ = operand.strides[k];
  axis.from.push_back(k);
  return axis;
}

ScratchVector<MergedAxis> axes_where(const ReduceSpace& space, const Dims& shape,
                                     std::span<const Operand> operands, bool reduced,
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

void sort_by_memory(ScratchVector<MergedAxis>& axes, std::span<const Operand> operands,
                    std::size_t operand) {
  if (axes.size() < 2) return;
  const Operand& own = operands[operand];
  const auto distance = [&](const MergedAxis& axis) {
    const std::int64_t stride = axis.strides[operand];
    return std::abs(stride == 0 && varies_along(axis, own) ? own.indexed.stride : stride);
  };
  sort_axes(axes,
            [&](const MergedAxis& a, const MergedAxis& b) { return distance(a) > distance(b); });
}

Indexing indexing_of(const ScratchVector<MergedAxis>& axes, const Operand& operand) {
  if (!operand.indexed.exists()) return Indexing::none;
  return varies_along(axes.back(), operand) ? Indexing::lane : Indexing::row;
}

bool has_indexed(std::span<const Operand> operands) {
  return std::ranges::any_of(operands,
                             [](const Operand& operand) { return operand.indexed.exists(); });
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

double bytes_of(const Operand& operand) { return bits(operand.dtype) / 8.0; }

// The bytes of all elements of an operand, each once.
double extent_of(const ScratchVector<MergedAxis>& axes, const Operand& operand, std::size_t index) {
  double bytes = bytes_of(operand);
  for (const MergedAxis& axis : axes) {
    if (axis.strides[index] != 0) bytes *= static_cast<double>(axis.size);
  }
  return bytes;
}

// Splits an axis in two: `size` steps, and the elements of one step.
std::pair<MergedAxis, MergedAxis> split(const MergedAxis& axis, std::int64_t size) {
  MergedAxis steps = axis;
  MergedAxis rest = axis;
  steps.size = size;
  rest.size = axis.size / size;
  for (std::int64_t& stride : steps.strides) stride *= rest.size;
  return {steps, rest};
}

// The axis along which inputs repeat that are too large for the caches near the threads and that
// are a good part of what is moved.
std::optional<std::size_t> repeating_axis(const ScratchVector<MergedAxis>& axes,
                                          std::span<const Operand> operands) {
  constexpr double kNearBytes = 64 << 10;
  for (std::size_t k = 0; k + 1 < axes.size(); ++k) {
    double repeated = 0;
    double once = 0;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].iota || axes.back().strides[i] == 0) continue;
      const bool repeats =
          axes[k].strides[i] == 0 && !operands[i].output && !varies_along(axes[k], operands[i]);
      const bool far = extent_of(axes, operands[i], i) > kNearBytes;
      (repeats ? repeated : once) += repeats && !far ? 0 : bytes_of(operands[i]);
    }
    if (repeated >= once / 2) return k;
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
  return std::ranges::any_of(axes.back().strides,
                             [](std::int64_t stride) { return stride > kNear; });
}

}  // namespace

ScratchVector<MergedAxis> follow_largest_input(ScratchVector<MergedAxis> axes,
                                               std::span<const Operand> operands, double cache_line,
                                               std::int64_t most) {
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
  if (static_cast<double>(inner.size) * bytes_of(operands[largest]) >= cache_line) return axes;
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
                                          std::span<const Operand> operands) {
  constexpr double kSector = 32;  // bytes that a GPU reads or writes at least
  if (has_columns(axes)) return axes;
  if (const auto k = repeating_axis(axes, operands)) return interleave_steps(std::move(axes), *k);
  return follow_largest_input(std::move(axes), operands, kSector,
                              std::numeric_limits<std::int64_t>::max());
}

Access access_of(const ScratchVector<MergedAxis>& axes, std::size_t operand) {
  const std::int64_t stride = axes.back().strides[operand];
  if (stride == 1) return Access::contiguous;
  if (stride != 0) return Access::strided;
  const bool moves =
      std::ranges::any_of(axes, [&](const MergedAxis& axis) { return axis.strides[operand] != 0; });
  return moves ? Access::broadcast : Access::scalar;
}

int alignment_of(const Operand& operand, std::int64_t offset, std::int64_t strides, int width) {
  const auto halves = static_cast<std::uint64_t>(bits(operand.dtype) / 4);  // bytes, if packed
  if (operand.indexed.exists()) strides |= operand.indexed.stride;
  const std::uint64_t all = (operand.address * 2 + static_cast<std::uint64_t>(offset) * halves) |
                            static_cast<std::uint64_t>(strides | width) * halves | 32;
  return std::max(1, static_cast<int>(all & (~all + 1)) / 2);
}

int alignment_of(const Operand& operand, std::int64_t offset, const ScratchVector<MergedAxis>& axes,
                 std::size_t inner, std::size_t index, int width) {
  std::int64_t strides = 0;
  for (std::size_t k = 0; k < axes.size(); ++k) {
    if (k != inner) strides |= axes[k].strides[index];
  }
  return alignment_of(operand, offset, strides, width);
}

bool needs_wide_index(const ScratchVector<MergedAxis>& axes, std::span<const Operand> operands,
                      std::uint64_t elements, int width) {
  constexpr std::uint64_t kLimit = std::uint64_t{1} << 31;
  if (elements >= kLimit) return true;
  const auto distance = [](std::int64_t stride, std::int64_t steps) {
    return static_cast<std::uint64_t>(std::abs(stride)) * static_cast<std::uint64_t>(steps);
  };
  for (std::size_t i = 0; i < operands.size(); ++i) {
    std::uint64_t span = distance(axes.back().strides[i], width);
    for (const MergedAxis& axis : axes) {
      span += distance(axis.strides[i], std::max<std::int64_t>(axis.size, 1) - 1);
    }
    const IndexedAxis& indexed = operands[i].indexed;
    if (indexed.exists()) {
      span += distance(indexed.stride, std::max<std::int64_t>(indexed.extent, 1) - 1);
    }
    if (span >= kLimit) return true;
  }
  return false;
}

}  // namespace kiln::fusion
