#include "fusion/schedule/products/tile_layout.hpp"

#include <algorithm>
#include <bit>
#include <optional>

#include "fusion/schedule/products/product_values.hpp"

namespace kiln::fusion {
namespace {

constexpr int kRows = 16;                                         // of a tile
constexpr std::int64_t kMostRowElements = std::int64_t{1} << 30;  // of a row; and rows
constexpr int kChunk = 8;                                         // elements of x in 16 bytes
constexpr int kWordBits = 128;
constexpr int kMostWeightBits = 8;
constexpr int kWidth = 16;       // elements of a vector of weights,
constexpr int kNarrowWidth = 8;  // or as many
constexpr int kStepVectors = 4;
constexpr int kPartSteps = 16;               // preamble/tiling.h
constexpr int kMostParts = 16;               // that are not added one after the other
constexpr int kRowThreads = 512;             // in whose order a row is recomputed
constexpr std::int64_t kMaxRowBits = 16384;  // of a row: two tiles are 64 KiB, which all GPUs have
constexpr std::int64_t kMaxSmemElements = 16384;  // of x: 32 of the 48 KiB of a block
constexpr std::int64_t kProcessors = 132;
constexpr std::int64_t kFew = 512;  // tiles
constexpr std::int64_t kMany = 4096;
constexpr std::int64_t kSplitWaves = 16;   // of a block, most
constexpr std::int64_t kPartVectors = 64;  // of a row, for a wave of a split reduction

using AxisSpan = std::span<const MergedAxis>;

// Whether the reduced elements of an operand's rows are contiguous.
bool is_contiguous(AxisSpan reduced, std::size_t operand) {
  for (std::size_t k = 0; k + 1 < reduced.size(); ++k) {
    if (reduced[k].strides[operand] != reduced[k + 1].strides[operand] * reduced[k + 1].size)
      return false;
  }
  return true;
}

Size length_of(AxisSpan reduced) {
  Size length = 1;
  for (const MergedAxis& axis : reduced) length *= axis.size;
  return length;
}

// An operand, and the one that stands in its place in the second of two sums.
ScratchVector<std::size_t> in_each_sum(const ProductValues& values, std::size_t operand) {
  ScratchVector<std::size_t> operands;
  operands.push_back(operand);
  for (const auto& [first, second] : values.paired_operands()) {
    if (first == operand) operands.push_back(second);
  }
  return operands;
}

// Whether a split reduction within the block (preamble/split_k_tiles.h) takes the operands: 4-bit
// weights in rows of a few parts, with the numbers of groups in arrays whose rows are whole chunks
// of 16 bytes.
bool takes_split_k(const TypedGraph& graph, std::span<const SizedOperand> operands,
                   const ScratchVector<MergedAxis>& axes, const ProductValues& values, NodeId sum,
                   const SizedLayout& layout) {
  constexpr int kVectorBits = 64;  // of a thread
  constexpr std::int64_t kStepsOfChains = 32;
  constexpr int kGroups = 8;  // whose scales are 16 bytes
  constexpr int kLeastRows = 8;
  const ProductForm& form = *values.form(sum);
  const Schedule& schedule = layout.schedule;
  const auto count = static_cast<std::size_t>(schedule.reduction.axes);
  const AxisSpan reduced = AxisSpan(axes).last(count);
  const std::size_t weights = values.operand_of(graph.nodes[form.weight]);
  const int weight_bits = bits(operands[weights].dtype);
  const int width = schedule.width;
  const Size most = std::min(kSplitWaves * kPartVectors * width, kMaxSmemElements);
  const Size length = length_of(reduced);
  if (width * weight_bits != kVectorBits || schedule.products.columns != 1 || count != 2 ||
      schedule.products.vector_axes != 1 || !form.scale ||
      length % (kStepsOfChains * kStepVectors * width) != 0 || length > most ||
      reduced[0].size % kGroups != 0 || layout.rows * schedule.products.tiles.sums < kLeastRows)
    return false;
  const std::size_t group_axis = axes.size() - 2;
  const auto begins_chunks = [&](std::size_t i, std::size_t inner, int lanes) {
    return std::ranges::all_of(in_each_sum(values, i), [&](std::size_t at) {
      return alignment_of(operands[at], operands[at].offset, axes, inner, at, lanes) * 8 >=
             kWordBits;
    });
  };
  if (!begins_chunks(weights, axes.size() - 1, kWordBits / weight_bits)) return false;
  std::optional<DType> dtype;
  for (const std::optional<NodeId>& part : {form.scale, form.bias, form.zero_point}) {
    if (!part) continue;
    if (graph.nodes[*part].op != Op::input) return false;
    const std::size_t i = values.operand_of(graph.nodes[*part]);
    const bool is_narrow = operands[i].dtype == DType::bf16 || operands[i].dtype == DType::f16;
    if (!is_narrow || (dtype && *dtype != operands[i].dtype) || reduced[0].strides[i] != 1 ||
        reduced[1].strides[i] != 0 || !begins_chunks(i, group_axis, kGroups))
      return false;
    dtype = operands[i].dtype;
  }
  return true;
}

// How many bytes of neighbouring rows are copied at a time where weights lie in lines of them
// (preamble/line_tiles.h), 1 where these begin anywhere; 0 where they are no lines of whole bytes.
int bytes_in_lines(const SizedOperand& weights, const ScratchVector<MergedAxis>& axes,
                   std::size_t row, std::size_t index) {
  constexpr int kLeastBytes = 4;
  if (axes[row].strides[index] != 1 || weights.indexed.exists()) return 0;
  const int of_byte = 8 / bits(weights.dtype);
  bool whole_bytes = weights.offset % of_byte == 0 && axes[row].size % of_byte == 0;
  for (std::size_t k = 0; k < axes.size(); ++k) {
    whole_bytes = whole_bytes && (k == row || axes[k].strides[index] % of_byte == 0);
  }
  if (!whole_bytes) return 0;
  int rows = kWordBits / bits(weights.dtype);
  while (rows > of_byte && axes[row].size % rows != 0) rows /= 2;
  const int bytes =
      std::min(rows / of_byte, alignment_of(weights, weights.offset, axes, row, index, rows));
  return bytes < kLeastBytes ? 1 : bytes;
}

// Marks weights, and what scales, biases and zero points are computed from, as loaded before the
// PDL wait.
void mark_before_pdl_wait(const TypedGraph& graph, const ProductValues& values,
                          const ProductForm& form, Schedule& schedule) {
  ScratchVector<bool> wanted(graph.nodes.size(), false);
  wanted[form.weight] = true;
  for (const std::optional<NodeId>& part : {form.scale, form.bias, form.zero_point}) {
    if (part) wanted[*part] = true;
  }
  for (std::size_t id = graph.nodes.size(); id-- > 0;) {
    if (!wanted[id]) continue;
    const TypedNode& node = graph.nodes[id];
    if (node.op == Op::input) schedule.operands[values.operand_of(node)].before_pdl_wait = true;
    for (const NodeId operand : node.inputs()) wanted[operand] = true;
  }
  for (const auto& [first, second] : values.paired_operands()) {
    schedule.operands[second].before_pdl_wait = schedule.operands[first].before_pdl_wait;
  }
}

// Other operands are loaded before the PDL wait only if weights are.
void clear_before_pdl_wait(Schedule& schedule) {
  for (OperandSchedule& operand : schedule.operands) {
    operand.before_pdl_wait =
        operand.before_pdl_wait && schedule.products.tiles.weights_before_pdl_wait;
  }
}

// How many sets of a row a wave takes one after the other (preamble/tiling.h): as many as leave the
// longest wave the least to do. Of few vectors few sets, which takes fewer registers; of more many,
// which takes less shared memory.
int choose_run(Size sets, int waves, const ProductSchedule& products) {
  constexpr int kSlotBytes = 8192;  // beside x in shared memory
  constexpr int kMostSets = 32;     // Turns (preamble/products.h)
  const int part = kPartSteps / products.tiles.steps;
  if (sets * products.tiles.steps > kPartSteps * kMostParts) return part;
  const bool few = products.columns <= 4;
  const int most = products.tiles.beside != 0 ? kMostSets : part;
  const int rounds = products.tiles.prefetch ? 2 : std::max(1, products.tiles.beside);
  const int slot = kRows * products.columns * 4 * rounds;
  const int slots = products.columns <= 2 ? kSlotBytes / slot : 4 * kSlotBytes / slot;
  int chosen = most;
  Size least = ((sets + most - 1) / most + waves - 1) / waves * most;
  for (int run = most / 2; run > 0; run /= 2) {
    const Size runs = (sets + run - 1) / run;
    const Size longest = (runs + waves - 1) / waves * run;
    if (runs > slots || longest > least || (longest == least && !few)) continue;
    chosen = run;
    least = longest;
  }
  return chosen;
}

// Lines of 128 bytes, as long as there are blocks for all of a device; then parts of lines, of 32
// bytes at least, or of less where many columns of long rows need the memory. As many waves share
// each tile as make a block of eight, or of sixteen where there are few. Each copies sets of 2 KiB,
// of which two are in shared memory.
void map_line_tiles(SizedLayout& layout, Size batches) {
  constexpr int kLineBits = 1024;
  constexpr int kLeastLineBits = 256;
  constexpr int kMostWaves = 16;
  constexpr int kFewWaves = 8;
  constexpr std::int64_t kSlotBytes = 24576;
  Schedule& schedule = layout.schedule;
  TileSchedule& tiles = schedule.products.tiles;
  const int columns = schedule.products.columns;
  const int loaded = tiles.steps;  // 16 bytes
  const int tile_bits = kRows * (kWordBits / (loaded * schedule.width));
  tiles.staged = true;
  tiles.steps = 2 * loaded;
  const Size set = Size{kStepVectors} * tiles.steps;
  const Size sets = (layout.vectors + set - 1) / set;
  const Size parts = std::min<Size>((sets * tiles.steps + kPartSteps - 1) / kPartSteps, kMostParts);
  const auto blocks = [&] {
    const int rows = kRows * tiles.beside;
    return (layout.rows * tiles.sums + rows - 1) / rows;
  };
  const int least = kLeastLineBits / tile_bits * tiles.sums;
  const int chunk = kWordBits / tile_bits * tiles.sums;  // of 16 bytes
  tiles.beside =
      std::min(columns <= 2 ? kMostWaves : kFewWaves, kLineBits / tile_bits * tiles.sums);
  while (tiles.beside > least && blocks() * batches < kProcessors) tiles.beside /= 2;
  while (tiles.beside > chunk && parts * (kRows * 4 * columns * tiles.beside) > kSlotBytes) {
    tiles.beside /= 2;
  }
  const bool at_once = blocks() * batches <= kProcessors;
  const bool near_once = blocks() * batches <= 2 * kProcessors && columns <= 2;
  int waves = at_once || near_once ? kMostWaves : kFewWaves;
  while (waves > kFewWaves && waves / tiles.beside > sets) waves /= 2;
  waves = std::max(waves, tiles.beside);
  schedule.products.rows = kRows * tiles.beside / tiles.sums;
  schedule.reduction.threads = 32 * waves;
  tiles.sets = static_cast<int>(sets);
  tiles.run = choose_run(sets, waves / tiles.beside, schedule.products);
  tiles.whole = layout.vectors % set == 0;
  tiles.x_in_smem = tiles.x_in_smem && columns <= 2 &&
                    sets * set * schedule.width * columns <=
                        kMaxSmemElements * kFewWaves / std::max(kFewWaves, waves);
  const bool few_registers = columns <= 2 || (columns <= 4 && loaded == 1);
  tiles.min_blocks = waves == kMostWaves ? (columns <= 2 ? 2 : 1) : few_registers ? 3 : 2;
  tiles.weights_before_pdl_wait = blocks() * tiles.beside * batches <= kFew;
  layout.row_blocks = blocks();
  layout.work_items = layout.row_blocks * batches;
}

}  // namespace

bool may_be_tile_weights(const SizedOperand& operand) {
  return !operand.output && !operand.iota && bits(operand.dtype) <= kMostWeightBits;
}

int tile_width(const ScratchVector<MergedAxis>& reduced, std::size_t vector_axes) {
  const Size elements = length_of(AxisSpan(reduced).last(vector_axes));
  const int together = vector_axes < reduced.size() ? kStepVectors : 1;
  for (const int width : {kWidth, kNarrowWidth}) {
    if (elements % (together * width) == 0) return width;
  }
  return 0;
}

bool choose_tiles(const TypedGraph& graph, std::span<const SizedOperand> operands,
                  const ScratchVector<MergedAxis>& axes, std::size_t weights, SizedLayout& layout) {
  Schedule& schedule = layout.schedule;
  TileSchedule& tiles = schedule.products.tiles;
  const auto count = static_cast<std::size_t>(schedule.reduction.axes);
  const auto vector_axes = static_cast<std::size_t>(schedule.products.vector_axes);
  const AxisSpan reduced = AxisSpan(axes).last(count);
  if (layout.rows > kMostRowElements || length_of(reduced) > kMostRowElements) return false;
  const Size vectors = length_of(reduced.last(vector_axes)) / schedule.width;
  tiles.steps_per_group = static_cast<int>((vectors + kStepVectors - 1) / kStepVectors);
  const ProductValues values(graph, schedule);
  const std::optional<NodeId> sum = values.tile_sum();
  if (!sum || values.operand_of(graph.nodes[values.form(*sum)->weight]) != weights) return false;
  const NodeId vector = values.tile_vector(*sum);
  // Rows of both sums are as far apart, so that they can take turns in a tile.
  for (const auto& [first, second] : values.paired_operands()) {
    const auto is_alike = [&, first = first, second = second](const MergedAxis& axis) {
      return axis.strides[first] == axis.strides[second];
    };
    if (!std::ranges::all_of(axes, is_alike)) return false;
  }
  tiles.sums = values.second_tile_sum() ? 2 : 1;
  const auto is_aligned = [&](std::size_t i, int width) {
    return std::ranges::all_of(in_each_sum(values, i), [&](std::size_t at) {
      const int alignment =
          alignment_of(operands[at], operands[at].offset, axes, axes.size() - 1, at, width);
      return alignment * 8 >= width * bits(operands[at].dtype);
    });
  };
  // Whether vectors are loaded from where a row begins; else their elements are gathered.
  const auto is_direct = [&](std::size_t i, int width) {
    return std::ranges::all_of(in_each_sum(values, i), [&](std::size_t at) {
      return schedule.operands[at].access == Access::contiguous && is_contiguous(reduced, at) &&
             !schedule.operands[at].start && is_aligned(at, width);
    });
  };
  const bool direct_weights = is_direct(weights, schedule.width);
  // What is staged is contiguous and aligned.
  const bool direct_vector =
      values.staged() == vector || is_direct(values.operand_of(graph.nodes[vector]), kChunk);
  const auto gather = [&](std::size_t i) {
    for (const std::size_t at : in_each_sum(values, i)) {
      schedule.operands[at].access = Access::strided;
      schedule.operands[at].outer_axes = outer_axes_of(axes, at);
    }
  };
  const auto take_lines = [&](std::size_t i, int copied) {
    tiles.beside = 1;
    for (const std::size_t at : in_each_sum(values, i)) {
      schedule.operands[at].access = Access::transposed;
      schedule.operands[at].alignment = copied;
    }
  };
  // By the values' form, which they do not change.
  const int weight_bits = bits(operands[weights].dtype);
  const bool direct = direct_weights && direct_vector;
  tiles.split_k = direct && takes_split_k(graph, operands, axes, values, *sum, layout);
  tiles.x_in_registers = direct && schedule.width == kWidth &&
                         length_of(reduced) * weight_bits <= kMaxRowBits &&
                         is_aligned(weights, kWordBits / weight_bits);
  tiles.x_in_smem = direct_vector;
  // Vectors of less than 16 bytes, in rows of whole chunks of as many.
  tiles.staged = direct_weights && schedule.width * weight_bits < kWordBits &&
                 length_of(reduced) % (kStepVectors * schedule.width) == 0 &&
                 is_aligned(weights, kWordBits / weight_bits);
  tiles.steps = kWordBits / (weight_bits * schedule.width);  // of which a thread has 16 bytes
  mark_before_pdl_wait(graph, values, *values.form(*sum), schedule);
  if (!direct_weights) {
    int copied = kWordBits / 8;
    for (const std::size_t at : in_each_sum(values, weights)) {
      copied = std::min(copied, bytes_in_lines(operands[at], axes, axes.size() - count - 1, at));
    }
    gather(weights);
    if (copied != 0) take_lines(weights, copied);
  }
  if (!direct_vector) gather(values.operand_of(graph.nodes[vector]));
  return true;
}

// As measured on an H200 with rows of 4096 weights, and on an H100 with rows of 14336: persistent
// blocks of sixteen waves on each multiprocessor, or of as many whole teams as that. The waves of a
// team share a tile of eight rows: four where rows have 4096 weights. If teams take several tiles,
// half of them are a block each: one kernel's blocks end, and the next one's begin to load, while
// the other half still multiplies. Weights that are loaded before the PDL wait delay x; that pays
// for a team with one tile, which has nothing else to load, and with so many that it catches up:
// not with two. More than one tile of each team in flight delays x too, and pays nowhere, nor do
// prefetches into the L2 cache.
void map_split_k_tiles(SizedLayout& layout, Size batches) {
  constexpr std::int64_t kTile = 8;  // rows
  constexpr int kSteps = 4;
  Schedule& schedule = layout.schedule;
  TileSchedule& tiles = schedule.products.tiles;
  schedule.products.rows = kTile;
  schedule.reduction.threads = 32;
  const Size parts = layout.vectors / kPartVectors;
  const Size teams = kSplitWaves / parts;  // of a multiprocessor
  tiles.steps = kSteps;
  tiles.sets = static_cast<int>(layout.vectors / (4 * kSteps));
  tiles.whole = tiles.x_in_smem = true;
  const Size count = (layout.rows * tiles.sums + kTile - 1) / kTile;
  const auto blocks_of = [&](Size together) {
    const Size most = kProcessors * together / batches;
    return std::min(count, std::max<Size>(1, most));
  };
  const Size at_once = teams * blocks_of(1);
  tiles.single_tile = count <= at_once;
  const Size together = !tiles.single_tile && teams % 2 == 0 ? 2 : 1;
  layout.row_blocks = blocks_of(together);
  schedule.reduction.rows = static_cast<int>(teams / together * parts);
  tiles.weights_before_pdl_wait = tiles.single_tile || count > 2 * at_once;
  tiles.min_blocks = static_cast<int>(together);
  layout.work_items = layout.row_blocks * batches;
}

// As measured on an H200 with rows of 4096 weights. One or two vectors: with few tiles, as many
// waves as there are sets share a tile, with registers for a set each; with more tiles, smaller
// sets leave registers for more waves; with very many, persistent blocks prefetch. More vectors do
// not fit next to other blocks. With five and more, or with three and more tiles than blocks,
// sixteen waves in persistent blocks keep vectors of 4096 elements in their registers; else vectors
// come from the cache each time. None of that shows in the order of adding (preamble/tiling.h).
void map_tiles(SizedLayout& layout, Size batches) {
  constexpr std::int64_t kPersistentBlocks = 660;  // blocks
  constexpr std::int64_t kPart = 16;               // vectors of a row for each wave
  constexpr std::int64_t kMinWaves = 4;
  constexpr std::int64_t kMostWaves = 16;
  Schedule& schedule = layout.schedule;
  TileSchedule& tiles = schedule.products.tiles;
  const Size count = (layout.rows * tiles.sums + kRows - 1) / kRows;
  const Size all = count * batches;
  const int columns = schedule.products.columns;
  const auto recomputes = [&] {
    schedule.products.turns = kRowThreads / schedule.reduction.threads;
  };
  if (tiles.split_k) {
    map_split_k_tiles(layout, batches);
    recomputes();
    return clear_before_pdl_wait(schedule);
  }
  if (tiles.beside != 0) {
    map_line_tiles(layout, batches);
    recomputes();
    return clear_before_pdl_wait(schedule);
  }
  const bool gathers = std::ranges::any_of(schedule.operands, [](const OperandSchedule& operand) {
    return operand.access == Access::strided;
  });
  schedule.products.rows = kRows;
  schedule.reduction.threads = all <= kFew ? 256 : 128;
  const Size parts = layout.vectors / kPart;
  tiles.x_in_registers = tiles.x_in_registers && layout.vectors % kPart == 0 &&
                         parts >= kMinWaves && parts <= kMostWaves &&
                         std::has_single_bit(static_cast<std::uint64_t>(parts)) &&
                         (columns > 4 || (columns > 2 && all > 2 * kProcessors));
  const int loaded = tiles.steps;  // 16 bytes
  // Vectors of eight bytes are loaded as fast for more than two columns, which take longer.
  tiles.staged = tiles.staged && !tiles.x_in_registers && !gathers &&
                 (columns <= 2 || schedule.width < kWidth);
  if (tiles.x_in_registers) {
    tiles.steps = 4;
    tiles.min_blocks = kMostWaves / static_cast<int>(parts);
    if (all <= kProcessors && tiles.min_blocks > 1) tiles.min_blocks /= 2;  // there are no more
    schedule.reduction.threads = 32 * static_cast<int>(parts);
  } else if (gathers) {
    tiles.steps = 2;
    tiles.min_blocks = all <= kFew ? 2 : 4;
  } else if (columns > 2) {
    // Eight where waves then have a set each, all of which is loaded at once.
    const bool at_once = all <= kFew && loaded > 1 && layout.vectors <= kStepVectors * 8 * 8;
    tiles.steps = columns <= 4 && (at_once || schedule.width < kWidth) ? 8 : 4;
    tiles.min_blocks = all <= kFew ? 2 : tiles.sums == 2 ? 3 : 4;  // a thread stores two results
  } else if (all <= kFew) {
    tiles.steps = tiles.staged ? 2 * loaded : 4;
    tiles.min_blocks = columns == 1 ? 2 : 3;
  } else {
    tiles.steps = tiles.staged ? 2 * loaded : 2;
    tiles.prefetch = columns == 1 && all >= kMany;
    tiles.min_blocks = tiles.prefetch ? 5 : columns == 1 && loaded > 1 ? 8 : 6;
  }
  // With more tiles, x, which then arrives after the weights, would take longer than the kernels
  // before this one, unless it is loaded once.
  tiles.weights_before_pdl_wait = all <= kFew || tiles.x_in_registers;
  clear_before_pdl_wait(schedule);
  const int waves = schedule.reduction.threads / 32;
  const Size set = Size{kStepVectors} * tiles.steps;
  const Size sets = (layout.vectors + set - 1) / set;
  tiles.sets = static_cast<int>(sets);
  tiles.run = tiles.x_in_registers ? 1 : choose_run(sets, waves, schedule.products);
  tiles.whole = layout.vectors % set == 0;
  tiles.x_in_smem =
      tiles.x_in_smem && columns <= 2 && sets * set * schedule.width * columns <= kMaxSmemElements;
  if (columns == 2 && !tiles.x_in_smem && tiles.min_blocks > 2) --tiles.min_blocks;  // for x
  const Size persistent = tiles.x_in_registers ? kProcessors * tiles.min_blocks
                          : tiles.prefetch     ? kPersistentBlocks
                                               : all;
  layout.row_blocks = std::min(count, std::max<Size>(1, persistent / batches));
  layout.work_items = layout.row_blocks * batches;
  recomputes();
}

}  // namespace kiln::fusion
