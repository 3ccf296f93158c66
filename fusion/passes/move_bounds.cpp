// The pass that brings bounds to where kernels can end (passes.hpp): past views towards the
// outputs, and past what is computed towards the arguments, so that no more is computed.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/indexed.hpp"
#include "fusion/graph/reshape.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/infer/bounds.hpp"
#include "fusion/infer/scan_space.hpp"
#include "fusion/passes/passes.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

std::int64_t product_before(const Dims& shape, std::size_t axis) {
  std::int64_t product = 1;
  for (std::size_t k = 0; k < axis; ++k) product *= shape[k];
  return product;
}

class BoundMoving {
 public:
  explicit BoundMoving(const ShapedGraph& from)
      : from_(from),
        to_(from),
        uses_(use_counts(from.graph)),
        is_seen_(from.graph.nodes.size(), false) {
    for (const TypedNode& node : from.graph.nodes) {
      if (is_view_op(node.op)) is_seen_[node.operands[0]] = true;
    }
    for (std::size_t id = is_seen_.size(); id-- > 0;) {
      const TypedNode& node = from.graph.nodes[id];
      if (node.op != Op::concat || !is_seen_[id]) continue;
      for (const NodeId operand : node.inputs()) is_seen_[operand] = true;
    }
  }

  ShapedGraph run() {
    return to_.run([&](NodeId id) {
      const NodeId moved = move(id);
      uses_of_new_[moved] += uses_[id];
      return moved;
    });
  }

 private:
  const TypedNode& source(NodeId id) const { return from_.graph.nodes[id]; }

  NodeId move(NodeId id) {
    const TypedNode& node = source(id);
    if (is_view_op(node.op) && to_.node(to_.moved(node.operands[0])).op == Op::bound) {
      return view(id, to_.moved(node.operands[0]));
    }
    if (node.op == Op::concat && is_seen_[id]) return joined(to_.moved_node(id), from_.shapes[id]);
    if (node.op != Op::bound) return to_.copy(id);
    const Dims& shape = from_.shapes[id];
    const std::size_t axis = indexed_axis(node.op, shape_list(from_.graph, node), shape, "bound");
    const NodeId end = to_.moved(node.operands[1]);
    const NodeId value = to_.moved(node.operands[0]);
    // Past views it moves towards the outputs.
    return is_seen_[id] ? bound_node(value, from_end(axis, shape), end)
                        : bounded(value, from_end(axis, shape), end);
  }

  static std::int64_t from_end(std::size_t axis, const Dims& shape) {
    return static_cast<std::int64_t>(axis) - static_cast<std::int64_t>(shape.size());
  }

  NodeId bound_node(NodeId value, std::int64_t axis, NodeId end) {
    const TypedNode node{
        Op::bound, to_.node(value).dtype, 2, {value, end, 0}, to_.add_list({axis})};
    return to_.add(node, Dims(to_.shape(value)));
  }

  // -- Towards the arguments

  // A new node up to `end` along an axis. What only the bound needs is computed no further.
  NodeId bounded(NodeId value, std::int64_t axis, NodeId end) {
    const TypedNode node = to_.node(value);
    const Dims shape = to_.shape(value);
    const bool elementwise = node.arity > 0 && is_elementwise(node.op);
    const bool passes = uses_of_new_[value] == 1 &&
                        (elementwise || (is_reduction(node.op) && !is_reduced(node, shape, axis)) ||
                         (is_scan(node.op) && is_same_along_scan(end, node, shape)));
    if (!passes) return bound_node(value, axis, end);
    TypedNode copy = node;
    bool any = false;
    for (std::size_t i = 0; i < node.arity; ++i) {
      const NodeId operand = node.operands[i];
      const Dims& own = to_.shape(operand);
      const auto place = static_cast<std::int64_t>(own.size()) + axis;
      const auto at = static_cast<std::size_t>(shape.size()) + static_cast<std::size_t>(axis);
      const bool has_axis = place >= 0 && own[static_cast<std::size_t>(place)] == shape[at];
      if (!has_axis || to_.node(operand).op == Op::iota) continue;
      copy.operands[i] = bounded(operand, axis, end);
      any = true;
    }
    return any ? to_.add(copy, shape) : bound_node(value, axis, end);
  }

  // What is beyond an end is after all that is before it, or in rows of its own.
  bool is_same_along_scan(NodeId end, const TypedNode& scan, const Dims& shape) const {
    const Dims& own = to_.shape(end);
    const std::size_t from_end = scan_axis(scan, shape);
    return own.size() < from_end || own[own.size() - from_end] == 1;
  }

  bool is_reduced(const TypedNode& node, const Dims& result, std::int64_t axis) const {
    const std::vector<bool> reduced = resolve_axes(node.payload, result.size(), "bound");
    return reduced[result.size() + static_cast<std::size_t>(axis)];
  }

  // -- Towards the outputs

  // Parts that end alike, along another axis than the one in which they follow each other.
  NodeId joined(const TypedNode& concat, const Dims& shape) {
    std::vector<NodeId> parts;
    for (const NodeId operand : concat.inputs()) {
      if (to_.node(operand).op == Op::bound) parts.push_back(operand);
    }
    if (parts.size() != 2) return to_.add(concat, shape);
    const auto bounded_axis = [&](NodeId part) {
      const TypedNode& own = to_.node(part);
      return from_end(
          indexed_axis(Op::bound, to_.graph().tables->lists[own.payload], to_.shape(part), "bound"),
          to_.shape(part));
    };
    const std::int64_t axis = bounded_axis(parts[0]);
    const NodeId end = to_.node(parts[0]).operands[1];
    const std::int64_t given = to_.graph().tables->lists[concat.payload][0];
    const std::int64_t along = given < 0 ? given : given - std::ssize(shape);
    const Dims& ends = to_.shape(end);
    const std::int64_t place = std::ssize(ends) + along;
    const bool differs = place >= 0 && ends[static_cast<std::size_t>(place)] != 1;
    const bool alike = axis == bounded_axis(parts[1]) && end == to_.node(parts[1]).operands[1];
    if (!alike || axis == along || differs) return to_.add(concat, shape);
    TypedNode copy = concat;
    for (std::size_t i = 0; i < 2; ++i) copy.operands[i] = to_.node(parts[i]).operands[0];
    return bound_node(joined(copy, shape), axis, end);
  }

  // The view of a bounded value is bounded.
  NodeId view(NodeId id, NodeId bound) {
    const TypedNode inner = to_.node(bound);
    const Dims shape = to_.shape(inner.operands[0]);
    const std::size_t axis =
        indexed_axis(Op::bound, to_.graph().tables->lists[inner.payload], shape, "bound");
    TypedNode node = source(id);
    const ShapeList list = shape_list(from_.graph, node);
    const std::optional<std::size_t> behind = seen_at(node.op, list, shape, from_.shapes[id], axis);
    if (!behind) {
      throw Error(Code::unsupported,
                  fmt::format("{}: axis {} of {} is bounded, and is no axis of the result",
                              info(node.op).name, axis, to_string(shape)));
    }
    const NodeId end = seen_end(node, list, shape, from_.shapes[id], inner.operands[1]);
    const NodeId value = to_.node(inner.operands[0]).op == Op::bound
                             ? view(id, inner.operands[0])
                             : view_of(node, list, inner.operands[0], from_.shapes[id]);
    return bound_node(value, from_end(*behind, from_.shapes[id]), end);
  }

  NodeId view_of(TypedNode node, const ShapeList& list, NodeId operand, const Dims& shape) {
    node.operands[0] = operand;
    node.payload = to_.add_list(list);
    return to_.add(node, shape);
  }

  // Where the axis is in the result.
  std::optional<std::size_t> seen_at(Op op, const ShapeList& list, const Dims& shape,
                                     const Dims& result, std::size_t axis) const {
    if (op == Op::reshape) {
      for (std::size_t k = 0; k < result.size(); ++k) {
        if (result[k] != shape[axis]) continue;
        trace_order(product_before(result, k), product_before(shape, axis));
        if (product_before(result, k) == product_before(shape, axis)) return k;
      }
      return std::nullopt;
    }
    if (op == Op::slice) {
      const auto rank = static_cast<std::int64_t>(shape.size());
      const auto along = static_cast<std::size_t>(list[0] < 0 ? list[0] + rank : list[0]);
      const bool prefix = (list[1] == kOmitted || list[1] == 0) && list[3] == 1;
      return along == axis && !prefix ? std::nullopt : std::optional(axis);
    }
    // Of those that only order and add axes: where the one with this stride is.
    ArrayLayout marked{Dims(shape.size(), 0), 0, {}};
    marked.strides[axis] = 1;
    const auto seen = result_layout(op, list, shape, result, marked);
    for (std::size_t k = 0; k < result.size(); ++k) {
      if (seen->strides[k] == 1) return k;
    }
    return std::nullopt;
  }

  // An end that differs along other axes is seen as these are.
  NodeId seen_end(const TypedNode& node, const ShapeList& list, const Dims& shape,
                  const Dims& result, NodeId end) {
    const Dims own = to_.shape(end);
    if (std::ranges::all_of(own, [](std::int64_t extent) { return extent == 1; })) {
      return own.empty() ? end : reshaped(end, Dims());
    }
    Dims padded(shape.size(), 1);
    std::ranges::copy(own, padded.begin() + (shape.size() - own.size()));
    const NodeId whole = padded == own ? end : reshaped(end, padded);
    if (node.op == Op::reshape) {
      const bool empty = element_count(shape) == 0;
      const auto seen = empty ? std::nullopt : reshaped_operand(padded, shape, result);
      if (seen) return reshaped(whole, *seen);
      throw Error(Code::unsupported,
                  "reshape: an operand is bounded by ends that differ along axes that it joins");
    }
    if (node.op == Op::slice) {
      const auto rank = static_cast<std::int64_t>(shape.size());
      const auto along = static_cast<std::size_t>(list[0] < 0 ? list[0] + rank : list[0]);
      if (padded[along] == 1) return whole;
    }
    TypedNode view = node;
    view.dtype = to_.node(end).dtype;
    return view_of(view, list, whole, result_shape(node.op, list, std::span(&padded, 1), "bound"));
  }

  NodeId reshaped(NodeId value, const Dims& shape) {
    if (shape.empty()) {
      NodeId result = value;
      Dims left = to_.shape(value);
      while (!left.empty()) {
        left = Dims(left.size() - 1, 1);
        result =
            to_.add({Op::squeeze, to_.node(value).dtype, 1, {result}, to_.add_list({0})}, left);
      }
      return result;
    }
    const std::vector<std::int64_t> extents(shape.begin(), shape.end());
    return to_.add({Op::reshape, to_.node(value).dtype, 1, {value}, to_.add_list(extents)}, shape);
  }

  const ShapedGraph& from_;
  GraphRewriter to_;
  std::vector<std::size_t> uses_;
  std::vector<bool> is_seen_;                  ///< through a view
  std::map<NodeId, std::size_t> uses_of_new_;  ///< how often what new nodes stand for is used
};

}  // namespace

ShapedGraph move_bounds(const ShapedGraph& graph) {
  return has_bounds(graph) ? BoundMoving(graph).run() : graph;
}

}  // namespace kiln::fusion
