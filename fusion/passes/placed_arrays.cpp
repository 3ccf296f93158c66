// See placed_arrays.hpp.
#include "fusion/passes/placed_arrays.hpp"

#include <utility>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/reshape.hpp"

namespace kiln::fusion {

bool is_array(const TypedNode& node) {
  return node.op == Op::input || node.op == Op::view || node.op == Op::join ||
         node.op == Op::custom_call || node.arity > 0;
}

PlacedArrays::PlacedArrays(const ShapedGraph& from, std::span<const ArrayLayout> arguments)
    : arguments_(arguments), builder_(graph) {
  graph.graph = without_nodes(from.graph);
}

ArrayLayout PlacedArrays::layout_of(NodeId id) const {
  const TypedNode& own = node(id);
  if (own.op == Op::view) return graph.views[own.payload];
  if (own.op == Op::input) return arguments_[own.payload];
  if (const auto argument = updated_argument(graph, id)) return layout_of(*argument);
  return contiguous_layout(shape(id));
}

NodeId PlacedArrays::number(DType dtype, std::int64_t value) {
  return append({Op::constant, dtype, 0, {}, static_cast<std::uint64_t>(value)}, {});
}

NodeId PlacedArrays::taken(NodeId array, std::size_t axis, NodeId places) {
  if (!is_array(node(array))) array = copy(array);
  const Dims whole = shape(array);
  ArrayLayout rows = layout_of(array);
  rows.indexed = {rows.strides[axis], whole[axis]};
  rows.strides[axis] = 0;
  Dims all = whole;
  all[axis] = 1;
  all = broadcast(all, shape(places)).value();
  rows.strides = broadcast_strides(whole, rows.strides, all);
  const NodeId seen = view_of(viewed(graph.graph, array), all, std::move(rows));
  const std::uint64_t list = builder_.add_list({static_cast<std::int64_t>(axis)});
  return append({Op::take, node(array).dtype, 2, {seen, places, 0}, list}, all);
}

NodeId PlacedArrays::join(DType dtype, std::vector<PlacedPart> parts, const Dims& shape) {
  graph.joins.push_back(std::move(parts));
  return append({Op::join, dtype, 0, {}, graph.joins.size() - 1}, shape);
}

NodeId PlacedArrays::copy(NodeId id) {
  const auto [known, fresh] = copies_.emplace(id, 0);
  if (fresh) known->second = new_copy(id);
  return known->second;
}

NodeId PlacedArrays::new_copy(NodeId id) {
  return append({Op::promote, node(id).dtype, 1, {id}, 0}, shape(id));
}

NodeId PlacedArrays::view_of(NodeId root, const Dims& seen, ArrayLayout layout) {
  if (shape(root) == seen && is_same(layout_of(root), layout)) return root;
  for (const NodeId other : views_[root]) {
    if (shape(other) == seen && is_same(layout_of(other), layout)) return other;
  }
  const NodeId made = append({Op::view, node(root).dtype, 1, {root}, graph.views.size()}, seen);
  graph.views.push_back(std::move(layout));
  views_[root].push_back(made);
  return made;
}

NodeId PlacedArrays::view(Op op, const ShapeList& list, NodeId operand, const Dims& seen) {
  if (!is_array(node(operand))) operand = copy(operand);
  auto layout = result_layout(op, list, shape(operand), seen, layout_of(operand));
  if (!layout) {
    operand = copy(operand);
    layout = result_layout(op, list, shape(operand), seen, layout_of(operand));
  }
  return view_of(viewed(graph.graph, operand), seen, std::move(*layout));
}

}  // namespace kiln::fusion
