#include "fusion/passes/put_parts.hpp"

#include <algorithm>
#include <utility>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/reshape.hpp"
#include "fusion/graph/size_trace.hpp"
#include "kiln/view.hpp"

namespace kiln::fusion {
namespace {

class PutSplitting {
 public:
  PutSplitting(const ShapedGraph& graph, NodeId places) : graph_(graph), places_(places) {}

  std::optional<PutParts> run(PutPart whole) {
    open_.push_back(std::move(whole));
    while (!open_.empty()) {
      PutPart part = std::move(open_.back());
      open_.pop_back();
      const TypedNode& own = node(part.value);
      bool known = true;
      if (own.op == Op::concat) {
        known = open_operands(part);
      } else if (keeps_element_order(own.op)) {
        known = open_reshaped(part);
      } else if (own.op == Op::transpose || own.op == Op::swapaxes) {
        known = open_transposed(part);
      } else if (own.op == Op::slice) {
        known = open_sliced(part);
      } else if (own.arity == 1 && is_elementwise(own.op) &&
                 (!concatenated_ || shows_view(own.operands[0]))) {
        open(part, own.operands[0]).then.push_back(part.value);
      } else {
        known = own.arity > 0 && (is_elementwise(own.op) || is_reduction(own.op));
        result_.parts.push_back(std::move(part));
      }
      if (!known) return std::nullopt;
    }
    if (!concatenated_ && !reshaped_) return std::nullopt;
    return std::move(result_);
  }

 private:
  const TypedNode& node(NodeId id) const { return graph_.graph.nodes[id]; }
  const Dims& shape(NodeId id) const { return graph_.shapes[id]; }

  // Whether a value is a view, or operations of one operand on one.
  bool shows_view(NodeId id) const {
    while (node(id).arity == 1 && is_elementwise(node(id).op)) id = node(id).operands[0];
    return is_shape_op(node(id).op);
  }

  PutPart& open(const PutPart& part, NodeId operand) {
    if (std::ranges::find(result_.above, part.value) == result_.above.end()) {
      result_.above.push_back(part.value);
    }
    open_.push_back(part);
    open_.back().value = operand;
    return open_.back();
  }

  // Both operands have the same places if these are the same along the axis.
  bool open_operands(const PutPart& part) {
    const TypedNode& own = node(part.value);
    const Dims& first = shape(own.operands[0]);
    const std::int64_t given = shape_list(graph_.graph, own)[0];
    const auto axis = static_cast<std::size_t>(
        given < 0 ? given + static_cast<std::int64_t>(first.size()) : given);
    const std::size_t missing = first.size() - part.places.size();
    if (axis >= missing && part.places[axis - missing] != 1) return false;
    if (part.window && part.window->axis == axis) return false;
    concatenated_ = true;
    open(part, own.operands[1]).layout.offset += first[axis] * part.layout.strides[axis];
    open(part, own.operands[0]);
    return true;
  }

  // Gives places that differ along an axis of a value another extent there.
  static void extend(Dims& places, std::size_t axis, const Dims& whole, std::int64_t extent) {
    const std::size_t missing = whole.size() - places.size();
    if (axis >= missing && places[axis - missing] != 1) places[axis - missing] = extent;
  }

  bool open_reshaped(const PutPart& part) {
    const TypedNode& own = node(part.value);
    const Dims& seen = shape(part.value);
    const Dims& below = shape(own.operands[0]);
    if (element_count(below) == 0) return false;
    auto layout = layout_behind(below, seen, {contiguous_strides(seen), 0, {}}, part.layout);
    Dims all = part.places;
    if (part.window) extend(all, part.window->axis, seen, seen[part.window->axis]);
    auto places = reshaped_operand(all, seen, below);
    if (!layout || !places) return false;
    reshaped_ = true;
    std::optional<Window> window = part.window;
    if (window) window = reshaped_window(seen, *window, below);
    if (part.window && !window) return false;
    if (window) extend(*places, window->axis, below, window->count);
    PutPart& inner = open(part, own.operands[0]);
    inner.window = window;
    inner.layout = std::move(*layout);
    inner.places = std::move(*places);
    return true;
  }

  // Places stay in their order: axes along which they differ do.
  bool open_transposed(const PutPart& part) {
    const TypedNode& own = node(part.value);
    const Dims& seen = shape(part.value);
    const Dims& below = shape(own.operands[0]);
    Dims padded(seen.size(), 1);
    std::ranges::copy(part.places, padded.begin() + (seen.size() - part.places.size()));
    ArrayLayout layout = part.layout;
    Dims places(seen.size(), 1);
    std::optional<Window> window = part.window;
    std::size_t last = 0;
    for (std::size_t k = 0; k < below.size(); ++k) {
      ArrayLayout marked{Dims(below.size(), 0), 0, {}};
      marked.strides[k] = 1;
      const auto moved = result_layout(own.op, shape_list(graph_.graph, own), below, seen, marked);
      const auto at =
          static_cast<std::size_t>(std::ranges::find(moved->strides, 1) - moved->strides.begin());
      layout.strides[k] = part.layout.strides[at];
      places[k] = padded[at];
      if (part.window && part.window->axis == at) window->axis = k;
      if (padded[at] != 1 && at < last) return false;
      if (padded[at] != 1) last = at;
    }
    reshaped_ = true;
    PutPart& inner = open(part, own.operands[0]);
    inner.layout = std::move(layout);
    inner.places = std::move(places);
    inner.window = window;
    return true;
  }

  // Neighbours of a value that a kernel computes whole have their places, and others none.
  bool open_sliced(const PutPart& part) {
    const TypedNode& own = node(part.value);
    const ShapeList& list = shape_list(graph_.graph, own);
    if (part.window || list[0] < 0 || list[1] < 0 || list[3] != 1) return false;
    if (!is_signed(node(places_).dtype)) return false;
    const auto axis = static_cast<std::size_t>(list[0]);
    PutPart& inner = open(part, own.operands[0]);
    inner.window = Window{axis, list[1], shape(part.value)[axis]};
    inner.layout.offset -= list[1] * inner.layout.strides[axis];
    reshaped_ = true;
    return true;
  }

  static bool is_signed(DType dtype) { return kind(dtype) == Kind::signed_integer; }

  const ShapedGraph& graph_;
  NodeId places_;
  std::vector<PutPart> open_;
  bool concatenated_ = false;
  bool reshaped_ = false;
  PutParts result_;
};

}  // namespace

std::optional<PutParts> put_parts(const ShapedGraph& graph, NodeId put, const ArrayLayout& layout) {
  const TypedNode& node = graph.graph.nodes[put];
  const NodeId value = node.operands[2];
  // One that is broadcast is stored more than once.
  if (graph.shapes[value].size() != layout.strides.size() || is_packed(node.dtype)) {
    return std::nullopt;
  }
  std::optional<PutParts> parts = PutSplitting(graph, node.operands[1])
                                      .run({value, graph.shapes[node.operands[1]], layout, {}});
  if (parts) {
    for (PutPart& part : parts->parts) part.layout.indexed = layout.indexed;
  }
  return parts;
}

}  // namespace kiln::fusion
