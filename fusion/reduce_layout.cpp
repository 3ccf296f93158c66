#include "fusion/reduce_layout.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "fusion/merged_axes.hpp"

namespace kiln::fusion {
namespace {

// How each family shares rows out.
struct RowPolicy {
  int short_row;      ///< rows of up to so many vectors take no more than
  int short_threads;  ///< so many threads, with several rows in a block
  int block;          ///< threads of a block of several rows, or of columns
  int vectors;        ///< of a longer row, for each thread
  int most_threads;   ///< that share a row; from there on each gets more vectors
  int wide_threads;   ///< the same where a vector is eight elements or more
  int most_vectors;   ///< that a thread keeps,
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

// GPUs: half a wave's worth of threads with two vectors each hide more of a short row's latency
// than a wave with one: softmax of 256 bf16 reaches 0.98 of a copy, and 0.93 so, on an H200. Four
// vectors a thread are enough under way for longer rows and leave the block small: rows of 4,096
// bf16 with 128 / 256 / 512 threads reach 0.979 / 0.976 / 0.915 (rmsnorm) and 0.976 / 0.978 / 0.803
// (softmax), since all threads of a block wait for its slowest, once for each reduction. Of 16,384
// bf16, 256 threads with eight vectors reach 0.98 and 0.97, 512 with four 0.98 and 0.94.
//
// What a block keeps in registers of rows of 64 KiB leaves no room for another beside it: 32,768
// bf16 go from 0.93 to 0.97 (rmsnorm) and from 0.80 to 0.98 (softmax) with most of it in shared
// memory, of which every GPU that NVIDIA's compiler knows has 60 KiB for a block. As many bytes of
// f32 are half as much work: they stay in registers, where 16,384 reach 0.97 to 0.98, and 32,768
// with 1,024 threads 0.96. AMD's GPUs have four times the registers for as much shared memory.
// Longer rows are kept by clusters, 64 KiB in each block: 131,072 bf16 go from 0.69 to 0.88
// (rmsnorm), 0.48 to 0.80 (layer_norm) and 0.52 to 0.90 (softmax). Shorter ones lose by that, since
// blocks wait for each other and to begin at once: 32,768 bf16 in two blocks reach 0.80.
//
// 2^18 threads fill the largest GPUs of today, with four vectors each under way. The host sums 256
// elements side by side, enough to hide the latency of an addition whatever the width of its
// vectors, and keeps what it has computed of up to 64 times as many, which its second cache holds:
// room for that many, so that one kernel does for all of them.
constexpr RowPolicy kPolicies[] = {
    /* amd    */ {32, 16, 256, 4, 512, 512, 16, 256, 128 << 10, 1 << 29, 0, 512, 0, 128, 4, 128, 0,
                  1 << 18},
    /* nvidia */
    {32, 16, 256, 4, 512, 256, 16, 256, 128 << 10, 32 << 10, 60 << 10, 1024, 64 << 10, 128, 4, 128,
     0, 1 << 18},
    /* host   */ {0, 0, 1, 1, 1, 1, 64, 0, 0, 0, 0, 1, 0, 0, 1, 0, 256, 0},
};

// Of columns every lane of a GPU's thread has a place in shared memory. The host reads runs of
// pages, which its prefetchers follow, and adds them to sums that its first cache holds.
constexpr int kMostColumns = 8;
constexpr int kHostColumns = 1024;

// Of a cluster, on every device that has them.
constexpr int kMostBlocks = 8;

// Of short rows the host adds no more elements side by side than there are.
constexpr int kLeastLanes = 8;

const RowPolicy& row_policy(Family family) { return kPolicies[static_cast<std::size_t>(family)]; }

using Axis = MergedAxis;

std::vector<Axis> axes_where(const ReduceSpace& space, std::span<const Operand> operands,
                             bool reduced) {
  std::vector<Axis> axes;
  for (std::size_t k = 0; k < space.shape.size(); ++k) {
    if (space.reduced[k] != reduced || space.shape[k] == 1) continue;
    Axis axis{space.shape[k], {}, {k}};
    for (const Operand& operand : operands) axis.strides.push_back(operand.strides[k]);
    axes.push_back(std::move(axis));
  }
  if (axes.empty()) axes.push_back({1, std::vector<std::int64_t>(operands.size(), 0), {}});
  return axes;
}

std::int64_t product(std::span<const Axis> axes) {
  std::int64_t size = 1;
  for (const Axis& axis : axes) size *= axis.size;
  return size;
}

int element_bytes(const Operand& operand) { return std::max(1, bits(operand.dtype) / 8); }

int power_of_two_from(std::int64_t count) {
  return static_cast<int>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(count, 1))));
}

// A vector of the narrowest operand. `uniform` says which operands have a register of their own for
// each row, not for each element.
int full_width(const Axis& inner, std::span<const Operand> operands,
               const std::vector<bool>& uniform, Family family) {
  if (const int most = row_policy(family).lanes; most != 0) {
    return std::min(most, std::max(kLeastLanes, power_of_two_from(inner.size)));
  }
  int narrowest = 0;
  int widest = 1;
  int stored = 1;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (uniform[i]) continue;
    widest = std::max(widest, element_bytes(operands[i]));
    if (operands[i].output) stored = std::max(stored, element_bytes(operands[i]));
    if (inner.strides[i] != 1) continue;
    const int bytes = element_bytes(operands[i]);
    narrowest = narrowest == 0 ? bytes : std::min(narrowest, bytes);
  }
  if (narrowest == 0) return 1;
  const Policy& gpu = policy(family);
  return std::max(1, std::min({gpu.vector_bytes / narrowest, gpu.most_lane_bytes / widest,
                               gpu.most_stored_bytes / stored, gpu.most_lanes}));
}

int vector_alignment(const Operand& operand, int width) {
  return std::min(16, width * element_bytes(operand));
}

// What preamble/access.h can take from two vectors.
bool has_words(const Operand& operand, int width) {
  const int bytes = width * element_bytes(operand);
  return bytes >= 4 && bytes <= 16;
}

// Whether `a` is aligned wherever vectors of `b` begin, of which no more is known than how far it
// is past a multiple of 16 bytes.
bool in_phase(const Operand& a, const Operand& b, const std::vector<Axis>& axes, std::size_t i,
              std::size_t k, int width) {
  const auto place = [](const Operand& operand) {
    return operand.address / static_cast<std::uint64_t>(element_bytes(operand));
  };
  const auto whole = [](const Operand& operand) {
    return operand.address % static_cast<std::uint64_t>(element_bytes(operand)) == 0;
  };
  const int step = vector_alignment(a, width) / element_bytes(a);
  bool same = whole(a) && whole(b) &&
              (place(a) - place(b)) % static_cast<std::uint64_t>(step) == 0 &&
              axes.back().strides[i] == 1 && axes.back().strides[k] == 1;
  for (std::size_t axis = 0; axis + 1 < axes.size(); ++axis) {
    same = same && (axes[axis].strides[i] - axes[axis].strides[k]) % step == 0;
  }
  return same;
}

// Rows that are no whole number of vectors, or do not begin at one, are read in vectors all the
// same where they have so many that there is a thread for each element at their ends.
bool begins_within_vectors(const std::vector<Axis>& axes, const Operand& operand, std::size_t index,
                           int width) {
  const bool whole = axes.back().size % width == 0 &&
                     alignment_of(operand, 0, axes, axes.size() - 1, index, width) >=
                         vector_alignment(operand, width);
  return width > 1 && !whole && axes.back().size >= 2 * width * width &&
         in_phase(operand, operand, axes, index, index, width);
}

// At whose vectors rows begin in the middle: the leading operand's, or if those are wider than 16
// bytes, of whose alignment nothing is known, another's.
int phase_operand(const std::vector<Axis>& axes, std::span<const Operand> operands,
                  const std::vector<bool>& uniform, std::size_t leading, int width) {
  constexpr int kKnown = 16;
  const auto begins_within = [&](std::size_t i) {
    return !uniform[i] && width * element_bytes(operands[i]) <= kKnown &&
           begins_within_vectors(axes, operands[i], i, width);
  };
  if (begins_within(leading)) return static_cast<int>(leading);
  if (width * element_bytes(operands[leading]) <= kKnown) return -1;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (begins_within(i)) return static_cast<int>(i);
  }
  return -1;
}

int power_of_two_to(std::int64_t count) {
  return static_cast<int>(
      std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(count, 1))));
}

// What a vector of every input takes of a thread's registers: of those that differ from row to row,
// and of the weights, which all rows share and the caches keep.
struct VectorBytes {
  int rows = 0;
  int weights = 0;
};

// Of which inputs a thread keeps its vectors from one pass to the next.
int kept_bytes(const VectorBytes& bytes) { return bytes.rows != 0 ? bytes.rows : bytes.weights; }

// How many of its vectors a thread keeps, and how many it has under way of what it does not.
void choose_held(RowVariant& rows, std::int64_t vectors, std::int64_t least_vectors,
                 const VectorBytes& bytes, int width, Family family) {
  const RowPolicy& rule = row_policy(family);
  const std::int64_t each = std::max<std::int64_t>(1, (vectors + rows.threads - 1) / rows.threads);
  if (family == Family::host) {
    rows.vectors =
        !rows.pieces && rows.columns == 0 && each <= rule.most_vectors ? rule.most_vectors : 0;
    return;
  }
  const int kept = kept_bytes(bytes);
  const int threads = rows.threads / rows.blocks;
  const bool held = !rows.pieces && each <= rule.most_vectors && each * kept <= rule.held_bytes &&
                    each * kept * threads <= rule.held_row;
  const int all = std::max(1, bytes.rows + bytes.weights);
  rows.vectors = held ? static_cast<int>(each) : 0;
  rows.whole = held ? static_cast<int>(least_vectors / rows.threads) : 0;
  rows.batch = power_of_two_to(std::min(rule.batch, rule.batch_bytes / all));
  if (held) rows.batch = std::min(rows.batch, rows.vectors);
  const bool wide = width >= 8 || rows.blocks > 1;
  if (held && rows.columns == 0 && wide && vectors * kept / rows.blocks > rule.long_row) {
    rows.stored = std::min(rows.vectors, rule.shared_bytes / std::max(1, threads * kept));
  }
}

// How a row of that many vectors is shared out, to no fewer than `least` threads. Where its threads
// meet more than once, fewer of them with two vectors each have less to wait for: rows of 64 f32 go
// from 0.77 to 0.94 of a copy (three reductions), and with one reduction from 1.00 to 0.97.
void share_row(RowVariant& rows, std::int64_t vectors, int kept, int width, int least,
               int reductions, bool stores, bool clusters, Family family) {
  const RowPolicy& rule = row_policy(family);
  if (clusters && !rows.pieces && vectors * kept > rule.held_row) {
    const int blocks =
        power_of_two_from((vectors * kept + rule.cluster_row - 1) / rule.cluster_row);
    if (blocks <= kMostBlocks) {
      share_row(rows, (vectors + blocks - 1) / blocks, kept, width, least, reductions, stores,
                false, family);
      rows.threads *= blocks;
      rows.blocks = blocks;
      return;
    }
  }
  const auto threads_for = [&](std::int64_t each, int fewest, int most) {
    return power_of_two_from(std::clamp<std::int64_t>((vectors + each - 1) / each, fewest, most));
  };
  const bool wide = width >= 8 && !rows.pieces;
  const std::int64_t bytes = rows.pieces ? 0 : vectors * kept;
  // With one meeting of all threads, twice as many with half as much each are better. What only
  // reads needs more under way: of 4,096 bf16 a logsumexp reaches 0.78 of a copy with four vectors
  // and 0.88 with eight.
  int each = rule.vectors;
  if (stores && reductions == 1) each = (each + 1) / 2;
  if (!stores && !rows.pieces) each *= 2;
  if (vectors <= rule.short_row) {
    rows.threads = threads_for(reductions > 1 ? 2 : 1, 1, std::max(1, rule.short_threads));
  } else if (width < 8 && bytes > 2 * rule.long_row) {
    rows.threads = threads_for(each, rule.short_row, rule.long_threads);
  } else {
    const int most = !wide || bytes > rule.held_row ? rule.most_threads
                     : bytes <= rule.long_row       ? rule.wide_threads
                     : bytes > 2 * rule.long_row    ? rule.long_threads
                                                    : rule.most_threads;
    rows.threads = threads_for(each, rule.short_row, most);
  }
  rows.threads = std::max(rows.threads, least);
  if (rows.threads <= rule.short_row) rows.rows = rule.block / rows.threads;
}

// How columns of `length` elements are shared out, of which `across` vectors stand side by side and
// there are `count` vectors in all: to as many threads as fill the device, of which neighbours read
// whole cache lines together. Each has at least a batch to read. Where few columns stand side by
// side and threads can keep what they read, so many share one that they do, and no pass reads it
// again.
void share_columns(RowVariant& rows, std::int64_t length, std::int64_t across, std::int64_t count,
                   int reductions, Family family) {
  constexpr int kLine = 8;  // 16-byte vectors
  constexpr std::int64_t kKept = 8;
  const RowPolicy& rule = row_policy(family);
  if (family == Family::host) {
    rows.columns = 1;
    return;
  }
  const int most = rule.most_threads / kLine;
  rows.threads = std::clamp(power_of_two_to(rule.threads / std::max<std::int64_t>(count, 1)), 1,
                            std::min(most, power_of_two_from(length / rule.batch)));
  const int few = power_of_two_from(across);
  const int keeping = power_of_two_from((length + kKept - 1) / kKept);
  const bool keeps = reductions > 1 && rows.threads <= keeping &&
                     std::int64_t{std::max(kLine, few)} * keeping <= rule.most_threads;
  if (keeps) rows.threads = keeping;
  const int side_by_side = std::max(kLine, rule.block / rows.threads);
  rows.columns = keeps ? few : std::min(few, side_by_side);
  rows.rows = std::max(1, rule.block / (rows.columns * rows.threads));
}

// Of an operand whose place along the innermost axis, which is reduced, is that of the row.
Access row_access(const std::vector<Axis>& axes, std::size_t operand, bool uniform) {
  if (!uniform) return axes.back().strides[operand] == 1 ? Access::contiguous : Access::strided;
  const bool moves =
      std::ranges::any_of(axes, [&](const Axis& axis) { return axis.strides[operand] != 0; });
  return moves ? Access::broadcast : Access::scalar;
}

// The operand with an element for each of the rows' whose bytes are most: the one that had better
// be read in order.
std::size_t largest_varying(const ReduceSpace& space, std::span<const Operand> operands,
                            const std::vector<bool>& uniform) {
  std::size_t found = 0;
  std::int64_t most = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    std::int64_t total = uniform[i] ? 0 : bits(operands[i].dtype);
    for (std::size_t k = 0; k < space.shape.size(); ++k) {
      if (operands[i].strides[k] != 0) total *= space.shape[k];
    }
    if (total > most) {
      most = total;
      found = i;
    }
  }
  return found;
}

// Whether neighbours in memory belong to different rows.
bool lies_along_rows(const Axis& kept, const Axis& reduced, std::size_t operand) {
  return kept.size > 1 && reduced.size > 1 && kept.strides[operand] == 1 &&
         std::abs(reduced.strides[operand]) > 1;
}

bool is_one_element(const std::vector<Axis>& axes, std::size_t operand) {
  return std::ranges::all_of(axes, [&](const Axis& axis) { return axis.strides[operand] == 0; });
}

}  // namespace

Layout plan_rows(const ReduceSpace& space, std::span<const Operand> operands,
                 const std::vector<bool>& uniform, bool keep_order, Family family, bool clusters) {
  Layout layout;
  Variant& variant = layout.variant;
  variant.family = family;
  layout.offsets.assign(operands.size(), 0);
  const std::size_t leading = largest_varying(space, operands, uniform);
  std::vector<Axis> outer = axes_where(space, operands, false);
  std::vector<Axis> inner = axes_where(space, operands, true);
  sort_by_memory(outer, leading);
  if (!keep_order) sort_by_memory(inner, leading);
  outer = merge(std::move(outer));
  inner = merge(std::move(inner));
  layout.rows = product(outer);
  layout.reduced = product(inner);
  layout.pieces = space.pieces;
  RowVariant& rows = variant.reduction;
  rows.axes = static_cast<int>(inner.size());
  rows.pieces = space.pieces > 1;

  const bool by_columns = lies_along_rows(outer.back(), inner.back(), leading);
  std::vector<Axis> axes = outer;
  axes.insert(by_columns ? axes.end() - 1 : axes.end(), inner.begin(), inner.end());
  const Axis& innermost = axes.back();
  variant.rank = static_cast<int>(axes.size());
  const bool gpu = family != Family::host;
  int& width = variant.width;
  width = full_width(innermost, operands, by_columns ? std::vector<bool>(operands.size()) : uniform,
                     family);
  if (by_columns) width = gpu ? std::min(width, kMostColumns) : kHostColumns;
  const bool may_begin_within = gpu && !by_columns && rows.axes == 1 && !uniform[leading];
  while (gpu && width > 1) {
    if (may_begin_within) rows.phase = phase_operand(axes, operands, uniform, leading, width);
    if (rows.phase >= 0) break;
    if (innermost.size % width == 0) break;
    width /= 2;
  }
  // Of rows that begin within vectors those that begin with one have the most.
  const std::int64_t across = (innermost.size + (rows.phase < 0 ? width - 1 : 0)) / width;
  const std::int64_t fewest = rows.phase < 0 ? across : (innermost.size - (width - 1)) / width;
  VectorBytes bytes;
  const auto is_weight = [&](std::size_t i) {
    const std::vector<Axis> elsewhere(
        axes.begin(), by_columns ? axes.end() - rows.axes - 1 : axes.end() - rows.axes);
    return layout.rows > 1 && is_one_element(elsewhere, i);
  };
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (uniform[i] || operands[i].output) continue;
    const bool repeats = innermost.strides[i] == 0;  // the same register for all lanes
    (is_weight(i) ? bytes.weights : bytes.rows) +=
        repeats ? 4 : variant.width * element_bytes(operands[i]);
  }
  bool stores = false;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    stores = stores || (operands[i].output && !uniform[i]);
  }
  std::int64_t units = layout.rows * layout.pieces;
  if (by_columns) {
    layout.vectors = layout.reduced;
    const std::int64_t others = layout.rows / std::max<std::int64_t>(1, innermost.size);
    share_columns(rows, layout.vectors / layout.pieces, across, others * across * layout.pieces,
                  space.reductions, family);
    layout.column_strips = (across + rows.columns - 1) / rows.columns;
    units = layout.rows == 0 ? 0 : others * layout.column_strips * layout.pieces;
  } else {
    layout.vectors = innermost.size == 0 ? 0 : layout.reduced / innermost.size * across;
    share_row(rows, (layout.vectors + layout.pieces - 1) / layout.pieces, kept_bytes(bytes), width,
              rows.phase < 0 ? 1 : 2 * width, space.reductions, stores, clusters, family);
  }
  layout.units = units;
  layout.work_items = static_cast<std::uint64_t>((units + rows.rows - 1) / rows.rows * rows.blocks);

  choose_held(rows, layout.vectors, rows.phase < 0 ? layout.vectors : fewest, bytes, width, family);
  const bool room = rows.vectors * (bytes.rows + bytes.weights) <= row_policy(family).spare_bytes;

  // Threads count on past the end of a row, by less than this.
  constexpr std::uint64_t kBeyond = 1 << 20;
  variant.wide_index = needs_wide_index(
      axes, operands.size(), static_cast<std::uint64_t>(product(axes)) + kBeyond, variant.width);
  layout.shape = Dims(axes.size());
  for (std::size_t k = 0; k < axes.size(); ++k) layout.shape[k] = axes[k].size;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    OperandVariant operand;
    operand.uniform = uniform[i];
    operand.held =
        gpu && !uniform[i] && rows.vectors != 0 && (room || bytes.rows == 0 || !is_weight(i));
    operand.access = by_columns ? access_of(axes, i) : row_access(axes, i, uniform[i]);
    operand.alignment = element_bytes(operands[i]);
    if (family != Family::host && operand.access == Access::contiguous) {
      operand.alignment = alignment_of(operands[i], 0, axes, axes.size() - 1, i, width);
      if (rows.phase >= 0) {
        const auto phase = static_cast<std::size_t>(rows.phase);
        const bool whole = operand.alignment >= vector_alignment(operands[i], width);
        const bool phased = in_phase(operands[i], operands[phase], axes, i, phase, width);
        operand.between = whole && !phased && !operands[i].output && has_words(operands[i], width);
        operand.alignment =
            phased ? vector_alignment(operands[i], width) : element_bytes(operands[i]);
      }
      if (rows.pieces && operands[i].output && uniform[i]) {
        const auto step =
            static_cast<std::uint64_t>(operands[i].piece * element_bytes(operands[i]));
        const std::uint64_t both = step | static_cast<std::uint64_t>(operand.alignment);
        operand.alignment = static_cast<int>(both & (~both + 1));
      }
    }
    layout.piece_strides.push_back(operands[i].piece);
    layout.strides.emplace_back(axes.size());
    for (std::size_t k = 0; k < axes.size(); ++k) {
      layout.strides[i][k] = axes[k].strides[i];
      if (k + 1 < axes.size() && axes[k].strides[i] != 0) {
        operand.outer_axes |= std::uint64_t{1} << k;
      }
    }
    variant.operands.push_back(operand);
  }
  variant.streamed = is_streamed(operands, variant.operands, axes, layout.offsets, true, family);
  return layout;
}

}  // namespace kiln::fusion
