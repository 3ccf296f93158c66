// The layout of sums of small weights times 16-bit floats in tiles (preamble/product_tiles.h):
// which sums those are, and how their rows and vectors are shared out to waves. Part of
// plan_products().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/schedule/layout.hpp"
#include "fusion/schedule/merged_axes.hpp"

namespace kiln::fusion {

/// Sets the schedule's tiles and its width if they suit the graph's sum and its operands. The
/// schedule has its axes, columns and operands by then.
void choose_tiles(const TypedGraph& graph, std::span<const Operand> operands,
                  const std::vector<MergedAxis>& axes, Layout& layout);

/// Threads, blocks and sets of a layout in tiles, of so many batches of rows.
void share_out_tiles(Layout& layout, std::int64_t batches);

}  // namespace kiln::fusion
