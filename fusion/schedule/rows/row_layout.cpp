#include "fusion/schedule/rows/row_layout.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "fusion/graph/broadcast.hpp"
#include "fusion/infer/sum_tree.hpp"
#include "fusion/schedule/columns/column_axes.hpp"
#include "fusion/schedule/columns/column_mapping.hpp"
#include "fusion/schedule/merged_axes.hpp"
#include "fusion/schedule/rows/row_buffers.hpp"
#include "fusion/schedule/rows/row_fold.hpp"
#include "fusion/schedule/rows/row_vectors.hpp"
#include "fusion/schedule/rows/staged_rows.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

using Axis = MergedAxis;

ScratchVector<Axis> axes_or_one(const ReduceSpace& space, const Sizes& shape,
                                std::span<const SizedOperand> operands, bool reduced,
                                std::span<const AxisBound> bounds) {
  ScratchVector<Axis> axes = axes_where(space, shape, operands, reduced, bounds);
  if (axes.empty()) axes.push_back({1, SizedStrides(operands.size(), 0), {}});
  return axes;
}

// The one axis that all reduced axes are where operands repeat along the last of them: these have
// one element for each of the `runs` of a row's elements. Nothing where others are not one axis, or
// where runs are shorter than `least`.
std::optional<Axis> merge_runs(const ScratchVector<Axis>& axes,
                               std::span<const SizedOperand> operands, Size least,
                               ScratchVector<RunsOf<Size>>& runs) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 31;
  Axis whole = axes.back();
  whole.size = product(axes);
  if (whole.size == 0) return std::nullopt;
  whole.from.clear();
  for (const Axis& axis : axes) {
    whole.from.append(axis.from.data(), axis.from.size());
  }
  for (std::size_t i = 0; i < operands.size(); ++i) {
    std::size_t moving = axes.size();
    RunsOf<Size> own{1, 0};
    while (moving > 0 && axes[moving - 1].strides[i] == 0) own.length *= axes[--moving].size;
    for (std::size_t k = 1; k < moving; ++k) {
      if (axes[k - 1].strides[i] != axes[k].strides[i] * axes[k].size) return std::nullopt;
    }
    if (moving == 0 || moving == axes.size()) continue;
    own.stride = axes[moving - 1].strides[i];
    const bool far = abs(own.stride) >= kMostElements / (whole.size / own.length);
    const bool has_place = operands[i].output || operands[i].iota || operands[i].indexed.exists();
    if (has_place || own.length < least || far) {
      return std::nullopt;
    }
    runs[i] = own;
  }
  return whole;
}

// The access of an operand where the innermost axis is reduced.
Access row_access(const ScratchVector<Axis>& axes, std::size_t operand, bool row_invariant) {
  if (!row_invariant)
    return axes.back().strides[operand] == 1 ? Access::contiguous : Access::strided;
  const bool moves =
      std::ranges::any_of(axes, [&](const Axis& axis) { return axis.strides[operand] != 0; });
  return moves ? Access::broadcast : Access::scalar;
}

// Whether a kernel stores two elements of an operand with each byte: every row of its vectors
// begins with one. Else they are stored one by one, and threads take turns at a byte.
bool stores_whole_bytes(const SizedOperand& operand, const ScratchVector<Axis>& axes,
                        std::size_t index, int width) {
  bool whole = operand.offset % 2 == 0 && width % 2 == 0 && axes.back().size % 2 == 0;
  for (std::size_t k = 0; k + 1 < axes.size(); ++k) {
    whole = whole && axes[k].strides[index] % 2 == 0;
  }
  return whole;
}

// The operand with the most bytes that varies within rows: it had better be read in order.
std::size_t largest_varying(const Sizes& shape, std::span<const SizedOperand> operands,
                            const ScratchVector<bool>& row_invariant) {
  std::size_t found = 0;
  Size most = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (row_invariant[i] || operands[i].iota) continue;
    const Size elements = operands[i].indexed.exists() ? element_count(shape)
                                                       : element_count(shape, operands[i].strides);
    const Size total = bits(operands[i].dtype) * elements;
    if (total > most) {
      most = total;
      found = i;
    }
  }
  return found;
}

bool is_one_element(std::span<const Axis> axes, std::size_t operand) {
  return std::ranges::all_of(axes, [&](const Axis& axis) { return axis.strides[operand] == 0; });
}

// Blocks share a row to keep all of it, or where there are fewer rows than blocks. What is read
// once need not be kept: blocks of their own, several to a multiprocessor, wait for no other.
RowFeatures features_for(const ReduceSpace& space, Size count, RowFeatures device,
                         Backend backend) {
  const RowModel& model = row_model(backend);
  if (space.passes == 1 && count >= model.threads / model.max_threads) device.clusters = false;
  if (device.forced.read_again) device.clusters = false;
  return device;
}

// Whether sums and products of a GPU's rows are combined in the order of their tree: all rows have
// one that sum or multiply floats.
bool follows_tree(const RowSchedule& rows, Size length) {
  return rows.chunks != ColumnChunks::one || length <= kTreeChunk;
}

// The vectors for which threads have room to keep a row of several chunks: each block of a cluster
// for as many whole ones; else of a short last one fewer threads have more vectors.
Size vectors_in_chunks(const RowSchedule& rows, Size length, int width) {
  const Size chunks = (length + kTreeChunk - 1) / kTreeChunk;
  const Size each = (chunks + rows.cluster_blocks - 1) / rows.cluster_blocks;
  const Size whole = each * rows.cluster_blocks * (kTreeChunk / width);
  const Size rest = length % kTreeChunk;
  if (rows.cluster_blocks > 1 || rest == 0) return whole;
  const int accumulators = kMostResidues / rows.threads;
  const int threads = std::min(rows.threads, std::max(1, residues_of(rest) / accumulators));
  const Size vectors = (rest + width - 1) / width;
  return whole - kTreeChunk / width + (vectors + threads - 1) / threads * rows.threads;
}

// Threads of such a row have different residues.
int most_threads(const RowSchedule& rows, Size length, int width) {
  if (!follows_tree(rows, length)) return std::numeric_limits<int>::max();
  return std::max(1, residues_of(length) / width);
}

// The vectors for whose lanes a thread of such a row has accumulators. Where no residue has two
// elements, there may be as many residues as lanes.
int sets_of(const RowSchedule& rows, Size length, int width, bool in_pairs) {
  if (!follows_tree(rows, length)) return 0;
  int residues = residues_with_elements(length);
  if (in_pairs && length <= kLeastResidues) residues = std::max(1, residues / 2);
  return std::max(1, residues / (rows.threads / rows.cluster_blocks * rows.chunk_blocks * width));
}

}  // namespace

bool is_prefetched(const Schedule& schedule, std::size_t input) {
  const OperandSchedule& operand = schedule.operands[input];
  return schedule.pdl && schedule.reduction.axes > 0 && schedule.reduction.columns == 0 &&
         operand.access == Access::contiguous && operand.outer_axes == 0 &&
         operand.indexing == Indexing::none;
}

SizedLayout plan_rows(const ReduceSpace& space, const Sizes& shape,
                      std::span<const SizedOperand> operands,
                      const std::vector<bool>& invariant_operands, bool keep_order, Backend backend,
                      const RowFeatures& device, std::span<const AxisBound> bounds) {
  SizedLayout layout;
  Schedule& schedule = layout.schedule;
  schedule.backend = backend;
  reserve_operands(layout, operands.size());
  layout.offsets.assign(operands.size(), 0);
  layout.split_strides.reserve(operands.size());
  layout.indexed.reserve(operands.size());
  ScratchVector<bool> row_invariant;  // not bits, which are asked for many times
  row_invariant.reserve(operands.size());
  for (const bool invariant : invariant_operands) row_invariant.push_back(invariant);
  const std::size_t leading = largest_varying(shape, operands, row_invariant);
  ScratchVector<Axis> outer = axes_or_one(space, shape, operands, false, bounds);
  ScratchVector<Axis> inner = axes_or_one(space, shape, operands, true, bounds);
  sort_by_memory(outer, operands, leading);
  // Sums and products of floats are combined in C order of the axes (numerics.md).
  const bool any_order = !keep_order && space.trees == 0;
  if (any_order) sort_by_memory(inner, operands, leading);
  merge(outer);
  merge(inner);
  layout.reduced = product(inner);
  layout.splits = space.splits;
  RowSchedule& rows = schedule.reduction;
  if (backend != Backend::host && !keep_order && bounds.empty() && space.splits == 1) {
    rows.joined = joined_columns(outer, inner, operands, row_invariant, leading);
  }
  if (rows.joined > 1) {
    const Size columns = outer.back().size * inner.back().size;
    outer.back().from.append(inner.back().from.data(), inner.back().from.size());
    outer.back().strides = std::move(inner.back().strides);
    outer.back().size = columns;
    inner.pop_back();
  }
  rows.split = space.splits > 1;
  const RowFold fold =
      backend != Backend::host && rows.joined == 1 && bounds.empty()
          ? fold_of(inner, space, operands, row_invariant, leading, device, backend)
          : RowFold();
  if (fold.exists()) {
    fold_axes(fold, space.splits, outer, inner, operands, row_invariant);
    rows.folded = fold.vectors;
    rows.fold_steps = fold.steps;
    rows.fold_residues = fold.terms_of;
    rows.joined = std::max(1, fold.width);
    rows.joined_chunks = fold.chunk_vectors;
    rows.parts = static_cast<int>(space.splits);
    rows.split = false;
    layout.splits = 1;
    layout.reduced /= space.splits;
  }
  layout.rows = product(outer);
  rows.axes = static_cast<int>(inner.size());

  const bool side_by_side = lies_along_rows(outer.back(), inner.back(), leading) ||
                            (backend != Backend::host && bounds.empty() && !rows.split &&
                             has_few_neighbours(outer.back(), inner, operands, leading));
  const bool by_columns =
      fold.exists() || (side_by_side && !has_indexed(operands) && !ends_by_lane(outer, bounds));
  layout.runs.assign(operands.size(), {});
  if (!by_columns && inner.size() > 1 && bounds.empty()) {
    ScratchVector<RunsOf<Size>> runs(operands.size());
    const int least = backend == Backend::host ? 1 : device_model(backend).work.max_lanes;
    if (std::optional<Axis> whole = merge_runs(inner, operands, least, runs)) {
      inner.assign(1, std::move(*whole));
      layout.runs = std::move(runs);
      rows.axes = 1;
    }
  }
  const auto has_runs = [&](std::size_t i) { return layout.runs[i].length != 0; };
  // Rows whose end is known to the kernel alone are of any length up to their axis'.
  const bool any_length = std::ranges::any_of(inner, &Axis::bounded);
  ScratchVector<Axis> axes = std::move(outer);
  axes.insert(by_columns ? axes.end() - 1 : axes.end(), std::move_iterator(inner.begin()),
              std::move_iterator(inner.end()));
  schedule.bounds = bounded_axes(axes, bounds);
  if (any_length && rows.axes > 1) {
    throw Error(Code::unsupported,
                "a reduction over a bounded axis and others at once; reduce one after the other");
  }
  const Axis& innermost = axes.back();
  schedule.rank = static_cast<int>(axes.size());
  const bool gpu = backend != Backend::host;
  // A row that is split though it has one chunk has all of it in its first part.
  if (gpu && !by_columns && space.trees != 0 && (layout.reduced > kTreeChunk || rows.split)) {
    rows.chunks = ColumnChunks::many;
  }
  const bool in_chunks = !by_columns && rows.chunks != ColumnChunks::one;
  int& width = schedule.width;
  width = full_width(innermost, layout.reduced, operands, row_invariant, by_columns, backend);
  if (by_columns) {
    const int host =
        std::max(kLeastLanes, power_of_two_from(std::min<Size>(innermost.size, kHostColumns)));
    width = gpu ? std::min(width, kMostColumnVector) : host;
  }
  if (fold.width != 0) width = fold.width;
  if (gpu && !by_columns && rows.axes == 1 && has_steps(innermost, operands, row_invariant))
    width = 1;
  // No vector reaches beyond an end.
  if (innermost.bounded) width = gpu ? 1 : std::min(width, by_columns ? width : kLeastLanes);
  if (gpu && device.forced.width != 0) width = std::min(width, device.forced.width);
  const bool packs = std::ranges::any_of(
      operands, [](const SizedOperand& o) { return o.output && is_packed(o.dtype); });
  const bool may_begin_within = gpu && !by_columns && rows.axes == 1 && !row_invariant[leading] &&
                                !innermost.bounded && !packs;
  const bool may_stage =
      may_begin_within && !rows.split && bounds.empty() && !device.forced.read_again;
  const int staged_threads = may_stage ? threads_of_staged(axes, operands, row_invariant, width,
                                                           layout.rows, device.forced.threads)
                                       : 0;
  const bool staged = staged_threads != 0;
  if (staged) width = 1;
  while (gpu && width > 1) {
    if (may_begin_within) rows.phase = phase_operand(axes, operands, row_invariant, leading, width);
    const bool has_ends = rows.phase >= 0;  // with a thread for each element of them
    if (has_ends && most_threads(rows, layout.reduced, width) < 2 * width) rows.phase = -1;
    if (rows.phase >= 0) break;
    if (!has_ends && innermost.size % width == 0) break;
    width /= 2;
  }
  const auto is_weight = [&](std::size_t i) {
    const auto reduced = static_cast<std::size_t>(rows.axes) + (by_columns ? 1 : 0);
    const std::span elsewhere = std::span(axes).first(axes.size() - reduced);
    return layout.rows > 1 && is_one_element(elsewhere, i) && !operands[i].indexed.exists();
  };
  ColumnSpace columns;
  if (by_columns) {
    layout.vectors = layout.reduced / rows.joined;
    columns.length = layout.vectors / layout.splits;
    // Where the kernel alone knows the length, or has a part of it, threads keep nothing.
    const bool again = space.read_again.empty() || std::ranges::count(space.read_again, true) != 0;
    columns.forced = device.forced;
    columns.keeps =
        !any_length && !rows.split && !device.forced.read_again && device.forced.threads == 0;
    columns.clusters = device.clusters && backend == Backend::nvidia && columns.keeps &&
                       rows.folded == 0 && bounds.empty();
    columns.residues = fold.exists()
                           ? fold.residues
                           : residues_of_column(layout.vectors, rows.joined,
                                                residue_parts(layout.vectors, layout.splits));
    columns.folded = rows.folded;
    columns.passes = columns.keeps && again ? space.passes : 1;
    columns.reductions = space.reductions;
    columns.trees = space.trees;
    columns.sum_bytes = space.tree_bytes;
    columns.packs = packs;
    if (space.gives_places) columns.slot_bytes *= 2;  // a value and where it is
  }
  // Of columns: the same vector for all elements that a thread has, such as weights of joined ones.
  const auto is_fixed = [&](std::size_t i) {
    return by_columns && !fold.exists() && !row_invariant[i] &&
           is_one_element(std::span(axes).subspan(axes.size() - 1 - rows.axes,
                                                  static_cast<std::size_t>(rows.axes)),
                          i);
  };
  // Where threads of columns are short of registers, what one pass reads is not kept for others.
  bool keeps_all = true;
  const auto is_read_once = [&](std::size_t i) {
    return !keeps_all && i < space.read_again.size() && !space.read_again[i];
  };
  const auto bytes_of_vector = [&] {
    constexpr int kRegister = 4;
    VectorBytes bytes;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (row_invariant[i] || operands[i].output || operands[i].iota || has_runs(i)) continue;
      bytes.bf16 = bytes.bf16 || (operands[i].dtype == DType::bf16 && !is_weight(i));
      const bool repeats = innermost.strides[i] == 0;  // the same register for all lanes
      int& sum = is_read_once(i) ? bytes.once : is_weight(i) ? bytes.weights : bytes.rows;
      const int own = schedule.width * element_bytes(operands[i]);
      sum += repeats ? kRegister : by_columns && gpu ? std::max(kRegister, own) : own;
    }
    return bytes;
  };
  // Whether columns of an operand are copied to shared memory, where that is done. Weights of
  // joined columns would be copied from one place by all threads at once: without that, group norm
  // of pairs of channels of 56 x 56 pixels goes from 0.04 of a copy to 0.62 on an H200.
  const auto is_copied = [&](std::size_t i) {
    return !row_invariant[i] && !operands[i].output && !operands[i].iota &&
           innermost.strides[i] != 0 && !is_fixed(i);
  };
  const auto moved_bytes = [&] {
    MovedBytes bytes;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (!operands[i].output && is_packed(operands[i].dtype)) return MovedBytes{};
      const int own = schedule.width * element_bytes(operands[i]);
      if (operands[i].output && !row_invariant[i]) bytes.stored += own;
      if (!is_copied(i)) continue;
      bytes.kept += own;
      if (i >= space.read_again.size() || space.read_again[i]) bytes.again += own;
    }
    return bytes;
  };
  VectorBytes bytes = bytes_of_vector();
  if (by_columns) {
    constexpr int kMostApart = 16;  // elements of rows that are neighbours in memory
    const Size stride = innermost.strides[leading];
    const int apart = stride > 1 && stride <= kMostApart ? power_of_two_from(stride) : 1;
    const auto set_width = [&] {
      columns.width = width;
      columns.vector_bytes = width * element_bytes(operands[leading]) * apart;
      columns.across = (innermost.size + width - 1) / width;
      columns.count =
          layout.rows / std::max<Size>(1, innermost.size) * columns.across * layout.splits;
      bytes = bytes_of_vector();
    };
    set_width();
    const bool in_registers = gpu && keeps_on_chip(columns, rows.joined, bytes, backend);
    if (gpu && columns.passes > 1 && !keeps_columns(columns, rows.joined, bytes, backend)) {
      keeps_all = false;
      set_width();
      const bool may_copy = !in_registers || device.forced.cluster_blocks != 0;
      if (may_copy) map_copied_columns(rows, columns, moved_bytes(), device);
    }
    while (gpu && width > 2 && fold.width == 0 && !rows.copied &&
           !has_room_for_columns(columns, rows.joined, bytes, backend)) {
      width /= 2;
      set_width();
    }
  }
  const auto varies = [&](std::size_t i) { return operands[i].output && !row_invariant[i]; };
  bool stores = false;
  for (std::size_t i = 0; i < operands.size(); ++i) stores = stores || varies(i);
  if (!by_columns && rows.phase < 0 && backend == Backend::nvidia && stores &&
      fits_narrow_vectors((layout.reduced + width - 1) / width, width, bytes)) {
    width /= 2;
    bytes = bytes_of_vector();
  }
  // Of unaligned rows, those that happen to be aligned have the most vectors.
  const Size side = by_columns ? innermost.size : layout.reduced;
  const Size across = (side + (rows.phase < 0 ? width - 1 : 0)) / width;
  const Size fewest = rows.phase < 0 ? across : (side - (width - 1)) / width;
  rows.ragged = !gpu && !by_columns && (side % width != 0 || innermost.bounded);
  int stored = 0;  // bytes of a vector of what varies within rows
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!varies(i)) continue;
    stored += std::max(1, width * bits(operands[i].dtype) / 8);
  }
  Size units = layout.rows * layout.splits;
  if (by_columns) {
    if (!rows.copied) map_columns(rows, columns, bytes, backend);
    if (gpu && layout.reduced > kTreeChunk * (rows.joined_chunks != 0 ? rows.joined : 1)) {
      const bool few = !rows.split && !fold.exists() &&
                       layout.reduced <= std::int64_t{kTreeChunk} * rows.threads;
      rows.chunks = few ? ColumnChunks::one_per_thread : ColumnChunks::many;
      // Threads of a block meet after each chunk.
      if (any_length) rows.rows = 1;
    }
    layout.column_strips = (across + rows.columns - 1) / rows.columns;
    units = layout.rows == 0 ? 0 : columns.count / columns.across * layout.column_strips;
  } else {
    layout.vectors = across;
    RowFeatures usable =
        bounds.empty() ? features_for(space, layout.rows, device, backend) : RowFeatures();
    if (follows_tree(rows, layout.reduced) && (!in_chunks || space.passes == 1)) {
      usable.clusters = false;
    }
    map_row(rows, (layout.vectors + layout.splits - 1) / layout.splits, bytes, width,
            rows.phase < 0 ? 1 : 2 * width,
            gpu ? most_threads(rows, layout.reduced, width) : std::numeric_limits<int>::max(),
            space.reductions, stored, usable, backend);
    if (staged) {
      rows.threads = staged_threads;
      rows.rows = kStagedBlock / staged_threads;
    }
  }
  layout.units = units;

  const Size kept = in_chunks ? vectors_in_chunks(rows, layout.reduced, width) : layout.vectors;
  RowFeatures keeping = bounds.empty() ? device : RowFeatures();
  if (in_chunks && space.passes == 1) keeping.forced.read_again = true;
  if (by_columns && !rows.copied) {
    choose_column_registers(rows, columns, kept, bytes, keeping, backend);
  } else if (!by_columns) {
    choose_registers(rows, kept, rows.phase < 0 ? layout.vectors : fewest, bytes, width, keeping,
                     backend);
  }
  if (staged) {
    keep_staged(rows, layout.reduced);
  }
  // Of a vector of rows, all lanes of which are there, be they one element.
  const auto bytes_in_smem = [&] {
    int sum = 0;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (row_invariant[i] || operands[i].output || operands[i].iota || has_runs(i)) continue;
      if (!is_weight(i) && !is_read_once(i)) sum += schedule.width * element_bytes(operands[i]);
    }
    return sum;
  };
  // Keeps no more than several passes read, if `map` finds room for that.
  const auto copy_rows = [&](const auto& map) {
    keeps_all = false;
    if (map(bytes_in_smem())) {
      bytes = bytes_of_vector();
    } else {
      keeps_all = true;
    }
  };
  const PartialResults results{space.trees, space.reductions, space.tree_bytes};
  if (gpu && in_chunks && rows.vectors != 0) {
    // Where so many sums have no place, chunks are read one after the other.
    const int threads = rows.threads / rows.cluster_blocks;
    const Size kept_chunks = (Size(rows.vectors) * threads * width + kTreeChunk - 1) / kTreeChunk;
    if (results.shared(threads, width, power_of_two_from(kept_chunks)) > kMostPartialBytes) {
      rows.vectors = 0;
      rows.in_smem = 0;
      rows.full_vectors = 0;
    }
  }
  if (in_chunks && rows.vectors == 0 && backend == Backend::nvidia && !rows.split && !any_length &&
      space.passes > 1 && !keeping.forced.read_again) {
    copy_rows([&](int own) {
      return map_copied_row(rows, layout.reduced, own, width,
                            most_threads(rows, layout.reduced, width), results, keeping);
    });
  }
  if (backend == Backend::nvidia && !by_columns && !in_chunks && !staged && rows.phase < 0 &&
      rows.vectors != 0 && rows.cluster_blocks == 1 && space.passes > 1 && bytes.weights != 0 &&
      follows_tree(rows, layout.reduced)) {
    copy_rows([&](int own) {
      return map_copied_chunk(rows, layout.vectors, own, width,
                              most_threads(rows, layout.reduced, width), keeping);
    });
  }
  if (in_chunks && rows.vectors != 0) {
    const bool whole = rows.phase < 0 && layout.reduced % kTreeChunk == 0 &&
                       layout.vectors == Size(rows.vectors) * rows.threads;
    // Those of chunks before the last one, where the block keeps them all.
    const int slots = kTreeChunk / (rows.threads / rows.cluster_blocks * width);
    const int before = rows.cluster_blocks > 1 ? 0 : (rows.vectors - 1) / slots * slots;
    rows.full_vectors = whole             ? rows.vectors
                        : rows.phase < 0  ? before
                        : before == slots ? before - 1
                                          : 0;
  } else if (in_chunks) {
    // Small blocks leave a multiprocessor room for others while their threads synchronise.
    constexpr int kBlock = 256;
    constexpr int kManyRows = 1024;
    constexpr int kLeastThreads = 64;
    const bool small = space.passes == 1 && units >= kManyRows;
    rows.threads /= rows.cluster_blocks;
    rows.cluster_blocks = 1;
    if (device.forced.threads == 0) {
      rows.threads = std::min(rows.threads, small ? kBlock : 2 * kBlock);
    }
    // Beside them there is a stack of partial results for each sum.
    while (rows.threads > kLeastThreads &&
           results.shared(rows.threads, width, 1) > kMostPartialBytes / 4 * 3) {
      rows.threads /= 2;
    }
  }
  if (any_length) {
    rows.vectors = 0;
    rows.full_vectors = 0;
    rows.in_smem = 0;
  }
  if (gpu && !by_columns) {
    rows.sets = sets_of(rows, layout.reduced, width, staged);
    if (rows.vectors == 0) rows.batch = std::max(rows.batch, rows.sets);
  }
  const bool room = !rows.copied && !staged &&
                    rows.vectors * (bytes.rows + bytes.weights) <= row_model(backend).spare_bytes;

  // Indices of threads exceed the end of a row by less than this.
  constexpr int kBeyond = 1 << 20;
  schedule.wide_index = needs_wide_index(axes, operands, product(axes) + kBeyond, schedule.width);
  const bool may_buffer = !gpu && !by_columns && rows.axes > 1 && space.trees != 0 &&
                          layout.reduced >= kLeastBuffered && bounds.empty() &&
                          !has_indexed(operands);
  BufferedRows buffered{.length = layout.reduced, .splits = layout.splits};
  for (std::size_t i = 0; i < operands.size(); ++i) {
    OperandSchedule& operand = schedule.operands.emplace_back();
    operand.row_invariant = row_invariant[i];
    operand.indexing = operands[i].indexed.exists() ? Indexing::row : Indexing::none;
    layout.indexed.push_back(operands[i].indexed);
    operand.in_registers = gpu && !row_invariant[i] && !operands[i].iota && !has_runs(i) &&
                           rows.vectors != 0 && !is_read_once(i) &&
                           (room || bytes.rows == 0 || !is_weight(i));
    if (rows.copied && by_columns) operand.in_registers = is_copied(i);
    const bool from_row_to_row = fold.width != 0 && row_invariant[i] && innermost.strides[i] != 0;
    operand.access = from_row_to_row ? Access::strided
                     : by_columns    ? access_of(axes, i)
                     : has_runs(i)   ? Access::runs
                                     : row_access(axes, i, row_invariant[i]);
    if (may_buffer && !row_invariant[i] && !operands[i].iota && !is_packed(operands[i].dtype)) {
      const auto reduced = static_cast<std::size_t>(rows.axes);
      const int bytes = element_bytes(operands[i]);
      const int along = buffered_along(axes, axes.size() - reduced, i, bytes);
      if (along >= 0) {
        operand.access = Access::transposed;
        operand.along = static_cast<std::int16_t>(along);
        buffered.narrowest = buffered.bytes == 0 ? bytes : std::min(buffered.narrowest, bytes);
        buffered.bytes += bytes;
        const auto behind = static_cast<std::size_t>(along) + 1;
        buffered.behind = std::max(buffered.behind, product(std::span(axes).subspan(behind)));
      }
    }
    if (is_packed(operands[i].dtype) && operand.access == Access::contiguous &&
        !stores_whole_bytes(operands[i], axes, i, width)) {
      operand.access = Access::strided;
    }
    layout.starts.push_back(is_packed(operands[i].dtype) ? operands[i].offset & 1 : 0);
    operand.start = layout.starts.back() != 0;
    operand.whole_runs = has_runs(i) && rows.phase < 0 && layout.runs[i].length % width == 0;
    operand.alignment = element_bytes(operands[i]);
    if (backend != Backend::host && operand.access == Access::contiguous && !operands[i].iota) {
      operand.alignment = alignment_of(operands[i], 0, axes, axes.size() - 1, i, width);
      if (rows.phase >= 0) {
        const auto phase = static_cast<std::size_t>(rows.phase);
        const bool whole = operand.alignment >= vector_alignment(operands[i], width);
        const bool phased = in_phase(operands[i], operands[phase], axes, i, phase, width);
        operand.unaligned =
            whole && !phased && !operands[i].output && has_words(operands[i], width);
        operand.alignment =
            phased ? vector_alignment(operands[i], width) : element_bytes(operands[i]);
      }
      if (staged && !row_invariant[i] && can_stage(axes, operands[i], i)) {
        operand.access = Access::staged;
      }
      if (rows.split && operands[i].output && row_invariant[i]) {
        const Size step = operands[i].split_stride * element_bytes(operands[i]);
        operand.alignment = static_cast<int>(lowest_bit(step | operand.alignment));
      }
    }
    operand.outer_axes = outer_axes_of(axes, i);
    layout.split_strides.push_back(operands[i].split_stride);
  }
  if (buffered.bytes != 0) rows.buffered = buffered_elements(buffered);
  // Threads of a block share weights in shared memory if these are misaligned alike for all rows of
  // the block: on an H200 layer_norm of 777 and 1,001 bf16 goes from 0.64 and 0.70 of a copy to
  // 0.79 and 0.87.
  const bool places = std::ranges::any_of(
      schedule.operands, [](const OperandSchedule& operand) { return operand.can_stage(); });
  const bool shifts_alike =
      rows.phase < 0 || !operands[static_cast<std::size_t>(rows.phase)].indexed.exists();
  if (places && shifts_alike && rows.rows > 1 && rows.vectors != 0 && !schedule.wide_index &&
      axes.size() == 2) {
    const auto phase = static_cast<std::size_t>(rows.phase);
    rows.row_step = equal_phase_step(operands[phase], axes[0], phase, width);
    rows.rows = row_model(backend).block / rows.threads;
  }
  const Size together = std::int64_t{rows.rows} * std::max(1, rows.row_step);
  layout.work_items =
      (units + together - 1) / together * std::max(1, rows.row_step) * rows.cluster_blocks;
  schedule.streamed = bounds.empty() &&
                      is_streamed(operands, schedule.operands, axes, layout.offsets, true, backend);
  take_axes(layout, axes);
  return layout;
}

}  // namespace kiln::fusion
