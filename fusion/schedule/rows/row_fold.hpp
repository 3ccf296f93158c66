// Rows of GPUs whose elements are neighbours in memory along an axis that is not the last one in
// their count, and how they are read in vectors none the less: as if these were of columns.
#pragma once

#include "fusion/schedule/merged_axes.hpp"

namespace kiln::fusion {

/// How such a row is read, where the axes behind that axis have a power of two of elements.
///
/// Where that is less than a chunk of the tree (preamble/tree.h), the lanes of a vector are of one
/// chunk. A thread folds `vectors` of them, which have all terms of a few residues
/// (fold_vectors() in preamble/columns.h).
///
/// Else each lane has chunks of its own, which are combined as those of a column, and then with
/// those of other lanes. Of parts of a row each is a column.
struct RowFold {
  std::size_t along = 0;  ///< the axis
  int width = 0;          ///< of a vector, all of one row; 0: lanes are parts
  int vectors = 0;        ///< RowSchedule::folded
  int steps = 1;          ///< RowSchedule::fold_steps
  int terms_of = 1;       ///< RowSchedule::fold_residues
  int chunk_vectors = 0;  ///< RowSchedule::joined_chunks
  int residues = 0;       ///< that threads take in turn, as those of a column; 0: no such row
  Size at_a_time = 1;     ///< elements along the axis, and those before it, of a chunk
  Size chunks = 0;        ///< that each element along the axis has; 0: not one
  bool exists() const { return residues != 0; }
};

/// `axes` are those of a row in the order of their count, `along` the one along which neighbours
/// are neighbours in the memory of the largest operand, `parts` how many a row is cut into (every
/// so many-th chunk) and `most_width` that of a vector along that axis.
RowFold fold_rows(const ScratchVector<MergedAxis>& axes, std::size_t along, Size parts,
                  int most_width);

/// Makes lanes of a vector the innermost axis of those that are not reduced, and parts another one.
/// Where lanes are all that a row, or a part of it, has along the axis at a time, neighbouring rows
/// are side by side: then the strides of what is the same for a row are those from row to row.
void fold_axes(const RowFold& fold, Size parts, ScratchVector<MergedAxis>& kept,
               ScratchVector<MergedAxis>& reduced, std::span<const SizedOperand> operands,
               const ScratchVector<bool>& row_invariant);

}  // namespace kiln::fusion
