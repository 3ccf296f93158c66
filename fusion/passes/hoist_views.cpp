// The pass that moves axes of one element towards the outputs (passes.hpp): f(squeeze(sum(x)), r)
// becomes squeeze(f(sum(x), r seen with that axis)), where that keeps the sum from being stored.
#include <algorithm>
#include <optional>

#include "fusion/graph/shape_ops.hpp"
#include "fusion/passes/passes.hpp"

namespace kiln::fusion {
namespace {

Dims without_ones(const Dims& shape) {
  std::vector<std::int64_t> extents;
  std::ranges::copy_if(shape, std::back_inserter(extents), [](auto extent) { return extent != 1; });
  return Dims(std::span<const std::int64_t>(extents));
}

bool is_operation(const TypedNode& node) { return node.arity > 0 && is_elementwise(node.op); }

class Raising {
 public:
  explicit Raising(const ShapedGraph& from)
      : from_(from), raised_(from.graph.nodes.size(), false), computed_in_(raised_.size()) {}

  ShapedGraph run() {
    choose();
    if (std::ranges::find(raised_, true) == raised_.end()) return from_;
    to_.graph = from_.graph;
    to_.graph.nodes.clear();
    if (from_.graph.tables != nullptr) tables_ = std::make_shared<Tables>(*from_.graph.tables);
    for (NodeId id = 0; id < raised_.size(); ++id) moved_.push_back(move(id));
    for (NodeId& output : to_.graph.outputs) output = moved_[output];
    to_.graph.tables = tables_;
    return std::move(to_);
  }

 private:
  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }
  const Dims& shape(NodeId id) const { return from_.shapes[id]; }

  // Adds or takes away axes of one element and does nothing else.
  bool is_unit_view(NodeId id) const {
    const Op op = node(id).op;
    const bool may = op == Op::squeeze || op == Op::expand_dims || op == Op::reshape;
    return may && without_ones(shape(id)) == without_ones(shape(node(id).operands[0]));
  }

  // -- Which operations

  void choose() {
    for (NodeId id = 0; id < raised_.size(); ++id) {
      if (is_unit_view(id)) {
        const NodeId below = node(id).operands[0];
        const bool computes = is_operation(node(below)) || has_axes(node(below).op);
        computed_in_[id] = computed_in_[below];
        if (!computed_in_[id] && computes) computed_in_[id] = shape(below);
      } else if (is_operation(node(id))) {
        computed_in_[id] = shape_before(id);
        raised_[id] = computed_in_[id].has_value();
      }
    }
    keep_those_whose_users_are();
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
    while (node(id).op == Op::promote || (is_shape_op(node(id).op) && node(id).op != Op::concat)) {
      id = node(id).operands[0];
    }
    const Op op = node(id).op;
    return op == Op::input || op == Op::scalar || op == Op::constant;
  }

  // Where something else reads an operation, it would be stored although it was not before.
  void keep_those_whose_users_are() {
    std::vector<std::vector<NodeId>> users(raised_.size());
    for (NodeId id = 0; id < raised_.size(); ++id) {
      for (const NodeId operand : node(id).inputs()) users[operand].push_back(id);
    }
    std::vector<NodeId> open;
    std::vector<bool> dropped(raised_.size(), false);
    const auto drop = [&](NodeId id) {
      if (dropped[id] || !(raised_[id] || is_unit_view(id))) return;
      dropped[id] = true;
      raised_[id] = false;
      open.push_back(id);
    };
    for (NodeId id = 0; id < raised_.size(); ++id) {
      const bool all = std::ranges::all_of(
          users[id], [&](NodeId user) { return is_shape_op(node(user).op) || raised_[user]; });
      if (!all && raised_[id]) drop(id);
    }
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      // What was raised after it, or before it for nobody else, depends on it.
      for (const NodeId user : users[id]) drop(user);
      if (is_unit_view(id)) continue;
      for (const NodeId operand : node(id).inputs()) {
        if (raised_[operand]) drop(operand);
      }
    }
  }

  // -- How

  NodeId move(NodeId id) {
    TypedNode copy = node(id);
    if (!raised_[id]) {
      for (std::size_t i = 0; i < copy.arity; ++i) copy.operands[i] = moved_[copy.operands[i]];
      return append(copy, shape(id));
    }
    const Dims& before = *computed_in_[id];
    for (std::size_t i = 0; i < copy.arity; ++i) {
      copy.operands[i] = seen_before(copy.operands[i], shape(id), before);
    }
    return reshaped(append(copy, before), shape(id));
  }

  // An operand of a value of shape `now` as it is for one of shape `before`.
  NodeId seen_before(NodeId id, const Dims& now, const Dims& before) {
    if (node(id).op == Op::promote && is_movable(id)) {
      TypedNode copy = node(id);
      copy.operands[0] = seen_before(copy.operands[0], now, before);
      return append(copy, Dims(to_.shapes[copy.operands[0]]));
    }
    const Dims& own = shape(id);
    if (own.empty()) return moved_[id];
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
    return reshaped(moved_[id], Dims(std::span<const std::int64_t>(extents)));
  }

  // Back to what it was before another reshape, where it was that.
  NodeId reshaped(NodeId id, const Dims& wanted) {
    NodeId at = id;
    while (true) {
      if (to_.shapes[at] == wanted) return at;
      const TypedNode& view = to_.graph.nodes[at];
      const bool unit =
          (view.op == Op::reshape || view.op == Op::squeeze || view.op == Op::expand_dims) &&
          without_ones(to_.shapes[view.operands[0]]) == without_ones(wanted);
      if (!unit) break;
      at = view.operands[0];
    }
    return append({Op::reshape, to_.graph.nodes[id].dtype, 1, {id}, list_of(wanted)}, Dims(wanted));
  }

  std::uint64_t list_of(const Dims& extents) {
    if (tables_ == nullptr) tables_ = std::make_shared<Tables>();
    tables_->lists.emplace_back(extents.begin(), extents.end());
    return tables_->lists.size() - 1;
  }

  NodeId append(const TypedNode& node, Dims shape) {
    to_.graph.nodes.push_back(node);
    to_.shapes.push_back(std::move(shape));
    return static_cast<NodeId>(to_.graph.nodes.size() - 1);
  }

  const ShapedGraph& from_;
  std::vector<bool> raised_;
  std::vector<std::optional<Dims>> computed_in_;  ///< of unit views, and of what is raised
  ShapedGraph to_;
  std::shared_ptr<Tables> tables_;
  std::vector<NodeId> moved_;
};

}  // namespace

ShapedGraph raise_views(const ShapedGraph& graph) { return Raising(graph).run(); }

}  // namespace kiln::fusion
