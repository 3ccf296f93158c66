#include "fusion/graph/reshape.hpp"

#include "fusion/graph/size_trace.hpp"

namespace kiln::fusion {

std::optional<Dims> reshaped_operand(const Dims& own, const Dims& from, const Dims& to,
                                     bool joins) {
  const std::size_t missing = from.size() - own.size();
  const auto extent = [&](std::size_t k) { return k < missing ? 1 : own[k - missing]; };
  Dims shape(to.size(), 1);
  std::size_t i = 0;
  std::size_t k = 0;
  while (true) {
    // Axes of one element are in no group.
    while (i < from.size() && from[i] == 1) ++i;
    while (k < to.size() && to[k] == 1) ++k;
    if (i == from.size() || k == to.size()) break;
    const std::size_t begin = i;
    const std::size_t first = k;
    std::int64_t before = from[i++];
    std::int64_t after = to[k++];
    while (true) {
      trace_order(before, after);
      if (before == after) break;
      if (before < after && i < from.size()) {
        before *= from[i++];
      } else if (before > after && k < to.size()) {
        after *= to[k++];
      } else {
        return std::nullopt;
      }
    }
    std::size_t whole = 0;
    std::size_t axes = 0;
    for (std::size_t at = begin; at < i; ++at) {
      axes += from[at] != 1 ? 1 : 0;
      whole += from[at] != 1 && extent(at) == from[at] ? 1 : 0;
    }
    if (whole == 0) continue;
    if (whole != axes || (axes > 1 && !joins)) return std::nullopt;
    for (std::size_t at = first; at < k; ++at) shape[at] = to[at];
  }
  return shape;
}

std::optional<std::size_t> same_axis(const Dims& from, std::size_t axis, const Dims& to) {
  std::optional<std::size_t> found;
  std::size_t k = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] == 1) continue;
    while (k < to.size() && to[k] == 1) ++k;
    if (k == to.size()) return std::nullopt;
    trace_order(from[i], to[k]);
    if (from[i] != to[k]) return std::nullopt;
    if (i == axis) found = k;
    ++k;
  }
  while (k < to.size() && to[k] == 1) ++k;
  return k == to.size() ? found : std::nullopt;
}

}  // namespace kiln::fusion
