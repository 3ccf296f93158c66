// How columns are mapped to threads of a GPU: which threads share a column, which columns are side
// by side in a block, and what is kept of them on chip. The CPU takes them as they come.
#pragma once

#include "fusion/schedule/rows/row_mapping.hpp"

namespace kiln::fusion {

/// Columns of a kernel, in vectors of neighbouring ones.
struct ColumnSpace {
  Size length = 0;  ///< elements of each, or of each of its parts
  Size across = 0;  ///< vectors side by side
  Size count = 0;   ///< vectors in all
  int passes = 1;   ///< that read columns
  int reductions = 0;
  int trees = 0;          ///< sums and products of floats in the pass with most of them
  int residues = 1;       ///< that threads add up, of a column or of one of its parts
  int folded = 0;         ///< RowSchedule::folded
  int width = 1;          ///< elements of a vector
  int vector_bytes = 0;   ///< from one vector of the largest operand to the next, a power of two
  int sum_bytes = 4;      ///< of the widest sum of a column
  int slot_bytes = 8;     ///< of what threads exchange of a reduction, at most
  bool packs = false;     ///< some outputs are packed, which takes registers to store
  bool keeps = true;      ///< threads may keep them in registers
  bool clusters = false;  ///< blocks of a cluster may share them (preamble/columns.h)
  ForcedRows forced{};
};

/// How many of the residues of a column, or of its first chunk, each of `parts` has.
int residues_of_column(Size length, int joined, int parts);

/// How many of a thread's vectors are of different residues, where it keeps all of them. Their
/// number and that of threads are those of residues, but for a power of two.
int kept_residues(const RowSchedule& rows);

/// Maps columns to as many threads as fill the device; neighbours read whole cache lines together.
/// Where columns are read by more than one pass and a block can keep a strip of them that is as
/// wide as a cache line, or half of one, so many threads share a column that they do, and no pass
/// reads it again. `in_vector` is a vector of each operand.
void map_columns(RowSchedule& rows, const ColumnSpace& space, const VectorBytes& in_vector,
                 Backend backend);

/// Bytes of a vector of columns, of all operands.
struct MovedBytes {
  int kept = 0;    ///< that move along columns, and differ between them
  int again = 0;   ///< of those, that several passes read
  int stored = 0;  ///< that the last pass stores
};

/// Maps columns that several passes read, and that the registers of one block have no room for, to
/// blocks of NVIDIA GPUs that keep all of them in shared memory, where they are copied
/// asynchronously: one block or a cluster, whose blocks take elements in turn. How wide a strip of
/// them is, how many blocks share it and how many threads each has follows from what that leaves a
/// multiprocessor to have at a time (residency.hpp). False: there is no room, reading columns again
/// is faster, or the device is not one of those.
bool map_copied_columns(RowSchedule& rows, const ColumnSpace& space, const MovedBytes& bytes,
                        const RowFeatures& device);

/// Whether the threads of a GPU keep columns in registers.
bool keeps_on_chip(const ColumnSpace& space, int joined, const VectorBytes& in_vector,
                   Backend backend);

/// Whether the threads of a GPU keep columns that several passes read, and several blocks of them
/// are on a multiprocessor.
bool keeps_columns(const ColumnSpace& space, int joined, const VectorBytes& in_vector,
                   Backend backend);

/// Whether the threads of a GPU have registers for so many columns in a vector.
bool has_room_for_columns(const ColumnSpace& space, int joined, const VectorBytes& in_vector,
                          Backend backend);

/// Decides how many of a column's vectors a thread keeps in registers, how many loads of others it
/// has in flight, and for how many blocks of an NVIDIA multiprocessor there are to be registers.
void choose_column_registers(RowSchedule& rows, const ColumnSpace& space, Size vectors,
                             const VectorBytes& bytes, const RowFeatures& device, Backend backend);

}  // namespace kiln::fusion
