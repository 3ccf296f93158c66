#include "fusion/schedule/iota_operands.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fusion/graph/broadcast.hpp"
#include "fusion/infer/iota.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

Dims iota_strides(std::int64_t axis, const Dims& shape) {
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

ScratchVector<std::int64_t> iota_axes(const TypedGraph& graph) {
  ScratchVector<std::int64_t> axes;
  for (const TypedNode& node : graph.nodes) {
    if (node.op != Op::iota) continue;
    if (std::ranges::find(axes, iota_axis(node)) == axes.end()) axes.push_back(iota_axis(node));
  }
  return axes;
}

std::vector<std::int64_t> varying_iotas(const TypedGraph& graph, const Schedule& schedule) {
  std::vector<std::int64_t> found;
  const auto axes = iota_axes(graph);
  const std::size_t first = schedule.operands.size() - axes.size();
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (!schedule.operands[first + i].row_invariant) found.push_back(axes[i]);
  }
  return found;
}

std::string iota_name(std::int64_t axis) {
  if (axis == kAllAxes) return "index";
  return axis < 0 ? fmt::format("index_end{}", -axis) : fmt::format("index{}", axis);
}

ScratchVector<Operand> iota_operands(const TypedGraph& graph, const Dims& shape,
                                     std::string_view function) {
  for (const TypedNode& node : graph.nodes) {
    if (node.op == Op::iota) check_iota(node, shape, function);
  }
  ScratchVector<Operand> operands;
  for (const std::int64_t axis : iota_axes(graph)) {
    Operand operand;
    operand.dtype = DType::i64;
    operand.iota = true;
    operand.strides = iota_strides(axis, shape);
    operands.push_back(std::move(operand));
  }
  return operands;
}

}  // namespace kiln::fusion
