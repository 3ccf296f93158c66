// Few long rows, or few columns of many, would leave most of a device idle: here their reductions
// become two, the first over pieces of each row, the second over what the pieces gave. How many
// pieces depends on shapes alone, so that results have the same bits on every device of a family
// and on every run.
#pragma once

#include <cstdint>

#include "fusion/passes/passes.hpp"

namespace kiln::fusion {

/// What is worth two kernels. A block takes a row, or a cache line's width of neighbouring columns.
struct SplitModel {
  std::int64_t few_blocks = 512;     ///< with so many all of a large device is busy
  std::int64_t few_read_again = 64;  ///< where elements are read again after the reduction, a block
                                     ///< that has them in its caches is better than more of them
  std::int64_t columns = 32;         ///< that a block takes
  std::int64_t least_piece = 1 << 14;  ///< elements
  std::int64_t least_pieces = 4;       ///< fewer gain less than a kernel more costs
  std::int64_t most_blocks = 1 << 13;  ///< of all rows' pieces
};

/// The pieces that rows of `from` are cut into when they are reduced to `to`; 1: they are not.
std::int64_t pieces_of(const Dims& from, const Dims& to, bool read_again,
                       const SplitModel& model = {});

/// A reduction over pieces keeps the longest axis that it reduces (piece_axis,
/// infer/reduce_space.hpp), with one element for each piece: its shape tells it from others.
/// In pieces a mean is a sum, and a place comes with its value. `graph` has no trivial reductions
/// (infer/reduce_space.hpp).
ShapedGraph split_reductions(const ShapedGraph& graph, const SplitModel& model = {});

/// How many pieces a node's rows are in: 1 for what is no reduction over pieces.
std::int64_t pieces_of(const TypedGraph& graph, std::span<const Dims> shapes, NodeId id);

}  // namespace kiln::fusion
