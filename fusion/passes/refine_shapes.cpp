// The pass that computes what stands before and after a reshape in one shape (passes.hpp): both
// shapes become the coarsest one that splits their axes alike, so that nothing is between what a
// reduction gives and what is computed of it. Of a group norm, [n,32,6272] and [n,64,56,56] are
// [n,32,2,56,56] both.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "fusion/graph/axes.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/passes/passes.hpp"

namespace kiln::fusion {
namespace {

// A shape, and which axes of a finer one each of its axes is: from starts[k] to starts[k + 1].
struct Splitting {
  Dims shape;
  std::vector<std::size_t> starts;
};

// Two shapes and the coarsest one that splits both.
struct Refinement {
  std::vector<std::int64_t> shape;
  Splitting before;
  Splitting after;
};

// Nothing where an axis of one would have to end within an axis of the other. Axes of one element
// are none of the finer shape.
std::optional<Refinement> refinement(const Dims& before, const Dims& after) {
  Refinement result{{}, {before, {}}, {after, {}}};
  std::size_t i = 0;
  std::size_t k = 0;
  std::int64_t a = 1;  // what is left of before[i - 1] and of after[k - 1]
  std::int64_t b = 1;
  while (true) {
    while (a == 1 && i < before.size()) {
      result.before.starts.push_back(result.shape.size());
      a = before[i++];
    }
    while (b == 1 && k < after.size()) {
      result.after.starts.push_back(result.shape.size());
      b = after[k++];
    }
    if (a == 1 && b == 1) break;
    trace_order(a, b);
    const std::int64_t least = std::min(a, b);
    trace_divides(std::max(a, b), least);
    if (least == 1 || std::max(a, b) % least != 0) return std::nullopt;
    result.shape.push_back(least);
    a /= least;
    b /= least;
  }
  result.before.starts.push_back(result.shape.size());
  result.after.starts.push_back(result.shape.size());
  return result;
}

// Whether values of shape `own` broadcast to `whole` without an axis more.
bool lies_in(const Dims& own, const Dims& whole) {
  if (own.size() > whole.size()) return false;
  const std::size_t missing = whole.size() - own.size();
  for (std::size_t k = 0; k < own.size(); ++k) {
    if (own[k] != 1 && own[k] != whole[missing + k]) return false;
  }
  return true;
}

Dims refined_shape(const Dims& own, const Splitting& splitting,
                   const std::vector<std::int64_t>& finer) {
  if (own.empty()) return own;
  Dims result(finer.size(), 1);
  const std::size_t missing = splitting.shape.size() - own.size();
  for (std::size_t k = 0; k < own.size(); ++k) {
    if (own[k] == 1) continue;
    for (std::size_t at = splitting.starts[missing + k]; at < splitting.starts[missing + k + 1];
         ++at) {
      result[at] = finer[at];
    }
  }
  return result;
}

bool computes(const TypedNode& node) {
  return (node.arity > 0 && is_elementwise(node.op)) || is_reduction(node.op);
}

class ShapeRefining {
 public:
  explicit ShapeRefining(const ShapedGraph& from)
      : from_(from), to_(from), users_(users_of(from.graph.nodes)), side_(users_.size(), kOutside) {
    for (NodeId id = 0; id < side_.size() && !refinement_; ++id) choose(id);
  }

  bool changed() const { return refinement_.has_value(); }

  ShapedGraph run() {
    refined_.resize(side_.size());
    return to_.run([&](NodeId id) { return side_[id] == kOutside ? to_.copy(id) : compute(id); });
  }

 private:
  static constexpr signed char kOutside = -1;
  static constexpr signed char kBefore = 0;
  static constexpr signed char kAfter = 1;

  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }
  const Dims& shape(NodeId id) const { return from_.shapes[id]; }

  // -- Which values

  void choose(NodeId view) {
    if (!keeps_element_order(node(view).op)) return;
    const NodeId value = node(view).operands[0];
    const bool is_read =
        std::ranges::any_of(users_[view], [&](NodeId user) { return computes(node(user)); });
    if (!is_read || !waits_for_reduction(value)) return;
    if (std::ranges::find(shape(value), 0) != shape(value).end()) return;
    refinement_ = refinement(shape(value), shape(view));
    if (refinement_ && refinement_->shape.size() <= kMostAxes && spread(value, kBefore) &&
        spread(view, kAfter)) {
      return;
    }
    refinement_.reset();
    std::ranges::fill(side_, kOutside);
  }

  // Whether a value is computed, element by element, of what a reduction over its shape gives.
  bool waits_for_reduction(NodeId value) const {
    if (is_reduction(node(value).op) || !computes(node(value))) return false;
    std::vector<bool> known(value + 1, false);
    std::vector<NodeId> open{value};
    while (!open.empty()) {
      const NodeId at = open.back();
      open.pop_back();
      if (is_reduction(node(at).op) && shape(node(at).operands[0]) == shape(value)) return true;
      for (const NodeId operand : node(at).inputs()) {
        if (known[operand] || !computes(node(operand))) continue;
        known[operand] = true;
        open.push_back(operand);
      }
    }
    return false;
  }

  // Takes in what is computed with a value, without views between. False if there is something that
  // the finer shape cannot have.
  bool spread(NodeId first, signed char side) {
    const Dims& whole = side == kBefore ? refinement_->before.shape : refinement_->after.shape;
    std::vector<NodeId> open{first};
    side_[first] = side;
    const auto add = [&](NodeId id) {
      if (side_[id] == kOutside) {
        side_[id] = side;
        open.push_back(id);
      }
      return side_[id] == side;
    };
    while (!open.empty()) {
      const NodeId at = open.back();
      open.pop_back();
      if (!lies_in(shape(at), whole) || is_arg_reduction(node(at).op)) return false;
      for (const NodeId user : users_[at]) {
        if (is_scan(node(user).op) || is_indexed(node(user).op)) return false;
        if (computes(node(user)) && !add(user)) return false;
      }
      if (!computes(node(at))) continue;  // the view itself
      for (const NodeId operand : node(at).inputs()) {
        if (computes(node(operand)) ? !add(operand) : !can_be_seen(operand, whole)) return false;
      }
    }
    return true;
  }

  // Whether what is no computed value has a view in the finer shape.
  bool can_be_seen(NodeId id, const Dims& whole) const {
    const Op op = node(id).op;
    return op != Op::iota && !is_scan(op) && !is_indexed(op) && lies_in(shape(id), whole);
  }

  // -- How

  const Splitting& splitting(NodeId id) const {
    return side_[id] == kBefore ? refinement_->before : refinement_->after;
  }

  // A value in the finer shape, seen in its own.
  NodeId compute(NodeId id) {
    const Dims finer = refined_shape(shape(id), splitting(id), refinement_->shape);
    if (!computes(node(id))) {
      refined_[id] = refined_[node(id).operands[0]];
      return to_.reshaped(refined_[id], shape(id));
    }
    TypedNode copy = node(id);
    for (std::size_t i = 0; i < copy.arity; ++i) {
      const NodeId operand = copy.operands[i];
      const Dims wanted = refined_shape(shape(operand), splitting(id), refinement_->shape);
      copy.operands[i] =
          side_[operand] == kOutside ? to_.reshaped(to_.moved(operand), wanted) : refined_[operand];
    }
    if (is_reduction(copy.op)) copy.payload = refined_axes(id);
    refined_[id] = to_.add(copy, finer);
    return to_.reshaped(refined_[id], shape(id));
  }

  AxisSet refined_axes(NodeId id) const {
    const Splitting& own = splitting(id);
    const Dims& from = shape(node(id).operands[0]);
    AxisSet set = 0;
    for (std::size_t k = 0; k < from.size(); ++k) {
      const std::size_t axis = own.shape.size() - from.size() + k;
      if (from[k] == shape(id)[k]) continue;
      for (std::size_t at = own.starts[axis]; at < own.starts[axis + 1]; ++at) {
        set |= AxisSet{1} << at;
      }
    }
    return set;
  }

  static constexpr std::size_t kMostAxes = 8;

  const ShapedGraph& from_;
  GraphRewriter to_;
  std::vector<std::vector<NodeId>> users_;
  std::optional<Refinement> refinement_;
  std::vector<signed char> side_;  ///< of the view on which a value is
  std::vector<NodeId> refined_;    ///< new nodes, of those values
};

}  // namespace

ShapedGraph refine_shapes(const ShapedGraph& graph) {
  constexpr int kMostRounds = 8;
  ShapedGraph result = graph;
  for (int round = 0; round < kMostRounds; ++round) {
    ShapeRefining refining(result);
    if (!refining.changed()) break;
    result = refining.run();
  }
  return result;
}

}  // namespace kiln::fusion
