#include "fusion/merged_axes.hpp"

#include <algorithm>
#include <cstdlib>

namespace kiln::fusion {

void sort_by_memory(std::vector<MergedAxis>& axes, std::size_t operand) {
  std::ranges::stable_sort(axes, [&](const MergedAxis& a, const MergedAxis& b) {
    return std::abs(a.strides[operand]) > std::abs(b.strides[operand]);
  });
}

std::vector<MergedAxis> merge(std::vector<MergedAxis> axes) {
  std::vector<MergedAxis> merged;
  for (MergedAxis& axis : axes) {
    if (!merged.empty()) {
      MergedAxis& outer = merged.back();
      bool one_axis = true;
      for (std::size_t i = 0; i < axis.strides.size(); ++i) {
        one_axis = one_axis && outer.strides[i] == axis.strides[i] * axis.size;
      }
      if (one_axis) {
        outer.size *= axis.size;
        outer.strides = std::move(axis.strides);
        outer.from.insert(outer.from.end(), axis.from.begin(), axis.from.end());
        continue;
      }
    }
    merged.push_back(std::move(axis));
  }
  return merged;
}

Access access_of(const std::vector<MergedAxis>& axes, std::size_t operand) {
  const std::int64_t stride = axes.back().strides[operand];
  if (stride == 1) return Access::contiguous;
  if (stride != 0) return Access::strided;
  const bool moves =
      std::ranges::any_of(axes, [&](const MergedAxis& axis) { return axis.strides[operand] != 0; });
  return moves ? Access::broadcast : Access::scalar;
}

int alignment_of(const Operand& operand, std::int64_t offset, const std::vector<MergedAxis>& axes,
                 std::size_t inner, std::size_t index, int width) {
  const int halves = bits(operand.dtype) / 4;  // bytes, for packed elements
  std::uint64_t steps = operand.address * 2 + static_cast<std::uint64_t>(offset * halves);
  for (std::size_t k = 0; k < axes.size(); ++k) {
    if (k != inner) steps |= static_cast<std::uint64_t>(axes[k].strides[index] * halves);
  }
  steps |= static_cast<std::uint64_t>(width * halves) | 32;
  return std::max(1, static_cast<int>(steps & (~steps + 1)) / 2);
}

bool needs_wide_index(const std::vector<MergedAxis>& axes, std::size_t operands,
                      std::uint64_t elements, int width) {
  constexpr std::uint64_t kLimit = std::uint64_t{1} << 31;
  if (elements >= kLimit) return true;
  for (std::size_t i = 0; i < operands; ++i) {
    std::uint64_t span = 0;
    for (const MergedAxis& axis : axes) {
      span += static_cast<std::uint64_t>(std::abs(axis.strides[i])) *
              static_cast<std::uint64_t>(std::max<std::int64_t>(axis.size, 1) - 1);
    }
    span += static_cast<std::uint64_t>(std::abs(axes.back().strides[i])) *
            static_cast<std::uint64_t>(width);
    if (span >= kLimit) return true;
  }
  return false;
}

}  // namespace kiln::fusion
