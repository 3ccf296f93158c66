#include "fusion/passes/taken_views.hpp"

#include "fusion/graph/indexed.hpp"

namespace kiln::fusion {
namespace {

// The axis of the result that is axis `axis` of what is seen.
std::optional<std::size_t> moved_axis(Op op, const ShapeList& list, const Dims& whole,
                                      const Dims& shape, std::size_t axis) {
  ArrayLayout along{Dims(whole.size(), 0), 0, {}};
  along.strides[axis] = 1;
  const auto seen = result_layout(op, list, whole, shape, along);
  if (!seen || seen->offset != 0) return std::nullopt;
  std::optional<std::size_t> found;
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (shape[k] == 1 || seen->strides[k] == 0) continue;
    if (found || seen->strides[k] != 1 || shape[k] != whole[axis]) return std::nullopt;
    found = k;
  }
  return found;
}

std::optional<TakenView> seen_by_strides(Op op, const ShapeList& list, const Dims& whole,
                                         const Dims& shape, const TakenView& taken) {
  auto rows = result_layout(op, list, whole, shape, taken.rows);
  auto places = result_layout(op, list, whole, shape, taken.places);
  if (!rows || !places) return std::nullopt;
  rows->indexed = taken.rows.indexed;
  places->indexed = taken.places.indexed;
  TakenView seen{std::move(*rows), std::move(*places), taken.paged};
  if (taken.paged) {
    const auto axis = moved_axis(op, list, whole, shape, taken.paged->axis);
    if (!axis) return std::nullopt;
    seen.paged->axis = *axis;
  }
  return seen;
}

Dims without_axis(const Dims& dims, std::size_t axis) {
  Dims rest(dims.size() - 1, 0);
  for (std::size_t k = 0; k < rest.size(); ++k) rest[k] = dims[k < axis ? k : k + 1];
  return rest;
}

// With axis `outer`, along which places lie, and the next one, along which each page does, as one.
std::optional<TakenView> joined(const Dims& whole, const TakenView& taken, std::size_t outer) {
  const std::int64_t length = whole[outer + 1];
  const std::int64_t step = taken.rows.strides[outer + 1];
  const IndexedAxis pages = taken.rows.indexed;
  const bool fits = taken.rows.strides[outer] == 0 && taken.places.strides[outer + 1] == 0 &&
                    length > 1 && step > 0 && pages.stride % step == 0 &&
                    pages.stride / step >= length;
  if (!fits) return std::nullopt;
  const std::int64_t apart = pages.stride / step;
  TakenView all = taken;
  all.rows.strides = without_axis(taken.rows.strides, outer);
  all.rows.strides[outer] = 0;
  all.rows.indexed = {step, pages.extent * apart};
  all.places.strides = without_axis(taken.places.strides, outer);
  all.places.strides[outer] = 0;
  all.places.indexed = {taken.places.strides[outer], whole[outer]};
  all.paged = PagedAxis{outer, length, apart};
  return all;
}

}  // namespace

std::size_t places_axis(const ShapedGraph& graph, const TypedNode& indexed) {
  return indexed_axis(indexed.op, shape_list(graph.graph, indexed),
                      graph.shapes[indexed.operands[0]], "places");
}

Dims places_of(const ShapedGraph& graph, const TypedNode& indexed) {
  const Dims& places = graph.shapes[indexed.operands[1]];
  const std::size_t after =
      graph.shapes[indexed.operands[0]].size() - 1 - places_axis(graph, indexed);
  return places.empty() ? places
                        : Dims(std::span<const std::int64_t>(places).first(places.size() - after));
}

ArrayLayout indexed_layout(const ShapedGraph& graph, const TypedNode& indexed,
                           const ArrayLayout& array) {
  const Dims& shape = graph.shapes[indexed.operands[0]];
  const std::size_t axis = places_axis(graph, indexed);
  const std::size_t of_places = places_of(graph, indexed).size();
  ArrayLayout layout{
      Dims(shape.size() - 1 + of_places, 0), array.offset, {array.strides[axis], shape[axis]}};
  for (std::size_t k = 0; k < axis; ++k) layout.strides[k] = array.strides[k];
  for (std::size_t k = axis + 1; k < shape.size(); ++k) {
    layout.strides[of_places + k - 1] = array.strides[k];
  }
  return layout;
}

std::optional<TakenView> seen_through(Op op, const ShapeList& list, const Dims& whole,
                                      const Dims& shape, const TakenView& taken) {
  if (shape.empty() || whole.empty()) return std::nullopt;
  auto seen = seen_by_strides(op, list, whole, shape, taken);
  for (std::size_t k = 0; !seen && !taken.paged && op == Op::reshape && k + 1 < whole.size(); ++k) {
    const auto all = joined(whole, taken, k);
    if (!all) continue;
    Dims merged = without_axis(whole, k);
    merged[k] = whole[k] * whole[k + 1];
    seen = seen_by_strides(op, list, merged, shape, *all);
  }
  if (!seen) return std::nullopt;
  const std::size_t last = whole.size() - 1;
  const bool along = whole[last] == 1 || shape[shape.size() - 1] == 1 ||
                     seen->rows.strides[shape.size() - 1] == taken.rows.strides[last];
  return along ? seen : std::nullopt;
}

}  // namespace kiln::fusion
