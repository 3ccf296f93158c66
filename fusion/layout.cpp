#include "fusion/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>

#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

// GPUs: one 16-byte access of the narrowest operand per thread keeps enough bytes in flight with
// 256 256 threads a block, and 64 bytes of the widest still fit registers. The host: one work item
// is a stretch of a row, long enough that finding its place costs nothing.
constexpr Policy kPolicies[] = {
    /* amd    */ {16, 64, 16, 256},
    /* nvidia */ {16, 64, 16, 256},
    /* host   */ {0, 0, 1024, 16},
};

constexpr int kMostRank = 64;

// One axis of the iteration space with its stride in every operand.
struct Axis {
  std::int64_t size;
  std::vector<std::int64_t> strides;
};

std::vector<Axis> axes_of(const Dims& shape, std::span<const Operand> operands) {
  std::vector<Axis> axes;
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (shape[k] == 1) continue;
    Axis axis{shape[k], {}};
    for (const Operand& operand : operands) axis.strides.push_back(operand.strides[k]);
    axes.push_back(std::move(axis));
  }
  return axes;
}

std::size_t first_output(std::span<const Operand> operands) {
  const auto found = std::ranges::find_if(operands, &Operand::output);
  return found == operands.end() ? 0 : static_cast<std::size_t>(found - operands.begin());
}

// Axes along which the first output runs backwards start from their other end, in every operand.
void turn_round(std::vector<Axis>& axes, std::size_t output, std::vector<std::int64_t>& offsets) {
  for (Axis& axis : axes) {
    if (axis.strides[output] >= 0) continue;
    for (std::size_t i = 0; i < axis.strides.size(); ++i) {
      offsets[i] += axis.strides[i] * (axis.size - 1);
      axis.strides[i] = -axis.strides[i];
    }
  }
}

// Largest stride first, so that neighbours in the first output's memory are handled by neighbouring
// threads; the operands after it decide between equals.
void sort_by_memory(std::vector<Axis>& axes, std::size_t output) {
  std::ranges::stable_sort(axes, [&](const Axis& a, const Axis& b) {
    return std::abs(a.strides[output]) > std::abs(b.strides[output]);
  });
}

std::vector<Axis> merge(std::vector<Axis> axes) {
  std::vector<Axis> merged;
  for (Axis& axis : axes) {
    if (!merged.empty()) {
      Axis& outer = merged.back();
      bool one_axis = true;
      for (std::size_t i = 0; i < axis.strides.size(); ++i) {
        one_axis = one_axis && outer.strides[i] == axis.strides[i] * axis.size;
      }
      if (one_axis) {
        outer.size *= axis.size;
        outer.strides = std::move(axis.strides);
        continue;
      }
    }
    merged.push_back(std::move(axis));
  }
  return merged;
}

Access access_of(const Axis& inner, const std::vector<Axis>& axes, std::size_t operand) {
  if (inner.strides[operand] == 1) return Access::contiguous;
  if (inner.strides[operand] != 0) return Access::strided;
  const bool moves =
      std::ranges::any_of(axes, [&](const Axis& a) { return a.strides[operand] != 0; });
  return moves ? Access::broadcast : Access::scalar;
}

// The elements per work item: a full vector of the narrowest contiguous operand, but no more than
// the row has, and one where nothing is contiguous, since then a vector saves no access.
int choose_width(std::int64_t inner, std::span<const Operand> operands,
                 const std::vector<OperandVariant>& variants, const Policy& policy) {
  if (policy.vector_bytes == 0) return policy.most_lanes;
  int narrowest = 0;
  int widest = 1;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const int bytes = std::max(1, bits(operands[i].dtype) / 8);
    widest = std::max(widest, bytes);
    if (variants[i].access != Access::contiguous) continue;
    narrowest = narrowest == 0 ? bytes : std::min(narrowest, bytes);
  }
  if (narrowest == 0) return 1;
  int width = std::min(
      {policy.vector_bytes / narrowest, policy.most_lane_bytes / widest, policy.most_lanes});
  while (width > 1 && width > inner) width /= 2;
  return std::max(width, 1);
}

// What every row's start and every vector in it is aligned to.
int alignment_of(const Operand& operand, std::int64_t offset, const std::vector<Axis>& axes,
                 std::size_t index, int width) {
  const int bytes = std::max(1, bits(operand.dtype) / 8);
  std::uint64_t steps = operand.address + static_cast<std::uint64_t>(offset * bytes);
  for (std::size_t k = 0; k + 1 < axes.size(); ++k) {
    steps |= static_cast<std::uint64_t>(axes[k].strides[index] * bytes);
  }
  steps |= static_cast<std::uint64_t>(width * bytes) | 16;
  return static_cast<int>(steps & (~steps + 1));
}

bool needs_wide_index(const std::vector<Axis>& axes, std::size_t operands, std::uint64_t items,
                      int width) {
  constexpr std::uint64_t kLimit = std::uint64_t{1} << 31;
  if (items * static_cast<std::uint64_t>(width) >= kLimit) return true;
  for (std::size_t i = 0; i < operands; ++i) {
    std::uint64_t span = 0;
    for (const Axis& axis : axes) {
      span += static_cast<std::uint64_t>(std::abs(axis.strides[i])) *
              static_cast<std::uint64_t>(axis.size - 1);
    }
    // Lanes past the end of a row are addressed, though not touched.
    span += static_cast<std::uint64_t>(std::abs(axes.back().strides[i])) *
            static_cast<std::uint64_t>(width);
    if (span >= kLimit) return true;
  }
  return false;
}

}  // namespace

const Policy& policy(Family family) { return kPolicies[static_cast<std::size_t>(family)]; }

Layout plan_layout(const Dims& shape, std::span<const Operand> operands, Family family) {
  Layout layout;
  layout.variant.family = family;
  layout.offsets.assign(operands.size(), 0);
  std::vector<Axis> axes = axes_of(shape, operands);
  const std::size_t output = first_output(operands);
  turn_round(axes, output, layout.offsets);
  sort_by_memory(axes, output);
  axes = merge(std::move(axes));
  if (axes.empty()) {
    axes.push_back(
        {1, std::vector<std::int64_t>(operands.size(), 1)});  // one element: a contiguous row
  }
  if (axes.size() > kMostRank) {
    throw Error(Code::unsupported,
                fmt::format("layout: {} axes remain after merging, at most {} are supported",
                            axes.size(), kMostRank));
  }
  const Axis& inner = axes.back();
  std::vector<OperandVariant>& variants = layout.variant.operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    OperandVariant variant;
    variant.access = access_of(inner, axes, i);
    for (std::size_t k = 0; k + 1 < axes.size(); ++k) {
      if (axes[k].strides[i] != 0) variant.outer_axes |= std::uint64_t{1} << k;
    }
    variants.push_back(variant);
  }
  const int width = choose_width(inner.size, operands, variants, policy(family));
  std::uint64_t rows = 1;
  for (std::size_t k = 0; k + 1 < axes.size(); ++k)
    rows *= static_cast<std::uint64_t>(axes[k].size);
  const auto columns = static_cast<std::uint64_t>((inner.size + width - 1) / width);
  layout.work_items = rows * columns;
  layout.variant.rank = static_cast<int>(axes.size());
  layout.variant.width = width;
  layout.variant.wide_index = needs_wide_index(axes, operands.size(), layout.work_items, width);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    // A CPU loads from any address at the same cost, so there alignment is no reason for a variant.
    const bool vector = variants[i].access == Access::contiguous && family != Family::host;
    variants[i].alignment = vector ? alignment_of(operands[i], layout.offsets[i], axes, i, width)
                                   : std::max(1, bits(operands[i].dtype) / 8);
    layout.strides.emplace_back(axes.size());
  }
  layout.shape = Dims(axes.size());
  for (std::size_t k = 0; k < axes.size(); ++k) {
    layout.shape[k] = axes[k].size;
    for (std::size_t i = 0; i < operands.size(); ++i) layout.strides[i][k] = axes[k].strides[i];
  }
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

std::string describe(const Variant& variant, std::span<const std::string> names) {
  static constexpr std::string_view kAccess[] = {"scalar", "contiguous", "broadcast along rows",
                                                 "strided"};
  std::string text = fmt::format("{} {}, {} element{} per work item, {}-bit indices", variant.rank,
                                 variant.rank == 1 ? "axis" : "axes", variant.width,
                                 variant.width == 1 ? "" : "s", variant.wide_index ? 64 : 32);
  for (std::size_t i = 0; i < variant.operands.size(); ++i) {
    const OperandVariant& operand = variant.operands[i];
    text += fmt::format("; {}: {}", i < names.size() ? names[i] : fmt::format("#{}", i),
                        kAccess[static_cast<std::size_t>(operand.access)]);
    if (operand.access == Access::contiguous)
      text += fmt::format(", aligned to {}", operand.alignment);
  }
  return text;
}

}  // namespace kiln::fusion
