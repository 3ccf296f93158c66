#include "fusion/infer/iota.hpp"

#include <fmt/format.h>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/size_trace.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {

std::int64_t iota_axis(const TypedNode& node) { return static_cast<std::int64_t>(node.payload); }

namespace {

// How many indices an iota gives along `axis`.
std::int64_t extent(std::int64_t axis, const Dims& shape, std::string_view function) {
  if (axis == kAllAxes) return element_count(shape);
  const auto rank = static_cast<std::int64_t>(shape.size());
  if (axis < -rank || axis >= rank) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: iota({}): expected an axis of the outputs' shape {}", function,
                            axis, to_string(shape)));
  }
  return shape[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)];
}

}  // namespace

std::int64_t most_indices(DType dtype) {
  const int digits = bits(dtype) - (kind(dtype) == Kind::signed_integer ? 1 : 0);
  return is_integer(dtype) && digits < 63 ? std::int64_t{1} << digits : INT64_MAX;
}

void check_iota(const TypedNode& node, const Dims& shape, std::string_view function) {
  const std::int64_t length = extent(iota_axis(node), shape, function);
  const std::int64_t most = most_indices(node.dtype);
  if (most == INT64_MAX) return;
  trace_order(length, most);
  if (length <= most) return;
  throw Error(
      Code::invalid_argument,
      fmt::format("{}: {} counts to {}, which {} cannot hold; give it a wider dtype, such "
                  "as iota(0, i64)",
                  function,
                  iota_axis(node) == kAllAxes ? "iota()" : fmt::format("iota({})", iota_axis(node)),
                  length - 1, name(node.dtype)));
}

}  // namespace kiln::fusion
