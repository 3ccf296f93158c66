#include "fusion/passes/put_parts.hpp"

#include <algorithm>
#include <utility>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/reshape.hpp"
#include "kiln/view.hpp"

namespace kiln::fusion {
namespace {

class PutSplitting {
 public:
  explicit PutSplitting(const ShapedGraph& graph) : graph_(graph) {}

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
      } else if (!concatenated_ && own.arity == 1 && is_elementwise(own.op)) {
        open(part, own.operands[0]).then.push_back(part.value);
      } else {
        known = own.arity > 0 && (is_elementwise(own.op) || is_reduction(own.op));
        result_.parts.push_back(std::move(part));
      }
      if (!known) return std::nullopt;
    }
    if (!concatenated_) return std::nullopt;
    return std::move(result_);
  }

 private:
  const TypedNode& node(NodeId id) const { return graph_.graph.nodes[id]; }
  const Dims& shape(NodeId id) const { return graph_.shapes[id]; }

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
    concatenated_ = true;
    open(part, own.operands[1]).layout.offset += first[axis] * part.layout.strides[axis];
    open(part, own.operands[0]);
    return true;
  }

  bool open_reshaped(const PutPart& part) {
    const TypedNode& own = node(part.value);
    const Dims& seen = shape(part.value);
    const Dims& below = shape(own.operands[0]);
    if (element_count(below) == 0) return false;
    auto layout = layout_behind(below, seen, {contiguous_strides(seen), 0, {}}, part.layout);
    auto places = reshaped_operand(part.places, seen, below);
    if (!layout || !places) return false;
    PutPart& inner = open(part, own.operands[0]);
    inner.layout = std::move(*layout);
    inner.places = std::move(*places);
    return true;
  }

  const ShapedGraph& graph_;
  std::vector<PutPart> open_;
  bool concatenated_ = false;
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
  std::optional<PutParts> parts =
      PutSplitting(graph).run({value, graph.shapes[node.operands[1]], layout, {}});
  if (parts) {
    for (PutPart& part : parts->parts) part.layout.indexed = layout.indexed;
  }
  return parts;
}

}  // namespace kiln::fusion
