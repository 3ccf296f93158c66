// The pass that computes what is concatenated part by part (passes.hpp): concat(-b, a) * s + x * c
// with a = x[:n] and b = x[n:] becomes concat(-b * s[:n] + a * c[:n], a * s[n:] + b * c[n:]), whose
// parts are computed by the kernel that computes x.
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/reshape.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/infer/bounds.hpp"
#include "fusion/passes/passes.hpp"

namespace kiln::fusion {
namespace {

class ConcatSplitting {
 public:
  explicit ConcatSplitting(const ShapedGraph& from)
      : from_(from), to_(from), users_(users_of(from.graph.nodes)), uses_(use_counts(from.graph)) {}

  ShapedGraph run() {
    if (has_bounds(from_)) bounds_ = infer_bounds(from_, "concat");
    return to_.run([&](NodeId id) {
      if (node(id).op == Op::slice) seen_.insert(to_.moved(node(id).operands[0]));
      const std::optional<std::size_t> concat = operand_to_split(id);
      if (concat) return split(to_.moved_node(id), shape(id), *concat);
      const std::optional<std::size_t> seen = reshaped_to_split(id);
      return seen ? split_reshaped(id, *seen) : to_.copy(id);
    });
  }

 private:
  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }
  const Dims& shape(NodeId id) const { return from_.shapes[id]; }

  // The operand that is concatenated of computed values, for this operation alone.
  std::optional<std::size_t> operand_to_split(NodeId id) const {
    const TypedNode& own = node(id);
    if (!can_be_split(id)) return {};
    for (std::size_t i = 0; i < own.arity; ++i) {
      const NodeId operand = own.operands[i];
      const NodeId made = to_.moved(operand);
      if (to_.node(made).op != Op::concat || uses_[operand] != 1) continue;
      if (shape(operand) == shape(id) && is_computed_of_parts(made)) return i;
    }
    return {};
  }

  bool can_be_split(NodeId id) const {
    const TypedNode& own = node(id);
    if (own.arity == 0 || !is_elementwise(own.op) || own.op == Op::bitcast) return false;
    // Parts of packed numbers would share a byte.
    const auto packed = [&](NodeId value) { return is_packed(node(value).dtype); };
    if (packed(id) || std::ranges::any_of(own.inputs(), packed)) return false;
    if (!bounds_.empty() && !bounds_[id].empty()) return false;
    const auto reduces = [&](NodeId user) { return has_axes(node(user).op); };
    return std::ranges::none_of(users_[id], reduces);
  }

  // The operand that is a reshape of such a concatenation, in whose shape the others can be
  // computed or seen. Operations of one operand are left to what stores the parts.
  std::optional<std::size_t> reshaped_to_split(NodeId id) const {
    if (!can_be_split(id) || (node(id).arity == 1 && !is_computed_with(id))) return {};
    for (std::size_t i = 0; i < node(id).arity; ++i) {
      const NodeId operand = node(id).operands[i];
      const std::optional<NodeId> concat = reshaped_concat(operand);
      const bool splits = concat && shape(operand) == shape(id) && is_computed_of_parts(*concat);
      if (splits && can_be_reshaped(id, to_.shape(*concat), i)) return i;
    }
    return {};
  }

  bool is_computed_with(NodeId id) const {
    return uses_[id] == 1 && std::ranges::any_of(users_[id], [&](NodeId user) {
             return node(user).arity > 1 && shape(user) == shape(id) && can_be_split(user);
           });
  }

  bool can_be_reshaped(NodeId id, const Dims& wanted, std::size_t but) const {
    for (std::size_t i = 0; i < node(id).arity; ++i) {
      const Dims& own = shape(node(id).operands[i]);
      if (i != but && !own.empty() && !reshaped_operand(own, shape(id), wanted)) return false;
    }
    return true;
  }

  // What is computed in one shape, a new node, computed in another one, down to what has no such
  // shape: each once, as what is made of it needs it.
  NodeId reshaped(NodeId id, const Dims& from, const Dims& to) {
    const Dims own = to_.shape(id);
    if (own.empty()) return id;
    InShape place{id, {from.begin(), from.end()}, {to.begin(), to.end()}};
    const auto known = in_shape_.find(place);
    if (known != in_shape_.end()) return known->second;
    const std::optional<Dims> wanted = reshaped_operand(own, from, to);
    TypedNode copy = to_.node(id);
    bool computed = copy.arity > 0 && is_elementwise(copy.op) && copy.op != Op::bitcast;
    for (std::size_t i = 0; computed && i < copy.arity; ++i) {
      const Dims& operand = to_.shape(copy.operands[i]);
      computed = operand.empty() || reshaped_operand(operand, from, to).has_value();
    }
    for (std::size_t i = 0; computed && i < copy.arity; ++i) {
      copy.operands[i] = reshaped(copy.operands[i], from, to);
    }
    const NodeId made = computed ? to_.add(copy, *wanted) : to_.reshaped(id, *wanted);
    in_shape_[std::move(place)] = made;
    return made;
  }

  // The concatenation, a new node, that a value is a reshape of, for one operation alone.
  std::optional<NodeId> reshaped_concat(NodeId id) const {
    NodeId at = id;
    while (keeps_element_order(node(at).op) && uses_[at] == 1) at = node(at).operands[0];
    if (uses_[at] != 1) return {};
    const auto split = reshaped_.find(at);
    if (split != reshaped_.end()) return split->second;
    const bool known = at != id && to_.node(to_.moved(at)).op == Op::concat;
    return known ? std::optional(to_.moved(at)) : std::nullopt;
  }

  // Whether kernels compute all parts of a concatenation, none of which is without elements: beside
  // one of one element, sliced() would take their axis for one that is repeated.
  bool is_computed_of_parts(NodeId made) const {
    std::vector<NodeId> open{made};
    while (!open.empty()) {
      const NodeId at = open.back();
      open.pop_back();
      const TypedNode& own = to_.node(at);
      if (element_count(to_.shape(at)) == 0) return false;
      if (own.op == Op::concat) {
        open.push_back(own.operands[0]);
        open.push_back(own.operands[1]);
      } else if (is_view_op(own.op)) {
        open.push_back(own.operands[0]);
      } else if (own.arity == 0 || !(is_elementwise(own.op) || is_reduction(own.op))) {
        return false;
      }
    }
    return true;
  }

  NodeId split_reshaped(NodeId id, std::size_t which) {
    TypedNode own = to_.moved_node(id);
    const NodeId concat = *reshaped_concat(node(id).operands[which]);
    const Dims whole = to_.shape(concat);
    for (std::size_t i = 0; i < own.arity; ++i) {
      own.operands[i] = i == which ? concat : reshaped(own.operands[i], shape(id), whole);
    }
    const NodeId made = split(own, whole, which);
    reshaped_[id] = made;
    const std::uint64_t list = to_.add_list({shape(id).begin(), shape(id).end()});
    return to_.add({Op::reshape, own.dtype, 1, {made}, list}, shape(id));
  }

  NodeId split(const TypedNode& own, const Dims& whole, std::size_t which) {
    const TypedNode concat = to_.node(own.operands[which]);
    const std::size_t axis = axis_of(concat);
    const std::int64_t first = to_.shape(concat.operands[0])[axis];
    const std::int64_t end = whole[axis];
    const auto part = [&](std::int64_t start, std::int64_t stop) {
      TypedNode copy = own;
      for (std::size_t i = 0; i < copy.arity; ++i) {
        copy.operands[i] = sliced(own.operands[i], whole.size() - axis, start, stop);
      }
      Dims own_shape = whole;
      own_shape[axis] = stop - start;
      return to_.add(copy, own_shape);
    };
    TypedNode joined = concat;
    joined.dtype = own.dtype;
    joined.operands = {part(0, first), part(first, end), 0};
    return to_.add(joined, whole);
  }

  std::size_t axis_of(const TypedNode& concat) const {
    const std::int64_t axis = shape_list(to_.graph(), concat)[0];
    const std::size_t rank = to_.shape(concat.operands[0]).size();
    return static_cast<std::size_t>(axis < 0 ? axis + static_cast<std::int64_t>(rank) : axis);
  }

  // Elements of a new node along an axis, which is counted from the end, as far as the node has it:
  // computed of those of what it is computed of, unless slices of it are read elsewhere: what is
  // seen in slices alone is never stored whole. The recursion is as deep as an expression without
  // views.
  NodeId sliced(NodeId id, std::size_t from_end, std::int64_t start, std::int64_t stop) {
    const Dims whole = to_.shape(id);
    if (whole.size() < from_end || whole[whole.size() - from_end] == 1) return id;
    const std::size_t axis = whole.size() - from_end;
    if (start == 0 && stop == whole[axis]) return id;
    const auto known = parts_.find({id, from_end, start, stop});
    if (known != parts_.end()) return known->second;
    TypedNode copy = to_.node(id);
    Dims seen = whole;
    seen[axis] = stop - start;
    NodeId made = 0;
    if (copy.arity > 0 && is_elementwise(copy.op) && copy.op != Op::bitcast &&
        !seen_.contains(id)) {
      for (std::size_t i = 0; i < copy.arity; ++i) {
        copy.operands[i] = sliced(copy.operands[i], from_end, start, stop);
      }
      made = to_.add(copy, seen);
    } else if (const auto part = whole_part(copy, axis, start, stop)) {
      made = *part;
    } else {
      const std::uint64_t list = to_.add_list({static_cast<std::int64_t>(axis), start, stop, 1});
      made = to_.add({Op::slice, copy.dtype, 1, {id}, list}, seen);
    }
    parts_[{id, from_end, start, stop}] = made;
    return made;
  }

  // The operand of a concatenation that has exactly those elements.
  std::optional<NodeId> whole_part(const TypedNode& concat, std::size_t axis, std::int64_t start,
                                   std::int64_t stop) const {
    if (concat.op != Op::concat || axis_of(concat) != axis) return {};
    const std::int64_t first = to_.shape(concat.operands[0])[axis];
    const std::int64_t second = to_.shape(concat.operands[1])[axis];
    if (start == 0 && stop == first) return concat.operands[0];
    if (start == first && stop == first + second) return concat.operands[1];
    return {};
  }

  using Part = std::tuple<NodeId, std::size_t, std::int64_t, std::int64_t>;
  using InShape = std::tuple<NodeId, ShapeList, ShapeList>;

  const ShapedGraph& from_;
  GraphRewriter to_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<std::size_t> uses_;
  std::vector<Ends> bounds_;            ///< of each node; none if nothing is bounded
  std::map<Part, NodeId> parts_;        ///< of new nodes
  std::unordered_set<NodeId> seen_;     ///< new nodes of which there are slices
  std::map<InShape, NodeId> in_shape_;  ///< what is computed in another shape, new nodes
  std::map<NodeId, NodeId> reshaped_;   ///< of what was split behind a reshape, the concatenation
};

}  // namespace

ShapedGraph split_concats(const ShapedGraph& graph) {
  const auto concatenates = [](const TypedNode& node) { return node.op == Op::concat; };
  if (std::ranges::none_of(graph.graph.nodes, concatenates)) return graph;
  return ConcatSplitting(graph).run();
}

}  // namespace kiln::fusion
