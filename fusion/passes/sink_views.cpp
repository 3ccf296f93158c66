// The pass that moves reshapes towards the outputs (passes.hpp): f(reshape(sum(x)), r) becomes
// reshape(f(sum(x), reshape(r))), where that keeps the sum from being stored; likewise where the
// reshape is of an argument's view that strides cannot express, and so would be a copy of it.
#include <algorithm>
#include <optional>
#include <set>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/reshape.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/passes/passes.hpp"
#include "kiln/view.hpp"

namespace kiln::fusion {
namespace {

bool computes_elements(const TypedNode& node) { return node.arity > 0 && is_elementwise(node.op); }

class ViewSinking {
 public:
  explicit ViewSinking(const ShapedGraph& from)
      : from_(from),
        to_(from),
        users_(users_of(from.graph.nodes)),
        before_view_(from.graph.nodes.size(), false),
        computed_in_(before_view_.size()),
        layout_(before_view_.size()),
        is_copy_(before_view_.size(), false),
        is_output_(before_view_.size(), false),
        movable_(before_view_.size(), false) {
    for (const NodeId output : from.graph.outputs) is_output_[output] = true;
  }

  ShapedGraph run() {
    find_copies();
    find_movable();
    choose();
    if (std::ranges::find(before_view_, true) == before_view_.end()) return from_;
    return to_.run([&](NodeId id) { return before_view_[id] ? compute_before(id) : to_.copy(id); });
  }

 private:
  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }
  const Dims& shape(NodeId id) const { return from_.shapes[id]; }

  bool is_reshape(NodeId id) const {
    return keeps_element_order(node(id).op) && std::ranges::find(shape(id), 0) == shape(id).end();
  }

  // -- Which views of arguments, taken to lie in C order, are copies of them

  void find_copies() {
    for (NodeId id = 0; id < layout_.size(); ++id) {
      const TypedNode& own = node(id);
      if (std::ranges::find(shape(id), 0) != shape(id).end()) continue;
      if (own.op == Op::input) layout_[id] = ArrayLayout{contiguous_strides(shape(id)), 0};
      if (own.op != Op::promote && !is_view_op(own.op)) continue;
      const NodeId below = own.operands[0];
      is_copy_[id] = is_copy_[below];
      if (!layout_[below]) continue;
      layout_[id] = own.op == Op::promote ? layout_[below]
                                          : result_layout(own.op, shape_list(from_.graph, own),
                                                          shape(below), shape(id), *layout_[below]);
      is_copy_[id] = !layout_[id];
    }
  }

  // -- Which operations

  void choose() {
    for (NodeId id = 0; id < before_view_.size(); ++id) {
      if (is_reshape(id)) {
        const NodeId below = node(id).operands[0];
        const bool computes = computes_elements(node(below)) || has_axes(node(below).op);
        const bool copies = is_copy_[id] && layout_[below];
        computed_in_[id] = computed_in_[below];
        if (!computed_in_[id] && (computes || copies)) computed_in_[id] = shape(below);
      } else if (computes_elements(node(id))) {
        computed_in_[id] = shape_before(id);
        before_view_[id] = computed_in_[id].has_value();
      }
    }
    for (NodeId id = static_cast<NodeId>(before_view_.size()); id-- > 0;) {
      if (before_view_[id] && stores_more(id)) before_view_[id] = false;
    }
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
    if (!before || *before == shape(id)) return std::nullopt;
    for (const NodeId operand : node(id).inputs()) {
      if (is_movable(operand) && !can_be_seen(operand, shape(id), *before)) return std::nullopt;
    }
    return before;
  }

  // An argument, what is taken, a view of those or a number, as it is or in another dtype; and what
  // is computed from such for one operation alone.
  void find_movable() {
    for (NodeId id = 0; id < movable_.size(); ++id) {
      if (is_computed_for_one(id)) {
        movable_[id] =
            std::ranges::all_of(node(id).inputs(), [&](NodeId i) { return movable_[i]; });
        continue;
      }
      NodeId source = id;
      while (node(source).op == Op::promote || is_view_op(node(source).op)) {
        source = node(source).operands[0];
      }
      const Op op = node(source).op;
      const bool is_array = op == Op::input || op == Op::take;
      movable_[id] = !is_copy_[id] && (is_array || op == Op::scalar || op == Op::constant);
    }
  }
  bool is_movable(NodeId id) const { return movable_[id]; }

  bool is_computed_for_one(NodeId id) const {
    return computes_elements(node(id)) && node(id).op != Op::promote && users_[id].size() == 1 &&
           !is_output_[id];
  }

  // The shape of something movable where what it is an operand of has shape `before`. Axes of an
  // argument that lie so become one.
  std::optional<Dims> seen_shape(NodeId id, const Dims& now, const Dims& before) const {
    if (auto seen = reshaped_operand(shape(id), now, before)) return seen;
    auto joined = reshaped_operand(shape(id), now, before, true);
    if (!joined || !layout_[id]) return std::nullopt;
    const ShapeList list(joined->begin(), joined->end());
    const bool lies =
        result_layout(Op::reshape, list, shape(id), *joined, *layout_[id]).has_value();
    return lies ? joined : std::nullopt;
  }

  // Whether something movable has a view in the shape `before`.
  bool can_be_seen(NodeId id, const Dims& now, const Dims& before) const {
    if (!is_computed_for_one(id)) return seen_shape(id, now, before).has_value();
    return std::ranges::all_of(node(id).inputs(),
                               [&](NodeId i) { return can_be_seen(i, now, before); });
  }

  // -- Which of them are better computed in their own shape, by the kernel that reads them

  // Whether a moved operation has to be stored because one that stays reads it.
  bool is_read(NodeId id) const {
    return std::ranges::any_of(users_[id], [&](NodeId user) {
      return !is_shape_op(node(user).op) && !before_view_[user];
    });
  }

  // Values behind the views that an operation reads.
  std::set<NodeId> sources(NodeId id) const {
    std::set<NodeId> result;
    for (NodeId operand : node(id).inputs()) {
      if (is_movable(operand)) continue;
      while (is_reshape(operand)) operand = node(operand).operands[0];
      result.insert(operand);
    }
    return result;
  }

  // How many moved operations read a value, itself or through views; at least the one that asks.
  std::size_t readers(NodeId source) const {
    std::size_t count = 0;
    std::vector<NodeId> open{source};
    while (!open.empty()) {
      const NodeId at = open.back();
      open.pop_back();
      for (const NodeId user : users_[at]) {
        if (is_reshape(user)) open.push_back(user);
        if (before_view_[user]) ++count;
      }
    }
    return count;
  }

  // Whether what moved operations are computed from is stored for others too.
  bool is_source_stored(NodeId source) const {
    if (is_output_[source] || (before_view_[source] && is_read(source))) return true;
    std::vector<NodeId> open{source};
    while (!open.empty()) {
      const NodeId at = open.back();
      open.pop_back();
      for (const NodeId user : users_[at]) {
        if (is_reshape(user)) {
          open.push_back(user);
        } else if (!before_view_[user] && at != source) {
          return true;
        }
      }
    }
    return false;
  }

  double element_bytes(NodeId id) const {
    const TypedNode& own = node(id);
    return bits(own.op == Op::cast ? own.dtype : compute_dtype(own.dtype)) / 8.0;
  }

  // Whether to store a moved operation for what reads it in its own shape takes more than to store
  // what it is computed from.
  bool stores_more(NodeId id) const {
    const bool last = std::ranges::none_of(
        users_[id], [&](NodeId user) { return before_view_[user] || is_shape_op(node(user).op); });
    if (!last || is_output_[id] || !is_read(id)) return false;
    double bytes = 0;  // more than without it
    SizeSum traced;
    const auto add = [&](NodeId value, double share) {
      const std::int64_t elements = element_count(shape(value));
      bytes += share * element_bytes(value) * static_cast<double>(elements);
      traced.add(share * element_bytes(value), elements);
    };
    add(id, 1);
    for (const NodeId source : sources(id)) {
      if (!is_source_stored(source)) add(source, -1 / static_cast<double>(readers(source)));
    }
    traced.decide();
    return bytes > 0;
  }

  // -- How

  // An operation in the shape that its operands were computed in, seen in its own after that.
  NodeId compute_before(NodeId id) {
    TypedNode copy = node(id);
    const Dims& before = *computed_in_[id];
    for (std::size_t i = 0; i < copy.arity; ++i) {
      copy.operands[i] = seen_before(copy.operands[i], shape(id), before);
    }
    return to_.reshaped(to_.add(copy, before), shape(id));
  }

  // What an operand of a value of shape `now` is where that value has shape `before`.
  NodeId seen_before(NodeId id, const Dims& now, const Dims& before) {
    if (is_computed_for_one(id) && is_movable(id)) {
      TypedNode copy = node(id);
      Dims all;
      for (std::size_t i = 0; i < copy.arity; ++i) {
        copy.operands[i] = seen_before(copy.operands[i], now, before);
        all = broadcast(all, to_.shape(copy.operands[i])).value();
      }
      return to_.add(copy, all);
    }
    if (node(id).op == Op::promote && is_movable(id)) {
      TypedNode copy = node(id);
      copy.operands[0] = seen_before(copy.operands[0], now, before);
      return to_.add(copy, to_.shape(copy.operands[0]));
    }
    if (shape(id).empty()) return to_.moved(id);
    if (!is_movable(id)) return to_.reshaped(to_.moved(id), before);
    return to_.reshaped(to_.moved(id), seen_shape(id, now, before).value());
  }

  const ShapedGraph& from_;
  GraphRewriter to_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> before_view_;  ///< operations that are to be computed before the views
  std::vector<std::optional<Dims>>
      computed_in_;  ///< the shape before the views: of those, of views
  std::vector<std::optional<ArrayLayout>> layout_;  ///< of arguments and views of them
  std::vector<bool> is_copy_;  ///< a view of an argument that strides cannot express
  std::vector<bool> is_output_;
  std::vector<bool> movable_;
};

}  // namespace

ShapedGraph sink_views(const ShapedGraph& graph) { return ViewSinking(graph).run(); }

}  // namespace kiln::fusion
