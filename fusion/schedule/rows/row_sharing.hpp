// How rows and columns are shared out to threads: a model for each backend, with its reasons, and
// what follows from it for one row. What is a row, and how its elements lie, is for
// row_layout.cpp.
#pragma once

#include <cstdint>

#include "fusion/schedule/layout.hpp"

namespace kiln::fusion {

/// How a backend shares rows out.
struct RowModel {
  int short_row;      ///< rows of up to so many vectors take no more than
  int short_threads;  ///< so many threads, with several rows in a block
  int block;          ///< threads of a block of several rows, or of columns
  int block_bytes;    ///< of several rows of which results are stored, of no more than so many
                      ///< bytes; 0: any number
  int vectors;        ///< of a longer row, for each thread
  int max_threads;    ///< that share a row; from there on each gets more vectors
  int wide_threads;   ///< the same where a vector is eight elements or more
  int max_vectors;    ///< that a thread keeps,
  int held_bytes;     ///< of no more than so many bytes
  int held_row;       ///< of rows of no more than so many; longer ones are read again by each pass
  int long_row;       ///< bytes of a row from which on, where a vector is eight elements or more, a
                      ///< part of it is kept in shared memory
  int shared_bytes;   ///< of no more than so many bytes; 0: none
  int long_threads;   ///< that share rows twice as long
  int cluster_row;    ///< bytes of rows longer than `held_row` for each block of a cluster, where
                      ///< blocks are in clusters
  int spare_bytes;    ///< up to which weights are fetched before the first pass too
  int batch;          ///< vectors under way where they are not kept,
  int batch_bytes;    ///< of no more than so many bytes
  int lanes;          ///< elements side by side of a host's work item; 0: as many as make a vector
  std::int64_t threads;  ///< that columns should be shared out to
};

const RowModel& row_model(Backend backend);

/// Vectors after which the sums of a long row begin again: kStretch of preamble/reduce.h.
inline constexpr int kStretchVectors = 64;

/// What GPUs of one backend differ in.
struct RowFeatures {
  bool clusters = false;  ///< blocks may share a row (preamble/cluster.h)
  bool roomy = false;     ///< two blocks of a multiprocessor have 112 KiB of shared memory each
};

/// What a vector of every input takes of a thread's registers: of those that differ from row to
/// row, and of the weights, which all rows share and the caches keep.
struct VectorBytes {
  int rows = 0;
  int weights = 0;
  bool bf16 = false;  ///< some of the rows are
};

/// Of which inputs a thread keeps its vectors from one pass to the next.
int kept_bytes(const VectorBytes& bytes);

int power_of_two_from(std::int64_t count);

/// How a row of that many vectors is shared out, to no fewer than `least` threads. Where its
/// threads meet more than once, fewer of them with two vectors each have less to wait for: rows of
/// 64 f32 go from 0.77 to 0.94 of a copy (three reductions), and with one reduction from 1.00 to
/// 0.97.
void share_row(RowSchedule& rows, std::int64_t vectors, const VectorBytes& in_vector, int width,
               int least, int reductions, bool stores, const RowFeatures& device, Backend backend);

/// How columns of `length` elements are shared out, of which `across` vectors stand side by side
/// and there are `count` vectors in all: to as many threads as fill the device, of which neighbours
/// read whole cache lines together. Each has at least a batch to read. Where few columns stand side
/// by side and threads can keep what they read, so many share one that they do, and no pass reads
/// it again.
void share_columns(RowSchedule& rows, std::int64_t length, std::int64_t across, std::int64_t count,
                   int reductions, Backend backend);

/// How many of its vectors a thread keeps, and how many it has under way of what it does not.
void choose_held(RowSchedule& rows, std::int64_t vectors, std::int64_t least_vectors,
                 const VectorBytes& bytes, int width, const RowFeatures& device, Backend backend);

}  // namespace kiln::fusion
