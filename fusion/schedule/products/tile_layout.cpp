#include "fusion/schedule/products/tile_layout.hpp"

#include <algorithm>
#include <bit>
#include <optional>

#include "fusion/schedule/products/product_values.hpp"

namespace kiln::fusion {
namespace {

// A tile has sixteen rows. With few rows more threads would idle than work.
constexpr int kRows = 16;
constexpr std::int64_t kMinRows = 64;
constexpr std::int64_t kMostRowElements = std::int64_t{1} << 30;  // of a row; and rows
constexpr int kChunk = 8;                                         // elements of x in 16 bytes
constexpr int kWordBits = 128;
constexpr int kMostWeightBits = 8;
constexpr int kRegisterLanes = 16;
constexpr std::int64_t kMaxRowBits = 16384;  // of a row: two tiles are 64 KiB, which all GPUs have
constexpr std::int64_t kMaxSmemElements = 16384;  // of x: 32 of the 48 KiB of a block
constexpr std::int64_t kProcessors = 132;
constexpr std::int64_t kMany = 4096;       // tiles
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

// How groups divide into steps of four vectors; nothing if a step would contain a part of a group.
std::optional<TileSchedule> groups_in_steps(AxisSpan reduced, int width) {
  TileSchedule tiles;
  const Size vectors = reduced.back().size / width;
  if (reduced.size() > 1 && vectors % 4 != 0) {
    if (vectors > 2) return std::nullopt;
    tiles.vectors_per_group = static_cast<int>(vectors);
  } else {
    tiles.vectors_per_group = 4;
    tiles.steps_per_group = static_cast<int>((vectors + 3) / 4);
  }
  return tiles;
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

// Sets the schedule's tiles and width for a split reduction within the block
// (preamble/split_k_tiles.h), if the operands allow it: 4-bit weights in rows of a few parts, with
// the numbers of groups in arrays whose rows are whole chunks of 16 bytes. Returns whether they do.
bool choose_split_k(const TypedGraph& graph, std::span<const SizedOperand> operands,
                    const ScratchVector<MergedAxis>& axes, const ProductValues& values, NodeId sum,
                    SizedLayout& layout) {
  constexpr int kStepBits = 256;  // four threads have 8 bytes each
  constexpr std::int64_t kStepsOfChains = 32;
  constexpr int kGroups = 8;  // whose scales are 16 bytes
  const ProductForm& form = *values.form(sum);
  const auto count = static_cast<std::size_t>(layout.schedule.reduction.axes);
  const AxisSpan reduced = AxisSpan(axes).last(count);
  const std::size_t weights = values.operand_of(graph.nodes[form.weight]);
  const int weight_bits = bits(operands[weights].dtype);
  const int width = kStepBits / 4 / weight_bits;
  const Size most = std::min(kSplitWaves * kPartVectors * width, kMaxSmemElements);
  const Size length = length_of(reduced);
  if (!is_packed(operands[weights].dtype) || layout.schedule.products.columns != 1 || count != 2 ||
      !form.scale || reduced.back().size % (4 * width) != 0 ||
      length % (kStepsOfChains * 4 * width) != 0 || length > most || reduced[0].size % kGroups != 0)
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
  TileSchedule tiles;
  tiles.split_k = true;
  tiles.vectors_per_group = 4;
  tiles.steps_per_group = static_cast<int>(reduced.back().size / (4 * width));
  layout.schedule.width = width;
  layout.schedule.products.lanes = kChunk;
  layout.schedule.products.tiles = tiles;
  return true;
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

}  // namespace

// Whether three or four vectors take vectors of weights that are half as wide, so that each column
// of the instruction is of one of them and not also of a group. As measured on an H100, that pays
// for rows that do not fit the waves' registers, and for as many tiles as leave x there, but not
// for so few that two blocks of each multiprocessor have them, or for very many.
bool takes_narrow_loads(Size row_bits, Size tiles) {
  return row_bits > kMaxRowBits || (tiles > 2 * kProcessors && tiles < kMany);
}

// The columns of the matrix instruction are those of x times the groups of a step: takes the
// largest width with room for them.
void choose_tiles(const TypedGraph& graph, std::span<const SizedOperand> operands,
                  const ScratchVector<MergedAxis>& axes, SizedLayout& layout) {
  const auto count = static_cast<std::size_t>(layout.schedule.reduction.axes);
  const AxisSpan reduced = AxisSpan(axes).last(count);
  if (layout.rows < kMinRows || layout.rows > kMostRowElements ||
      length_of(reduced) > kMostRowElements) {
    return;
  }
  const bool gathers = std::ranges::any_of(
      layout.schedule.operands,
      [](const OperandSchedule& operand) { return operand.access == Access::strided; });
  if (gathers) return;
  const bool may_be_weights = std::ranges::any_of(operands, [](const SizedOperand& operand) {
    return !operand.output && bits(operand.dtype) <= kMostWeightBits;
  });
  if (!may_be_weights) return;
  Schedule trial = layout.schedule;
  trial.products.tiles.vectors_per_group = 4;
  trial.width = kWordBits / 4;
  const ProductValues values(graph, trial);
  const std::optional<NodeId> sum = values.tile_sum();
  if (!sum) return;
  const std::size_t weights = values.operand_of(graph.nodes[values.form(*sum)->weight]);
  const NodeId vector = values.tile_vector(*sum);
  // Rows of both sums are as far apart, so that they can take turns in a tile.
  for (const auto& [first, second] : values.paired_operands()) {
    const auto is_alike = [&, first = first, second = second](const MergedAxis& axis) {
      return axis.strides[first] == axis.strides[second];
    };
    if (!std::ranges::all_of(axes, is_alike)) return;
  }
  const auto is_aligned = [&](std::size_t i, int width) {
    return std::ranges::all_of(in_each_sum(values, i), [&](std::size_t at) {
      const int alignment =
          alignment_of(operands[at], operands[at].offset, axes, axes.size() - 1, at, width);
      return alignment * 8 >= width * bits(operands[at].dtype);
    });
  };
  if (!is_contiguous(reduced, weights) || trial.operands[weights].start) return;
  if (values.staged() != vector) {  // what is staged is contiguous and aligned
    const std::size_t x = values.operand_of(graph.nodes[vector]);
    if (!is_contiguous(reduced, x) || !is_aligned(x, kChunk)) return;
  }
  const auto has_tiles = [&] {
    layout.schedule.products.tiles.sums = values.second_tile_sum() ? 2 : 1;
    mark_before_pdl_wait(graph, values, *values.form(*sum), layout.schedule);
  };
  if (choose_split_k(graph, operands, axes, values, *sum, layout)) return has_tiles();
  const Size sums = values.second_tile_sum() ? 2 : 1;
  const bool is_narrow = takes_narrow_loads(length_of(reduced) * bits(operands[weights].dtype),
                                            (layout.rows * sums + kRows - 1) / kRows);
  for (int width = kWordBits / bits(operands[weights].dtype); width >= kChunk; width /= 2) {
    if (reduced.back().size % width != 0 || !is_aligned(weights, width)) continue;
    const std::optional<TileSchedule> tiles = groups_in_steps(reduced, width);
    if (!tiles || trial.products.columns > 2 * tiles->vectors_per_group) continue;
    const bool shares_columns = trial.products.columns > 2 && tiles->vectors_per_group < 4;
    if (shares_columns && width > kRegisterLanes && is_narrow) continue;
    layout.schedule.width = width;
    layout.schedule.products.lanes = kChunk;
    layout.schedule.products.tiles = *tiles;
    layout.schedule.products.tiles.x_in_registers =
        tiles->vectors_per_group == 4 && width == kRegisterLanes &&
        length_of(reduced) * bits(operands[weights].dtype) <= kMaxRowBits &&
        is_aligned(weights, std::max(width, kWordBits / bits(operands[weights].dtype)));
    return has_tiles();
  }
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
// not fit next to other blocks. With five and more, or with three and a middling number of tiles,
// sixteen waves in persistent blocks keep vectors of 4096 elements in their registers; else vectors
// come from the cache each time.
void map_tiles(SizedLayout& layout, Size batches) {
  constexpr std::int64_t kFew = 512;
  constexpr std::int64_t kPersistentBlocks = 660;  // blocks
  constexpr std::int64_t kPart = 16;               // vectors of a row for each wave
  constexpr std::int64_t kMinWaves = 4;
  constexpr std::int64_t kMostWaves = 16;
  Schedule& schedule = layout.schedule;
  TileSchedule& tiles = schedule.products.tiles;
  const Size count = (layout.rows * tiles.sums + kRows - 1) / kRows;
  const Size all = count * batches;
  const int columns = schedule.products.columns;
  if (tiles.split_k) {
    map_split_k_tiles(layout, batches);
    return clear_before_pdl_wait(schedule);
  }
  schedule.products.rows = kRows;
  schedule.reduction.threads = all <= kFew ? 256 : 128;
  const Size parts = layout.vectors / kPart;
  tiles.x_in_registers = tiles.x_in_registers && layout.vectors % kPart == 0 &&
                         parts >= kMinWaves && parts <= kMostWaves &&
                         std::has_single_bit(static_cast<std::uint64_t>(parts)) &&
                         (columns > 4 || (columns > 2 && all > 2 * kProcessors && all < kMany));
  if (tiles.x_in_registers) {
    tiles.steps = 4;
    tiles.min_blocks = kMostWaves / static_cast<int>(parts);
    schedule.reduction.threads = 32 * static_cast<int>(parts);
  } else if (columns > 2) {
    tiles.steps = 4;
    tiles.min_blocks = all <= kFew ? 2 : tiles.sums == 2 ? 3 : 4;  // a thread stores two results
  } else if (all <= kFew) {
    tiles.steps = 4;
    tiles.min_blocks = columns == 1 ? 2 : 3;
  } else {
    tiles.steps = 2;
    tiles.prefetch = columns == 1 && all >= kMany;
    tiles.min_blocks = tiles.prefetch ? 5 : columns == 1 && schedule.width > 16 ? 8 : 6;
  }
  // With more tiles, x, which then arrives after the weights, would take longer than the kernels
  // before this one, unless it is loaded once.
  tiles.weights_before_pdl_wait = all <= kFew || tiles.x_in_registers;
  clear_before_pdl_wait(schedule);
  const Size set = Size{4} * tiles.steps;
  const Size sets = (layout.vectors + set - 1) / set;
  tiles.sets = static_cast<int>(sets);
  tiles.whole = layout.vectors % set == 0;
  tiles.x_in_smem = columns <= 2 && sets * set * schedule.width * columns <= kMaxSmemElements;
  const Size persistent = tiles.x_in_registers ? kProcessors * tiles.min_blocks
                          : tiles.prefetch     ? kPersistentBlocks
                                               : all;
  layout.row_blocks = std::min(count, std::max<Size>(1, persistent / batches));
  layout.work_items = layout.row_blocks * batches;
}

}  // namespace kiln::fusion
