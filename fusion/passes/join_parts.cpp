// See parts.hpp.
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "fusion/graph/axes.hpp"
#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/passes/parts.hpp"

namespace kiln::fusion {
namespace {

constexpr std::size_t kMostEarly = 16;  ///< values that are computed earlier than they were

// Pairs of operations of which parts along an axis are needed, of the one before those of the
// other, and which differ in an operand that is the same along it.
class PartJoining {
 public:
  explicit PartJoining(const ShapedGraph& from)
      : from_(from), to_(from), needs_(from.graph.nodes.size()), pair_of_(needs_.size()) {
    find_needs();
    find_pairs();
  }

  bool changes() const { return !pairs_.empty(); }

  ShapedGraph run() {
    return to_.run(
        [&](NodeId id) { return pair_of_[id] ? joined(id, pairs_[*pair_of_[id]]) : to_.copy(id); });
  }

 private:
  // What of a value is needed: neighbours along an axis, or anything.
  struct Need {
    bool any = false;
    std::optional<Window> window;
  };
  struct Pair {
    std::size_t slot = 0;  ///< the operand that differs
    NodeId first = 0;      ///< that operand of the operation whose part comes first
    NodeId second = 0;
    std::size_t axis = 0;
    std::int64_t boundary = 0;  ///< where the part of the second begins
  };

  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }
  const Dims& shape(NodeId id) const { return from_.shapes[id]; }

  // -- What is needed of each value

  void find_needs() {
    for (const NodeId output : from_.graph.outputs) needs_[output].any = true;
    for (NodeId id = static_cast<NodeId>(needs_.size()); id-- > 0;) {
      for (const NodeId operand : node(id).inputs()) {
        const std::optional<Window> window = window_behind(id, operand);
        Need& need = needs_[operand];
        if (need.any || !window || (need.window && need.window->axis != window->axis)) {
          need = {true, std::nullopt};
        } else if (!need.window) {
          need.window = window;
        } else {
          const std::int64_t first = std::min(need.window->first, window->first);
          const std::int64_t end = std::max(end_of(*need.window), end_of(*window));
          need.window = Window{window->axis, first, end - first};
        }
      }
    }
  }

  static std::int64_t end_of(const Window& window) { return window.first + window.count; }

  // What a value needs of an operand, if that is neighbours along an axis.
  std::optional<Window> window_behind(NodeId id, NodeId operand) const {
    const TypedNode& own = node(id);
    const std::optional<Window>& needed = needs_[id].window;
    if (own.op == Op::slice) {
      const std::optional<Window> shown = window_of(from_, id);
      if (!shown || !needed) return shown;
      if (needed->axis != shown->axis) return needed;
      return Window{shown->axis, shown->first + needed->first, needed->count};
    }
    if (!needed) return std::nullopt;
    if (keeps_element_order(own.op)) return reshaped_window(shape(id), *needed, shape(operand));
    if (own.op == Op::concat) {
      const std::int64_t axis = shape_list(from_.graph, own)[0];
      const std::int64_t rank = std::ssize(shape(id));
      const bool along = static_cast<std::size_t>(axis < 0 ? axis + rank : axis) == needed->axis;
      return along ? std::nullopt : needed;
    }
    if (is_reduction(own.op)) {
      const auto reduced = resolve_axes(own.payload, shape(operand).size(), "slice");
      return reduced[needed->axis] ? std::nullopt : needed;
    }
    if (!is_elementwise(own.op)) return std::nullopt;
    const std::size_t missing = shape(id).size() - shape(operand).size();
    if (needed->axis < missing) return std::nullopt;
    const std::size_t axis = needed->axis - missing;
    if (shape(operand)[axis] != shape(id)[needed->axis]) return std::nullopt;
    return Window{axis, needed->first, needed->count};
  }

  // -- Which operations

  void find_pairs() {
    using Key = std::tuple<TypedNode, std::size_t, std::vector<std::int64_t>>;
    const auto less = [](const Key& a, const Key& b) {
      const auto order = [](const Key& key) {
        const TypedNode& own = std::get<0>(key);
        return std::tie(own.op, own.dtype, own.operands, own.payload, std::get<1>(key),
                        std::get<2>(key));
      };
      return order(a) < order(b);
    };
    std::map<Key, std::vector<NodeId>, decltype(less)> alike(less);
    for (NodeId id = 0; id < needs_.size(); ++id) {
      const TypedNode& own = node(id);
      if (!needs_[id].window || !is_elementwise(own.op) || own.arity < 2) continue;
      if (own.op == Op::bitcast || !is_of_rows(id)) continue;
      for (std::size_t slot = 0; slot < own.arity && !pair_of_[id]; ++slot) {
        if (!is_same_along(own.operands[slot], id)) continue;
        TypedNode key = own;
        key.operands[slot] = 0;
        std::vector<NodeId>& others = alike[{key, slot, {shape(id).begin(), shape(id).end()}}];
        for (const NodeId other : others) {
          if (!pair_of_[other] && pair(other, id, slot)) break;
        }
        others.push_back(id);
      }
    }
  }

  // Whether a kernel that reduces rows computes it, after that: such a one counts an index.
  bool is_of_rows(NodeId id) const {
    constexpr std::size_t kMostValues = 24;
    std::vector<NodeId> open{id};
    for (std::size_t next = 0; next < open.size() && open.size() < kMostValues; ++next) {
      const TypedNode& own = node(open[next]);
      if (is_reduction(own.op) && shape(own.operands[0]) == shape(id)) return true;
      if (!is_elementwise(own.op)) continue;
      open.insert(open.end(), own.operands.begin(), own.operands.begin() + own.arity);
    }
    return false;
  }

  bool is_same_along(NodeId operand, NodeId id) const {
    const std::size_t from_end = shape(id).size() - needs_[id].window->axis;
    const Dims& own = shape(operand);
    return own.size() < from_end || own[own.size() - from_end] == 1;
  }

  bool pair(NodeId a, NodeId b, std::size_t slot) {
    const Window& one = *needs_[a].window;
    const Window& two = *needs_[b].window;
    if (one.axis != two.axis) return false;
    const bool in_order = end_of(one) <= two.first;
    if (!in_order && end_of(two) > one.first) return false;
    const NodeId first = node(in_order ? a : b).operands[slot];
    const NodeId second = node(in_order ? b : a).operands[slot];
    if (!can_be_early(first, a) || !can_be_early(second, a)) return false;
    const std::int64_t boundary = in_order ? two.first : one.first;
    trace_order(end_of(in_order ? one : two), boundary);
    SizeSum().add(1, boundary).add(-static_cast<double>(boundary), 1).decide();
    pair_of_[a] = pair_of_[b] = pairs_.size();
    pairs_.push_back({slot, first, second, one.axis, boundary});
    return true;
  }

  // Whether a value can be computed before another: a few operations on what is no such pair.
  bool can_be_early(NodeId id, NodeId before) const {
    std::vector<NodeId> open{id};
    for (std::size_t next = 0; next < open.size(); ++next) {
      if (open[next] < before) continue;
      const TypedNode& own = node(open[next]);
      if (pair_of_[open[next]] || open.size() > kMostEarly) return false;
      if (own.arity > 0 && !is_elementwise(own.op) && !is_view_op(own.op)) return false;
      open.insert(open.end(), own.operands.begin(), own.operands.begin() + own.arity);
    }
    return true;
  }

  // -- What they become

  NodeId joined(NodeId id, const Pair& pair) {
    const std::size_t rank = shape(id).size();
    Dims along(rank, 1);
    along[pair.axis] = shape(id)[pair.axis];
    const auto axis = static_cast<std::int64_t>(pair.axis) - static_cast<std::int64_t>(rank);
    const NodeId index =
        to_.add({Op::iota, DType::i64, 0, {}, static_cast<std::uint64_t>(axis)}, along);
    const auto number = static_cast<std::uint64_t>(pair.boundary);
    const NodeId boundary = to_.add({Op::constant, DType::i64, 0, {}, number}, {});
    const NodeId is_first = to_.add({Op::less, DType::boolean, 2, {index, boundary, 0}, 0}, along);
    const NodeId first = early(pair.first, id);
    const NodeId second = early(pair.second, id);
    Dims both = broadcast(to_.shape(first), to_.shape(second)).value();
    both = broadcast(both, along).value();
    const DType dtype = node(pair.first).dtype;
    TypedNode own = node(id);
    for (std::size_t i = 0; i < own.arity; ++i) {
      own.operands[i] = i == pair.slot
                            ? to_.add({Op::where, dtype, 3, {is_first, first, second}, 0}, both)
                            : to_.moved(own.operands[i]);
    }
    return to_.add(own, shape(id));
  }

  // What stands for a value, also before that has been walked. No deeper than kMostEarly.
  NodeId early(NodeId id, NodeId at) {
    if (id < at) return to_.moved(id);
    TypedNode own = node(id);
    for (std::size_t i = 0; i < own.arity; ++i) own.operands[i] = early(own.operands[i], at);
    return to_.add(own, shape(id));
  }

  const ShapedGraph& from_;
  GraphRewriter to_;
  std::vector<Need> needs_;
  std::vector<std::optional<std::size_t>> pair_of_;  ///< of each node, a position in `pairs_`
  std::vector<Pair> pairs_;
};

}  // namespace

ShapedGraph join_parts(const ShapedGraph& graph) {
  constexpr int kMostRounds = 16;
  ShapedGraph result = graph;
  for (int round = 0; round < kMostRounds; ++round) {
    PartJoining joining(result);
    if (!joining.changes()) break;
    ShapedGraph next = joining.run();
    result = std::move(next);
  }
  return result;
}

}  // namespace kiln::fusion
