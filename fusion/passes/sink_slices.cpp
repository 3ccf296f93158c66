// The pass that moves slices towards the outputs (passes.hpp): of q = f(y[:m]) and k = f(y[m:n])
// both are slices of f(y), which the kernel of y computes once. What reads y whole beside parts of
// it along another axis, as values do beside the halves of queries and keys, reads those parts.
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/infer/bounds.hpp"
#include "fusion/passes/passes.hpp"

namespace kiln::fusion {
namespace {

// Neighbours along an axis of a value.
struct Window {
  std::size_t axis = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// What a numbered slice (simplify) shows; nothing for one in steps.
std::optional<Window> window_of(const ShapedGraph& graph, NodeId id) {
  const TypedNode& node = graph.graph.nodes[id];
  if (node.op != Op::slice) return std::nullopt;
  const ShapeList& list = shape_list(graph.graph, node);
  if (list[3] != 1 || list[0] < 0 || list[1] < 0 || list[2] < list[1]) return std::nullopt;
  return Window{static_cast<std::size_t>(list[0]), list[1], list[2] - list[1]};
}

std::int64_t product_from(const Dims& shape, std::size_t begin, std::size_t end) {
  std::int64_t product = 1;
  for (std::size_t k = begin; k < end; ++k) product *= shape[k];
  return product;
}

// Whether a value has an element for each that a reduction gives, of which it is a view, or
// computed by a few operations.
bool comes_of_reduction(const ShapedGraph& graph, NodeId id) {
  constexpr std::size_t kMostValues = 24;
  const std::int64_t elements = element_count(graph.shapes[id]);
  std::vector<NodeId> open{id};
  for (std::size_t next = 0; next < open.size() && open.size() < kMostValues; ++next) {
    const TypedNode& node = graph.graph.nodes[open[next]];
    if (is_reduction(node.op)) {
      trace_order(element_count(graph.shapes[open[next]]), elements);
      if (element_count(graph.shapes[open[next]]) == elements) return true;
    }
    if (!is_view_op(node.op) && !is_elementwise(node.op)) continue;
    const auto inputs = node.inputs();
    open.insert(open.end(), inputs.begin(), inputs.end());
  }
  return false;
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
    if (are_computed_with(users_[value])) return;
    for (const NodeId user : users_[value]) is_part_[user] = true;
  }

  // Whether some operation computes elements of two of the values, or of what is made of them.
  bool are_computed_with(const std::vector<NodeId>& values) const {
    std::map<NodeId, NodeId> made_of;
    for (const NodeId value : values) made_of[value] = value;
    for (NodeId id = *std::ranges::min_element(values); id < users_.size(); ++id) {
      const Op op = node(id).op;
      if (!is_elementwise(op) && !is_view_op(op)) continue;
      for (const NodeId operand : node(id).inputs()) {
        const auto known = made_of.find(operand);
        if (known == made_of.end()) continue;
        const auto [own, fresh] = made_of.emplace(id, known->second);
        if (!fresh && own->second != known->second) return true;
      }
    }
    return false;
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

// Values of which some operations read parts along one axis, all of it, and others read more: these
// read the parts, concatenated.
class PartReading {
 public:
  explicit PartReading(const ShapedGraph& from)
      : from_(from), to_(from), users_(users_of(from.graph.nodes)) {
    std::vector<bool> is_output(users_.size(), false);
    for (const NodeId output : from.graph.outputs) is_output[output] = true;
    std::vector<Ends> bounds;
    if (has_bounds(from)) bounds = infer_bounds(from, "slice");
    for (NodeId id = 0; id < users_.size(); ++id) {
      const bool ends = !bounds.empty() && !bounds[id].empty();
      if (!is_output[id] && !ends) choose(id);
    }
  }

  bool changes() const { return !instead_.empty(); }

  ShapedGraph run() {
    return to_.run([&](NodeId id) {
      const auto known = instead_.find(id);
      if (known == instead_.end()) return to_.copy(id);
      TypedNode copy = to_.moved_node(id);
      for (std::size_t i = 0; i < copy.arity; ++i) {
        const NodeId operand = node(id).operands[i];
        if (!shape(operand).empty()) copy.operands[i] = joined(operand, known->second);
      }
      return to_.add(copy, from_.shapes[id]);
    });
  }

 private:
  // Slices of a value in a shape, along an axis: neighbours, or every second element and such.
  struct Parts {
    Dims shape;
    std::size_t axis = 0;
    std::vector<NodeId> slices;  ///< in order
    bool in_steps = false;
  };

  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }
  const Dims& shape(NodeId id) const { return from_.shapes[id]; }

  void choose(NodeId value) {
    if (node(value).op == Op::reshape && users_[value].size() < 2) return;
    for (const NodeId user : users_[value]) {
      if (node(user).op == Op::reshape && read_parts(value, user)) return;
    }
    read_parts(value, value);
  }

  // `seen` is the value or a reshape of it.
  bool read_parts(NodeId value, NodeId seen) {
    std::map<std::size_t, std::vector<NodeId>> slices;  // by axis
    for (const NodeId user : users_[seen]) {
      if (node(user).op == Op::slice) slices[axis_of(user)].push_back(user);
    }
    for (const auto& [axis, own] : slices) {
      const auto parts = partition(seen, axis, own);
      if (!parts) continue;
      std::vector<NodeId> others;
      for (const NodeId user : users_[value]) {
        if (user != seen && std::ranges::find(own, user) == own.end()) others.push_back(user);
      }
      const auto is_sliced = [&](NodeId user) { return shows_slices(user); };
      if (others.empty() || !std::ranges::all_of(others, is_sliced)) continue;
      if (!comes_of_reduction(from_, value)) continue;
      for (const NodeId other : others) instead_.emplace(other, *parts);
      return true;
    }
    return false;
  }

  // Whether nothing but slices is read of a value, or of what is made of it with numbers, or seen.
  bool shows_slices(NodeId id) const {
    if (node(id).op == Op::slice) return window_of(from_, id).has_value();
    const auto is_array = [&](NodeId operand) { return !shape(operand).empty(); };
    const bool passes =
        keeps_element_order(node(id).op) ||
        (is_elementwise(node(id).op) && std::ranges::count_if(node(id).inputs(), is_array) == 1);
    return passes && !users_[id].empty() &&
           std::ranges::all_of(users_[id], [&](NodeId user) { return shows_slices(user); });
  }

  std::size_t axis_of(NodeId slice) const {
    const std::int64_t axis = shape_list(from_.graph, node(slice))[0];
    return static_cast<std::size_t>(axis < 0 ? axis + std::ssize(shape(slice)) : axis);
  }

  std::optional<Parts> partition(NodeId seen, std::size_t axis, std::vector<NodeId> slices) const {
    if (slices.size() < 2) return std::nullopt;
    const auto first = [&](NodeId slice) {
      const std::int64_t start = shape_list(from_.graph, node(slice))[1];
      return start == kOmitted ? 0 : start;
    };
    std::ranges::sort(slices, {}, first);
    Parts parts{shape(seen), axis, slices, false};
    const std::int64_t extent = shape(seen)[axis];
    std::int64_t end = 0;
    for (const NodeId slice : slices) {
      const auto window = window_of(from_, slice);
      if (!window) {
        parts.in_steps = true;
        continue;
      }
      trace_order(window->first, end);
      if (window->first != end) return std::nullopt;
      end += window->count;
    }
    if (parts.in_steps) return takes_turns(parts, extent) ? std::optional(parts) : std::nullopt;
    trace_order(end, extent);
    return end == extent ? std::optional(parts) : std::nullopt;
  }

  // Whether each of n slices shows every n-th element, from another one on.
  bool takes_turns(const Parts& parts, std::int64_t extent) const {
    const auto step = std::ssize(parts.slices);
    trace_divides(extent, step);
    if (extent % step != 0) return false;
    for (std::int64_t turn = 0; turn < step; ++turn) {
      const NodeId slice = parts.slices[static_cast<std::size_t>(turn)];
      const ShapeList& list = shape_list(from_.graph, node(slice));
      const std::int64_t start = list[1] == kOmitted ? 0 : list[1];
      if (list[3] != step || start != turn || list[2] != kOmitted) return false;
    }
    return true;
  }

  // A value of the parts that are read of it.
  NodeId joined(NodeId value, const Parts& parts) {
    const DType dtype = node(value).dtype;
    const NodeId seen = reshaped(to_.moved(value), parts.shape);
    const std::size_t axis = parts.axis + (parts.in_steps ? 1 : 0);
    std::optional<NodeId> all;
    for (const NodeId slice : parts.slices) {
      TypedNode copy = node(slice);
      copy.operands[0] = seen;
      NodeId part = to_.add(copy, shape(slice));
      if (parts.in_steps) part = reshaped(part, with_axis(shape(slice), axis));
      if (!all) {
        all = part;
        continue;
      }
      Dims both = to_.shape(*all);
      both[axis] += to_.shape(part)[axis];
      const std::uint64_t list = to_.add_list({static_cast<std::int64_t>(axis)});
      all = to_.add({Op::concat, dtype, 2, {*all, part}, list}, both);
    }
    return reshaped(*all, shape(value));
  }

  static Dims with_axis(const Dims& shape, std::size_t axis) {
    std::vector<std::int64_t> extents(shape.begin(), shape.end());
    extents.insert(extents.begin() + static_cast<std::ptrdiff_t>(axis), 1);
    return Dims(std::span<const std::int64_t>(extents));
  }

  NodeId reshaped(NodeId id, const Dims& wanted) {
    if (to_.shape(id) == wanted) return id;
    const std::uint64_t list = to_.add_list({wanted.begin(), wanted.end()});
    return to_.add({Op::reshape, to_.node(id).dtype, 1, {id}, list}, wanted);
  }

  const ShapedGraph& from_;
  GraphRewriter to_;
  std::vector<std::vector<NodeId>> users_;
  std::map<NodeId, Parts> instead_;  ///< what those read instead of their operand
};

}  // namespace

ShapedGraph sink_slices(const ShapedGraph& graph) {
  SliceSinking sinking(graph);
  if (!sinking.changes()) return graph;
  ShapedGraph result = simplify(sinking.run());
  PartReading reading(result);
  return reading.changes() ? reading.run() : result;
}

}  // namespace kiln::fusion
