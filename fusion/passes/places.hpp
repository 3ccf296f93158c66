// The places at which put stores and take reads, as computed values of a graph whose views are
// being placed (place_views.hpp).
#pragma once

#include "fusion/passes/placed_arrays.hpp"
#include "fusion/passes/put_parts.hpp"
#include "fusion/passes/taken_views.hpp"

namespace kiln::fusion {

/// Places that are seen in another shape of as many elements.
NodeId places_in(PlacedArrays& arrays, NodeId places, const Dims& shape);

/// The places of what is within a window of a value's axis, and -1 of what is not. `shape` is the
/// value's.
NodeId places_within(PlacedArrays& arrays, NodeId places, const Window& window, const Dims& shape);

/// The places of elements of pages that are seen as one long axis: element k along it is at place
/// table[k / length] * step + k % length, and at none where the page is none. `taken` is the take()
/// that is seen so, of that shape.
NodeId places_in_pages(PlacedArrays& arrays, const TypedNode& taken, const Dims& shape,
                       const TakenView& view, NodeId table);

/// The extents along which a layout moves, 1 of the other axes.
Dims varying(Dims shape, const ArrayLayout& layout);

}  // namespace kiln::fusion
