// The pass that keeps axes of one element which are left out and come back (passes.hpp): the
// softmax of squeeze(sum(q * k, -1), -1), weighted as w[..., None] * v, is computed with the axis.
#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "fusion/graph/axes.hpp"
#include "fusion/graph/indexed.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/infer/iota.hpp"
#include "fusion/passes/passes.hpp"

namespace kiln::fusion {
namespace {

constexpr std::size_t kMostBetweenViews = 64;  ///< between the views

// Axes are counted from the end, from 1 on: where an axis is kept, those at or before its place are
// one further away. Values of fewer axes are as they were.
Dims with_axis(const Dims& shape, std::size_t axis) {
  if (shape.size() + 1 < axis) return shape;
  Dims result(shape.size() + 1, 1);
  const std::size_t at = shape.size() + 1 - axis;
  for (std::size_t k = 0; k < shape.size(); ++k) result[k < at ? k : k + 1] = shape[k];
  return result;
}

std::int64_t moved_axis(std::int64_t from_end, std::size_t axis) {
  return from_end >= static_cast<std::int64_t>(axis) ? from_end + 1 : from_end;
}

class UnitAxes {
 public:
  explicit UnitAxes(const ShapedGraph& from)
      : from_(from), to_(from), users_(users_of(from.graph.nodes)), is_output_(users_.size()) {
    for (const NodeId output : from.graph.outputs) is_output_[output] = true;
  }

  ShapedGraph run() {
    for (NodeId id = 0; id < users_.size(); ++id) {
      if (const auto axis = left_out(id)) choose(id, *axis);
    }
    if (axis_of_.empty()) return from_;
    return to_.run([&](NodeId id) {
      const auto axis = axis_of_.find(id);
      if (axis == axis_of_.end()) return comes_back_.contains(id) ? kept(id) : to_.copy(id);
      kept_[id] = left_out(id) ? to_.moved(node(id).operands[0]) : compute(id, axis->second);
      return to_.reshaped(kept_[id], shape(id));
    });
  }

 private:
  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }
  const Dims& shape(NodeId id) const { return from_.shapes[id]; }

  // -- Which

  // The axis of one element that a view of something computed leaves out.
  std::optional<std::size_t> left_out(NodeId id) const {
    if (!keeps_element_order(node(id).op)) return std::nullopt;
    const NodeId whole = node(id).operands[0];
    const TypedNode& below = node(whole);
    const bool computed = below.arity > 0 && (is_elementwise(below.op) || is_reduction(below.op));
    if (!computed || shape(whole).size() != shape(id).size() + 1) return std::nullopt;
    for (std::size_t axis = 1; axis <= shape(whole).size(); ++axis) {
      if (is_same(shape(whole), with_axis(shape(id), axis))) return axis;
    }
    return std::nullopt;
  }

  static bool is_same(const Dims& a, const Dims& b) {
    if (a.size() != b.size()) return false;
    trace_order(a, b);
    return a == b;
  }

  // All that is computed from a view until the axis is back, if it comes back everywhere.
  void choose(NodeId view, std::size_t axis) {
    std::vector<NodeId> within{view};
    std::vector<NodeId> ends;
    for (std::size_t next = 0; next < within.size(); ++next) {
      const NodeId at = within[next];
      if (is_output_[at] || users_[at].empty() || within.size() > kMostBetweenViews) return;
      for (const NodeId user : users_[at]) {
        if (std::ranges::find(within, user) != within.end()) continue;
        if (is_view_op(node(user).op)) {
          if (!keeps_element_order(node(user).op)) return;
          if (!is_same(shape(user), with_axis(shape(at), axis))) return;
          ends.push_back(user);
        } else {
          const auto known = axis_of_.find(user);
          if (!can_keep(user) || (known != axis_of_.end() && known->second != axis)) return;
          within.push_back(user);
        }
      }
    }
    for (const NodeId id : within) axis_of_[id] = axis;
    for (const NodeId end : ends) comes_back_[end] = axis;
  }

  bool can_keep(NodeId id) const {
    const TypedNode& own = node(id);
    const bool counts_all = std::ranges::any_of(own.inputs(), [&](NodeId operand) {
      return node(operand).op == Op::iota && iota_axis(node(operand)) == kAllAxes;
    });
    if (counts_all || own.op == Op::bitcast) return false;
    return own.arity > 0 && (is_elementwise(own.op) || is_reduction(own.op) || own.op == Op::bound);
  }

  // -- How

  NodeId kept(NodeId end) const { return kept_.at(node(end).operands[0]); }

  NodeId compute(NodeId id, std::size_t axis) {
    TypedNode copy = node(id);
    for (std::size_t i = 0; i < copy.arity; ++i) copy.operands[i] = operand(copy.operands[i], axis);
    const auto rank = static_cast<std::int64_t>(shape(id).size());
    if (is_reduction(copy.op)) {
      const std::vector<bool> reduced = resolve_axes(copy.payload, shape(id).size(), "squeeze");
      std::vector<int> axes;
      for (std::int64_t k = 0; k < rank; ++k) {
        if (reduced[k]) axes.push_back(static_cast<int>(-moved_axis(rank - k, axis)));
      }
      copy.payload = axis_set(axes, "squeeze");
    } else if (copy.op == Op::bound) {
      const std::size_t bounded =
          indexed_axis(copy.op, shape_list(from_.graph, copy), shape(id), "squeeze");
      const std::int64_t from_end = rank - static_cast<std::int64_t>(bounded);
      copy.payload = to_.add_list({-moved_axis(from_end, axis)});
    }
    return to_.add(copy, with_axis(shape(id), axis));
  }

  NodeId operand(NodeId id, std::size_t axis) {
    if (const auto known = kept_.find(id); known != kept_.end()) return known->second;
    if (shape(id).size() < axis) return to_.moved(id);
    const Dims wanted = with_axis(shape(id), axis);
    if (node(id).op != Op::iota) return to_.reshaped(to_.moved(id), wanted);
    TypedNode index = node(id);
    const std::int64_t along = iota_axis(index);
    const std::int64_t from_end = along < 0 ? -along : std::ssize(shape(id)) - along;
    index.payload = static_cast<std::uint64_t>(-moved_axis(from_end, axis));
    return to_.add(index, wanted);
  }

  const ShapedGraph& from_;
  GraphRewriter to_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> is_output_;
  std::map<NodeId, std::size_t> axis_of_;     ///< that is kept, of views and of what is computed
  std::map<NodeId, std::size_t> comes_back_;  ///< of the views that add it again
  std::map<NodeId, NodeId> kept_;             ///< the new nodes with the axis
};

}  // namespace

ShapedGraph keep_unit_axes(const ShapedGraph& graph) {
  const auto is_view = [](const TypedNode& node) { return is_view_op(node.op); };
  return std::ranges::any_of(graph.graph.nodes, is_view) ? UnitAxes(graph).run() : graph;
}

}  // namespace kiln::fusion
