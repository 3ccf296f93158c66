#include "fusion/infer/bounds.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fusion/graph/indexed.hpp"
#include "fusion/infer/scan_space.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

void add(Ends& bounds, const BoundedAxis& bound) {
  const auto at = std::ranges::lower_bound(bounds, bound);
  if (at == bounds.end() || *at != bound) bounds.insert(at, bound);
}

class BoundInference {
 public:
  BoundInference(const ShapedGraph& graph, std::string_view function)
      : graph_(graph), function_(function) {}

  std::vector<Ends> run() {
    for (NodeId id = 0; id < graph_.graph.nodes.size(); ++id) bounds_.push_back(bounds_of(id));
    return std::move(bounds_);
  }

 private:
  const TypedNode& node(NodeId id) const { return graph_.graph.nodes[id]; }

  [[noreturn]] void refuse(const TypedNode& node) const {
    throw Error(Code::unsupported,
                fmt::format("{}: {}: an operand is bounded along an axis, which {} cannot be",
                            function_, info(node.op).name, info(node.op).name));
  }

  Ends bounds_of(NodeId id) const {
    const TypedNode& own = node(id);
    Ends result;
    if (own.op == Op::bound) {
      result = bounds_[own.operands[0]];
      const Dims& shape = graph_.shapes[id];
      const std::size_t axis =
          indexed_axis(own.op, shape_list(graph_.graph, own), shape, function_);
      add(result, {static_cast<std::int64_t>(axis) - static_cast<std::int64_t>(shape.size()),
                   own.operands[1]});
      return result;
    }
    if (own.op == Op::take) return of_take(own);
    if (own.op == Op::concat) return of_concat(own);
    if (is_reduction(own.op)) return of_reduction(own);
    for (const NodeId operand : own.inputs()) {
      if (bounds_[operand].empty()) continue;
      if (!is_elementwise(own.op) && !is_scan(own.op) && own.op != Op::put) refuse(own);
      for (const BoundedAxis& bound : bounds_[operand]) {
        if (is_scan(own.op)) check_end(own, bound, axis_of_scan(id));
        add(result, bound);
      }
    }
    // What stands in the array beyond is there too.
    return own.op == Op::put ? Ends() : result;
  }

  std::vector<bool> axis_of_scan(NodeId id) const {
    const Dims& shape = graph_.shapes[id];
    std::vector<bool> along(shape.size(), false);
    along[shape.size() - scan_axis(node(id), shape)] = true;
    return along;
  }

  // Whether an element is before an end is the same for all that are combined with it.
  void check_end(const TypedNode& own, const BoundedAxis& bound,
                 const std::vector<bool>& along) const {
    const Dims& end = graph_.shapes[bound.end];
    for (std::size_t k = 0; k < end.size(); ++k) {
      if (end[k] == 1 || !along[along.size() - end.size() + k]) continue;
      throw Error(
          Code::unsupported,
          fmt::format("{}: {}: {} an axis along which the end of another differs", function_,
                      info(own.op).name, is_scan(own.op) ? "runs along" : "reduces"));
    }
  }

  // Places have an axis of one element for each axis of the array that follows (expand_places()).
  Ends of_take(const TypedNode& own) const {
    if (!bounds_[own.operands[0]].empty()) refuse(own);
    return bounds_[own.operands[1]];
  }

  // Parts that end alike, along another axis than the one in which they follow each other.
  Ends of_concat(const TypedNode& own) const {
    const Ends& first = bounds_[own.operands[0]];
    const Ends& second = bounds_[own.operands[1]];
    const auto rank = static_cast<std::int64_t>(graph_.shapes[own.operands[0]].size());
    const std::int64_t given = shape_list(graph_.graph, own)[0];
    const std::int64_t axis = given < 0 ? given : given - rank;
    const auto is_along = [&](const BoundedAxis& bound) {
      const Dims& end = graph_.shapes[bound.end];
      const std::int64_t place = static_cast<std::int64_t>(end.size()) + axis;
      return bound.axis == axis || (place >= 0 && end[static_cast<std::size_t>(place)] != 1);
    };
    if (first == second && std::ranges::none_of(first, is_along)) return first;
    throw Error(
        Code::unsupported,
        fmt::format(
            "{}: concat: expected operands that are bounded alike along other axes than {}, "
            "given {} and {} bounds",
            function_, given, first.size(), second.size()));
  }

  Ends of_reduction(const TypedNode& own) const {
    const NodeId operand = own.operands[0];
    const Dims& from = graph_.shapes[operand];
    const std::vector<bool> reduced = resolve_axes(own.payload, from.size(), function_);
    Ends result;
    for (const BoundedAxis& bound : bounds_[operand]) {
      check_end(own, bound, reduced);
      const auto axis =
          static_cast<std::size_t>(static_cast<std::int64_t>(from.size()) + bound.axis);
      if (!reduced[axis]) add(result, bound);
    }
    return result;
  }

  const ShapedGraph& graph_;
  std::string_view function_;
  std::vector<Ends> bounds_;
};

}  // namespace

bool has_bounds(const ShapedGraph& graph) {
  return std::ranges::find(graph.graph.nodes, Op::bound, &TypedNode::op) != graph.graph.nodes.end();
}

std::vector<Ends> infer_bounds(const ShapedGraph& graph, std::string_view function) {
  return BoundInference(graph, function).run();
}

Ends bounds_of_space(const ShapedGraph& graph, const std::vector<Ends>& bounds, NodeId id) {
  const TypedNode& node = graph.graph.nodes[id];
  if (is_reduction(node.op)) return bounds[node.operands[0]];
  if (node.op != Op::put) return bounds[id];
  Ends result = bounds[node.operands[1]];
  for (const BoundedAxis& bound : bounds[node.operands[2]]) add(result, bound);
  return result;
}

}  // namespace kiln::fusion
