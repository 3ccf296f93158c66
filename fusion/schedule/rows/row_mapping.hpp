// How rows are mapped to threads: a model for each backend, with its reasons, and what follows from
// it for one row. Columns are mapped in columns/column_mapping.hpp. What a row is, and how its
// elements are accessed, is decided in row_layout.cpp.
#pragma once

#include <cstdint>

#include "fusion/schedule/layout.hpp"

namespace kiln::fusion {

/// What a backend's devices do best with rows.
struct RowModel {
  int short_row;       ///< vectors of the longest row that is short
  int short_threads;   ///< for a short row, with several rows in a block
  int block;           ///< threads of a block with several rows, or of columns
  int block_bytes;     ///< of a block with several rows whose results are stored; 0: any number
  int vectors;         ///< of a longer row, for each thread
  int max_threads;     ///< for a row, before each thread gets more vectors
  int wide_threads;    ///< the same where a vector has eight elements or more
  int max_vectors;     ///< that a thread keeps on chip
  int register_bytes;  ///< that a thread keeps on chip
  int on_chip_row;   ///< bytes of the longest row that is kept on chip; longer ones are read again
                     ///< by each pass
  int long_row;      ///< bytes of a row from which on, where a vector has eight elements or more,
                     ///< a part is kept in shared memory
  int shared_bytes;  ///< of that part; 0: none
  int long_threads;  ///< for rows twice as long
  int cluster_row;   ///< bytes of a row beyond `on_chip_row` for each block of a cluster
  int spare_bytes;   ///< up to which weights are loaded before the first pass too
  int batch;         ///< vectors in flight where none are kept
  int batch_bytes;   ///< of those vectors
  int lanes;         ///< elements side by side of a work item on the CPU; 0: a vector's
  std::int64_t threads;  ///< that columns should be mapped to
  int sums;  ///< numbers that a thread of a column may have of its sums (preamble/columns.h)
};

const RowModel& row_model(Backend backend);

/// The largest cluster that all devices with clusters support.
inline constexpr int kMostBlocks = 8;

/// Rows of several chunks that threads have no room for are copied to shared memory as a whole, by
/// clusters whose blocks may share each chunk. Where two blocks fit, one copies while the other one
/// waits for its cluster; a block that needs more has a multiprocessor for itself. Beside rows
/// there are partial results. On an H100 two operands of 65,536 f32 go from 0.62 of a copy, which
/// reads them again, to 0.92 (x * (r - sum(x * r))), of 131,072 from 0.59 to 0.82; gelu of a norm
/// of two bf16 operands, times a third, from 0.67 to 0.87 (131,072).
inline constexpr int kRoomOfOne = 208 << 10;
inline constexpr int kRoomOfTwo = 104 << 10;
inline constexpr int kSharedOfBlock = 224 << 10;
inline constexpr int kThreadsOfCopies = 512;
inline constexpr int kFewestThreads = 128;

/// A schedule that a test asks for, as far as a kernel can have it, so that results of all of them
/// can be compared. What is 0 or false is chosen as ever.
struct ForcedRows {
  int threads = 0;          ///< GPUs: per row or column, a power of two; not of clusters, nor of
                            ///< columns of running results
  int width = 0;            ///< GPUs: no more elements in a vector, a power of two
  bool read_again = false;  ///< each pass reads the row, of which nothing is kept on chip
  int cluster_blocks = 0;   ///< NVIDIA GPUs with clusters: that share a row of several chunks, or a
                            ///< column of one, which more than one pass reads; a power of two of up
                            ///< to 8
  int parts = 0;  ///< of a row or column that a Program cuts, where its tree has so many: 1 or a
                  ///< power of two (passes/split_reductions.hpp)
  bool keeps_columns = false;  ///< GPUs: as few threads as have room for them keep columns that
                               ///< several passes read, though more would fill the device
  int columns = 0;             ///< GPUs: vectors of columns side by side in a block, a power of two
  int batch = 0;  ///< GPUs: elements of running results across rows that a thread loads at a time
};

/// Features in which GPUs of one backend differ, and what is asked of a schedule.
struct RowFeatures {
  bool clusters = false;    ///< blocks may share a row (preamble/cluster.h)
  bool large_smem = false;  ///< two blocks of a multiprocessor have 112 KiB of shared memory each
  ForcedRows forced{};
};

/// Register bytes for one vector of every input: of inputs that differ from row to row, and of
/// weights, which all rows share and the caches keep.
struct VectorBytes {
  int rows = 0;
  int weights = 0;
  int once = 0;       ///< columns: inputs of either kind that only one of several passes reads
  bool bf16 = false;  ///< some of the rows are
};

/// Register bytes of the inputs whose vectors a thread keeps from one pass to the next.
int on_chip_bytes(const VectorBytes& bytes);

int power_of_two_from(Size count);
int power_of_two_to(Size count);

/// Vectors whose loads a thread has in flight where it keeps none.
int vectors_in_flight(const VectorBytes& bytes, const RowModel& model);

/// How many residues the tree of so many elements has (numerics.md), of one chunk if they are more.
int residues_of(Size elements);
/// Those of them that have elements.
int residues_with_elements(Size elements);

/// Maps a row of that many vectors to threads, at least `least` of them and at most `most`. With
/// more than one reduction, fewer threads with two vectors each have less to wait for: rows of 64
/// f32 go from 0.77 to 0.94 of a copy (three reductions), and with one reduction from 1.00 to 0.97.
void map_row(RowSchedule& rows, Size vectors, const VectorBytes& in_vector, int width, int least,
             int most, int reductions, int stored, const RowFeatures& device, Backend backend);

/// Whether rows of two operands and more of 16 bits, which are too long for the registers of a
/// block in vectors of 16 bytes, stay there in vectors of half as many: threads of which all have
/// as many leave none idle. On an H200 softmax of (x + r) of 13,824 bf16 goes from 0.89 of a copy,
/// most of it in shared memory, to 1.03. Beside weights there are not so many registers.
bool fits_narrow_vectors(Size vectors, int width, const VectorBytes& in_vector);

/// What threads of a block share of the sums and products of floats of rows of several chunks.
struct PartialResults {
  int trees = 0;       ///< in the pass with most of them
  int reductions = 0;  ///< in all passes
  int bytes = 4;       ///< of a partial result
  /// Bytes of shared memory (preamble/chunks.h), where threads synchronise after so many chunks.
  Size shared(int threads, int width, int chunks) const;
};
/// Of these, at most: compilers take 48 KiB that are no dynamic shared memory.
inline constexpr int kMostPartialBytes = 40 << 10;

/// Maps a row of one chunk to a block that keeps all of it in shared memory, where it is copied
/// asynchronously: rows with 32 bytes and more in a vector, such as two operands of 16 bits, that
/// more than one pass reads, for kernels with weights, which need the registers. On an H200, of
/// five norms, gradients of norms and statistics of 16,384 bf16 the median goes from 0.95 of a copy
/// to 1.03, of 24,576 f16 from 0.89 to 0.93, and of 32,768 bf16 from 0.70 to 0.87. `bytes` is what
/// blocks keep of a vector. False: it is no such row.
bool map_copied_chunk(RowSchedule& rows, Size vectors, int bytes, int width, int most,
                      const RowFeatures& device);

/// Maps a long row that more than one pass reads to blocks of NVIDIA GPUs that keep all of it in
/// shared memory, where it is copied asynchronously: one block or a cluster. Each has whole chunks,
/// if the row is one of them, or several share each chunk. `bytes` is what they keep of a vector,
/// `most` the threads that a chunk can have. False: there is no room, or the device is not one of
/// those.
bool map_copied_row(RowSchedule& rows, Size elements, int bytes, int width, int most,
                    const PartialResults& results, const RowFeatures& device);

/// Decides how many of a row's vectors a thread keeps on chip, and how many loads of others it has
/// in flight.
void choose_registers(RowSchedule& rows, Size vectors, Size least_vectors, const VectorBytes& bytes,
                      int width, const RowFeatures& device, Backend backend);

}  // namespace kiln::fusion
