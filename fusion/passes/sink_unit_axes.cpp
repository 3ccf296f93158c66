// The pass that moves axes of one element towards the outputs (passes.hpp): f(squeeze(sum(x)), r)
// becomes squeeze(f(sum(x), expand_dims(r))), where that keeps the sum from being stored.
#include <algorithm>
#include <optional>

#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/passes/passes.hpp"

namespace kiln::fusion {
namespace {

Dims without_ones(const Dims& shape) {
  std::vector<std::int64_t> extents;
  std::ranges::copy_if(shape, std::back_inserter(extents), [](auto extent) { return extent != 1; });
  return Dims(std::span<const std::int64_t>(extents));
}

bool computes_elements(const TypedNode& node) { return node.arity > 0 && is_elementwise(node.op); }

class UnitAxisSinking {
 public:
  explicit UnitAxisSinking(const ShapedGraph& from)
      : from_(from),
        to_(from),
        before_view_(from.graph.nodes.size(), false),
        computed_in_(before_view_.size()) {}

  ShapedGraph run() {
    choose();
    if (std::ranges::find(before_view_, true) == before_view_.end()) return from_;
    return to_.run([&](NodeId id) { return before_view_[id] ? compute_before(id) : to_.copy(id); });
  }

 private:
  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }
  const Dims& shape(NodeId id) const { return from_.shapes[id]; }

  // Adds or takes away axes of one element and does nothing else.
  bool is_unit_view(NodeId id) const {
    return keeps_element_order(node(id).op) &&
           without_ones(shape(id)) == without_ones(shape(node(id).operands[0]));
  }

  // -- Which operations

  void choose() {
    for (NodeId id = 0; id < before_view_.size(); ++id) {
      if (is_unit_view(id)) {
        const NodeId below = node(id).operands[0];
        const bool computes = computes_elements(node(below)) || has_axes(node(below).op);
        computed_in_[id] = computed_in_[below];
        if (!computed_in_[id] && computes) computed_in_[id] = shape(below);
      } else if (computes_elements(node(id))) {
        computed_in_[id] = shape_before(id);
        before_view_[id] = computed_in_[id].has_value();
      }
    }
    keep_what_others_read();
  }

  // The shape that an operation's operands were computed in before they were seen in its own.
  std::optional<Dims> shape_before(NodeId id) const {
    if (std::ranges::find(shape(id), 0) != shape(id).end()) return std::nullopt;
    std::optional<Dims> before;
    for (const NodeId operand : node(id).inputs()) {
      if (is_movable(operand)) continue;
      const std::optional<Dims>& own = computed_in_[operand];
      if (!own || shape(operand) != shape(id) || (before && *before != *own)) return std::nullopt;
      before = own;
    }
    return before && *before != shape(id) ? before : std::nullopt;
  }

  // An argument, a view of one or a number, as it is or in another dtype.
  bool is_movable(NodeId id) const {
    while (node(id).op == Op::promote || is_view_op(node(id).op)) id = node(id).operands[0];
    const Op op = node(id).op;
    return op == Op::input || op == Op::scalar || op == Op::constant;
  }

  // An operation that is read by one that stays would have to be stored, so it stays too.
  void keep_what_others_read() {
    const std::vector<std::vector<NodeId>> users = users_of(from_.graph.nodes);
    std::vector<NodeId> open;
    std::vector<bool> dropped(before_view_.size(), false);
    const auto drop = [&](NodeId id) {
      if (dropped[id] || !(before_view_[id] || is_unit_view(id))) return;
      dropped[id] = true;
      before_view_[id] = false;
      open.push_back(id);
    };
    for (NodeId id = 0; id < before_view_.size(); ++id) {
      const bool all = std::ranges::all_of(
          users[id], [&](NodeId user) { return is_shape_op(node(user).op) || before_view_[user]; });
      if (!all && before_view_[id]) drop(id);
    }
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      // Operations that use its result were chosen because it was, and so were those before it that
      // nothing else uses.
      for (const NodeId user : users[id]) drop(user);
      if (is_unit_view(id)) continue;
      for (const NodeId operand : node(id).inputs()) {
        if (before_view_[operand]) drop(operand);
      }
    }
  }

  // -- How

  // An operation in the shape that its operands were computed in, seen in its own after that.
  NodeId compute_before(NodeId id) {
    TypedNode copy = node(id);
    const Dims& before = *computed_in_[id];
    for (std::size_t i = 0; i < copy.arity; ++i) {
      copy.operands[i] = seen_before(copy.operands[i], shape(id), before);
    }
    return reshaped(to_.add(copy, before), shape(id));
  }

  // What an operand of a value of shape `now` is where that value has shape `before`.
  NodeId seen_before(NodeId id, const Dims& now, const Dims& before) {
    if (node(id).op == Op::promote && is_movable(id)) {
      TypedNode copy = node(id);
      copy.operands[0] = seen_before(copy.operands[0], now, before);
      return to_.add(copy, to_.shape(copy.operands[0]));
    }
    const Dims& own = shape(id);
    if (own.empty()) return to_.moved(id);
    // Its extent along each axis of `now` that has more than one element, and so of `before`.
    std::vector<std::int64_t> extents;
    std::size_t axis = 0;
    for (const std::int64_t extent : before) {
      if (extent == 1) {
        extents.push_back(1);
        continue;
      }
      while (now[axis] == 1) ++axis;
      const std::size_t missing = now.size() - own.size();
      extents.push_back(axis < missing ? 1 : own[axis - missing]);
      ++axis;
    }
    return reshaped(to_.moved(id), Dims(std::span<const std::int64_t>(extents)));
  }

  // The node in shape `wanted`: a value that it is a unit view of where that has the shape, else a
  // new view.
  NodeId reshaped(NodeId id, const Dims& wanted) {
    NodeId at = id;
    while (true) {
      if (to_.shape(at) == wanted) return at;
      const TypedNode& view = to_.node(at);
      if (!keeps_element_order(view.op) ||
          without_ones(to_.shape(view.operands[0])) != without_ones(wanted)) {
        break;
      }
      at = view.operands[0];
    }
    const std::uint64_t list = to_.add_list({wanted.begin(), wanted.end()});
    return to_.add({Op::reshape, to_.node(id).dtype, 1, {id}, list}, wanted);
  }

  const ShapedGraph& from_;
  GraphRewriter to_;
  std::vector<bool> before_view_;  ///< operations that are to be computed before the views
  std::vector<std::optional<Dims>>
      computed_in_;  ///< the shape before the views: of those, of views
};

}  // namespace

ShapedGraph sink_unit_axes(const ShapedGraph& graph) { return UnitAxisSinking(graph).run(); }

}  // namespace kiln::fusion
