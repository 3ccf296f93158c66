// The pass that computes with what is repeated in the shape in which it broadcasts (passes.hpp): of
// keys of 8 heads, reshape(stack(1, k, k, k, k), 32, n, d) * q becomes a reshape of k[:, None] *
// reshape(q, 8, 4, n, d), so that nothing is repeated in memory.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "fusion/graph/axes.hpp"
#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/indexed.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/infer/bounds.hpp"
#include "fusion/infer/iota.hpp"
#include "fusion/passes/passes.hpp"

namespace kiln::fusion {
namespace {

using Extents = std::vector<std::int64_t>;

class RepeatSpreading {
 public:
  explicit RepeatSpreading(const ShapedGraph& from)
      : from_(from),
        to_(from),
        uses_(use_counts(from.graph)),
        counts_(uses_.size(), false),
        spread_(uses_.size()) {
    if (has_bounds(from)) bounds_ = infer_bounds(from, "concat");
    for (NodeId id = 0; id < uses_.size(); ++id) {
      counts_[id] = node(id).op == Op::iota;
      if (!is_computed(id)) continue;
      for (const NodeId operand : node(id).inputs()) counts_[id] = counts_[id] || counts_[operand];
    }
  }

  ShapedGraph run() {
    return to_.run([&](NodeId id) {
      spread_[id] = spread(id);
      const bool whole = spread_[id] && !is_bounded(id) &&
                         to_.shape(spread_[id]->value) == flat(spread_[id]->splits);
      return whole ? to_.reshaped(spread_[id]->value, shape(id)) : to_.copy(id);
    });
  }

 private:
  // What each axis of a value is split into, and a new node that broadcasts to all those axes: of
  // one element along those that repeat it.
  struct Spread {
    NodeId value = 0;
    std::vector<Extents> splits;
  };
  // A value, an axis, and how often it follows itself there.
  struct Repeat {
    NodeId value = 0;
    std::size_t axis = 0;
    std::int64_t count = 0;
  };

  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }
  const Dims& shape(NodeId id) const { return from_.shapes[id]; }
  bool is_bounded(NodeId id) const { return !bounds_.empty() && !bounds_[id].empty(); }
  bool is_computed(NodeId id) const {
    const TypedNode& own = node(id);
    return own.arity > 0 && is_elementwise(own.op) && own.op != Op::bitcast &&
           info(own.op).rule != Rule::random;
  }

  static Dims flat(const std::vector<Extents>& splits) {
    Extents all;
    for (const Extents& own : splits) all.insert(all.end(), own.begin(), own.end());
    return Dims(std::span<const std::int64_t>(all));
  }

  std::optional<Spread> spread(NodeId id) {
    const TypedNode& own = node(id);
    if (element_count(shape(id)) == 0) return std::nullopt;
    if (own.op == Op::concat) return of_concat(id);
    const auto is_spread = [&](NodeId operand) { return spread_[operand].has_value(); };
    if (std::ranges::none_of(own.inputs(), is_spread)) return std::nullopt;
    if (keeps_element_order(own.op)) return of_reshape(id);
    if (own.op == Op::bound) return of_bound(id);
    if (is_computed(id)) return of_operation(id);
    const bool reduces = is_reduction(own.op) && !is_arg_reduction(own.op);
    return reduces ? of_reduction(id) : std::nullopt;
  }

  // -- Where repeats begin

  std::optional<Spread> of_concat(NodeId id) {
    const auto repeat = repeat_of(id);
    if (!repeat || is_packed(node(id).dtype)) return std::nullopt;
    repeats_[id] = *repeat;
    const Dims& once = shape(repeat->value);
    Spread made{to_.moved(repeat->value), {}};
    Extents seen;
    for (std::size_t k = 0; k < once.size(); ++k) {
      Extents& split = made.splits.emplace_back(Extents{once[k]});
      if (k == repeat->axis) {
        trace_order(once[k], 1);
        split = once[k] == 1 ? Extents{repeat->count} : Extents{repeat->count, once[k]};
        if (once[k] != 1) seen.push_back(1);
      }
      seen.push_back(once[k]);
    }
    if (seen.size() == once.size()) return made;
    if (is_bounded(id)) return std::nullopt;
    made.value = to_.reshaped(made.value, Dims(std::span<const std::int64_t>(seen)));
    return made;
  }

  std::optional<Repeat> repeat_of(NodeId id) const {
    const NodeId first = node(id).operands[0];
    const NodeId last = node(id).operands[1];
    const std::int64_t given = shape_list(from_.graph, node(id))[0];
    const auto axis = static_cast<std::size_t>(given < 0 ? given + std::ssize(shape(id)) : given);
    if (first == last) return Repeat{last, axis, 2};
    const auto known = repeats_.find(first);
    if (known == repeats_.end() || known->second.value != last || known->second.axis != axis) {
      return std::nullopt;
    }
    return Repeat{last, axis, known->second.count + 1};
  }

  // -- What is made of them

  // Axes are split as before, but for those of one element. What repeats nothing any more is seen
  // as it was written.
  std::optional<Spread> of_reshape(NodeId id) {
    const Spread& below = *spread_[node(id).operands[0]];
    const Dims whole = flat(below.splits);
    const Dims& value = to_.shape(below.value);
    if (is_bounded(id)) return std::nullopt;
    Spread made;
    Extents seen;
    std::size_t at = 0;
    for (const std::int64_t extent : shape(id)) {
      Extents split;
      std::int64_t left = extent;
      while (left != 1) {
        while (at < whole.size() && whole[at] == 1) ++at;
        if (at == whole.size()) return std::nullopt;
        trace_divides(left, whole[at]);
        if (left % whole[at] != 0) return std::nullopt;
        left /= whole[at];
        split.push_back(whole[at]);
        seen.push_back(value[at++]);
      }
      if (split.empty()) {
        split.push_back(1);
        seen.push_back(1);
      }
      made.splits.push_back(std::move(split));
    }
    const auto is_split = [](const Extents& split) { return split.size() > 1; };
    if (value == whole && std::ranges::none_of(made.splits, is_split)) return std::nullopt;
    if (value == whole && node(id).op == Op::reshape) return std::nullopt;
    made.value = to_.reshaped(below.value, Dims(std::span<const std::int64_t>(seen)));
    return made;
  }

  std::optional<Spread> of_operation(NodeId id) {
    auto splits = splits_of(id);
    if (!splits) return std::nullopt;
    TypedNode copy = node(id);
    Dims all(flat(*splits).size(), 1);
    for (std::size_t i = 0; i < copy.arity; ++i) {
      const auto operand = seen_in(node(id).operands[i], *splits);
      if (!operand) return std::nullopt;
      copy.operands[i] = *operand;
      const Dims& own = to_.shape(*operand);
      for (std::size_t k = 0; k < own.size(); ++k) {
        std::int64_t& extent = all[all.size() - own.size() + k];
        extent = std::max(extent, own[k]);
      }
    }
    return Spread{to_.add(copy, all), *std::move(splits)};
  }

  // Into what the axes of an operation are split, by its operands that are.
  std::optional<std::vector<Extents>> splits_of(NodeId id) const {
    std::vector<Extents> splits;
    for (const std::int64_t extent : shape(id)) splits.push_back({extent});
    for (const NodeId operand : node(id).inputs()) {
      if (!spread_[operand]) continue;
      const Dims& own = shape(operand);
      for (std::size_t k = 0; k < own.size(); ++k) {
        Extents& split = splits[splits.size() - own.size() + k];
        const Extents& given = spread_[operand]->splits[k];
        if (own[k] == 1 || given.size() == 1) continue;
        if (split.size() > 1 && split != given) return std::nullopt;
        split = given;
      }
    }
    return splits;
  }

  // An operand of a value whose axes are split, so that it broadcasts to all of them.
  std::optional<NodeId> seen_in(NodeId id, const std::vector<Extents>& splits) {
    const Dims& own = shape(id);
    if (own.empty()) return to_.moved(id);
    const std::size_t missing = splits.size() - own.size();
    const bool known = spread_[id].has_value();
    const Dims value = known ? to_.shape(spread_[id]->value) : Dims();
    Extents seen;
    std::size_t at = 0;  // of `value`
    for (std::size_t k = 0; k < own.size(); ++k) {
      const Extents& split = splits[missing + k];
      const std::size_t parts = known ? spread_[id]->splits[k].size() : 1;
      const bool alike = known && spread_[id]->splits[k] == split;
      const bool once = own[k] == 1 || (known && !alike && value[at] == 1);
      for (std::size_t i = 0; i < split.size(); ++i) {
        seen.push_back(once ? 1 : alike ? value[at + i] : split[i]);
      }
      at += parts;
    }
    const Dims wanted{std::span<const std::int64_t>(seen)};
    if (known) return reshaped(id, spread_[id]->value, wanted);
    if (node(id).op == Op::iota) return index(id, splits, wanted);
    if (!is_computed(id) || (uses_[id] != 1 && !counts_[id])) {
      return reshaped(id, to_.moved(id), wanted);
    }
    const auto [made, is_new] = seen_.try_emplace({id, splits});
    if (is_new) made->second = computed_in(id, splits, wanted);
    return made->second;
  }

  std::optional<NodeId> computed_in(NodeId id, const std::vector<Extents>& splits,
                                    const Dims& wanted) {
    TypedNode copy = node(id);
    for (std::size_t i = 0; i < copy.arity; ++i) {
      const auto operand = seen_in(node(id).operands[i], splits);
      if (!operand) return std::nullopt;
      copy.operands[i] = *operand;
    }
    return to_.add(copy, wanted);
  }

  // No view of what ends where data says.
  std::optional<NodeId> reshaped(NodeId old, NodeId value, const Dims& wanted) {
    if (is_bounded(old) && to_.shape(value) != wanted) return std::nullopt;
    return to_.reshaped(value, wanted);
  }

  // The position of an axis, from the end, among the axes that all are split into; nothing where it
  // is split.
  static std::optional<std::int64_t> axis_in(const std::vector<Extents>& splits,
                                             std::int64_t from_end) {
    std::int64_t axes = 0;
    for (std::int64_t k = 1; k <= from_end; ++k) {
      axes += std::ssize(splits[splits.size() - static_cast<std::size_t>(k)]);
    }
    const bool whole = splits[splits.size() - static_cast<std::size_t>(from_end)].size() == 1;
    return whole ? std::optional(-axes) : std::nullopt;
  }

  std::optional<NodeId> index(NodeId id, const std::vector<Extents>& splits, const Dims& wanted) {
    const std::int64_t axis = iota_axis(node(id));
    if (axis == kAllAxes) return std::nullopt;
    const auto moved = axis_in(splits, axis < 0 ? -axis : std::ssize(shape(id)) - axis);
    if (!moved) return std::nullopt;
    TypedNode own = node(id);
    own.payload = static_cast<std::uint64_t>(*moved);
    return to_.add(own, wanted);
  }

  std::optional<Spread> of_bound(NodeId id) {
    const auto& below = spread_[node(id).operands[0]];
    if (!below || spread_[node(id).operands[1]]) return std::nullopt;
    const std::size_t axis =
        indexed_axis(Op::bound, shape_list(from_.graph, node(id)), shape(id), "bound");
    const auto moved =
        axis_in(below->splits, std::ssize(shape(id)) - static_cast<std::int64_t>(axis));
    const auto end = seen_in(node(id).operands[1], below->splits);
    const Dims value = to_.shape(below->value);
    if (!moved || !end || value[value.size() + static_cast<std::size_t>(*moved)] == 1) {
      return std::nullopt;
    }
    TypedNode copy = node(id);
    copy.operands = {below->value, *end, 0};
    copy.payload = to_.add_list({*moved});
    return Spread{to_.add(copy, value), below->splits};
  }

  // Over axes along which nothing is repeated.
  std::optional<Spread> of_reduction(NodeId id) {
    const Spread& below = *spread_[node(id).operands[0]];
    const Dims& from = shape(node(id).operands[0]);
    const std::vector<bool> reduced = resolve_axes(node(id).payload, from.size(), "concat");
    Dims value = to_.shape(below.value);
    Spread made = below;
    TypedNode copy = node(id);
    copy.payload = 0;
    std::size_t at = 0;
    for (std::size_t k = 0; k < from.size(); ++k) {
      for (std::int64_t& extent : made.splits[k]) {
        if (reduced[k]) {
          if (value[at] != extent) return std::nullopt;
          copy.payload |= AxisSet{1} << at;
          extent = value[at] = 1;
        }
        ++at;
      }
    }
    copy.operands = {below.value};
    made.value = to_.add(copy, value);
    return made;
  }

  const ShapedGraph& from_;
  GraphRewriter to_;
  std::vector<std::size_t> uses_;
  std::vector<bool> counts_;  ///< made of an index
  std::vector<std::optional<Spread>> spread_;
  std::map<NodeId, Repeat> repeats_;  ///< of concatenations
  std::map<std::pair<NodeId, std::vector<Extents>>, std::optional<NodeId>>
      seen_;                  ///< what is computed where axes are split so
  std::vector<Ends> bounds_;  ///< of each node; none if nothing is bounded
};

// Whether something follows itself.
bool repeats(const TypedNode& node) {
  return node.op == Op::concat && node.operands[0] == node.operands[1];
}

}  // namespace

ShapedGraph spread_repeats(const ShapedGraph& graph) {
  return std::ranges::any_of(graph.graph.nodes, repeats) ? RepeatSpreading(graph).run() : graph;
}

}  // namespace kiln::fusion
