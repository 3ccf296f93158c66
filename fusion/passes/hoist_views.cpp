// The pass that moves shape ops towards the arguments (passes.hpp): a view of f(a, b) becomes f of
// views, where that keeps f from being stored.
#include <algorithm>
#include <map>
#include <set>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/reshape.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/row_operation.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/infer/iota.hpp"
#include "fusion/passes/parts.hpp"
#include "fusion/passes/passes.hpp"

namespace kiln::fusion {
namespace {

constexpr std::size_t kMostOperations = 16;  ///< that are computed behind the view instead

bool is_operation(const TypedNode& node) { return node.arity > 0 && is_elementwise(node.op); }

// What is computed between a value that is only seen through views and what it depends on.
class Cones {
 public:
  /// `parted`: those alone whose parts are computed with each other, whatever they wait for.
  Cones(const ShapedGraph& graph, bool parted)
      : graph_(graph),
        users_(users_of(graph.graph.nodes)),
        stored_(users_.size(), false),
        parted_(parted) {
    for (const NodeId output : graph.graph.outputs) stored_[output] = true;
  }

  /// The operations behind `view` that move in front of it; empty if none should.
  std::set<NodeId> of(NodeId view) const {
    const NodeId root = node(view).operands[0];
    if (!is_operation(node(root)) || !is_seen_only(root)) return {};
    if (parted_ && !is_parted(root)) return {};
    std::set<NodeId> cone = whole(view);
    if (parted_ || (!cone.empty() && !waits(cone))) return cone;
    std::set<NodeId> last = widening(view);
    return last.empty() ? cone : last;
  }

 private:
  // All that is computed from arguments and results of reductions.
  std::set<NodeId> whole(NodeId view) const {
    const NodeId root = node(view).operands[0];
    std::set<NodeId> cone{root};
    std::uint64_t bytes = 0;
    SizeSum traced;
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
          if (below.op == Op::iota) {
            if (!counts_through(view, operand)) return {};
            continue;
          }
          if (below.op == Op::constant || below.op == Op::scalar) continue;  // of the kernel's own
          leaves.insert(operand);
          bytes += bytes_of(operand);
          add_bytes(traced, 1, operand);
        }
      }
    }
    for (const NodeId id : cone) {
      // What is converted for several users is converted for each.
      const bool shared = node(id).op == Op::promote;
      if (id != root && !shared && !is_inside(id, cone)) return {};
    }
    // To store it takes a write and a read.
    add_bytes(traced, -2, root);
    traced.decide();
    return bytes <= 2 * bytes_of(root) ? cone : std::set<NodeId>();
  }

  // Whether some operation computes elements of two of the views through which a value is seen, or
  // of what is computed from them.
  bool is_parted(NodeId root) const {
    std::vector<NodeId> ends;
    std::vector<NodeId> open{root};
    while (!open.empty()) {
      const NodeId at = open.back();
      open.pop_back();
      const auto is_view = [&](NodeId user) { return is_view_op(node(user).op); };
      if (std::ranges::all_of(users_[at], is_view)) {
        open.insert(open.end(), users_[at].begin(), users_[at].end());
      } else {
        ends.push_back(at);
      }
    }
    return ends.size() > 1 && are_computed_together(graph_.graph, ends);
  }

  // Whether something of it is computed from what a reduction gives, by the reduction's kernel.
  bool waits(const std::set<NodeId>& cone) const {
    return std::ranges::any_of(cone, [&](NodeId id) {
      return std::ranges::any_of(node(id).inputs(), [&](NodeId x) { return has_axes(node(x).op); });
    });
  }

  // What makes a value of one that takes fewer bytes, with those of rows: quantised numbers and
  // their scales are seen through the view rather than what they stand for.
  std::set<NodeId> widening(NodeId view) const {
    const NodeId root = node(view).operands[0];
    const std::uint64_t own = stored_bytes(root);
    std::uint64_t of_rows = 0;
    SizeSum traced;
    std::set<NodeId> cone;
    NodeId at = root;
    while (cone.size() < kMostOperations) {
      const auto operation = row_operation(node(at), graph_.shapes[at], graph_.shapes);
      if (!operation) return {};
      cone.insert(at);
      at = operation->elements;
      if (const std::optional<NodeId> of_row = operation->of_row) {
        if (!shows_row(view, *of_row)) return {};
        of_rows += stored_bytes(*of_row);
        add_stored(traced, 1, *of_row);
      }
      SizeSum sum = traced;
      add_stored(sum, 1, at);
      add_stored(sum, -1, root);
      sum.decide();
      if (stored_bytes(at) + of_rows < own) return cone;
    }
    return {};
  }

  const TypedNode& node(NodeId id) const { return graph_.graph.nodes[id]; }

  DType dtype_of(NodeId id) const {
    return node(id).op == Op::input ? node(id).dtype : compute_dtype(node(id).dtype);
  }

  void add_bytes(SizeSum& sum, int times, NodeId id) const {
    sum.add(times * bits(dtype_of(id)) / 8.0, element_count(graph_.shapes[id]));
  }

  std::uint64_t bytes_of(NodeId id) const {
    const DType dtype = dtype_of(id);
    return static_cast<std::uint64_t>(element_count(graph_.shapes[id])) *
           static_cast<std::uint64_t>(bits(dtype)) / 8;
  }

  std::uint64_t stored_bytes(NodeId id) const {
    return byte_count(node(id).dtype, graph_.shapes[id]);
  }
  void add_stored(SizeSum& sum, int times, NodeId id) const {
    sum.add(times * bits(node(id).dtype) / 8.0, element_count(graph_.shapes[id]));
  }

  // All users are views, which show no element twice.
  bool is_seen_only(NodeId id) const {
    std::int64_t seen = 0;
    SizeSum traced;
    for (const NodeId user : users_[id]) {
      if (!is_view_op(node(user).op)) return false;
      seen += element_count(graph_.shapes[user]);
      traced.add(1, element_count(graph_.shapes[user]));
    }
    traced.add(-1, element_count(graph_.shapes[id])).decide();
    return !stored_[id] && seen <= element_count(graph_.shapes[id]);
  }

  bool is_inside(NodeId id, const std::set<NodeId>& cone) const {
    return !stored_[id] &&
           std::ranges::all_of(users_[id], [&](NodeId user) { return cone.contains(user); });
  }

  // Whether what there is one of for each row of what a view shows is seen through it too.
  bool shows_row(NodeId view, NodeId of_row) const {
    const Dims& shape = graph_.shapes[of_row];
    const Dims& whole = graph_.shapes[node(view).operands[0]];
    if (node(view).op != Op::reshape || shape.empty()) return fits(view, of_row);
    return reshaped_operand(shape, whole, graph_.shapes[view]).has_value();
  }

  // Whether an index along an axis is one along an axis of what a view shows.
  bool counts_through(NodeId view, NodeId iota) const {
    const Dims& shape = graph_.shapes[iota];
    const std::int64_t axis = iota_axis(node(iota));
    if (!keeps_element_order(node(view).op) || axis == kAllAxes || shape.empty()) return false;
    const auto at = static_cast<std::size_t>(axis < 0 ? axis + std::ssize(shape) : axis);
    const auto seen =
        reshaped_operand(shape, graph_.shapes[node(view).operands[0]], graph_.shapes[view]);
    return seen && (shape[at] == 1 || same_axis(shape, at, *seen));
  }

  // Whether the view of a value is one of its operand too, which may have been broadcast.
  bool fits(NodeId view, NodeId operand) const {
    const Dims& shape = graph_.shapes[operand];
    const Dims& whole = graph_.shapes[node(view).operands[0]];
    if (shape.empty() || shape == whole) return true;
    // What is computed from rows is stored by their kernel, and seen in any shape.
    if (keeps_element_order(node(view).op) && has_axes(node(operand).op)) return false;
    if (node(view).op == Op::reshape) {
      return reshaped_operand(shape, whole, graph_.shapes[view]).has_value();
    }
    if (node(view).op != Op::slice) return true;
    const std::int64_t axis = shape_list(graph_.graph, node(view))[0];
    return whole[static_cast<std::size_t>(axis) + (axis < 0 ? whole.size() : 0)] != 1;
  }

  const ShapedGraph& graph_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> stored_;
  bool parted_;
};

class ViewHoisting {
 public:
  ViewHoisting(const ShapedGraph& from, bool parted)
      : from_(from), to_(from), cones_(from, parted) {}

  bool changed() const { return changed_; }

  ShapedGraph run() {
    return to_.run([&](NodeId id) { return hoist(id); });
  }

 private:
  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }

  NodeId hoist(NodeId id) {
    // Arguments without axes have none to be seen through.
    const bool view = is_view_op(node(id).op) && !from_.shapes[node(id).operands[0]].empty();
    const std::set<NodeId> cone = view ? cones_.of(id) : std::set<NodeId>();
    if (cone.empty()) return to_.copy(id);
    changed_ = true;
    std::map<NodeId, NodeId> seen;
    return seen_through(id, node(id).operands[0], cone, seen);
  }

  // `id` as the view shows it, computed from what the view shows of its leaves. The recursion is no
  // deeper than a cone is large.
  NodeId seen_through(NodeId view, NodeId id, const std::set<NodeId>& cone,
                      std::map<NodeId, NodeId>& seen) {
    if (const auto known = seen.find(id); known != seen.end()) return known->second;
    NodeId result = 0;
    if (cone.contains(id)) {
      TypedNode copy = node(id);
      for (std::size_t i = 0; i < copy.arity; ++i) {
        copy.operands[i] = seen_through(view, copy.operands[i], cone, seen);
      }
      const bool is_whole = from_.shapes[id] == from_.shapes[node(view).operands[0]];
      result = to_.add(copy, is_whole ? from_.shapes[view] : broadcast_of(copy));
    } else {
      result = view_of_leaf(view, id);
    }
    seen[id] = result;
    return result;
  }

  Dims broadcast_of(const TypedNode& copy) const {
    Dims shape;
    for (const NodeId operand : copy.inputs()) shape = *broadcast(shape, to_.shape(operand));
    return shape;
  }

  NodeId view_of_leaf(NodeId view, NodeId leaf) {
    const Dims& whole = from_.shapes[node(view).operands[0]];
    Dims shape = from_.shapes[leaf];
    NodeId operand = to_.moved(leaf);
    if (shape.empty()) return operand;
    if (node(leaf).op == Op::iota) return index_of(view, leaf);
    while (shape.size() < whole.size()) {
      Dims padded(shape.size() + 1, 1);
      std::ranges::copy(shape, padded.begin() + 1);
      shape = std::move(padded);
      operand =
          to_.add({Op::expand_dims, node(leaf).dtype, 1, {operand}, to_.add_list({0})}, shape);
    }
    TypedNode own = node(view);
    const ShapeList& list = shape_list(from_.graph, own);
    if (own.op == Op::slice) {
      const auto axis = static_cast<std::size_t>(
          list[0] < 0 ? list[0] + static_cast<std::int64_t>(whole.size()) : list[0]);
      if (shape[axis] != whole[axis]) return operand;  // it is broadcast along the axis
    }
    own.dtype = node(leaf).dtype;
    own.operands[0] = operand;
    if (own.op == Op::reshape && shape != whole) {
      const Dims seen = reshaped_operand(shape, whole, from_.shapes[view]).value();
      own.payload = to_.add_list({seen.begin(), seen.end()});
      return to_.add(own, seen);
    }
    return to_.add(own, result_shape(own.op, list, std::span(&shape, 1), "view"));
  }

  // What the view shows of an index along an axis.
  NodeId index_of(NodeId view, NodeId iota) {
    const Dims& shape = from_.shapes[iota];
    TypedNode own = node(iota);
    const std::int64_t axis = iota_axis(own);
    const auto at = static_cast<std::size_t>(axis < 0 ? axis + std::ssize(shape) : axis);
    if (shape[at] == 1) return to_.add({Op::constant, own.dtype, 0, {}, 0}, {});
    const Dims seen =
        reshaped_operand(shape, from_.shapes[node(view).operands[0]], from_.shapes[view]).value();
    const auto along = static_cast<std::int64_t>(same_axis(shape, at, seen).value());
    own.payload = static_cast<std::uint64_t>(along - std::ssize(seen));
    return to_.add(own, seen);
  }

  const ShapedGraph& from_;
  GraphRewriter to_;
  Cones cones_;
  bool changed_ = false;
};

ShapedGraph hoisted(const ShapedGraph& graph, bool parted) {
  // A chain of views moves one at a time; what is left then is stored, as before.
  constexpr int kMostRounds = 16;
  ShapedGraph result = graph;
  for (int round = 0; round < kMostRounds; ++round) {
    const auto is_view = [](const TypedNode& node) { return is_view_op(node.op); };
    if (std::ranges::none_of(result.graph.nodes, is_view)) break;
    ViewHoisting hoisting(result, parted);
    ShapedGraph next = hoisting.run();
    if (!hoisting.changed()) break;
    result = std::move(next);
  }
  return result;
}

}  // namespace

ShapedGraph hoist_views(const ShapedGraph& graph) { return hoisted(graph, false); }

ShapedGraph hoist_parts(const ShapedGraph& graph) { return hoisted(graph, true); }

}  // namespace kiln::fusion
