// The pass that moves shape ops towards the arguments (passes.hpp): a view of f(a, b) becomes f of
// views, where that keeps f from being stored.
#include <algorithm>
#include <map>
#include <set>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/passes/passes.hpp"

namespace kiln::fusion {
namespace {

constexpr std::size_t kMostOperations = 16;  ///< that are computed behind the view instead

std::int64_t size_of(const Dims& shape) {
  std::int64_t size = 1;
  for (const std::int64_t extent : shape) size *= extent;
  return size;
}

bool is_view(const TypedNode& node) { return is_shape_op(node.op) && node.op != Op::concat; }

bool is_operation(const TypedNode& node) { return node.arity > 0 && is_elementwise(node.op); }

// What is computed between a value that is only seen through views and what it depends on.
class Cones {
 public:
  explicit Cones(const ShapedGraph& graph) : graph_(graph), users_(graph.graph.nodes.size()) {
    for (NodeId id = 0; id < users_.size(); ++id) {
      for (const NodeId operand : node(id).inputs()) users_[operand].push_back(id);
    }
    stored_.assign(users_.size(), false);
    for (const NodeId output : graph.graph.outputs) stored_[output] = true;
  }

  /// The operations behind `view` that move in front of it; empty if none should.
  std::set<NodeId> of(NodeId view) const {
    const NodeId root = node(view).operands[0];
    if (!is_operation(node(root)) || !is_seen_only(root)) return {};
    std::set<NodeId> cone{root};
    std::uint64_t bytes = 0;
    std::vector<NodeId> open{root};
    std::set<NodeId> leaves;
    while (!open.empty()) {
      const NodeId at = open.back();
      open.pop_back();
      for (const NodeId operand : node(at).inputs()) {
        if (cone.contains(operand) || leaves.contains(operand)) continue;
        const TypedNode& below = node(operand);
        if (!fits(view, operand)) return {};
        if (is_operation(below)) {
          cone.insert(operand);
          open.push_back(operand);
          if (cone.size() > kMostOperations) return {};
        } else {
          if (below.op == Op::iota) return {};
          leaves.insert(operand);
          bytes += bytes_of(operand);
        }
      }
    }
    for (const NodeId id : cone) {
      // What is converted for several users is converted for each.
      const bool shared = node(id).op == Op::promote;
      if (id != root && !shared && !is_inside(id, cone)) return {};
    }
    // To store it takes a write and a read.
    return bytes <= 2 * bytes_of(root) ? cone : std::set<NodeId>();
  }

 private:
  const TypedNode& node(NodeId id) const { return graph_.graph.nodes[id]; }

  std::uint64_t bytes_of(NodeId id) const {
    const DType dtype = node(id).op == Op::input ? node(id).dtype : compute_dtype(node(id).dtype);
    return static_cast<std::uint64_t>(size_of(graph_.shapes[id])) *
           static_cast<std::uint64_t>(bits(dtype)) / 8;
  }

  // All users are views, which show no element twice.
  bool is_seen_only(NodeId id) const {
    std::int64_t seen = 0;
    for (const NodeId user : users_[id]) {
      if (!is_view(node(user))) return false;
      seen += size_of(graph_.shapes[user]);
    }
    return !stored_[id] && seen <= size_of(graph_.shapes[id]);
  }

  bool is_inside(NodeId id, const std::set<NodeId>& cone) const {
    return !stored_[id] &&
           std::ranges::all_of(users_[id], [&](NodeId user) { return cone.contains(user); });
  }

  // Whether the view of a value is one of its operand too, which may have been broadcast.
  bool fits(NodeId view, NodeId operand) const {
    const Dims& shape = graph_.shapes[operand];
    const Dims& whole = graph_.shapes[node(view).operands[0]];
    if (shape.empty() || shape == whole) return true;
    if (node(view).op == Op::reshape) return false;
    if (node(view).op != Op::slice) return true;
    const std::int64_t axis = shape_list(graph_.graph, node(view))[0];
    return whole[static_cast<std::size_t>(axis) + (axis < 0 ? whole.size() : 0)] != 1;
  }

  const ShapedGraph& graph_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> stored_;
};

class Sinking {
 public:
  explicit Sinking(const ShapedGraph& from) : from_(from), cones_(from) {
    to_.graph = from.graph;
    to_.graph.nodes.clear();
    if (from.graph.tables != nullptr) tables_ = std::make_shared<Tables>(*from.graph.tables);
  }

  bool changed() const { return changed_; }

  ShapedGraph run() {
    for (NodeId id = 0; id < from_.graph.nodes.size(); ++id) moved_.push_back(move(id));
    for (NodeId& output : to_.graph.outputs) output = moved_[output];
    to_.graph.tables = tables_;
    return std::move(to_);
  }

 private:
  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }

  NodeId move(NodeId id) {
    // Arguments without axes have none to be seen through.
    if (is_view(node(id)) && !from_.shapes[node(id).operands[0]].empty()) {
      const std::set<NodeId> cone = cones_.of(id);
      if (!cone.empty()) {
        changed_ = true;
        std::map<NodeId, NodeId> made;
        return through(id, node(id).operands[0], cone, made);
      }
    }
    TypedNode copy = node(id);
    for (std::size_t i = 0; i < copy.arity; ++i) copy.operands[i] = moved_[copy.operands[i]];
    return append(copy, from_.shapes[id]);
  }

  // `at` as it is seen through the view.
  NodeId through(NodeId view, NodeId at, const std::set<NodeId>& cone,
                 std::map<NodeId, NodeId>& made) {
    if (const auto known = made.find(at); known != made.end()) return known->second;
    NodeId result = 0;
    if (cone.contains(at)) {
      TypedNode copy = node(at);
      const Dims& whole = from_.shapes[node(view).operands[0]];
      Dims shape = from_.shapes[view];
      for (std::size_t i = 0; i < copy.arity; ++i) {
        copy.operands[i] = through(view, copy.operands[i], cone, made);
      }
      if (from_.shapes[at] != whole) shape = broadcast_of(copy);
      result = append(copy, shape);
    } else {
      result = view_of_leaf(view, at);
    }
    made[at] = result;
    return result;
  }

  Dims broadcast_of(const TypedNode& copy) const {
    std::size_t rank = 0;
    for (const NodeId operand : copy.inputs()) rank = std::max(rank, to_.shapes[operand].size());
    Dims shape(rank, 1);
    for (const NodeId operand : copy.inputs()) {
      const Dims& own = to_.shapes[operand];
      for (std::size_t k = 0; k < own.size(); ++k) {
        std::int64_t& extent = shape[rank - own.size() + k];
        if (own[k] != 1) extent = own[k];
      }
    }
    return shape;
  }

  NodeId view_of_leaf(NodeId view, NodeId leaf) {
    const Dims& whole = from_.shapes[node(view).operands[0]];
    Dims shape = from_.shapes[leaf];
    NodeId operand = moved_[leaf];
    if (shape.empty()) return operand;
    while (shape.size() < whole.size()) {
      Dims padded(shape.size() + 1, 1);
      std::ranges::copy(shape, padded.begin() + 1);
      shape = std::move(padded);
      operand = append({Op::expand_dims, node(leaf).dtype, 1, {operand}, list_of({0})}, shape);
    }
    TypedNode own = node(view);
    const ShapeList& list = tables_->lists[own.payload];
    if (own.op == Op::slice) {
      const auto axis = static_cast<std::size_t>(
          list[0] < 0 ? list[0] + static_cast<std::int64_t>(whole.size()) : list[0]);
      if (shape[axis] != whole[axis]) return operand;  // it is broadcast along the axis
    }
    own.dtype = node(leaf).dtype;
    own.operands[0] = operand;
    Dims seen = result_shape(own.op, list, std::span(&shape, 1), "view");
    return append(own, std::move(seen));
  }

  std::uint64_t list_of(ShapeList list) {
    const auto known = std::ranges::find(tables_->lists, list);
    const auto place = static_cast<std::uint64_t>(known - tables_->lists.begin());
    if (known == tables_->lists.end()) tables_->lists.push_back(std::move(list));
    return place;
  }

  NodeId append(const TypedNode& node, Dims shape) {
    to_.graph.nodes.push_back(node);
    to_.shapes.push_back(std::move(shape));
    return static_cast<NodeId>(to_.graph.nodes.size() - 1);
  }

  const ShapedGraph& from_;
  Cones cones_;
  ShapedGraph to_;
  std::shared_ptr<Tables> tables_;
  std::vector<NodeId> moved_;
  bool changed_ = false;
};

}  // namespace

ShapedGraph sink_views(const ShapedGraph& graph) {
  // A chain of views sinks one at a time; what is left then is stored, as before.
  constexpr int kMostRounds = 8;
  ShapedGraph result = graph;
  for (int round = 0; round < kMostRounds; ++round) {
    if (std::ranges::none_of(result.graph.nodes, is_view)) break;
    Sinking sinking(result);
    ShapedGraph next = sinking.run();
    if (!sinking.changed()) break;
    result = drop_dead(share_common(next));
  }
  return result;
}

}  // namespace kiln::fusion
