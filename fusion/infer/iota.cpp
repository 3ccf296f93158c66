#include "fusion/infer/iota.hpp"

#include <fmt/format.h>

#include "fusion/graph/broadcast.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

std::int64_t axis_of(const TypedNode& node) { return static_cast<std::int64_t>(node.payload); }

// How far an iota counts along `axis`.
std::int64_t extent(std::int64_t axis, const Dims& shape, std::string_view function) {
  if (axis == kAllAxes) {
    std::int64_t size = 1;
    for (const std::int64_t length : shape) size *= length;
    return size;
  }
  const auto rank = static_cast<std::int64_t>(shape.size());
  if (axis < -rank || axis >= rank) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: iota({}): expected an axis of the outputs' shape {}", function,
                            axis, to_string(shape)));
  }
  return shape[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)];
}

}  // namespace

void check_count(const TypedNode& node, const Dims& shape, std::string_view function) {
  const std::int64_t length = extent(axis_of(node), shape, function);
  const int digits = bits(node.dtype) - (kind(node.dtype) == Kind::signed_integer ? 1 : 0);
  if (!is_integer(node.dtype) || digits >= 63 || length <= std::int64_t{1} << digits) return;
  throw Error(
      Code::invalid_argument,
      fmt::format("{}: {} counts to {}, which {} cannot hold; give it a wider dtype, such "
                  "as iota(0, i64)",
                  function,
                  axis_of(node) == kAllAxes ? "iota()" : fmt::format("iota({})", axis_of(node)),
                  length - 1, name(node.dtype)));
}

}  // namespace kiln::fusion
