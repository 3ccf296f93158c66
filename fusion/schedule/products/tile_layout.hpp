// Plans sums of small weights times 16-bit floats by matrix instructions
// (preamble/product_tiles.h): which sums those are, and how their rows and vectors are mapped to
// waves. Part of plan_products().
#pragma once

#include <cstdint>
#include <span>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/schedule/layout.hpp"
#include "fusion/schedule/merged_axes.hpp"

namespace kiln::fusion {

/// Whether an operand may be the weights of a sum in tiles, by its dtype.
bool may_be_tile_weights(const SizedOperand& operand);

/// The elements of a vector of weights, which go along the last `vector_axes` of the reduced axes:
/// 16, or 8 where steps of four such vectors would not be within a group. It decides the order of
/// adding, and so follows from the extents of what is reduced alone. 0 where there are no tiles.
int tile_width(const ScratchVector<MergedAxis>& reduced, std::size_t vector_axes);

/// Sets the schedule's tiles if the graph's sum is one of such weights times 16-bit floats, and
/// returns whether it is. Weights and vectors whose elements lie where tiles cannot load them are
/// gathered. The schedule has its axes, columns, width and operands by then; if there are no tiles
/// it is of no use.
bool choose_tiles(const TypedGraph& graph, std::span<const SizedOperand> operands,
                  const ScratchVector<MergedAxis>& axes, std::size_t weights, SizedLayout& layout);

/// Sets the threads, blocks and sets of a layout with tiles, for that many batches of rows.
void map_tiles(SizedLayout& layout, Size batches);

}  // namespace kiln::fusion
