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

/// Sets the schedule's tiles and width if they suit the graph's sum and its operands. The schedule
/// has its axes, columns and operands by then.
void choose_tiles(const TypedGraph& graph, std::span<const SizedOperand> operands,
                  const ScratchVector<MergedAxis>& axes, SizedLayout& layout);

/// Sets the threads, blocks and sets of a layout with tiles, for that many batches of rows.
void map_tiles(SizedLayout& layout, Size batches);

}  // namespace kiln::fusion
