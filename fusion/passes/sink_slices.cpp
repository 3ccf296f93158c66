// The pass that moves slices towards the outputs (passes.hpp): of q = f(y[:m]) and k = f(y[m:n])
// both are slices of f(y), which the kernel of y computes once. What reads y whole beside parts of
// it along another axis, as values do beside the halves of queries and keys, reads those parts.
// Norms of queries and keys are those of what both are parts of, of which values are no part.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "fusion/graph/axes.hpp"
#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/infer/bounds.hpp"
#include "fusion/passes/parts.hpp"
#include "fusion/passes/passes.hpp"

namespace kiln::fusion {
namespace {

// Slices whose rows are reduced: those that are neighbours in a window of their operand, and move
// as parts of what it shows, with that window; others with one of no elements, which stay where
// they are.
using SliceRuns = std::map<NodeId, Window>;

class SliceSinking {
 public:
  /// Without `runs` slices move past reductions as far as they can, which shows what runs there
  /// are.
  SliceSinking(const ShapedGraph& from, const SliceRuns* runs)
      : from_(from),
        to_(from),
        runs_(runs),
        users_(users_of(from.graph.nodes)),
        is_output_(users_.size(), false),
        is_part_(users_.size(), false),
        parts_(users_.size()) {
    for (const NodeId output : from.graph.outputs) is_output_[output] = true;
    if (has_bounds(from)) bounds_ = infer_bounds(from, "slice");
    for (NodeId id = 0; id < users_.size(); ++id) {
      if (!is_view_op(node(id).op) || keeps_element_order(node(id).op)) choose(id);
    }
  }

  bool changes() const { return std::ranges::find(is_part_, true) != is_part_.end(); }

  ShapedGraph run() {
    return to_.run([&](NodeId id) {
      parts_[id] = sunk(id);
      if (parts_[id] && parts_[id]->reduced && is_output_[id]) stored_.insert(parts_[id]->slice);
      return parts_[id] ? shown(*parts_[id], node(id).dtype) : to_.copy(id);
    });
  }

  /// Neighbours that moved past the same reductions are a run, unless one is for an output, which
  /// would be a copy.
  SliceRuns runs() const {
    SliceRuns result;
    std::map<NodeId, std::vector<NodeId>> slices;  // of each value
    for (const auto& [slice, reductions] : reductions_) {
      slices.try_emplace(node(slice).operands[0], users_[node(slice).operands[0]]);
    }
    for (auto& [whole, own] : slices) {
      const auto first = [&](NodeId id) { return window_of(from_, id)->first; };
      std::ranges::sort(own, std::ranges::less(), first);
      for (std::size_t begin = 0, end = 0; begin < own.size(); begin = end) {
        end = begin + 1;
        while (end < own.size() && are_alike(own[begin], own[end])) ++end;
        if (!reductions_.contains(own[begin])) continue;
        Window all = *window_of(from_, own[begin]);
        for (std::size_t k = begin + 1; k < end; ++k) all.count += window_of(from_, own[k])->count;
        for (std::size_t k = begin; k < end; ++k) result[own[k]] = end - begin > 1 ? all : Window{};
      }
    }
    return result;
  }

 private:
  // Whether both moved past the same reductions, those of one value.
  bool are_alike(NodeId a, NodeId b) const {
    if (stored_.contains(a) || stored_.contains(b)) return false;
    const auto one = reductions_.find(a);
    const auto two = reductions_.find(b);
    return one != reductions_.end() && two != reductions_.end() && one->second == two->second;
  }

  // A new node of which a value is a slice. `slice` is an old one that moved there.
  struct Part {
    NodeId whole = 0;
    Window window;
    NodeId slice = 0;
    bool reduced = false;  ///< past a reduction
  };

  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }
  const Dims& shape(NodeId id) const { return from_.shapes[id]; }

  // -- Which slices

  // All that reads a value are slices along one axis, in which each element is once, and which
  // nothing computes with each other.
  void choose(NodeId value) {
    const bool ends = !bounds_.empty() && !bounds_[value].empty();
    if (users_[value].size() < 2 || is_output_[value] || ends) return;
    std::vector<Window> windows;
    for (const NodeId user : users_[value]) {
      const auto window = window_of(from_, user);
      if (!window || (!windows.empty() && window->axis != windows.front().axis)) return;
      windows.push_back(*window);
    }
    std::ranges::sort(windows, {}, &Window::first);
    std::int64_t end = 0;
    for (const Window& window : windows) {
      trace_order(window.first, end);
      if (window.first != end) return;
      end += window.count;
    }
    trace_order(end, shape(value)[windows.front().axis]);
    if (end != shape(value)[windows.front().axis] || !comes_of_reduction(from_, value)) return;
    if (are_computed_together(from_.graph, users_[value])) return;
    for (const NodeId user : users_[value]) is_part_[user] = true;
  }

  // -- How

  NodeId shown(const Part& part, DType dtype) {
    const Window& window = part.window;
    Dims seen = to_.shape(part.whole);
    seen[window.axis] = window.count;
    const std::uint64_t list = to_.add_list(
        {static_cast<std::int64_t>(window.axis), window.first, window.first + window.count, 1});
    return to_.add({Op::slice, dtype, 1, {part.whole}, list}, seen);
  }

  // The whole that a value is a part of, if what it is computed of are such parts.
  std::optional<Part> sunk(NodeId id) {
    if (is_part_[id]) return first_part(id);
    const TypedNode& own = node(id);
    const auto of_part = [&](NodeId operand) { return parts_[operand].has_value(); };
    if (std::ranges::none_of(own.inputs(), of_part)) return std::nullopt;
    if (!bounds_.empty() && !bounds_[id].empty()) return std::nullopt;
    if (own.op == Op::reshape || own.op == Op::expand_dims || own.op == Op::squeeze) {
      return of_reshape(id);
    }
    if (own.op == Op::slice) return of_slice(id);
    if (own.op == Op::concat) return of_operands(id, concat_axis(id));
    if (is_reduction(own.op)) return of_reduction(id);
    const bool computes = is_elementwise(own.op) && own.arity > 0 && own.op != Op::bitcast;
    return computes ? of_operands(id, std::nullopt) : std::nullopt;
  }

  // A slice itself: of its operand, or of less of that.
  std::optional<Part> first_part(NodeId id) {
    const Window window = *window_of(from_, id);
    const NodeId whole = to_.moved(node(id).operands[0]);
    if (runs_ == nullptr || !runs_->contains(id)) return Part{whole, window, id};
    const Window& seen = runs_->at(id);
    if (seen.count == 0) return std::nullopt;
    const NodeId less = to_.shape(whole)[seen.axis] == seen.count
                            ? whole
                            : shown({whole, seen, id}, node(id).dtype);
    return Part{less, {window.axis, window.first - seen.first, window.count}, id};
  }

  // Rows of a part are rows of the whole. Not where it is computed with more than it has elements,
  // as queries are with keys.
  std::optional<Part> of_reduction(NodeId id) {
    const Part part = *parts_[node(id).operands[0]];
    if (runs_ != nullptr && !runs_->contains(part.slice)) return std::nullopt;
    SizeSum()
        .add(1, element_count(shape(node(id).operands[0])))
        .add(-1, element_count(shape(part.slice)))
        .decide();
    if (element_count(shape(node(id).operands[0])) != element_count(shape(part.slice))) {
      return std::nullopt;
    }
    const auto axes = resolve_axes(node(id).payload, shape(id).size(), "slice");
    if (axes[part.window.axis]) return std::nullopt;
    TypedNode copy = node(id);
    copy.operands[0] = part.whole;
    Dims whole = shape(id);
    whole[part.window.axis] = to_.shape(part.whole)[part.window.axis];
    Part result{to_.add(copy, whole), part.window, part.slice, true};
    if (!part.reduced) reductions_[part.slice].insert(result.whole);
    return result;
  }

  std::size_t concat_axis(NodeId id) const {
    const std::int64_t axis = shape_list(from_.graph, node(id))[0];
    return static_cast<std::size_t>(axis < 0 ? axis + std::ssize(shape(id)) : axis);
  }

  // An operation on parts alike, and on what is the same along their axis.
  std::optional<Part> of_operands(NodeId id, std::optional<std::size_t> joined) {
    const std::size_t rank = shape(id).size();
    std::optional<Part> first;
    bool reduced = false;
    for (const NodeId operand : node(id).inputs()) {
      if (!parts_[operand]) continue;
      if (shape(operand).size() != rank) return std::nullopt;
      reduced = reduced || parts_[operand]->reduced;
      const Window& window = parts_[operand]->window;
      if (!first) first = parts_[operand];
      const Window& known = first->window;
      const bool alike =
          window.axis == known.axis && window.first == known.first && window.count == known.count &&
          to_.shape(parts_[operand]->whole)[window.axis] == to_.shape(first->whole)[known.axis];
      if (!alike || joined == window.axis || shape(id)[window.axis] != window.count) {
        return std::nullopt;
      }
    }
    const std::size_t from_end = rank - first->window.axis;
    TypedNode copy = node(id);
    for (std::size_t i = 0; i < copy.arity; ++i) {
      const NodeId operand = copy.operands[i];
      if (parts_[operand]) {
        copy.operands[i] = parts_[operand]->whole;
        continue;
      }
      const Dims& own = shape(operand);
      const bool same = own.size() < from_end || own[own.size() - from_end] == 1;
      if (!same || joined) return std::nullopt;
      copy.operands[i] = to_.moved(operand);
    }
    Dims whole = shape(id);
    whole[first->window.axis] = to_.shape(first->whole)[first->window.axis];
    return Part{to_.add(copy, whole), first->window, first->slice, reduced};
  }

  std::optional<Part> of_slice(NodeId id) {
    const Part part = *parts_[node(id).operands[0]];
    TypedNode copy = node(id);
    const ShapeList& list = shape_list(from_.graph, copy);
    const std::int64_t axis = list[0] < 0 ? list[0] + std::ssize(shape(id)) : list[0];
    if (static_cast<std::size_t>(axis) == part.window.axis) {
      const auto own = window_of(from_, id);
      if (!own) return std::nullopt;
      const Window window{own->axis, part.window.first + own->first, own->count};
      return Part{part.whole, window, part.slice, part.reduced};
    }
    Dims whole = shape(id);
    whole[part.window.axis] = to_.shape(part.whole)[part.window.axis];
    copy.operands[0] = part.whole;
    return Part{to_.add(copy, whole), part.window, part.slice, part.reduced};
  }

  // A reshape after which a part is still neighbours along an axis.
  std::optional<Part> of_reshape(NodeId id) {
    const Part part = *parts_[node(id).operands[0]];
    const Dims& before = shape(node(id).operands[0]);
    const Window all{part.window.axis, 0, to_.shape(part.whole)[part.window.axis]};
    const auto window = reshaped_window(before, part.window, shape(id));
    const auto extent = reshaped_window(before, all, shape(id));
    if (!window || !extent) return std::nullopt;
    Dims whole = shape(id);
    whole[extent->axis] = extent->count;
    const std::uint64_t list = to_.add_list({whole.begin(), whole.end()});
    return Part{to_.add({Op::reshape, node(id).dtype, 1, {part.whole}, list}, whole), *window,
                part.slice, part.reduced};
  }

  const ShapedGraph& from_;
  GraphRewriter to_;
  const SliceRuns* runs_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> is_output_;
  std::vector<bool> is_part_;                      ///< slices that move
  std::map<NodeId, std::set<NodeId>> reductions_;  ///< new ones, that slices moved past first
  std::set<NodeId> stored_;                        ///< slices behind which an output is reduced
  std::vector<std::optional<Part>> parts_;         ///< of old nodes
  std::vector<Ends> bounds_;                       ///< of each node; none if nothing is bounded
};

}  // namespace

ShapedGraph sink_slices(const ShapedGraph& graph) {
  SliceSinking all(graph, nullptr);
  if (!all.changes()) return graph;
  all.run();
  const SliceRuns runs = all.runs();
  const ShapedGraph sunk = simplify(SliceSinking(graph, &runs).run());
  return read_parts(runs.empty() ? sunk : join_parts(sunk));
}

}  // namespace kiln::fusion
