#include "fusion/schedule/products/tile_layout.hpp"

#include <algorithm>
#include <optional>

#include "fusion/schedule/products/product_values.hpp"

namespace kiln::fusion {
namespace {

// A tile has sixteen rows. With few rows more threads would wait than work.
constexpr int kRows = 16;
constexpr std::int64_t kFewestRows = 64;
constexpr std::int64_t kMostElements = std::int64_t{1} << 30;  // of a row, and rows
constexpr int kChunk = 8;                                      // of the vectors: 16 bytes
constexpr int kWordBits = 128;
constexpr int kHeldLanes = 16;
constexpr std::int64_t kHeldBits = 16384;  // of a row: two tiles are 64 KiB, which all GPUs have
constexpr std::int64_t kMostKept = 16384;  // elements of vectors: 32 of the 48 KiB of a block

using Axes = std::span<const MergedAxis>;

// Whether the reduced elements of an operand's rows follow each other in memory.
bool is_one_piece(Axes reduced, std::size_t operand) {
  for (std::size_t k = 0; k + 1 < reduced.size(); ++k) {
    if (reduced[k].strides[operand] != reduced[k + 1].strides[operand] * reduced[k + 1].size)
      return false;
  }
  return true;
}

std::int64_t length_of(Axes reduced) {
  std::int64_t length = 1;
  for (const MergedAxis& axis : reduced) length *= axis.size;
  return length;
}

// How lines lie in steps of four vectors; nothing if some step would have a part of one.
std::optional<TileSchedule> lines_in_steps(Axes reduced, int width) {
  TileSchedule tiles;
  const std::int64_t vectors = reduced.back().size / width;
  if (reduced.size() > 1 && vectors % 4 != 0) {
    if (vectors > 2) return std::nullopt;
    tiles.vectors_per_group = static_cast<int>(vectors);
  } else {
    tiles.vectors_per_group = 4;
    tiles.steps_per_group = static_cast<int>((vectors + 3) / 4);
  }
  return tiles;
}

// Whether waves can have parts of rows (preamble/row_parts.h): rows of a few such parts, with lines
// that are read as they lie, in whole pieces; of 4-bit weights, with which it has been measured.
// Sets the schedule's tiles and width if so.
bool choose_parts(const TypedGraph& graph, std::span<const Operand> operands,
                  const std::vector<MergedAxis>& axes, const ProductValues& values, NodeId sum,
                  Layout& layout) {
  constexpr int kStepBits = 256;  // four threads have 8 bytes each
  constexpr std::int64_t kStepsOfChains = 32;
  constexpr int kLines = 8;  // in 16 bytes
  const ProductForm& form = *values.form(sum);
  const auto count = static_cast<std::size_t>(layout.schedule.reduction.axes);
  const Axes reduced = Axes(axes).last(count);
  const std::size_t weights = values.operand_of(graph.nodes[form.lane]);
  const int weight_bits = bits(operands[weights].dtype);
  const int width = kStepBits / 4 / weight_bits;
  const std::int64_t length = length_of(reduced);
  if (!is_packed(operands[weights].dtype) || layout.schedule.products.columns != 1 || count != 2 ||
      !form.scale || reduced.back().size % (4 * width) != 0 ||
      length % (kStepsOfChains * 4 * width) != 0 || length * weight_bits > kHeldBits ||
      reduced[0].size % kLines != 0)
    return false;
  const std::size_t line_axis = axes.size() - 2;
  const auto begins_pieces = [&](std::size_t i, std::size_t inner, int lanes) {
    return alignment_of(operands[i], operands[i].offset, axes, inner, i, lanes) * 8 >= kWordBits;
  };
  if (!begins_pieces(weights, axes.size() - 1, kWordBits / weight_bits)) return false;
  std::optional<DType> dtype;
  for (const std::optional<NodeId>& part : {form.scale, form.bias, form.point}) {
    if (!part) continue;
    if (graph.nodes[*part].op != Op::input) return false;
    const std::size_t i = values.operand_of(graph.nodes[*part]);
    const bool is_narrow = operands[i].dtype == DType::bf16 || operands[i].dtype == DType::f16;
    if (!is_narrow || (dtype && *dtype != operands[i].dtype) || reduced[0].strides[i] != 1 ||
        reduced[1].strides[i] != 0 || !begins_pieces(i, line_axis, kLines))
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

// Weights, and what scales, biases and points are computed from.
void read_early(const TypedGraph& graph, const ProductValues& values, const ProductForm& form,
                Schedule& schedule) {
  std::vector<bool> wanted(graph.nodes.size(), false);
  wanted[form.lane] = true;
  for (const std::optional<NodeId>& part : {form.scale, form.bias, form.point}) {
    if (part) wanted[*part] = true;
  }
  for (std::size_t id = graph.nodes.size(); id-- > 0;) {
    if (!wanted[id]) continue;
    const TypedNode& node = graph.nodes[id];
    if (node.op == Op::input) schedule.operands[values.operand_of(node)].before_pdl_wait = true;
    for (const NodeId operand : node.inputs()) wanted[operand] = true;
  }
}

// Nothing is read early unless weights are.
void drop_early(Schedule& schedule) {
  for (OperandSchedule& operand : schedule.operands) {
    operand.before_pdl_wait =
        operand.before_pdl_wait && schedule.products.tiles.weights_before_pdl_wait;
  }
}

}  // namespace

// A tile's columns are those of the vectors times the lines of a step: the width is the largest
// with room for them.
void choose_tiles(const TypedGraph& graph, std::span<const Operand> operands,
                  const std::vector<MergedAxis>& axes, Layout& layout) {
  const auto count = static_cast<std::size_t>(layout.schedule.reduction.axes);
  const Axes reduced = Axes(axes).last(count);
  Schedule trial = layout.schedule;
  trial.products.tiles.vectors_per_group = 4;
  trial.width = kWordBits / 4;
  const ProductValues values(graph, trial);
  const std::optional<NodeId> sum = values.tile_sum();
  if (!sum || layout.rows < kFewestRows || layout.rows > kMostElements ||
      length_of(reduced) > kMostElements)
    return;
  const std::size_t weights = values.operand_of(graph.nodes[values.form(*sum)->lane]);
  const std::size_t vector = values.operand_of(graph.nodes[values.tile_vector(*sum)]);
  const auto is_aligned = [&](std::size_t i, int width) {
    const int alignment =
        alignment_of(operands[i], operands[i].offset, axes, axes.size() - 1, i, width);
    return alignment * 8 >= width * bits(operands[i].dtype);
  };
  if (!is_one_piece(reduced, weights) || !is_one_piece(reduced, vector) ||
      trial.operands[weights].start || !is_aligned(vector, kChunk))
    return;
  const auto has_tiles = [&] { read_early(graph, values, *values.form(*sum), layout.schedule); };
  if (choose_parts(graph, operands, axes, values, *sum, layout)) return has_tiles();
  for (int width = kWordBits / bits(operands[weights].dtype); width >= kChunk; width /= 2) {
    if (reduced.back().size % width != 0 || !is_aligned(weights, width)) continue;
    const std::optional<TileSchedule> tiles = lines_in_steps(reduced, width);
    if (!tiles || trial.products.columns > 2 * tiles->vectors_per_group) continue;
    layout.schedule.width = width;
    layout.schedule.products.lanes = kChunk;
    layout.schedule.products.tiles = *tiles;
    layout.schedule.products.tiles.x_in_registers =
        tiles->vectors_per_group == 4 && width == kHeldLanes &&
        length_of(reduced) * bits(operands[weights].dtype) <= kHeldBits &&
        is_aligned(weights, std::max(width, kWordBits / bits(operands[weights].dtype)));
    return has_tiles();
  }
}

// As measured on an H200 with rows of 4096 weights: a block of sixteen waves on each
// multiprocessor, which stays. Four waves have a tile of eight rows.
void share_out_parts(Layout& layout, std::int64_t batches) {
  constexpr std::int64_t kWaves = 16;
  constexpr std::int64_t kStaying = 132;
  constexpr std::int64_t kTile = 8;          // rows
  constexpr std::int64_t kPartVectors = 64;  // of a wave
  constexpr int kSteps = 4;
  Schedule& schedule = layout.schedule;
  TileSchedule& tiles = schedule.products.tiles;
  schedule.products.rows = kTile;
  schedule.reduction.threads = 32;
  schedule.reduction.rows = kWaves;
  tiles.steps = kSteps;
  tiles.sets = static_cast<int>(layout.vectors / (4 * kSteps));
  tiles.whole = tiles.x_in_smem = true;
  const std::int64_t count = (layout.rows + kTile - 1) / kTile;
  layout.row_blocks = std::min(count, std::max<std::int64_t>(1, kStaying / batches));
  const std::int64_t teams = kWaves * kPartVectors / layout.vectors;
  tiles.single_tile = tiles.weights_before_pdl_wait = count <= teams * layout.row_blocks;
  tiles.min_blocks = 1;
  layout.work_items = static_cast<std::uint64_t>(layout.row_blocks * batches);
}

// As measured on an H200 with rows of 4096 weights. One or two vectors: with few tiles as many
// waves as there are sets share each, with registers for a set each; with more, smaller sets leave
// registers for more waves; with very many, blocks that stay and load ahead. More vectors do
// not fit next to other blocks. Of five and more, sixteen waves in blocks that stay can hold those
// of 4096 elements in their registers; else they come from the cache each time.
void share_out_tiles(Layout& layout, std::int64_t batches) {
  constexpr std::int64_t kFew = 512;
  constexpr std::int64_t kMany = 4096;
  constexpr std::int64_t kStaying = 660;  // blocks
  constexpr std::int64_t kProcessors = 132;
  constexpr std::int64_t kPart = 16;  // vectors of a wave that holds its part of them
  constexpr std::int64_t kFewestWaves = 4;
  constexpr std::int64_t kMostWaves = 16;
  Schedule& schedule = layout.schedule;
  TileSchedule& tiles = schedule.products.tiles;
  const std::int64_t count = (layout.rows + kRows - 1) / kRows;
  const std::int64_t all = count * batches;
  const int columns = schedule.products.columns;
  if (tiles.split_k) {
    share_out_parts(layout, batches);
    return drop_early(schedule);
  }
  schedule.products.rows = kRows;
  schedule.reduction.threads = all <= kFew ? 256 : 128;
  const std::int64_t parts = layout.vectors / kPart;
  tiles.x_in_registers = tiles.x_in_registers && columns > 4 && layout.vectors % kPart == 0 &&
                         parts >= kFewestWaves && parts <= kMostWaves;
  if (tiles.x_in_registers) {
    tiles.steps = 4;
    tiles.min_blocks = kMostWaves / static_cast<int>(parts);
    schedule.reduction.threads = 32 * static_cast<int>(parts);
  } else if (columns > 2) {
    tiles.steps = 4;
    tiles.min_blocks = all <= kFew ? 2 : 4;
  } else if (all <= kFew) {
    tiles.steps = 4;
    tiles.min_blocks = columns == 1 ? 2 : 3;
  } else {
    tiles.steps = 2;
    tiles.prefetch = columns == 1 && all >= kMany;
    tiles.min_blocks = tiles.prefetch ? 5 : columns == 1 && schedule.width > 16 ? 8 : 6;
  }
  // With more tiles x that comes after weights is waited for longer than kernels end.
  tiles.weights_before_pdl_wait = all <= kFew;
  drop_early(schedule);
  const std::int64_t set = std::int64_t{4} * tiles.steps;
  const std::int64_t sets = (layout.vectors + set - 1) / set;
  tiles.sets = static_cast<int>(sets);
  tiles.whole = layout.vectors % set == 0;
  tiles.x_in_smem = columns <= 2 && sets * set * schedule.width * columns <= kMostKept;
  const std::int64_t staying = tiles.x_in_registers ? kProcessors * tiles.min_blocks
                               : tiles.prefetch     ? kStaying
                                                    : all;
  layout.row_blocks = std::min(count, std::max<std::int64_t>(1, staying / batches));
  layout.work_items = static_cast<std::uint64_t>(layout.row_blocks * batches);
}

}  // namespace kiln::fusion
