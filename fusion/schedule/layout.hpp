// Layout: from the shapes, strides and addresses of one call to the variant of the kernel that it
// needs and the numbers that the variant takes. Host only, pure functions on values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kiln/dims.hpp"
#include "kiln/dtype.hpp"

namespace kiln::fusion {

/// Where an array begins in a memory that arrays of one kernel share, whatever its address.
struct MemoryPlace {
  std::uint32_t memory = 0;  ///< 0: of its own, as far as is known
  std::int64_t element = 0;
};

/// One array of a call. `shape` and `strides` (in elements) are already broadcast: every operand
/// has the shape of the outputs, with stride 0 along the axes in which it repeats.
struct Operand {
  DType dtype = DType::f32;
  bool output = false;
  Dims strides;
  std::uint64_t address = 0;
  std::int64_t offset = 0;  ///< of the first element from the address
  bool count = false;  ///< not an array: a number that goes up by the strides (iota_operands.hpp)
  std::int64_t piece = 0;  ///< of a result for each piece of a row: its stride from one to the next
  MemoryPlace place{};     ///< where `offset` lies, if that is known for every call
};

/// What a device's kernels look like. One row per family, in schedule/elementwise/elementwise.cpp,
/// with the reasons.
struct Policy {
  int vector_bytes;  ///< the bytes of the narrowest operand that one work item handles; 0: always
                     ///< `most_lanes` elements, whatever their size
  int most_lane_bytes;    ///< the bytes of the widest one
  int most_stored_bytes;  ///< the bytes of the widest output; 0: as of the widest operand
  int most_lanes;
  int block;                   ///< work items (threads) per block
  int tile_block;              ///< the same where a block takes a tile
  std::uint64_t stream_bytes;  ///< a result from this size on is streamed past the caches; 0: none
  int tile_bytes;  ///< what the tiles of one kernel may take of the memory that a block shares
};
enum class Family : std::uint8_t { amd, nvidia, host };
const Policy& policy(Family family);

/// How the elements of an operand that one work item handles lie in memory.
enum class Access : std::uint8_t {
  scalar,       ///< one element for the whole array
  contiguous,   ///< neighbours along the innermost axis are neighbours in memory; every row of
                ///< packed elements begins with a byte
  broadcast,    ///< one element for each row, the same along the innermost axis
  strided,      ///< neighbours lie a run-time stride apart
  transposed,   ///< neighbours along the tile axis are neighbours in memory: read through a tile
  interleaved,  ///< neighbours lie two to four apart, and between them those of other operands: a
                ///< vector of the first of these operands holds the elements of all
};

struct OperandVariant {
  Access access = Access::contiguous;
  int alignment = 1;  ///< bytes, a power of two up to 16, of every row's start and vector; of a
                      ///< transposed operand, along the tile axis; of a count, 4 if all vectors
                      ///< begin at multiples of four, else 0
  std::uint64_t outer_axes = 0;  ///< bit k: moves along collapsed axis k (the innermost excluded)
  bool start = false;    ///< a count that does not begin at 0, or packed elements that begin in the
                         ///< middle of a byte
  bool uniform = false;  ///< of a reduction: one element for each row
  bool held = false;     ///< of a reduction: in registers from before the first pass
  bool between = false;  ///< of a reduction: rows begin with vectors, but those that are wanted lie
                         ///< each in two of these
  bool gaps = false;     ///< on the host: short rows follow each other in memory, but not closely,
                         ///< which its prefetchers do not expect
  bool early = false;    ///< read before a programmatic kernel waits for those before it
  int ways = 1;          ///< operands that are interleaved with this one, and itself
  int way = 0;           ///< elements from the first of them to this one
  std::size_t first_way = 0;  ///< the first of them
  /// Whether threads that have other rows can share its vectors (RowVariant::apart).
  bool is_placed() const { return between && !held && outer_axes == 0; }
  friend bool operator==(const OperandVariant&, const OperandVariant&) = default;
};

/// How a kernel that reduces shares out its rows (schedule/rows/row_layout.hpp). Where the
/// innermost axis is kept, a "row" is a column: then `columns` threads stand side by side along
/// that axis, each with a vector of neighbouring columns, and `threads` of them share each column.
struct RowVariant {
  int axes = 0;     ///< how many of the collapsed axes are reduced; 0: no reduction
  int threads = 1;  ///< that a row is shared out to, a power of two
  int blocks = 1;   ///< that those threads are in, of a cluster
  int vectors = 0;  ///< of a row that each thread keeps in registers; 0: each pass loads them
  int batch = 1;    ///< vectors that a thread has under way where it does not keep them
  int whole = 0;    ///< of those `vectors`, how many every thread has
  int stored = 0;   ///< of them, how many may lie in memory that the block shares: the last ones
  int rows = 1;     ///< per block of threads
  int columns = 0;  ///< 0: the innermost axis is reduced
  bool pieces = false;  ///< a block takes a piece of a row, and there is a result for each piece
  bool ragged = false;  ///< on the host: the last vector of a row has fewer lanes than others
  int phase = -1;  ///< the operand at whose multiples of the width vectors begin, since rows do
                   ///< not: elements before the first and after the last one are read one by one;
                   ///< -1: vectors begin where rows do
  int apart = 0;   ///< weights are put into memory that the block shares as its rows' vectors lie,
                   ///< for which its rows are so many apart; 0: they are side by side
  int block() const { return threads / blocks * rows * (columns == 0 ? 1 : columns); }
  friend bool operator==(const RowVariant&, const RowVariant&) = default;
};

/// How rows are taken in tiles (preamble/product_tiles.h).
struct TileVariant {
  int sharers = 0;        ///< of four neighbouring vectors, those of one line; 0: no tiles
  int steps_of_line = 1;  ///< where all four are of one: how many times as many
  int steps = 0;          ///< of four vectors, that a wave takes at once: a set
  int sets = 0;           ///< in a row
  bool whole = false;     ///< none of them is a part
  bool ahead = false;     ///< a block takes several and loads the next before it multiplies
  bool placed = false;    ///< a block keeps the vectors that rows share
  bool held = false;      ///< waves hold their part of the vectors (preamble/held_tiles.h)
  bool early = false;     ///< weights may be read before a programmatic kernel waits
  bool parts = false;     ///< waves have parts of rows (preamble/row_parts.h)
  bool once = false;      ///< none of them has more than a tile
  int blocks = 0;         ///< that are to fit a multiprocessor; 0: as many as happen to
  friend bool operator==(const TileVariant&, const TileVariant&) = default;
};

/// How a kernel whose rows share operands shares them out (product_layout.hpp).
struct ProductVariant {
  int rows = 0;     ///< that a thread takes at once; 0: no such kernel
  int columns = 1;  ///< results of each row
  int lanes = 1;    ///< of a vector that are computed with at a time
  TileVariant tiles;
  friend bool operator==(const ProductVariant&, const ProductVariant&) = default;
};

/// Where running results go (scan_layout.hpp): nowhere, along the innermost axis, or along the one
/// before it.
enum class ScanVariant : std::uint8_t { none, along, across };

/// Everything about the layout that changes the code.
struct Variant {
  Family family = Family::host;
  int rank = 1;             ///< after merging; 1 for a plain vector
  int width = 1;            ///< elements per work item along the innermost axis
  int vectors = 1;          ///< of so many elements that it handles,
  int threads = 1;          ///< of which so many neighbours take theirs in turns: a power of two
  bool wide_index = false;  ///< 64-bit indices
  int tile = 0;  ///< edge of the square tiles of (tile axis, innermost axis) that a block takes at
                 ///< a time, which transposed operands are read through; 0: none
  int tile_axis = 0;          ///< the collapsed axis along which transposed operands are contiguous
  bool streamed = false;      ///< the outputs are stored past the caches
  bool programmatic = false;  ///< launched before the kernels that it waits for have ended: it
                              ///< waits itself (preamble/dependents.h)
  bool table = false;         ///< one packed input is all that differs between the lanes of a row
  RowVariant reduction;
  ProductVariant products;
  ScanVariant scan = ScanVariant::none;
  std::vector<OperandVariant> operands;
  friend bool operator==(const Variant&, const Variant&) = default;
};

/// "contiguous, 8 elements per work item, 32-bit indices; gate: contiguous 16; ..." for people.
std::string describe(const Variant& variant, std::span<const std::string> names);

/// What one element takes of a tile (preamble/tile.h, Slot).
int slot_bytes(DType dtype);
/// Elements of a 16-byte vector along the tile axis.
int tile_vector(DType dtype);

struct Layout {
  Variant variant;
  Dims shape;                 ///< collapsed, outermost axis first
  std::vector<Dims> strides;  ///< of each operand along the collapsed axes, in elements
  std::vector<std::vector<std::size_t>> axes;  ///< the call's axes that each collapsed one is
  std::vector<std::int64_t>
      offsets;  ///< of each operand's first element from its address, in elements
  std::vector<std::int64_t> starts;  ///< of each operand, where its variant says `start`
  std::uint64_t work_items = 0;      ///< with tiles: tiles; of a reduction: blocks of rows
  std::int64_t rows = 0;             ///< of a reduction
  std::int64_t units = 0;            ///< of a reduction: what a row's threads take at a time
  std::int64_t column_strips = 0;    ///< of a reduction by columns: units along the innermost axis
  std::int64_t vectors = 0;          ///< of a reduction: in each row, of columns elements
  std::int64_t reduced = 0;          ///< of a reduction or running result: elements in each row
  std::int64_t row_blocks = 0;       ///< of products: blocks of rows in each batch
  std::int64_t pieces = 1;           ///< of a reduction: that each row is cut into
  std::vector<std::int64_t> piece_strides;  ///< of each operand (Operand::piece)
  std::uint32_t block() const;              ///< LaunchShape::block
  std::int64_t row_items() const;           ///< work items of a row, or tiles
  std::uint64_t threads() const;            ///< that a GPU needs for them
};

/// `shape` is the outputs' shape. Axes of size one are dropped, the others are ordered by the first
/// output's strides, those that run backwards in it are turned round, and neighbours that are one
/// longer axis in every operand are merged.
Layout plan_layout(const Dims& shape, std::span<const Operand> operands, Family family);

/// The numbers by which device code divides (preamble/access.h): n / divisor is
/// (mulhi(n, multiplier) + n) >> shift for n < 2^31 and 1 <= divisor <= 2^31.
struct Divisor {
  std::uint32_t divisor = 1;
  std::uint32_t multiplier = 0;
  std::uint32_t shift = 0;
};
Divisor make_divisor(std::uint32_t divisor);

}  // namespace kiln::fusion
