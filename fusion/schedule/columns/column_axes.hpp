// Which reductions go by columns: neighbours in memory are of different rows, or of few elements of
// each; and the axes that columns have then.
#pragma once

#include <span>

#include "fusion/schedule/merged_axes.hpp"
#include "fusion/schedule/rows/row_fold.hpp"
#include "fusion/schedule/rows/row_mapping.hpp"

namespace kiln::fusion {

/// Every lane of a GPU's thread has a slot in shared memory. The CPU reads runs of pages, which the
/// hardware prefetcher follows, and adds them to sums that fit the L1 cache.
inline constexpr int kMostColumnVector = 8;
inline constexpr std::int64_t kHostColumns = 1024;

/// Whether neighbours in memory belong to different rows.
bool lies_along_rows(const MergedAxis& kept, const MergedAxis& reduced, std::size_t operand);

/// Whether rows lie side by side in memory with so few neighbours of each that threads side by side
/// had better read several rows, element by element: pixels of an image whose channels are last, in
/// groups of three. So sectors are read once, not once for each group. Packed elements share bytes
/// with their neighbours, which one thread has to have.
bool has_few_neighbours(const MergedAxis& kept, const ScratchVector<MergedAxis>& reduced,
                        std::span<const SizedOperand> operands, std::size_t leading);

/// How many neighbouring columns are one row, where the innermost axis is reduced, but so short
/// that threads side by side had better read several rows: pixels of an image whose channels are
/// last, in groups. 1: none, also where a row reads whole sectors, where few threads would have all
/// columns of a row, and where there are results of rows, which have no place in vectors of
/// columns.
int joined_columns(const ScratchVector<MergedAxis>& outer, const ScratchVector<MergedAxis>& inner,
                   std::span<const SizedOperand> operands, const ScratchVector<bool>& row_invariant,
                   std::size_t leading);

/// How rows are folded that lie in memory in another order than that of their count.
RowFold fold_of(const ScratchVector<MergedAxis>& inner, const ReduceSpace& space,
                std::span<const SizedOperand> operands, const ScratchVector<bool>& row_invariant,
                std::size_t leading, const RowFeatures& device, Backend backend);

/// In how many parts the residues of a column are cut where it is split: those of each chunk,
/// unless there are more chunks than parts (preamble/tree.h).
int residue_parts(Size length, Size splits);

}  // namespace kiln::fusion
