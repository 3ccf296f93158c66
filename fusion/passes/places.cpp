// See places.hpp.
#include "fusion/passes/places.hpp"

#include <optional>
#include <utility>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/reshape.hpp"
#include "fusion/infer/iota.hpp"

namespace kiln::fusion {
namespace {

// What is computed element by element, computed in another shape, of which axes of one element
// are more or fewer: an index is counted there. Nothing where it cannot be. The recursion is as
// deep as the expression.
std::optional<NodeId> computed_in(PlacedArrays& arrays, NodeId id, const Dims& whole,
                                  const Dims& shape) {
  TypedNode node = arrays.node(id);
  const Dims own = arrays.shape(id);
  if (own.empty()) return id;
  const std::optional<Dims> wanted = reshaped_operand(own, whole, shape);
  if (!wanted) return std::nullopt;
  if (node.op == Op::iota) {
    const auto at = static_cast<std::size_t>(std::ssize(own) + iota_axis(node));
    if (own[at] == 1) return arrays.append({Op::constant, node.dtype, 0, {}, 0}, {});
    const auto axis = same_axis(own, at, *wanted);
    if (!axis) return std::nullopt;
    node.payload =
        static_cast<std::uint64_t>(static_cast<std::int64_t>(*axis) - std::ssize(*wanted));
    return arrays.append(node, *wanted);
  }
  if (node.arity == 0 || !is_elementwise(node.op)) return places_in(arrays, id, *wanted);
  for (std::size_t i = 0; i < node.arity; ++i) {
    const auto operand = computed_in(arrays, node.operands[i], whole, shape);
    if (!operand) return std::nullopt;
    node.operands[i] = *operand;
  }
  return arrays.append(node, *wanted);
}

// Places that differ along an axis, which is counted from the end, of those whose numbers along it
// are `numbers`. An index is such a number. The recursion is as deep as the expression.
NodeId computed_at(PlacedArrays& arrays, NodeId id, std::int64_t axis, NodeId numbers) {
  TypedNode node = arrays.node(id);
  const Dims own = arrays.shape(id);
  const std::int64_t at = std::ssize(own) + axis;
  if (at < 0 || own[static_cast<std::size_t>(at)] == 1) return id;
  if (node.op == Op::iota && iota_axis(node) == axis) {
    return arrays.append({Op::cast, node.dtype, 1, {numbers}, 0}, arrays.shape(numbers));
  }
  if (node.arity == 0 || !is_elementwise(node.op)) {
    return arrays.taken(id, static_cast<std::size_t>(at), numbers);
  }
  Dims all;
  for (std::size_t i = 0; i < node.arity; ++i) {
    node.operands[i] = computed_at(arrays, node.operands[i], axis, numbers);
    all = broadcast(all, arrays.shape(node.operands[i])).value();
  }
  return arrays.append(node, all);
}

}  // namespace

NodeId places_in(PlacedArrays& arrays, NodeId places, const Dims& shape) {
  if (arrays.shape(places) == shape) return places;
  if (arrays.node(places).arity > 0 && is_elementwise(arrays.node(places).op)) {
    const Dims whole = arrays.shape(places);
    if (const auto made = computed_in(arrays, places, whole, shape)) return *made;
  }
  if (!is_array(arrays.node(places))) places = arrays.copy(places);
  const auto seen = [&] {
    return result_layout(Op::reshape, ShapeList(shape.begin(), shape.end()), arrays.shape(places),
                         shape, arrays.layout_of(places));
  };
  auto layout = seen();
  if (!layout) {
    places = arrays.copy(places);
    layout = seen();
  }
  return arrays.view_of(viewed(arrays.graph.graph, places), shape, std::move(*layout));
}

NodeId places_within(PlacedArrays& arrays, NodeId places, const Window& window, const Dims& shape) {
  const auto axis = static_cast<std::int64_t>(window.axis) - std::ssize(shape);
  Dims along(shape.size(), 1);
  along[window.axis] = shape[window.axis];
  const NodeId index =
      arrays.append({Op::iota, DType::u32, 0, {}, static_cast<std::uint64_t>(axis)}, along);
  const NodeId within = arrays.append(
      {Op::sub, DType::u32, 2, {index, arrays.number(DType::u32, window.first), 0}, 0}, along);
  const NodeId there = arrays.append(
      {Op::less, DType::boolean, 2, {within, arrays.number(DType::u32, window.count), 0}, 0},
      along);
  const DType dtype = arrays.node(places).dtype;
  places = computed_at(arrays, places, axis, within);
  const Dims all = broadcast(arrays.shape(places), along).value();
  return arrays.append({Op::where, dtype, 3, {there, places, arrays.number(dtype, -1)}, 0}, all);
}

Dims varying(Dims shape, const ArrayLayout& layout) {
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (layout.strides[k] == 0) shape[k] = 1;
  }
  return shape;
}

NodeId places_in_pages(PlacedArrays& arrays, const TypedNode& taken, const Dims& shape,
                       const TakenView& view, NodeId table) {
  const PagedAxis& paged = *view.paged;
  Dims keys(shape.size(), 1);
  keys[paged.axis] = shape[paged.axis];
  Dims all = varying(shape, view.places);
  all[paged.axis] = shape[paged.axis];
  const auto axis = static_cast<std::int64_t>(paged.axis) - std::ssize(shape);
  const NodeId key =
      arrays.append({Op::iota, DType::u32, 0, {}, static_cast<std::uint64_t>(axis)}, keys);
  const NodeId length = arrays.number(DType::u32, paged.length);
  const NodeId which = arrays.append({Op::floor_divide, DType::u32, 2, {key, length, 0}, 0}, keys);
  const NodeId within = arrays.append({Op::remainder, DType::u32, 2, {key, length, 0}, 0}, keys);
  const NodeId pages = arrays.view_of(table, all, view.places);
  const NodeId page =
      arrays.append({Op::take, arrays.node(table).dtype, 2, {pages, which, 0}, taken.payload}, all);
  const NodeId wide = arrays.append({Op::cast, DType::i64, 1, {page}, 0}, all);
  const NodeId none = arrays.number(DType::i64, -1);
  const NodeId most = arrays.number(DType::i64, std::int64_t{1} << 31);
  const NodeId known = arrays.append({Op::clip, DType::i64, 3, {wide, none, most}, 0}, all);
  const NodeId step = arrays.number(DType::i64, paged.step);
  const NodeId first = arrays.append({Op::mul, DType::i64, 2, {known, step, 0}, 0}, all);
  const NodeId offset = arrays.append({Op::promote, DType::i64, 1, {within}, 0}, keys);
  return arrays.append({Op::add, DType::i64, 2, {first, offset, 0}, 0}, all);
}

}  // namespace kiln::fusion
