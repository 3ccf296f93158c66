// The pass that moves slices towards the outputs (passes.hpp): of q = f(y[:m]) and k = f(y[m:n])
// both are slices of f(y), which the kernel of y computes once. What reads y whole beside parts of
// it along another axis, as values do beside the halves of queries and keys, reads those parts.
#include <algorithm>
#include <optional>
#include <vector>

#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/infer/bounds.hpp"
#include "fusion/passes/parts.hpp"
#include "fusion/passes/passes.hpp"

namespace kiln::fusion {
namespace {

std::int64_t product_from(const Dims& shape, std::size_t begin, std::size_t end) {
  std::int64_t product = 1;
  for (std::size_t k = begin; k < end; ++k) product *= shape[k];
  return product;
}

class SliceSinking {
 public:
  explicit SliceSinking(const ShapedGraph& from)
      : from_(from),
        to_(from),
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
      return parts_[id] ? shown(*parts_[id], node(id).dtype) : to_.copy(id);
    });
  }

 private:
  // A new node of which a value is a slice.
  struct Part {
    NodeId whole;
    Window window;
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
    if (is_part_[id]) return Part{to_.moved(node(id).operands[0]), *window_of(from_, id)};
    const TypedNode& own = node(id);
    const auto of_part = [&](NodeId operand) { return parts_[operand].has_value(); };
    if (std::ranges::none_of(own.inputs(), of_part)) return std::nullopt;
    if (!bounds_.empty() && !bounds_[id].empty()) return std::nullopt;
    if (own.op == Op::reshape || own.op == Op::expand_dims || own.op == Op::squeeze) {
      return of_reshape(id);
    }
    if (own.op == Op::slice) return of_slice(id);
    if (own.op == Op::concat) return of_operands(id, concat_axis(id));
    const bool computes = is_elementwise(own.op) && own.arity > 0 && own.op != Op::bitcast;
    return computes ? of_operands(id, std::nullopt) : std::nullopt;
  }

  std::size_t concat_axis(NodeId id) const {
    const std::int64_t axis = shape_list(from_.graph, node(id))[0];
    return static_cast<std::size_t>(axis < 0 ? axis + std::ssize(shape(id)) : axis);
  }

  // An operation on parts alike, and on what is the same along their axis.
  std::optional<Part> of_operands(NodeId id, std::optional<std::size_t> joined) {
    const std::size_t rank = shape(id).size();
    std::optional<Part> first;
    for (const NodeId operand : node(id).inputs()) {
      if (!parts_[operand]) continue;
      if (shape(operand).size() != rank) return std::nullopt;
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
    return Part{to_.add(copy, whole), first->window};
  }

  std::optional<Part> of_slice(NodeId id) {
    const Part part = *parts_[node(id).operands[0]];
    TypedNode copy = node(id);
    const ShapeList& list = shape_list(from_.graph, copy);
    const std::int64_t axis = list[0] < 0 ? list[0] + std::ssize(shape(id)) : list[0];
    if (static_cast<std::size_t>(axis) == part.window.axis) {
      const auto own = window_of(from_, id);
      if (!own) return std::nullopt;
      return Part{part.whole, {own->axis, part.window.first + own->first, own->count}};
    }
    Dims whole = shape(id);
    whole[part.window.axis] = to_.shape(part.whole)[part.window.axis];
    copy.operands[0] = part.whole;
    return Part{to_.add(copy, whole), part.window};
  }

  // A reshape after which a part is still neighbours along an axis.
  std::optional<Part> of_reshape(NodeId id) {
    const Part part = *parts_[node(id).operands[0]];
    const Dims& before = shape(node(id).operands[0]);
    const Dims& after = shape(id);
    const std::size_t axis = part.window.axis;
    if (std::ranges::find(before, 0) != before.end()) return std::nullopt;
    const std::int64_t outer = product_from(before, 0, axis);
    const std::int64_t inner = product_from(before, axis + 1, before.size());
    const std::int64_t extent = to_.shape(part.whole)[axis];
    for (std::size_t k = 0; k < after.size(); ++k) {
      trace_order(product_from(after, 0, k), outer);
      if (product_from(after, 0, k) != outer || after[k] == 1) continue;
      const std::int64_t own = product_from(after, k + 1, after.size());
      for (const std::int64_t at : {part.window.first, part.window.count, extent}) {
        trace_divides(at * inner, own);
        if (at * inner % own != 0) return std::nullopt;
      }
      Dims whole = after;
      whole[k] = extent * inner / own;
      const Window window{k, part.window.first * inner / own, part.window.count * inner / own};
      const std::uint64_t list = to_.add_list({whole.begin(), whole.end()});
      return Part{to_.add({Op::reshape, node(id).dtype, 1, {part.whole}, list}, whole), window};
    }
    return std::nullopt;
  }

  const ShapedGraph& from_;
  GraphRewriter to_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> is_output_;
  std::vector<bool> is_part_;               ///< slices that move
  std::vector<std::optional<Part>> parts_;  ///< of old nodes
  std::vector<Ends> bounds_;                ///< of each node; none if nothing is bounded
};

}  // namespace

ShapedGraph sink_slices(const ShapedGraph& graph) {
  SliceSinking sinking(graph);
  return sinking.changes() ? read_parts(simplify(sinking.run())) : graph;
}

}  // namespace kiln::fusion
