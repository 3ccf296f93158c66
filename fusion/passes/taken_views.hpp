// What take() gives, seen through views: rows of an array at places that lie in another one, both
// by strides. Where pages of an array are taken and seen as one long axis, as those of a cache are
// by a table of pages, element k of that axis is element k % length of page k / length. Part of
// placing views (place_views.hpp).
#pragma once

#include <optional>

#include "fusion/graph/shape_ops.hpp"
#include "fusion/graph/typed_graph.hpp"
#include "fusion/infer/shapes.hpp"

namespace kiln::fusion {

/// The axis of an array along which a node take or put of the graph has places.
std::size_t places_axis(const ShapedGraph& graph, const TypedNode& indexed);

/// The shape of its places before they were expanded by the array's axes that follow.
Dims places_of(const ShapedGraph& graph, const TypedNode& indexed);

/// The layout of what take(array, places) has, in an array that lies as `array` says.
ArrayLayout indexed_layout(const ShapedGraph& graph, const TypedNode& indexed,
                           const ArrayLayout& array);

/// The axis that several pages are together.
struct PagedAxis {
  std::size_t axis = 0;
  std::int64_t length = 0;  ///< elements of a page
  std::int64_t step = 0;    ///< from one page to the next, in places of the axis
};

/// Layouts over the shape of what is taken, with stride 0 where something repeats.
struct TakenView {
  ArrayLayout rows;    ///< what is read, at the first place
  ArrayLayout places;  ///< what says which place; of pages along the table's own axis, `indexed`
  std::optional<PagedAxis> paged;
};

/// What a view, with that op and list, of something taken of shape `whole` is, whose own shape is
/// `shape`. Nothing where strides cannot express it, or where rows would be read across the axis
/// along which they lie.
std::optional<TakenView> seen_through(Op op, const ShapeList& list, const Dims& whole,
                                      const Dims& shape, const TakenView& taken);

}  // namespace kiln::fusion
