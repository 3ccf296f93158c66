// The axes of a reduction, before the rank of what it reduces is known: a set of axes counted from
// the front or, negative, from the end.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace kiln::fusion {

/// Bit k is axis k, bit 32 + k is axis -1 - k; the empty set stands for all axes.
using AxisSet = std::uint64_t;

/// Throws Error(invalid_argument) for an axis outside -32 to 31.
AxisSet axis_set(const std::vector<int>& axes, std::string_view function);

/// The axes in the set, ascending, the negative ones last.
std::vector<int> axes_of(AxisSet set);

/// "-1", with static storage.
std::string_view axis_text(int axis);

/// Which of `rank` axes are in the set, true for those. Throws Error(invalid_argument) for an axis
/// that is not there.
std::vector<bool> resolve_axes(AxisSet set, std::size_t rank, std::string_view function);

}  // namespace kiln::fusion
