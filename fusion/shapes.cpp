#include "fusion/shapes.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fusion/broadcast.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

Dims reduced(const Dims& shape, const TypedNode& node, std::string_view function) {
  const std::vector<bool> axes =
      resolve_axes(node.payload, shape.size(), fmt::format("{}: {}", function, info(node.op).name));
  Dims result = shape;
  for (std::size_t k = 0; k < result.size(); ++k) {
    if (axes[k]) result[k] = 1;
  }
  return result;
}

Dims broadcast_operands(const TypedNode& node, const std::vector<Dims>& shapes,
                        std::string_view function) {
  Dims shape;
  for (const NodeId operand : node.inputs()) {
    const std::optional<Dims> wider = broadcast(shape, shapes[operand]);
    if (!wider) {
      throw Error(Code::invalid_argument,
                  fmt::format("{}: {}: shapes {} and {} do not broadcast", function,
                              info(node.op).name, to_string(shape), to_string(shapes[operand])));
    }
    shape = *wider;
  }
  return shape;
}

void check_not_empty(const TypedNode& node, const Dims& operand, const Dims& result,
                     std::string_view function) {
  const bool needs_one = node.op == Op::argmax || node.op == Op::argmin;
  const auto is_empty = [](const Dims& d) { return std::ranges::find(d, 0) != d.end(); };
  if (!needs_one || !is_empty(operand) || is_empty(result)) return;
  throw Error(Code::invalid_argument,
              fmt::format("{}: {}: nothing to choose from in shape {}", function,
                          info(node.op).name, to_string(operand)));
}

}  // namespace

bool has_reductions(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const Node& n) { return is_reduction(n.op); });
}

bool has_reductions(const TypedGraph& graph) {
  return std::ranges::any_of(graph.nodes, [](const TypedNode& n) { return is_reduction(n.op); });
}

std::vector<Dims> infer_shapes(const TypedGraph& graph, std::span<const Dims> arguments,
                               std::string_view function) {
  std::vector<Dims> shapes;
  shapes.reserve(graph.nodes.size());
  for (const TypedNode& node : graph.nodes) {
    if (node.op == Op::input) {
      shapes.push_back(arguments[node.payload]);
    } else if (node.op == Op::iota) {
      throw Error(Code::unsupported,
                  fmt::format("{}: iota, uniform and normal are not supported in one function with "
                              "a reduction; make it two functions",
                              function));
    } else if (is_reduction(node.op)) {
      const Dims& operand = shapes[node.operands[0]];
      shapes.push_back(reduced(operand, node, function));
      check_not_empty(node, operand, shapes.back(), function);
    } else {
      shapes.push_back(broadcast_operands(node, shapes, function));
    }
  }
  return shapes;
}

Dims without_axes(const Dims& shape, const std::vector<bool>& axes) {
  std::vector<std::int64_t> kept;
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (!axes[k]) kept.push_back(shape[k]);
  }
  return Dims(std::span<const std::int64_t>(kept));
}

}  // namespace kiln::fusion
