// What general kernels do, on the CPU device where there is no base pack: an interpreter, one
// element at a time, by the reference's definition of every op. Results of functions that have an
// error bound may differ from a kernel's within it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "fallback/general_kernels.hpp"
#include "fusion/graph/op.hpp"
#include "kiln/dtype.hpp"

namespace kiln::host {

/// Elements of an array by their places in C order: axes count from the innermost one, the last
/// has no bound.
struct StridedArray {
  void* data = nullptr;
  std::int64_t offset = 0;  ///< of the first element, in elements
  std::size_t rank = 1;
  std::array<std::uint64_t, kMostMovedAxes> sizes{};
  std::array<std::int64_t, kMostMovedAxes> strides{};

  /// From `data`, in elements.
  std::int64_t place(std::uint64_t element) const;
};

/// Where data says that elements are, along an axis that a StridedArray has not: one for each
/// element, or none. At one that is not there, below 0 or not below `count`, 0 is read, and nothing
/// is written.
struct Places {
  const std::int64_t* at = nullptr;
  std::int64_t stride = 0;  ///< from one place to the next, in elements
  std::int64_t count = 0;
};

void load(const StridedArray& array, DType dtype, std::uint64_t first, std::uint64_t count,
          void* value, const Places& places);
void store(const StridedArray& array, DType dtype, std::uint64_t first, std::uint64_t count,
           const void* value, const Places& places);
void index(const StridedArray& array, std::uint64_t first, std::uint64_t count, void* value);
void fill(void* value, DType dtype, std::uint64_t bits, std::uint64_t count);
void convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::uint64_t count);
void map(fusion::Op op, DType dtype, std::span<const void* const> operands, void* to,
         std::uint64_t count);
/// Rows of `length` elements, of which each of `parts` parts of `part` elements gives a result, or
/// for a running result each element does.
void along(fusion::Op op, DType from_dtype, DType to_dtype, const void* from, void* to,
           std::uint64_t rows, std::uint64_t length, std::uint64_t part, std::uint64_t parts);

/// Whether an op that reduces values of that dtype follows the tree of numerics.md: sums and
/// products of what is no integer.
bool follows_tree(fusion::Op op, DType dtype);

/// Whether a running result of values of that dtype shows its order: sums and products of what is
/// no integer, which are computed in blocks (numerics.md).
bool runs_in_blocks(fusion::Op op, DType dtype);
/// The elements of such a block.
inline constexpr std::uint64_t kRunningBlock = 256;
/// The running results of rows of `length` elements, of which runs_in_blocks() is true.
void run_in_blocks(fusion::Op op, DType dtype, const void* from, void* to, std::uint64_t rows,
                   std::uint64_t length);

/// Pairs of results that a stage of the tree combines, as a power of two.
inline constexpr std::uint64_t kTreeFold = 16;

/// A stage of the tree for rows: chunks of which each has `residues` residues, whose results are
/// combined in pairs until `slots` are left, at least `residues` / kTreeFold. Result `slot` of a
/// chunk is element [row, slot, chunk]. Chunks past the end of a row have no elements.
struct TreeStage {
  std::uint64_t rows = 0;
  std::uint64_t length = 0;    ///< of a row that is cut into chunks; else of each chunk
  std::uint64_t residues = 1;  ///< of a whole chunk
  std::uint64_t slots = 1;
  std::uint64_t chunks = 1;
  std::uint64_t apart = 1;  ///< 1: chunks are parts of a row; else element `at` of a chunk is
                            ///< [row, at, chunk], as the stage before has left it
  /// Of a row that is cut into chunks: how many elements of the first stage's row each of its own
  /// stands for, a power of two; else 0.
  std::uint64_t elements = 0;

  std::uint64_t items() const { return rows * chunks * slots; }
};

/// The stages that reduce rows of `length` elements to `splits` results, a power of two: those of
/// the parts of a split reduction (passes/split_reductions.hpp), or of the whole row.
std::vector<TreeStage> tree_stages(std::uint64_t rows, std::uint64_t length, std::uint64_t splits);

/// `counts`: of a stage that cuts rows into chunks, how many elements each row has before the first
/// stage, which are the first ones; null: all.
void run_stage(fusion::Op op, DType dtype, const TreeStage& stage, const void* from,
               const std::int64_t* counts, void* to);

}  // namespace kiln::host
