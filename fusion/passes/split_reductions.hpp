// Split reductions (split-K): few long rows, or few columns of many, would leave most of a device
// idle, so their reductions become two, the first over parts of each row, the second over what the
// parts gave. A part has those chunks of a row or column whose numbers are equal modulo the number
// of parts; of more than kTreeChunk chunks, the same of groups of so many, and of the chunks of a
// group; or, where columns have fewer chunks than parts, residues of one chunk that are equal
// modulo a power of two: so sums follow the tree of all of it (numerics.md, preamble/tree.h). How
// many splits a row has depends on shapes alone, so that results have the same bits on every device
// of a family and on every run.
#pragma once

#include <cstdint>
#include <vector>

#include "fusion/passes/passes.hpp"

namespace kiln::fusion {

/// What is worth two kernels. A block takes a row, or a cache line's width of neighbouring columns.
struct SplitModel {
  std::int64_t few_blocks = 512;     ///< with so many all of a large device is busy
  std::int64_t few_read_again = 64;  ///< where elements are read again after the reduction, a block
                                     ///< that has them in its caches is better than more of them
  std::int64_t columns = 32;         ///< that a block takes
  std::int64_t least_columns = 8;    ///< side by side, of which a part may have less than a chunk
  std::int64_t least_length = 1 << 14;  ///< of columns: elements of half a split, or of one
  std::int64_t least_splits = 4;        ///< fewer gain less than a kernel more costs
  std::int64_t most_blocks = 1 << 13;   ///< of the splits of all rows
  std::int64_t forced = 0;  ///< splits that a test asks for, as far as the tree has them; 0: as
                            ///< many as are worth it
};

/// What decides how rows are split.
struct SplitRows {
  std::int64_t rows = 1;
  std::int64_t length = 1;        ///< elements of a row
  std::int64_t longest_axis = 1;  ///< that is reduced: elements along it
  std::int64_t columns = 0;       ///< along the innermost axis; 0 where that is reduced
};

/// How many splits each row has; 1: they are not split. A power of two, so that few ranges of
/// lengths are planned alike.
std::int64_t splits_of(const SplitRows& rows, bool read_again, const SplitModel& model = {});
/// Of rows of `from` that are reduced to `to`.
std::int64_t splits_of(const Dims& from, const Dims& to, bool read_again,
                       const SplitModel& model = {});

/// A graph with split reductions.
struct SplitGraph {
  ShapedGraph graph;
  /// What its last arguments are, numbers that follow those of the graph before: how many elements
  /// a mean is of. No text has it, so that rows of any length take one kernel.
  std::vector<std::int64_t> lengths;
};

/// The first of the two reductions keeps the longest axis that it reduces (split_axis,
/// infer/reduce_space.hpp), with one element for each split: its shape tells it from others. That
/// of a mean is a sum, and an index comes with its value. `graph` has no trivial reductions
/// (infer/reduce_space.hpp).
SplitGraph split_reductions(const ShapedGraph& graph, const SplitModel& model = {});

/// How many splits a node's rows have: 1 for what is not the first of two reductions.
std::int64_t splits_of(const TypedGraph& graph, std::span<const Dims> shapes, NodeId id);

}  // namespace kiln::fusion
