// The pass that adds up what is made of groups in the shape of these (passes.hpp): of
// sum(reshape(q * s, n, -1) * x, -1) with q [n, groups, 64] and s [n, groups, 1] the terms are
// q * s * reshape(x, groups, 64), so that no matrix of q * s is stored.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "fusion/graph/axes.hpp"
#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/reshape.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/infer/bounds.hpp"
#include "fusion/passes/passes.hpp"

namespace kiln::fusion {
namespace {

constexpr std::size_t kMostGrouped =
    16;  ///< operations of the terms, and of what is made of groups

// What each axis of a shape is split into.
using Parts = std::vector<std::vector<std::int64_t>>;

bool computes_terms(const TypedNode& node) { return node.arity > 0 && is_elementwise(node.op); }

// The extents of `finer` that each axis of `whole` is made of; nothing where they are not.
std::optional<Parts> parts_of_axes(const Dims& whole, const Dims& finer) {
  Parts parts;
  std::size_t k = 0;
  for (const std::int64_t extent : whole) {
    std::vector<std::int64_t> own;
    std::int64_t product = 1;
    while (true) {
      while (k < finer.size() && finer[k] == 1) ++k;
      trace_order(product, extent);
      if (product >= extent || k == finer.size()) break;
      own.push_back(finer[k]);
      product *= finer[k++];
    }
    if (product != extent) return std::nullopt;
    if (own.empty()) own.push_back(1);
    parts.push_back(std::move(own));
  }
  return k == finer.size() ? std::optional(parts) : std::nullopt;
}

class TermGrouping {
 public:
  explicit TermGrouping(const ShapedGraph& from)
      : from_(from),
        to_(from),
        users_(users_of(from.graph.nodes)),
        is_output_(users_.size(), false) {
    for (const NodeId output : from.graph.outputs) is_output_[output] = true;
  }

  ShapedGraph run() {
    if (has_bounds(from_)) bounds_ = infer_bounds(from_, "sum");
    for (NodeId id = 0; id < users_.size(); ++id) {
      if (is_reduction(node(id).op) && !is_arg_reduction(node(id).op)) choose(id);
    }
    if (groups_.empty()) return from_;
    return to_.run([&](NodeId id) {
      const auto found = groups_.find(id);
      return found == groups_.end() ? to_.copy(id) : reduce(id, found->second);
    });
  }

 private:
  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }
  const Dims& shape(NodeId id) const { return from_.shapes[id]; }
  NodeId terms_of(NodeId reduction) const { return node(reduction).operands[0]; }

  // -- Which reductions

  void choose(NodeId reduction) {
    const NodeId terms = terms_of(reduction);
    const Dims& whole = shape(terms);
    const bool ends = !bounds_.empty() && !bounds_[terms].empty();
    if (ends || std::ranges::find(whole, 0) != whole.end()) return;
    const std::set<NodeId> operations = operations_of(terms);
    std::optional<NodeId> groups;
    for (const NodeId id : operations) {
      for (const NodeId operand : node(id).inputs()) {
        if (operations.contains(operand) || !shows_groups(operand)) continue;
        if (!groups || element_count(shape(*groups)) < element_count(shape(operand))) {
          groups = operand;
        }
      }
    }
    if (!groups) return;
    std::optional<Parts> parts = parts_of(*groups, whole);
    if (!parts || !splits_reduced(reduction, *parts)) return;
    const Dims finer = joined(*parts);
    for (const NodeId id : operations) {
      for (const NodeId operand : node(id).inputs()) {
        if (!reshaped_operand(shape(operand), whole, finer)) {
          if (operand == *groups) continue;
          return;
        }
      }
    }
    groups_.emplace(reduction, Grouped{*groups, operations, std::move(*parts)});
  }

  // The operations that nothing but a reduction needs; none where there are many.
  std::set<NodeId> operations_of(NodeId terms) const {
    std::set<NodeId> operations;
    std::vector<NodeId> open{terms};
    while (!open.empty()) {
      const NodeId at = open.back();
      open.pop_back();
      const bool own = computes_terms(node(at)) && users_[at].size() == 1 && !is_output_[at];
      if (!own || !operations.insert(at).second) continue;
      if (operations.size() > kMostGrouped) return {};
      const auto inputs = node(at).inputs();
      open.insert(open.end(), inputs.begin(), inputs.end());
    }
    return operations;
  }

  // Whether a value is a reshape, which nothing else needs, of what a few operations make of
  // arguments, numbers and views.
  bool shows_groups(NodeId id) const {
    if (node(id).op != Op::reshape || users_[id].size() != 1 || is_output_[id]) return false;
    const NodeId value = node(id).operands[0];
    if (!computes_terms(node(value)) || users_[value].size() != 1 || is_output_[value])
      return false;
    std::set<NodeId> operations;
    std::vector<NodeId> open{value};
    while (!open.empty()) {
      const NodeId at = open.back();
      open.pop_back();
      const Op op = node(at).op;
      if (op == Op::input || op == Op::scalar || op == Op::constant || is_view_op(op)) continue;
      if (!computes_terms(node(at))) return false;
      if (!operations.insert(at).second) continue;
      if (operations.size() > kMostGrouped) return false;
      const auto inputs = node(at).inputs();
      open.insert(open.end(), inputs.begin(), inputs.end());
    }
    return true;
  }

  // The axes of terms, split as those of the groups behind a reshape are.
  std::optional<Parts> parts_of(NodeId groups, const Dims& whole) const {
    const Dims& seen = shape(groups);
    const auto own = parts_of_axes(seen, shape(node(groups).operands[0]));
    if (!own) return std::nullopt;
    Parts parts;
    const std::size_t missing = whole.size() - seen.size();
    for (std::size_t k = 0; k < whole.size(); ++k) {
      const bool repeats = k < missing || seen[k - missing] != whole[k];
      parts.push_back(repeats ? std::vector{whole[k]} : (*own)[k - missing]);
    }
    return parts;
  }

  // Whether one of the axes that are split is reduced.
  bool splits_reduced(NodeId reduction, const Parts& parts) const {
    const std::size_t rank = parts.size();
    for (std::size_t k = 0; k < rank; ++k) {
      if (parts[k].size() > 1 && shape(reduction)[k] != shape(terms_of(reduction))[k]) return true;
    }
    return false;
  }

  static Dims joined(const Parts& parts) {
    std::vector<std::int64_t> all;
    for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
    return Dims(std::span<const std::int64_t>(all));
  }

  // -- How

  struct Grouped {
    NodeId groups;
    std::set<NodeId> operations;
    Parts parts;
  };

  NodeId reduce(NodeId reduction, const Grouped& own) {
    const Dims& whole = shape(terms_of(reduction));
    const Dims finer = joined(own.parts);
    std::map<NodeId, NodeId> made;
    for (const NodeId id : own.operations) {  // operands first
      TypedNode copy = node(id);
      Dims result;
      for (std::size_t i = 0; i < copy.arity; ++i) {
        const NodeId operand = copy.operands[i];
        const auto known = made.find(operand);
        copy.operands[i] = known != made.end() ? known->second : seen(operand, own, whole, finer);
        result = broadcast(result, to_.shape(copy.operands[i])).value();
      }
      made[id] = to_.add(copy, result);
    }
    TypedNode sum = node(reduction);
    sum.operands[0] = made.at(terms_of(reduction));
    std::vector<int> axes;
    std::vector<std::int64_t> kept;
    for (std::size_t k = 0; k < own.parts.size(); ++k) {
      for (const std::int64_t extent : own.parts[k]) {
        const bool reduced = shape(reduction)[k] != whole[k];
        if (reduced) axes.push_back(static_cast<int>(kept.size()) - static_cast<int>(finer.size()));
        kept.push_back(reduced ? 1 : extent);
      }
    }
    sum.payload = axis_set(axes, "sum");
    return to_.reshaped(to_.add(sum, Dims(std::span<const std::int64_t>(kept))), shape(reduction));
  }

  // An operand of the terms in their new shape.
  NodeId seen(NodeId operand, const Grouped& own, const Dims& whole, const Dims& finer) {
    if (shape(operand).empty()) return to_.moved(operand);
    if (operand == own.groups) {
      std::vector<std::int64_t> wanted;
      const std::size_t missing = whole.size() - shape(operand).size();
      for (std::size_t k = missing; k < own.parts.size(); ++k) {
        const bool repeats = shape(operand)[k - missing] != whole[k];
        for (const std::int64_t extent : own.parts[k]) wanted.push_back(repeats ? 1 : extent);
      }
      return to_.reshaped(to_.moved(node(operand).operands[0]),
                          Dims(std::span<const std::int64_t>(wanted)));
    }
    return to_.reshaped(to_.moved(operand), reshaped_operand(shape(operand), whole, finer).value());
  }

  const ShapedGraph& from_;
  GraphRewriter to_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> is_output_;
  std::vector<Ends> bounds_;          ///< of each node; none if nothing is bounded
  std::map<NodeId, Grouped> groups_;  ///< of reductions
};

}  // namespace

ShapedGraph group_terms(const ShapedGraph& graph) { return TermGrouping(graph).run(); }

}  // namespace kiln::fusion
