#include "fusion/graph/axes.hpp"

#include <fmt/format.h>

#include <array>
#include <string>

#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

constexpr int kHalf = 32;

[[noreturn]] void throw_no_axis(std::string_view function, int axis, std::string_view expected) {
  throw Error(Code::invalid_argument,
              fmt::format("{}: axis: expected {}, got {}", function, expected, axis));
}

}  // namespace

AxisSet axis_set(const std::vector<int>& axes, std::string_view function) {
  AxisSet set = 0;
  for (const int axis : axes) {
    if (axis < -kHalf || axis >= kHalf) throw_no_axis(function, axis, "-32 to 31");
    set |= AxisSet{1} << (axis >= 0 ? axis : kHalf - 1 - axis);
  }
  return set;
}

std::vector<int> axes_of(AxisSet set) {
  std::vector<int> axes;
  for (int bit = 0; bit < 2 * kHalf; ++bit) {
    if ((set >> bit & 1) != 0) axes.push_back(bit < kHalf ? bit : kHalf - 1 - bit);
  }
  return axes;
}

std::string_view axis_text(int axis) {
  static const auto* const texts = [] {
    auto* table = new std::array<std::string, 2 * kHalf>;
    for (int i = 0; i < 2 * kHalf; ++i)
      (*table)[static_cast<std::size_t>(i)] = fmt::format("{}", i - kHalf);
    return table;
  }();
  return (*texts)[static_cast<std::size_t>(axis + kHalf)];
}

std::vector<bool> resolve_axes(AxisSet set, std::size_t rank, std::string_view function) {
  std::vector<bool> resolved(rank, set == 0);
  for (const int axis : axes_of(set)) {
    const int place = axis < 0 ? axis + static_cast<int>(rank) : axis;
    if (place < 0 || place >= static_cast<int>(rank)) {
      throw_no_axis(function, axis, fmt::format("one of an array with {} axes", rank));
    }
    resolved[static_cast<std::size_t>(place)] = true;
  }
  return resolved;
}

}  // namespace kiln::fusion
