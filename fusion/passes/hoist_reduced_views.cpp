// The pass that moves views past reductions (passes.hpp): parts of sum(w * x) that are computed
// with together become sums of parts of w.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "fusion/graph/axes.hpp"
#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/reshape.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/passes/parts.hpp"
#include "fusion/passes/passes.hpp"

namespace kiln::fusion {
namespace {

constexpr std::size_t kMostMovedOperations = 16;  ///< of the terms of a reduction

/// A view of a reduction's result, as one of the axes that are kept, which come first.
struct KeptView {
  Op op = Op::reshape;
  ShapeList list;
};

class ReducedViews {
 public:
  explicit ReducedViews(const ShapedGraph& from)
      : from_(from),
        to_(from),
        users_(users_of(from.graph.nodes)),
        is_output_(users_.size(), false) {
    for (const NodeId output : from.graph.outputs) is_output_[output] = true;
  }

  ShapedGraph run() {
    for (NodeId id = 0; id < users_.size(); ++id) {
      if (is_reduction(node(id).op)) choose(id);
    }
    if (reduction_of_.empty()) return from_;
    return to_.run([&](NodeId id) {
      const auto reduction = reduction_of_.find(id);
      return reduction == reduction_of_.end() ? to_.copy(id) : reduce_view(id, reduction->second);
    });
  }

 private:
  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }
  const Dims& shape(NodeId id) const { return from_.shapes[id]; }
  NodeId terms_of(NodeId reduction) const { return node(reduction).operands[0]; }

  // -- Which reductions

  void choose(NodeId reduction) {
    const std::vector<NodeId> ends = ends_of(reduction);
    if (ends.size() < 2 || !reduces_last_axes(reduction)) return;
    if (!shows_each_once(reduction, ends) || !are_computed_together(from_.graph, ends)) return;
    const std::set<NodeId> operands = operands_of_terms(terms_of(reduction));
    if (operands.empty()) return;
    for (const NodeId end : ends) {
      const auto views = kept_views(reduction, end);
      if (!views) return;
      for (const NodeId operand : operands) {
        if (!can_be_seen(operand, reduction, *views)) return;
      }
    }
    for (const NodeId end : ends) reduction_of_[end] = reduction;
  }

  // The last of the views on each way from a value; none if something else reads the value.
  std::vector<NodeId> ends_of(NodeId value) const {
    std::vector<NodeId> ends;
    std::vector<NodeId> open{value};
    while (!open.empty()) {
      const NodeId at = open.back();
      open.pop_back();
      const bool through = !is_output_[at] && std::ranges::all_of(users_[at], [&](NodeId user) {
        return is_view_op(node(user).op);
      });
      if (!through && at == value) return {};
      if (through) {
        open.insert(open.end(), users_[at].begin(), users_[at].end());
      } else {
        ends.push_back(at);
      }
    }
    return ends;
  }

  std::size_t kept_axes(NodeId reduction) const {
    const Dims& from = shape(terms_of(reduction));
    std::size_t kept = from.size();
    while (kept > 0 && from[kept - 1] != shape(reduction)[kept - 1]) --kept;
    return kept;
  }

  bool reduces_last_axes(NodeId reduction) const {
    const Dims& from = shape(terms_of(reduction));
    const std::size_t kept = kept_axes(reduction);
    return kept < from.size() && std::ranges::find(from, 0) == from.end() &&
           std::equal(from.begin(), from.begin() + kept, shape(reduction).begin());
  }

  // Whether no element of it is in two views.
  bool shows_each_once(NodeId reduction, const std::vector<NodeId>& ends) const {
    SizeSum traced;
    std::int64_t seen = 0;
    for (const NodeId end : ends) {
      seen += element_count(shape(end));
      traced.add(1, element_count(shape(end)));
    }
    traced.add(-1, element_count(shape(reduction))).decide();
    return seen <= element_count(shape(reduction));
  }

  // What terms are made of by a few operations whose results nothing else needs: arguments, numbers
  // and views. None if they are made of something else, or by more operations.
  std::set<NodeId> operands_of_terms(NodeId terms) const {
    std::set<NodeId> operands;
    std::set<NodeId> operations{terms};
    std::vector<NodeId> open{terms};
    while (!open.empty()) {
      const NodeId at = open.back();
      open.pop_back();
      if (!is_elementwise(node(at).op) || node(at).arity == 0) return {};
      for (const NodeId operand : node(at).inputs()) {
        const Op op = node(operand).op;
        if (op == Op::input || op == Op::scalar || op == Op::constant || is_view_op(op)) {
          operands.insert(operand);
        } else if (operations.insert(operand).second) {
          open.push_back(operand);
        }
      }
    }
    const bool alone = std::ranges::all_of(operations, [&](NodeId id) {
      return node(id).op == Op::promote ||
             (!is_output_[id] && std::ranges::all_of(users_[id], [&](NodeId user) {
               return operations.contains(user) || (id == terms && is_reduction(node(user).op));
             }));
    });
    const bool few = operations.size() <= kMostMovedOperations && users_[terms].size() == 1;
    return alone && few ? operands : std::set<NodeId>();
  }

  // The views from a reduction to the last one, as views of its kept axes alone.
  std::optional<std::vector<KeptView>> kept_views(NodeId reduction, NodeId end) const {
    std::vector<NodeId> chain;
    for (NodeId at = end; at != reduction; at = node(at).operands[0]) chain.push_back(at);
    std::ranges::reverse(chain);
    auto ones = static_cast<std::int64_t>(shape(reduction).size() - kept_axes(reduction));
    std::vector<KeptView> views;
    for (const NodeId id : chain) {
      const ShapeList& list = shape_list(from_.graph, node(id));
      KeptView view{node(id).op, list};
      const Dims& next = shape(id);
      if (view.op == Op::reshape) {
        view.list.assign(next.begin(), next.end());
        ones = 0;
      } else if (view.op == Op::transpose || view.op == Op::swapaxes) {
        if (ones > 0) return std::nullopt;
        if (list.empty()) {
          for (std::size_t k = next.size(); k-- > 0;)
            view.list.push_back(static_cast<std::int64_t>(k));
        }
      } else {
        const std::size_t operand_rank = shape(node(id).operands[0]).size();
        const auto rank =
            static_cast<std::int64_t>(operand_rank + (view.op == Op::expand_dims ? 1 : 0));
        if (view.list[0] < 0) view.list[0] += rank;
        const bool behind = view.list[0] >= static_cast<std::int64_t>(operand_rank) - ones;
        if (behind && view.op == Op::slice) return std::nullopt;
        if (behind && ones > 0) {
          ones += view.op == Op::squeeze ? -1 : 1;
          continue;
        }
      }
      views.push_back(std::move(view));
    }
    return views;
  }

  // Whether an operand of the terms, which may have been broadcast, can be seen through the views.
  bool can_be_seen(NodeId operand, NodeId reduction, const std::vector<KeptView>& views) const {
    const std::size_t kept = kept_axes(reduction);
    const std::size_t missing = shape(terms_of(reduction)).size() - shape(operand).size();
    Dims whole(kept, 1);
    Dims own(kept, 1);
    for (std::size_t k = 0; k < kept; ++k) {
      whole[k] = shape(reduction)[k];
      if (k >= missing) own[k] = shape(operand)[k - missing];
    }
    for (const KeptView& view : views) {
      const Dims next = result_shape(view.op, view.list, std::span(&whole, 1), "view");
      if (view.op == Op::reshape) {
        const auto seen = reshaped_operand(own, whole, next);
        if (!seen) return false;
        own = *seen;
      } else if (view.op != Op::slice || own[static_cast<std::size_t>(view.list[0])] != 1) {
        own = result_shape(view.op, view.list, std::span(&own, 1), "view");
      }
      whole = next;
    }
    return true;
  }

  // -- How

  // What the views show of a reduction, reduced from what they show of its terms; other passes move
  // them further.
  NodeId reduce_view(NodeId end, NodeId reduction) {
    const Dims& from = shape(terms_of(reduction));
    const std::size_t kept = kept_axes(reduction);
    NodeId terms = to_.moved(terms_of(reduction));
    std::vector<KeptView> views = kept_views(reduction, end).value();
    for (KeptView& view : views) {
      if (view.op == Op::reshape) {
        view.list.insert(view.list.end(), from.begin() + kept, from.end());
      } else if (view.op == Op::transpose) {
        for (std::size_t k = kept; k < from.size(); ++k) {
          view.list.push_back(static_cast<std::int64_t>(view.list.size()));
        }
      }
      const Dims seen = result_shape(view.op, view.list, std::span(&to_.shape(terms), 1), "view");
      terms = to_.add(
          {view.op, node(terms_of(reduction)).dtype, 1, {terms}, to_.add_list(view.list)}, seen);
    }
    TypedNode own = node(reduction);
    own.operands[0] = terms;
    std::vector<int> axes;
    Dims reduced = to_.shape(terms);
    for (std::size_t k = kept; k < from.size(); ++k) {
      axes.push_back(-1 - static_cast<int>(axes.size()));
      reduced[reduced.size() - axes.size()] = 1;
    }
    own.payload = axis_set(axes, "view");
    const NodeId result = to_.add(own, reduced);
    const Dims& wanted = shape(end);
    if (reduced == wanted) return result;
    const std::uint64_t list = to_.add_list({wanted.begin(), wanted.end()});
    return to_.add({Op::reshape, own.dtype, 1, {result}, list}, wanted);
  }

  const ShapedGraph& from_;
  GraphRewriter to_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> is_output_;
  std::map<NodeId, NodeId> reduction_of_;  ///< of the last views of those that are moved
};

}  // namespace

ShapedGraph hoist_reduced_views(const ShapedGraph& graph) { return ReducedViews(graph).run(); }

}  // namespace kiln::fusion
