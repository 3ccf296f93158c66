// The pass that reduces both halves of a row at once where these are computed with each other
// (passes.hpp): of a norm that is rotated, what it reduces then has the shape of what it is for,
// and one kernel computes both.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/infer/bounds.hpp"
#include "fusion/infer/sum_tree.hpp"
#include "fusion/passes/passes.hpp"

namespace kiln::fusion {
namespace {

constexpr std::size_t kMostValues = 256;  ///< of rows of one length: CostModel::most_values

class HalfReducing {
 public:
  explicit HalfReducing(const ShapedGraph& from)
      : from_(from),
        to_(from),
        users_(users_of(from.graph.nodes)),
        is_output_(from.graph.nodes.size(), false),
        chosen_(from.graph.nodes.size(), false) {
    for (const NodeId output : from.graph.outputs) is_output_[output] = true;
    if (has_bounds(from)) bounds_ = infer_bounds(from, "slice");
  }

  ShapedGraph run() {
    choose();
    if (std::ranges::find(chosen_, true) == chosen_.end()) return from_;
    std::vector<bool> halved(chosen_.size(), false);
    for (NodeId id = 0; id < chosen_.size(); ++id) {
      if (!chosen_[id]) continue;
      for (const NodeId value : made_of_row(node(id).operands[0])) halved[value] = true;
    }
    return to_.run([&](NodeId id) {
      if (chosen_[id]) return reduced(id);
      const bool shows = node(id).op == Op::slice && halved[node(id).operands[0]] &&
                         is_computed(node(id).operands[0]);
      return shows ? half_of(node(id).operands[0], *half_shown(id)) : to_.copy(id);
    });
  }

 private:
  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }
  const Dims& shape(NodeId id) const { return from_.shapes[id]; }
  std::int64_t length(NodeId id) const {
    return shape(id).empty() ? 1 : shape(id)[shape(id).size() - 1];
  }

  // ---- Which reductions

  // All reductions of what some value of a row is for, or none of them: a kernel has rows of one
  // length.
  void choose() {
    for (NodeId id = 0; id < chosen_.size(); ++id) chosen_[id] = can_be_halved(id);
    for (bool changed = true; changed;) {
      changed = false;
      for (NodeId id = 0; id < chosen_.size(); ++id) {
        if (!chosen_[id] || is_all_reduced(node(id).operands[0])) continue;
        chosen_[id] = false;
        changed = true;
      }
    }
  }

  // Whether it reduces the last axis alone, of rows that are seen in halves, as are values made of
  // them.
  bool can_be_halved(NodeId id) const {
    if (!combines(node(id))) return false;
    const NodeId source = node(id).operands[0];
    const Dims& whole = shape(source);
    const std::int64_t count = length(source);
    if (count % 2 != 0 || count < 4 || whole.size() != shape(id).size()) return false;
    for (std::size_t k = 0; k < whole.size(); ++k) {
      if ((whole[k] != shape(id)[k]) != (k + 1 == whole.size())) return false;
    }
    if (!keeps_bits(node(id), count)) return false;
    const std::vector<NodeId> values = made_of_row(source);
    if (values.size() > kMostValues ||
        !std::ranges::all_of(values, [&](NodeId value) { return can_be_sliced(value); }) ||
        !std::ranges::any_of(values, [&](NodeId value) { return is_seen_in_halves(value); })) {
      return false;
    }
    SizeSum().add(1, count).add(-static_cast<double>(count), 1).decide();
    return true;
  }

  bool can_be_sliced(NodeId id) const {
    const TypedNode& own = node(id);
    if (!bounds_.empty() && !bounds_[id].empty()) return false;
    if (!is_computed(id)) return is_array(id) && !is_packed(own.dtype);
    return own.op != Op::bitcast && info(own.op).rule != Rule::random && !is_packed(own.dtype);
  }

  static bool combines(const TypedNode& node) {
    return node.op == Op::sum || node.op == Op::mean || node.op == Op::reduce_max ||
           node.op == Op::reduce_min;
  }

  // In the tree of numerics.md. Of so many elements, a power of two, no residue has more than two,
  // and those half of the row apart are combined before any others.
  static bool keeps_bits(const TypedNode& node, std::int64_t count) {
    if (is_integer(node.dtype)) return node.op != Op::mean;
    if (!is_floating(node.dtype)) return false;
    if (node.op == Op::reduce_max || node.op == Op::reduce_min) return true;
    return count <= 2 * kLeastResidues && std::has_single_bit(static_cast<std::uint64_t>(count));
  }

  bool is_computed(NodeId id) const { return node(id).arity > 0 && is_elementwise(node(id).op); }

  // An argument, or one that is seen: what is seen of a computed value is stored anyway.
  bool is_array(NodeId id) const {
    const bool seen = is_view_op(node(id).op);
    while (is_view_op(node(id).op)) id = node(id).operands[0];
    return node(id).op == Op::input || (seen && (is_computed(id) || is_reduction(node(id).op)));
  }

  // The values with an element for each of a row that lead to one.
  std::vector<NodeId> row_of(NodeId source) const {
    std::vector<NodeId> found{source};
    std::unordered_set<NodeId> known{source};
    for (std::size_t next = 0; next < found.size() && found.size() <= kMostValues; ++next) {
      if (!is_computed(found[next])) continue;
      for (const NodeId operand : node(found[next]).inputs()) {
        if (length(operand) != 1 && known.insert(operand).second) found.push_back(operand);
      }
    }
    return found;
  }

  // What is made of those values for each element of the row, and what that is made of too; not all
  // of it where that is too much for a kernel.
  std::vector<NodeId> made_of_row(NodeId source) const {
    std::vector<NodeId> found = row_of(source);
    std::unordered_set<NodeId> known(found.begin(), found.end());
    for (std::size_t next = 0; next < found.size() && found.size() <= kMostValues; ++next) {
      for (const NodeId user : users_[found[next]]) {
        if (!is_computed(user) || known.contains(user)) continue;
        for (const NodeId value : row_of(user)) {
          if (known.insert(value).second) found.push_back(value);
        }
      }
    }
    return found;
  }

  // Which half of its operand's last axis a slice shows.
  std::optional<std::int64_t> half_shown(NodeId id) const {
    const NodeId whole = node(id).operands[0];
    const ShapeList& list = shape_list(from_.graph, node(id));
    const std::int64_t axis = list[0] < 0 ? list[0] + std::ssize(shape(whole)) : list[0];
    const std::int64_t half = length(whole) / 2;
    if (axis + 1 != std::ssize(shape(whole)) || list[3] != 1 || length(id) != half) return {};
    const std::int64_t start = list[1] == kOmitted ? 0
                               : list[1] < 0       ? list[1] + length(whole)
                                                   : list[1];
    if (start != 0 && start != half) return {};
    return start == 0 ? 0 : 1;
  }

  bool is_seen_in_halves(NodeId id) const {
    std::array<bool, 2> seen{};
    for (const NodeId user : users_[id]) {
      if (node(user).op != Op::slice) continue;
      if (const auto half = half_shown(user)) seen[static_cast<std::size_t>(*half)] = true;
    }
    return seen[0] && seen[1];
  }

  // Whether nothing needs a value with all elements of such a row but chosen reductions.
  bool is_all_reduced(NodeId source) const {
    for (const NodeId value : made_of_row(source)) {
      if (!is_computed(value)) continue;
      if (is_output_[value]) return false;
      for (const NodeId user : users_[value]) {
        const bool shows = node(user).op == Op::slice && half_shown(user).has_value();
        if (!chosen_[user] && !is_computed(user) && !shows) return false;
      }
    }
    return true;
  }

  // ---- What they become

  NodeId reduced(NodeId id) {
    const TypedNode& own = node(id);
    const NodeId source = own.operands[0];
    const DType dtype = compute_dtype(own.dtype);
    const NodeId first = to_.converted(half_of(source, 0), dtype);
    const NodeId second = to_.converted(half_of(source, 1), dtype);
    const bool adds = own.op == Op::sum || own.op == Op::mean;
    const Op op = adds ? Op::add : own.op == Op::reduce_max ? Op::maximum : Op::minimum;
    TypedNode reduction = own;
    reduction.op = adds ? Op::sum : own.op;
    reduction.dtype = dtype;
    reduction.operands[0] = to_.combined(op, first, second);
    NodeId result = to_.add(reduction, shape(id));
    if (own.op == Op::mean) {
      const double share = 1 / static_cast<double>(length(source));  // exact
      result = to_.combined(Op::mul, result, to_.number(share, dtype));
    }
    return to_.converted(result, own.dtype);
  }

  // Half of a value of a row, computed of the halves of what it is computed of.
  NodeId half_of(NodeId id, std::int64_t which) {
    if (length(id) == 1) return to_.moved(id);
    const auto known = halves_.find({id, which});
    if (known != halves_.end()) return known->second;
    const std::int64_t half = length(id) / 2;
    Dims seen = shape(id);
    seen[seen.size() - 1] = half;
    TypedNode own = node(id);
    if (is_computed(id)) {
      for (std::size_t i = 0; i < own.arity; ++i) own.operands[i] = half_of(own.operands[i], which);
    } else {
      const std::int64_t start = which * half;
      const std::uint64_t list = to_.add_list({std::ssize(seen) - 1, start, start + half, 1});
      own = {Op::slice, own.dtype, 1, {to_.moved(id)}, list};
    }
    const NodeId made = to_.add(own, seen);
    halves_[{id, which}] = made;
    return made;
  }

  const ShapedGraph& from_;
  GraphRewriter to_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> is_output_;
  std::vector<bool> chosen_;  ///< reductions
  std::vector<Ends> bounds_;  ///< of each node; none if nothing is bounded
  std::map<std::pair<NodeId, std::int64_t>, NodeId> halves_;
};

}  // namespace

ShapedGraph reduce_halves(const ShapedGraph& graph) {
  const auto slices = [](const TypedNode& node) { return node.op == Op::slice; };
  if (std::ranges::none_of(graph.graph.nodes, slices)) return graph;
  return HalfReducing(graph).run();
}

}  // namespace kiln::fusion
