#include "fusion/count.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fusion/broadcast.hpp"
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

namespace {

Dims count_strides(std::int64_t axis, const Dims& shape) {
  Dims strides(shape.size(), 0);
  if (axis != kAllAxes) {
    const auto rank = static_cast<std::int64_t>(shape.size());
    strides[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)] = 1;
    return strides;
  }
  std::int64_t step = 1;
  for (std::size_t k = shape.size(); k-- > 0;) {
    strides[k] = step;
    step *= shape[k];
  }
  return strides;
}

}  // namespace

std::vector<std::int64_t> counted_axes(const TypedGraph& graph) {
  std::vector<std::int64_t> axes;
  for (const TypedNode& node : graph.nodes) {
    if (node.op != Op::iota) continue;
    if (std::ranges::find(axes, axis_of(node)) == axes.end()) axes.push_back(axis_of(node));
  }
  return axes;
}

std::string count_name(std::int64_t axis) {
  if (axis == kAllAxes) return "index";
  return axis < 0 ? fmt::format("index_end{}", -axis) : fmt::format("index{}", axis);
}

std::vector<Operand> count_operands(const TypedGraph& graph, const Dims& shape,
                                    std::string_view function) {
  for (const TypedNode& node : graph.nodes) {
    if (node.op == Op::iota) check_count(node, shape, function);
  }
  std::vector<Operand> operands;
  for (const std::int64_t axis : counted_axes(graph)) {
    Operand operand;
    operand.dtype = DType::i64;
    operand.count = true;
    operand.strides = count_strides(axis, shape);
    operands.push_back(std::move(operand));
  }
  return operands;
}

}  // namespace kiln::fusion
