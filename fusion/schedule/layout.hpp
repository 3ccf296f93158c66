// From the shapes, strides and addresses of one call to the schedule of its kernel (how the work is
// mapped to threads and vectors) and the numbers that such a kernel takes as parameters. Pure
// functions on values; nothing here knows a device.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "fusion/graph/indexed_axis.hpp"
#include "fusion/schedule/device_model.hpp"
#include "fusion/schedule/scratch.hpp"
#include "fusion/schedule/short_list.hpp"
#include "fusion/schedule/size.hpp"
#include "kiln/dims.hpp"
#include "kiln/dtype.hpp"

namespace kiln::fusion {

/// What the numbers of a call and of a layout are: as they are, or as planners compute with them.
template <class Number>
struct NumbersOf {
  using List = Dims;
  using Count = std::uint64_t;
  using Axis = IndexedAxis;
};
template <>
struct NumbersOf<Size> {
  using List = ShortList<Size, 6>;
  using Count = Size;
  struct Axis {
    Size stride = 0;
    Size extent = -1;
    bool exists() const { return extent >= 0; }
  };
};
using Sizes = NumbersOf<Size>::List;

/// Where an operand begins in a memory that several operands of a kernel share, known without its
/// address.
template <class Number>
struct MemoryPlaceOf {
  std::uint32_t memory = 0;  ///< 0: its own, as far as is known
  Number element = 0;
};
using MemoryPlace = MemoryPlaceOf<std::int64_t>;

/// One array of a call. `shape` and `strides` (in elements) are already broadcast: every operand
/// has the shape of the outputs, with stride 0 along the axes in which it repeats.
template <class Number>
struct OperandOf {
  DType dtype = DType::f32;
  bool output = false;
  typename NumbersOf<Number>::List strides;
  typename NumbersOf<Number>::Count address = 0;
  Number offset = 0;        ///< of the first element from the address
  bool iota = false;        ///< no array but an index, which grows by the strides
                            ///< (iota_operands.hpp)
  Number split_stride = 0;  ///< of a partial result of a split reduction: elements from one split
                            ///< to the next
  MemoryPlaceOf<Number> place{};  ///< of the element at `offset`, if it is known for every call
  typename NumbersOf<Number>::Axis indexed{};  ///< an axis of the array that is none of the shape,
                                               ///< along which a value says where each element is
  std::uint64_t index_operands = 0;            ///< bit i: that value depends on operand i
};
using Operand = OperandOf<std::int64_t>;
using SizedOperand = OperandOf<Size>;

/// Where along the innermost axis the value that says an operand's places is the same.
enum class Indexing : std::uint8_t {
  none,  ///< there is no such value
  row,   ///< along all of it
  lane,  ///< it differs from element to element
};

/// How the elements of an operand that one work item handles lie in memory.
enum class Access : std::uint8_t {
  scalar,       ///< one element for the whole array
  contiguous,   ///< neighbours along the innermost axis are neighbours in memory; rows of packed
                ///< elements begin at a whole byte
  broadcast,    ///< one element for each row: it repeats along the innermost axis
  strided,      ///< neighbours are a run-time stride apart; of products, elements lie anywhere, and
                ///< are gathered one by one
  transposed,   ///< neighbours along the tile axis are neighbours in memory: read through a tile;
                ///< of rows on the CPU, along another reduced axis: moved through a buffer; of
                ///< products, those of neighbouring rows: loaded for all rows of a thread at once
  interleaved,  ///< neighbours are two to four elements apart, and other operands fill the gaps:
                ///< one vector holds the elements of all of them
  runs,         ///< reductions: one element for each run of neighbours along the innermost axis,
                ///< which on a GPU is no shorter than a vector
  staged,       ///< GPUs: contiguous, and all rows that a block has at a time are one range of
                ///< memory, which is moved through shared memory (preamble/staging.h)
  staged_backwards,  ///< the same, but neighbours follow each other in reverse order
  offsets,           ///< CPU, rows of several axes: where an element of a row lies is in a table
};
constexpr bool is_staged(Access access) {
  return access == Access::staged || access == Access::staged_backwards;
}

/// How a kernel accesses one operand.
struct OperandSchedule {
  std::uint64_t outer_axes = 0;  ///< bit k: moves along collapsed axis k (the innermost excluded,
                                 ///< and others of its row but with Access::offsets)
  int alignment = 1;  ///< bytes, a power of two up to 16, of every row's start and vector; of a
                      ///< transposed operand, along the tile axis, or of what rows of a product
                      ///< have side by side; of one that is gathered, of each run of so many bytes,
                      ///< which is loaded at once; of an iota, 4 if all vectors begin at multiples
                      ///< of four, else 0
  std::uint16_t first_way = 0;  ///< of operands that are interleaved, the first
  std::int16_t along = 0;       ///< rows: of a transposed operand, the collapsed axis along which
                                ///< its neighbours are neighbours in memory
  std::int16_t ways = 1;        ///< how many operands are interleaved, this one included
  std::int16_t way = 0;         ///< elements from the first of them to this one
  Access access = Access::contiguous;
  Indexing indexing = Indexing::none;
  bool start = false;  ///< an iota that does not begin at 0, or packed elements that begin in the
                       ///< middle of a byte
  bool row_invariant = false;  ///< reductions: one element for each row
  bool in_registers = false;   ///< reductions: loaded into registers before the first pass
  bool unaligned = false;      ///< reductions: rows are aligned, but each vector that a thread
                               ///< needs straddles two aligned ones
  bool whole_runs = false;     ///< Access::runs: no vector has elements of two runs
  bool prefetched = false;     ///< CPU: in rows that the hardware prefetcher does not expect
                               ///< (Schedule::rows_ahead)
  bool addressed = false;      ///< flat kernels: no run over all axes, so that the address of each
                               ///< vector follows from its coordinates
  bool preloaded = false;      ///< GPU, with tiles: loaded before the threads of a block meet
  bool repeats = false;        ///< products: one element for Layout::row_repeats neighbouring rows,
                               ///< or for an output one place
  bool before_pdl_wait = false;  ///< may be read before the kernel's PDL wait
  /// Elementwise kernels: whether it is loaded or stored in vectors.
  bool moves_in_vectors() const {
    return (access == Access::contiguous || access == Access::interleaved) && !addressed &&
           indexing != Indexing::lane;
  }
  /// Whether rows of one block can share its vectors in shared memory (RowSchedule::row_step).
  bool can_stage() const {
    return unaligned && !in_registers && outer_axes == 0 && indexing == Indexing::none;
  }
  friend bool operator==(const OperandSchedule&, const OperandSchedule&) = default;
};
static_assert(std::has_unique_object_representations_v<OperandSchedule>);  // compared as bytes

/// How many chunks a row or column has: `one_per_thread` keeps the result of one of a column's.
enum class ColumnChunks : std::uint8_t { one, one_per_thread, many };

/// How a kernel that reduces maps rows to threads (schedule/rows/row_layout.hpp). Where the
/// innermost axis is not reduced, a "row" is a column: then `columns` threads are side by side
/// along that axis, each with a vector of neighbouring columns, and `threads` of them share each
/// column.
struct RowSchedule {
  int axes = 0;            ///< how many of the collapsed axes are reduced; 0: no reduction
  int threads = 1;         ///< per row, in each block a power of two
  int cluster_blocks = 1;  ///< blocks of a cluster that these threads are in
  int chunk_blocks = 1;    ///< of these blocks, how many share each chunk
  int vectors = 0;         ///< of a row that each thread keeps on chip; 0: each pass loads them
  int batch = 1;           ///< vectors whose loads a thread has in flight where it keeps none
  int full_vectors = 0;    ///< of those `vectors`, how many every thread has
  int in_smem = 0;         ///< of those `vectors`, how many (the last) may be in shared memory
  bool copied = false;     ///< those are copied there asynchronously; of rows they are all
  int sets = 0;            ///< GPUs: accumulators of a thread for each lane of its vectors, where
                           ///< rows are added up by their tree (preamble/tree.h); 0: elsewhere
  int rows = 1;            ///< per block
  int columns = 0;     ///< side by side in a block, in vectors; 0: the innermost axis is reduced
  int joined = 1;      ///< neighbouring columns that are one row, a power of two: the innermost
                       ///< axis is reduced too, but shorter than what threads read side by side
  int folded = 0;      ///< GPUs: of rows whose neighbours in memory are far apart in their count
                       ///< (rows/row_fold.hpp), the vectors that have all terms of a few residues,
                       ///< each with `joined` elements of a row; 0: no such rows
  int fold_steps = 1;  ///< of these vectors, those that come before the next lane
  int fold_residues = 1;  ///< whose terms they have
  int joined_chunks = 0;  ///< vectors side by side in a row of `joined` lanes that have chunks of
                          ///< their own; 0: they have not
  int parts = 1;   ///< of the row that these rows are parts of, each of every so many-th chunk
  int groups = 1;  ///< GPUs: of residues that a thread of a column that keeps nothing adds up one
                   ///< after the other, at most (preamble/columns.h), a power of two
  int min_blocks = 0;   ///< columns: that a multiprocessor must have room for; 0: no such demand
  int buffered = 0;     ///< CPU: elements of a row that are in the buffers of transposed operands
                        ///< at a time; 0: all of them
  bool ragged = false;  ///< CPU, and GPUs where operands are staged: the last vector of a row has
                        ///< fewer lanes
  bool split = false;   ///< split reduction: each row is cut into Layout::splits
  ColumnChunks chunks = ColumnChunks::one;  ///< GPU: of the tree (preamble/tree.h, chunks.h)
  int phase = -1;    ///< the operand whose aligned vectors a row is read in, though rows are not
                     ///< aligned: elements before the first and after the last vector are read one
                     ///< by one; -1: rows are aligned
  int row_step = 0;  ///< from one row of a block to the next, chosen so that all of them are
                     ///< misaligned alike and can share weights in shared memory; 0: rows of a
                     ///< block are neighbours
  int block() const { return block_threads() * rows * (columns == 0 ? 1 : columns); }
  bool in_cluster() const { return cluster_blocks > 1; }
  /// Threads of a block that share a row.
  int block_threads() const { return threads / cluster_blocks; }
  /// Threads of one block or of several that share a chunk, or a row that is no longer.
  int chunk_threads() const { return block_threads() * chunk_blocks; }
  bool is_shifted() const { return phase >= 0; }
  /// Whether sums and products of a GPU's rows are combined in the order of their tree.
  bool has_row_trees() const { return sets != 0; }
  /// Whether such rows have more than one chunk, and whether threads keep these on chip.
  bool has_row_chunks() const { return has_row_trees() && chunks != ColumnChunks::one; }
  bool keeps_chunks() const { return has_row_chunks() && vectors != 0; }
  /// How many of a thread's vectors are in registers, where some are in shared memory.
  int register_vectors() const { return vectors - in_smem; }
  /// Whether every thread has all of its vectors.
  bool is_full() const { return vectors != 0 && full_vectors == vectors; }
  friend bool operator==(const RowSchedule&, const RowSchedule&) = default;
};

/// How matrix instructions take the rows of weights (preamble/product_tiles.h).
struct TileSchedule {
  int steps_per_group = 0;  ///< of four neighbouring vectors, that share a scale; 0: no tiles
  int steps = 0;            ///< that a wave takes at once: a set
  int sets = 0;             ///< in a row
  int run = 1;              ///< sets that a wave takes one after the other (preamble/tiling.h)
  int sums = 1;             ///< of each row, whose weights take turns as the rows of a tile
  bool whole = false;       ///< the last set of a row is complete
  bool prefetch = false;    ///< a block takes several tiles and loads the next before it multiplies
  bool x_in_smem = false;   ///< a block keeps x, the vectors that all rows share, in shared
                            ///< memory
  bool staged = false;      ///< waves copy sets of weights to shared memory
  int beside = 0;           ///< then: tiles side by side in memory, whose weights a block copies as
                            ///< lines (preamble/line_tiles.h); 0: a row's are neighbours
  bool x_in_registers = false;  ///< each wave keeps its part of x (preamble/register_tiles.h)
  bool weights_before_pdl_wait = false;  ///< weights may be loaded before the PDL wait
  bool split_k = false;      ///< waves of a block share each row (preamble/split_k_tiles.h)
  bool single_tile = false;  ///< then: no wave has more than one tile
  int min_blocks = 0;        ///< that a multiprocessor must have room for; 0: no such demand
  friend bool operator==(const TileSchedule&, const TileSchedule&) = default;
};

/// How the threads of a block compute the vectors that all rows share (products/prologue.hpp).
struct PrologueSchedule {
  int threads = 0;   ///< that have elements of their own, a power of two; 0: no prologue
  int elements = 0;  ///< of each of them, a power of two: there is room for so many in all
  int width = 1;     ///< of the vectors in which they take them
  int bytes(int columns, int element) const { return threads * elements * columns * element; }
  friend bool operator==(const PrologueSchedule&, const PrologueSchedule&) = default;
};

/// How a kernel of matrix-vector products maps rows and columns to threads (product_layout.hpp).
struct ProductSchedule {
  int rows = 0;         ///< of a thread; 0: no such kernel
  int columns = 1;      ///< results of each row
  int lanes = 1;        ///< of a vector, computed at a time
  int turns = 1;        ///< how many threads' vectors of a row each thread takes, a power of two
  bool tree = false;    ///< lanes of vectors have results of their own, which are combined last, so
                        ///< that sums follow the tree of rows (fusion/numerics.md)
  int in_flight = 1;    ///< GPUs: vectors of each row that a thread loads before it adds them up
  bool across = false;  ///< neighbours in memory are of neighbouring rows, not of one row
  int beside = 0;       ///< GPUs: then threads side by side, a power of two, take such rows
  int vector_axes = 1;  ///< the collapsed axes that are counted as one, along which vectors go
  TileSchedule tiles;
  PrologueSchedule prologue;
  friend bool operator==(const ProductSchedule& a, const ProductSchedule& b) {
    return a.rows == b.rows &&
           (a.rows == 0 || (a.columns == b.columns && a.lanes == b.lanes && a.turns == b.turns &&
                            a.tree == b.tree && a.in_flight == b.in_flight &&
                            a.beside == b.beside && a.across == b.across && a.tiles == b.tiles &&
                            a.vector_axes == b.vector_axes && a.prologue == b.prologue));
  }
};

/// How threads share the elements of a row along the depth, or of values.
struct AttentionLanes {
  int extent = 0;    ///< elements of a row
  int width = 1;     ///< of a vector
  int threads = 1;   ///< that share a row, a power of two
  int vectors = 1;   ///< of each of them; the last ones may be past the end of the row
  int together = 1;  ///< keys whose loads a thread has in flight
  int lanes() const { return width * vectors; }
  bool ragged() const { return lanes() * threads != extent; }
  friend bool operator==(const AttentionLanes&, const AttentionLanes&) = default;
};

/// How a kernel of attention maps keys to threads (schedule/attention/attention_layout.hpp). Its
/// collapsed axes are those of work items, those of a group of queries that share keys and values,
/// then the keys, the depth, and the values' elements.
struct AttentionSchedule {
  int threads = 0;                 ///< of a block; 0: no such kernel
  int tile = 0;                    ///< keys at a time
  int group_axes = 0;              ///< how many axes queries of a group have
  std::array<int, 2> group{1, 1};  ///< their extents
  AttentionLanes keys;
  AttentionLanes values;
  bool prefetch = false;  ///< values are loaded before scores are known
  bool split = false;     ///< the keys are cut into Layout::splits
  int queries() const { return group[0] * group[1]; }
  friend bool operator==(const AttentionSchedule& a, const AttentionSchedule& b) {
    return a.threads == b.threads &&
           (a.threads == 0 || (a.tile == b.tile && a.group_axes == b.group_axes &&
                               a.group == b.group && a.keys == b.keys && a.values == b.values &&
                               a.prefetch == b.prefetch && a.split == b.split));
  }
};

/// Along which axis running results go (scan_layout.hpp): none, the innermost one, or the one
/// before it.
enum class ScanSchedule : std::uint8_t { none, along, across };

/// How a kernel runs: everything about a layout that changes the kernel's code.
struct Schedule {
  Backend backend = Backend::host;
  int rank = 1;             ///< after merging; 1 for a plain vector
  int width = 1;            ///< elements of a vector along the innermost axis; of a row of several
                            ///< axes, the most that a work item has
  int vectors = 1;          ///< per work item
  int threads = 1;          ///< neighbouring work items that take such vectors in turn: a power of
                            ///< two
  bool wide_index = false;  ///< 64-bit indices
  bool flat = false;   ///< elements are counted over all axes, so that work items do not end with
                       ///< rows
  int tile = 0;        ///< elements along the innermost axis of the tiles of (tile axis, innermost
                       ///< axis) through which a block reads transposed operands; 0: none
  int tile_rows = 0;   ///< elements of a tile along the tile axis
  int tile_axis = 0;   ///< the collapsed axis along which transposed operands are contiguous
  int min_blocks = 0;  ///< with tiles: that a multiprocessor must have room for; 0: no such demand
  bool streamed = false;  ///< outputs are stored past the caches
  bool pdl = false;  ///< programmatic dependent launch: the kernel may start before those that it
                     ///< depends on have ended, and waits for them itself (preamble/dependents.h)
  int row_axes = 1;  ///< CPU: how many of the innermost axes are one row, of which a work item has
                     ///< Layout::row_part elements of the first axis
  int rows_ahead = 0;  ///< CPU: how many rows before it is computed a row is prefetched; 0: none is
  bool table = false;  ///< CPU: one packed input is all that differs within a row, so results are
                       ///< looked up
  RowSchedule reduction;
  ProductSchedule products;
  ScanSchedule scan = ScanSchedule::none;
  AttentionSchedule attention;
  ScratchVector<OperandSchedule> operands;
  ScratchVector<int> bounds;  ///< of each bound of the kernel's graph, the collapsed axis that ends

  /// Whether the kernel has a parameter for the operand's stride along a collapsed axis.
  bool has_stride(std::size_t operand, std::uint32_t axis) const;
  /// CPU: whether an operand is moved through a buffer in the order in which rows are counted.
  bool is_buffered(std::size_t operand) const {
    return reduction.axes != 0 && products.rows == 0 &&
           operands[operand].access == Access::transposed;
  }
  bool has_buffers() const {
    bool any = false;
    for (std::size_t i = 0; i < operands.size(); ++i) any = any || is_buffered(i);
    return any;
  }
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// "contiguous, 8 elements per work item, 32-bit indices; gate: contiguous 16; ..." for people.
std::string describe(const Schedule& schedule, std::span<const std::string> names);

/// Elements that a thread reads of a line of a tile at once, in 16 bytes where that is aligned to
/// as many.
int tile_lanes(DType dtype, int alignment);

/// Of an operand with Access::runs: the elements of a run, and the distance from the element of one
/// run to that of the next, in elements.
template <class Number>
struct RunsOf {
  Number length = 0;
  Number stride = 0;
};
using Runs = RunsOf<std::int64_t>;

/// Of one axis, in every operand.
template <class Number>
using AxisStridesOf = ShortList<Number, 6>;
using AxisStrides = AxisStridesOf<std::int64_t>;
using SizedStrides = AxisStridesOf<Size>;

/// The strides of every operand along the axes of a layout.
template <class Number>
class OperandStridesOf {
 public:
  void reserve(std::size_t axes) { of_.reserve(axes); }
  /// The outermost axis first.
  void add_axis(AxisStridesOf<Number> strides) { of_.push_back(std::move(strides)); }
  Number operator()(std::size_t operand, std::size_t axis) const { return of_[axis][operand]; }
  /// Of one operand along all axes.
  typename NumbersOf<Number>::List of(std::size_t operand) const {
    typename NumbersOf<Number>::List strides(of_.size(), 0);
    for (std::size_t k = 0; k < of_.size(); ++k) strides[k] = of_[k][operand];
    return strides;
  }

  std::size_t axes() const { return of_.size(); }

 private:
  ScratchVector<AxisStridesOf<Number>> of_;
};

/// Axes of a call.
using CallAxes = ShortList<std::size_t, 2>;

template <class Number>
struct LayoutOf {
  using Count = typename NumbersOf<Number>::Count;

  Schedule schedule;
  typename NumbersOf<Number>::List shape;  ///< collapsed, outermost axis first
  OperandStridesOf<Number> strides;        ///< along the collapsed axes, in elements
  ScratchVector<CallAxes> axes;            ///< the call's axes that each collapsed one is
  ScratchVector<Number> offsets;  ///< of each operand's first element from its address, in elements
  ScratchVector<Number> starts;   ///< of each operand, where its schedule says `start`
  Count work_items = 0;           ///< with tiles: tiles; reductions: blocks
  Number rows = 0;                ///< reductions
  Number units = 0;               ///< reductions: rows times splits, or strips of columns
  Number column_strips = 0;       ///< reductions by columns: units along the innermost axis
  Number vectors = 0;             ///< reductions: in each row; by columns, elements;
                                  ///< attention: tiles of keys
  Number reduced = 0;             ///< reductions and scans: elements in each row; attention: keys
  Number row_blocks = 0;          ///< products: blocks of rows in each batch
  Number row_repeats = 1;         ///< products: rows for which some operands have one element
  Number row_part = 1;            ///< CPU: of the first of several axes of a row, in a work item
  Number splits = 1;              ///< split reductions: parts of each row
  ScratchVector<Number> split_strides;  ///< of each operand (Operand::split_stride)
  ScratchVector<typename NumbersOf<Number>::Axis> indexed;  ///< of each operand
  ScratchVector<RunsOf<Number>> runs;                       ///< rows: of each operand
  Number block() const;                                     ///< LaunchShape::block
  Number row_items() const;                                 ///< work items of a row, or tiles
  Count threads() const;                                    ///< that a GPU needs for them
};
using Layout = LayoutOf<std::int64_t>;
using SizedLayout = LayoutOf<Size>;

/// An axis of a kernel's space that ends where a value says.
struct AxisBound {
  std::size_t axis = 0;
  std::uint64_t operands = 0;  ///< bit i: that value depends on operand i
  friend bool operator==(const AxisBound&, const AxisBound&) = default;
};

/// `shape` is the outputs' shape. Axes of size one are dropped, the others are ordered by the first
/// output's strides, those that run backwards in it are reversed, and neighbours that are one
/// longer axis in every operand are merged.
SizedLayout plan_layout(const Sizes& shape, std::span<const SizedOperand> operands, Backend backend,
                        std::span<const AxisBound> bounds = {});
Layout plan_layout(const Dims& shape, std::span<const Operand> operands, Backend backend,
                   std::span<const AxisBound> bounds = {});

/// The numbers of a call as planners take them, and those of a layout as they are.
Sizes sized(const Dims& shape);
ScratchVector<SizedOperand> sized(std::span<const Operand> operands);
Layout plain(SizedLayout layout);

/// The numbers by which device code divides (preamble/divide.h): n / divisor is
/// (mulhi(n, multiplier) + n) >> shift for n < 2^31 and 1 <= divisor <= 2^31.
struct Divisor {
  std::uint32_t divisor = 1;
  std::uint32_t multiplier = 0;
  std::uint32_t shift = 0;
};
Divisor make_divisor(std::uint32_t divisor);

}  // namespace kiln::fusion
