// The pass that reduces both halves of a row at once where these are computed with each other
// (passes.hpp): of a norm that is rotated, what it reduces then has the shape of what it is for,
// and one kernel computes both. Halves are those of neighbours, or the elements of even and of odd
// numbers, which pairs are of.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
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
        chosen_(from.graph.nodes.size(), Halves::none) {
    for (const NodeId output : from.graph.outputs) is_output_[output] = true;
    if (has_bounds(from)) bounds_ = infer_bounds(from, "slice");
  }

  ShapedGraph run() {
    choose();
    const auto is_chosen = [](Halves halves) { return halves != Halves::none; };
    if (std::ranges::none_of(chosen_, is_chosen)) return from_;
    std::vector<Halves> halved(chosen_.size(), Halves::none);
    for (NodeId id = 0; id < chosen_.size(); ++id) {
      if (!is_chosen(chosen_[id])) continue;
      for (const NodeId value : made_of_row(node(id).operands[0])) halved[value] = chosen_[id];
    }
    return to_.run([&](NodeId id) {
      if (is_chosen(chosen_[id])) return reduced(id);
      const std::optional<Half> shown = half_shown(id);
      const bool shows = shown && shown->of == halved[shown->row] && is_computed(shown->row);
      if (shows) return to_.reshaped(half_of(shown->row, shown->of, shown->which), shape(id));
      if (!keeps_element_order(node(id).op)) return to_.copy(id);
      return to_.reshaped(to_.moved(node(id).operands[0]), shape(id));
    });
  }

 private:
  enum class Halves { none, neighbours, alternate };
  struct Half {
    NodeId row = 0;  ///< that it is a half of
    Halves of = Halves::none;
    std::int64_t which = 0;  ///< 0 or 1
  };

  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }
  const Dims& shape(NodeId id) const { return from_.shapes[id]; }
  std::int64_t length(NodeId id) const {
    return shape(id).empty() ? 1 : shape(id)[shape(id).size() - 1];
  }

  // ---- Which reductions

  // All reductions of what some value of a row is for, or none of them: a kernel has rows of one
  // length.
  void choose() {
    for (NodeId id = 0; id < chosen_.size(); ++id) chosen_[id] = halves_to_reduce(id);
    for (bool changed = true; changed;) {
      changed = false;
      for (NodeId id = 0; id < chosen_.size(); ++id) {
        const Halves halves = chosen_[id];
        if (halves == Halves::none || is_all_reduced(node(id).operands[0], halves)) continue;
        chosen_[id] = Halves::none;
        changed = true;
      }
    }
  }

  // If it reduces the last axis alone, of rows that are seen in halves, or values made of them:
  // these halves.
  Halves halves_to_reduce(NodeId id) const {
    if (!combines(node(id))) return Halves::none;
    const NodeId source = node(id).operands[0];
    const Dims& whole = shape(source);
    const std::int64_t count = length(source);
    if (count % 2 != 0 || count < 4 || whole.size() != shape(id).size()) return Halves::none;
    for (std::size_t k = 0; k < whole.size(); ++k) {
      if ((whole[k] != shape(id)[k]) != (k + 1 == whole.size())) return Halves::none;
    }
    const std::vector<NodeId> values = made_of_row(source);
    if (values.size() > kMostValues ||
        !std::ranges::all_of(values, [&](NodeId value) { return can_be_sliced(value); })) {
      return Halves::none;
    }
    for (const Halves halves : {Halves::neighbours, Halves::alternate}) {
      const auto is_seen = [&](NodeId value) { return is_seen_in(halves, value); };
      if (!keeps_bits(node(id), count, halves) || std::ranges::none_of(values, is_seen)) continue;
      SizeSum().add(1, count).add(-static_cast<double>(count), 1).decide();
      return halves;
    }
    return Halves::none;
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

  // In the tree of numerics.md. Of so many elements no residue has more than two. Those half of a
  // row apart, a power of two, are combined before any others; what those of even numbers give and
  // what those of odd numbers give after all others.
  static bool keeps_bits(const TypedNode& node, std::int64_t count, Halves halves) {
    if (is_integer(node.dtype)) return node.op != Op::mean;
    if (!is_floating(node.dtype)) return false;
    if (node.op == Op::reduce_max || node.op == Op::reduce_min) return true;
    const bool is_power = std::has_single_bit(static_cast<std::uint64_t>(count));
    const bool any = halves == Halves::alternate && node.op == Op::sum;
    return count <= 2 * kLeastResidues && (is_power || any);
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

  // What a slice shows, if that is half of a row: of its operand, or of one that its operand has
  // the pairs of.
  std::optional<Half> half_shown(NodeId id) const {
    if (node(id).op != Op::slice) return {};
    const NodeId whole = node(id).operands[0];
    const ShapeList& list = shape_list(from_.graph, node(id));
    const std::int64_t axis = list[0] < 0 ? list[0] + std::ssize(shape(whole)) : list[0];
    const std::int64_t half = length(whole) / 2;
    if (axis + 1 != std::ssize(shape(whole)) || length(whole) % 2 != 0 || length(id) != half)
      return {};
    if (list[3] < 0) return {};
    const std::int64_t given = list[1] == kOmitted ? 0 : list[1];
    const std::int64_t start = std::max<std::int64_t>(given < 0 ? given + 2 * half : given, 0);
    if (half == 1 && shows_pairs(whole)) {
      return Half{node(whole).operands[0], Halves::alternate, start};
    }
    if (list[3] == 2 && start < 2) return Half{whole, Halves::alternate, start};
    if (list[3] != 1 || (start != 0 && start != half)) return {};
    return Half{whole, Halves::neighbours, start == 0 ? 0 : 1};
  }

  bool shows_pairs(NodeId id) const {
    if (!keeps_element_order(node(id).op) || shape(id).size() < 2) return false;
    return shape(id)[shape(id).size() - 2] * 2 == length(node(id).operands[0]);
  }

  // Whether what reads a value shows such halves alone.
  bool shows_halves(NodeId user, Halves halves) const {
    if (const auto half = half_shown(user)) return half->of == halves;
    return halves == Halves::alternate && shows_pairs(user) && !is_output_[user] &&
           std::ranges::all_of(users_[user], [&](NodeId next) {
             const auto half = half_shown(next);
             return half && half->of == halves && half->row == node(user).operands[0];
           });
  }

  bool is_seen_in(Halves halves, NodeId id) const {
    std::array<bool, 2> seen{};
    const auto see = [&](NodeId user) {
      const auto half = half_shown(user);
      if (half && half->row == id && half->of == halves)
        seen[static_cast<std::size_t>(half->which)] = true;
    };
    for (const NodeId user : users_[id]) {
      see(user);
      if (keeps_element_order(node(user).op)) std::ranges::for_each(users_[user], see);
    }
    return seen[0] && seen[1];
  }

  // Whether nothing needs a value with all elements of such a row but chosen reductions.
  bool is_all_reduced(NodeId source, Halves halves) const {
    for (const NodeId value : made_of_row(source)) {
      if (!is_computed(value)) continue;
      if (is_output_[value]) return false;
      for (const NodeId user : users_[value]) {
        const bool reduces = chosen_[user] == halves;
        if (!reduces && !is_computed(user) && !shows_halves(user, halves)) return false;
      }
    }
    return true;
  }

  // ---- What they become

  NodeId reduced(NodeId id) {
    const TypedNode& own = node(id);
    const NodeId source = own.operands[0];
    const DType dtype = compute_dtype(own.dtype);
    const Halves halves = chosen_[id];
    const NodeId first = to_.converted(half_of(source, halves, 0), dtype);
    const NodeId second = to_.converted(half_of(source, halves, 1), dtype);
    const bool adds = own.op == Op::sum || own.op == Op::mean;
    const Op op = adds ? Op::add : own.op == Op::reduce_max ? Op::maximum : Op::minimum;
    TypedNode reduction = own;
    reduction.op = adds ? Op::sum : own.op;
    reduction.dtype = dtype;
    const auto reduce = [&](NodeId terms) {
      reduction.operands[0] = terms;
      return to_.add(reduction, shape(id));
    };
    const bool apart = halves == Halves::alternate && adds && !is_integer(dtype);
    NodeId result = apart ? to_.combined(op, reduce(first), reduce(second))
                          : reduce(to_.combined(op, first, second));
    if (own.op == Op::mean) {
      const double share = 1 / static_cast<double>(length(source));  // exact
      result = to_.combined(Op::mul, result, to_.number(share, dtype));
    }
    return to_.converted(result, own.dtype);
  }

  // Half of a value of a row, computed of the halves of what it is computed of.
  NodeId half_of(NodeId id, Halves halves, std::int64_t which) {
    if (length(id) == 1) return to_.moved(id);
    const auto known = halves_.find({id, halves, which});
    if (known != halves_.end()) return known->second;
    const std::int64_t half = length(id) / 2;
    Dims seen = shape(id);
    seen[seen.size() - 1] = half;
    TypedNode own = node(id);
    if (is_computed(id)) {
      for (std::size_t i = 0; i < own.arity; ++i) {
        own.operands[i] = half_of(own.operands[i], halves, which);
      }
    } else {
      const std::int64_t axis = std::ssize(seen) - 1;
      const std::int64_t start = which * half;
      const bool alternate = halves == Halves::alternate;
      const std::uint64_t list =
          to_.add_list(alternate ? std::vector{axis, which, kOmitted, std::int64_t{2}}
                                 : std::vector{axis, start, start + half, std::int64_t{1}});
      own = {Op::slice, own.dtype, 1, {to_.moved(id)}, list};
    }
    const NodeId made = to_.add(own, seen);
    halves_[{id, halves, which}] = made;
    return made;
  }

  const ShapedGraph& from_;
  GraphRewriter to_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> is_output_;
  std::vector<Halves> chosen_;  ///< of reductions
  std::vector<Ends> bounds_;    ///< of each node; none if nothing is bounded
  std::map<std::tuple<NodeId, Halves, std::int64_t>, NodeId> halves_;
};

}  // namespace

ShapedGraph reduce_halves(const ShapedGraph& graph) {
  const auto slices = [](const TypedNode& node) { return node.op == Op::slice; };
  if (std::ranges::none_of(graph.graph.nodes, slices)) return graph;
  return HalfReducing(graph).run();
}

}  // namespace kiln::fusion
