#include "fusion/reduce_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "fusion/broadcast.hpp"
#include "fusion/shapes.hpp"

namespace kiln::fusion {
namespace {

// GPUs: a row of up to a wave's vectors goes to as many threads as it has, several rows to a block.
// A longer one gives each thread four vectors, so that it has four loads under way, and from there
// on more vectors for 512 threads, as long as 64 registers hold them; rows longer still are read
// again by each pass. The host sums 256 elements side by side, enough to hide the latency of an
// addition whatever the width of its vectors.
constexpr int kShortRow = 32;
constexpr int kShortBlock = 256;
constexpr int kVectorsPerThread = 4;
constexpr int kMostThreads = 512;
constexpr int kMostVectors = 16;
constexpr int kHeldBytes = 256;
constexpr int kHostLanes = 256;

struct Axis {
  std::int64_t size;
  std::vector<std::int64_t> strides;
};

std::vector<Axis> axes_where(const ReduceSpace& space, std::span<const Operand> operands,
                             bool reduced) {
  std::vector<Axis> axes;
  for (std::size_t k = 0; k < space.shape.size(); ++k) {
    if (space.reduced[k] != reduced || space.shape[k] == 1) continue;
    Axis axis{space.shape[k], {}};
    for (const Operand& operand : operands) axis.strides.push_back(operand.strides[k]);
    axes.push_back(std::move(axis));
  }
  if (axes.empty()) axes.push_back({1, std::vector<std::int64_t>(operands.size(), 0)});
  return axes;
}

std::vector<Axis> merge(const std::vector<Axis>& axes) {
  std::vector<Axis> merged;
  for (const Axis& axis : axes) {
    bool one_axis = !merged.empty();
    for (std::size_t i = 0; one_axis && i < axis.strides.size(); ++i) {
      one_axis = merged.back().strides[i] == axis.strides[i] * axis.size;
    }
    if (one_axis) {
      merged.back().size *= axis.size;
      merged.back().strides = axis.strides;
    } else {
      merged.push_back(axis);
    }
  }
  return merged;
}

void sort_by_memory(std::vector<Axis>& axes, std::size_t operand) {
  std::ranges::stable_sort(axes, [&](const Axis& a, const Axis& b) {
    return std::abs(a.strides[operand]) > std::abs(b.strides[operand]);
  });
}

std::int64_t product(std::span<const Axis> axes) {
  std::int64_t size = 1;
  for (const Axis& axis : axes) size *= axis.size;
  return size;
}

int element_bytes(const Operand& operand) { return std::max(1, bits(operand.dtype) / 8); }

int choose_width(const Axis& inner, std::span<const Operand> operands,
                 const std::vector<bool>& uniform, Family family) {
  if (family == Family::host) return kHostLanes;
  int narrowest = 0;
  int widest = 1;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (uniform[i]) continue;
    widest = std::max(widest, element_bytes(operands[i]));
    if (inner.strides[i] != 1) continue;
    const int bytes = element_bytes(operands[i]);
    narrowest = narrowest == 0 ? bytes : std::min(narrowest, bytes);
  }
  if (narrowest == 0) return 1;
  const Policy& gpu = policy(family);
  int width =
      std::min({gpu.vector_bytes / narrowest, gpu.most_lane_bytes / widest, gpu.most_lanes});
  while (width > 1 && inner.size % width != 0) width /= 2;
  return std::max(width, 1);
}

// How a row of that many vectors is shared out, of which each takes `bytes` of a thread's
// registers.
RowVariant share_out(std::int64_t vectors, int bytes, Family family) {
  RowVariant rows;
  if (family == Family::host) return rows;
  const auto threads_for = [](std::int64_t count) {
    return static_cast<int>(
        std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(count, 1))));
  };
  if (vectors <= kShortRow) {
    rows.threads = threads_for(vectors);
  } else {
    const std::int64_t wanted = (vectors + kVectorsPerThread - 1) / kVectorsPerThread;
    rows.threads = threads_for(std::clamp<std::int64_t>(wanted, kShortRow, kMostThreads));
  }
  if (rows.threads <= kShortRow) rows.rows = kShortBlock / rows.threads;
  const std::int64_t each = (vectors + rows.threads - 1) / rows.threads;
  const bool held = each <= kMostVectors && each * bytes <= kHeldBytes;
  rows.vectors = held ? static_cast<int>(std::max<std::int64_t>(each, 1)) : 0;
  rows.full = held && vectors > 0 && each * rows.threads == vectors;
  return rows;
}

Access access_of(const std::vector<Axis>& axes, std::size_t operand, bool uniform) {
  if (!uniform) return axes.back().strides[operand] == 1 ? Access::contiguous : Access::strided;
  const bool moves =
      std::ranges::any_of(axes, [&](const Axis& axis) { return axis.strides[operand] != 0; });
  return moves ? Access::broadcast : Access::scalar;
}

// What every vector of an operand that is contiguous along the innermost axis is aligned to.
int alignment_of(const Operand& operand, const std::vector<Axis>& axes, std::size_t index,
                 int width) {
  const int bytes = element_bytes(operand);
  std::uint64_t steps = operand.address | static_cast<std::uint64_t>(width * bytes) | 16;
  for (std::size_t k = 0; k + 1 < axes.size(); ++k) {
    steps |= static_cast<std::uint64_t>(axes[k].strides[index] * bytes);
  }
  return static_cast<int>(steps & (~steps + 1));
}

bool needs_wide_index(const std::vector<Axis>& axes, std::size_t operands, int width) {
  constexpr std::uint64_t kLimit = std::uint64_t{1} << 31;
  std::uint64_t elements = static_cast<std::uint64_t>(width);
  for (const Axis& axis : axes) elements *= static_cast<std::uint64_t>(axis.size);
  if (elements >= kLimit) return true;
  for (std::size_t i = 0; i < operands; ++i) {
    std::uint64_t span = static_cast<std::uint64_t>(width);
    for (const Axis& axis : axes) {
      span += static_cast<std::uint64_t>(std::abs(axis.strides[i])) *
              static_cast<std::uint64_t>(axis.size);
    }
    if (span >= kLimit) return true;
  }
  return false;
}

// The axes along which `from` is longer than `to`, counted within `rank` axes from the end.
std::vector<bool> shortened_axes(const Dims& from, const Dims& to, std::size_t rank) {
  std::vector<bool> axes(rank, false);
  for (std::size_t k = 0; k < from.size(); ++k) {
    axes[rank - from.size() + k] = from[k] != to[k];
  }
  return axes;
}

TypedNode trivial(const TypedNode& node) {
  TypedNode result;
  result.dtype = node.dtype;
  if (node.op == Op::argmax || node.op == Op::argmin) {
    result.op = Op::constant;
    return result;
  }
  result.op = Op::promote;
  result.arity = 1;
  result.operands = node.operands;
  return result;
}

}  // namespace

Dims ReduceSpace::row_shape() const {
  Dims result = shape;
  for (std::size_t k = 0; k < result.size(); ++k) {
    if (reduced[k]) result[k] = 1;
  }
  return result;
}

TypedGraph drop_trivial_reductions(const TypedGraph& graph, std::vector<Dims>& shapes) {
  TypedGraph result = graph;
  for (std::size_t id = 0; id < result.nodes.size(); ++id) {
    TypedNode& node = result.nodes[id];
    if (is_reduction(node.op) && shapes[node.operands[0]] == shapes[id]) node = trivial(node);
  }
  return result;
}

ReduceSpace reduce_space(const TypedGraph& graph, std::span<const Dims> shapes) {
  ReduceSpace space;
  const TypedNode* first = nullptr;
  std::size_t rank = 0;
  for (const Dims& shape : shapes) rank = std::max(rank, shape.size());
  space.reduced.assign(rank, false);
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    const TypedNode& node = graph.nodes[id];
    if (!is_reduction(node.op)) continue;
    const Dims& operand = shapes[node.operands[0]];
    const std::vector<bool> axes = shortened_axes(operand, shapes[id], rank);
    if (first != nullptr && axes != space.reduced) {
      space.conflict =
          fmt::format("{} and {} reduce different axes", info(first->op).name, info(node.op).name);
      return space;
    }
    first = &node;
    space.reduced = axes;
    const auto wider = broadcast(space.shape, operand);
    if (!wider) {
      space.conflict = "the reductions are over different shapes";
      return space;
    }
    space.shape = *wider;
  }
  const std::size_t from = space.shape.size();
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const auto wider = broadcast(space.shape, shapes[graph.outputs[i]]);
    if (!wider) {
      space.conflict = fmt::format("output {} has another shape than what is reduced", i);
      return space;
    }
    space.shape = *wider;
  }
  if (space.shape.size() < rank || from > rank) rank = space.shape.size();
  space.reduced.erase(
      space.reduced.begin(),
      space.reduced.begin() + static_cast<std::ptrdiff_t>(space.reduced.size() - rank));
  const Dims rows = space.row_shape();
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    const TypedNode& node = graph.nodes[id];
    if (!is_reduction(node.op)) continue;
    // A row's length must be the whole row's: a shorter operand would be counted more than once.
    const Dims& operand = shapes[node.operands[0]];
    for (std::size_t k = 0; k < operand.size(); ++k) {
      const std::size_t axis = rank - operand.size() + k;
      if (space.reduced[axis] && operand[k] != space.shape[axis]) {
        space.conflict =
            fmt::format("{} is over a shorter axis than another value", info(node.op).name);
        return space;
      }
    }
  }
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const Dims& shape = shapes[graph.outputs[i]];
    const auto fits = [&](const Dims& wanted) {
      return broadcast(shape, wanted) == wanted &&
             std::equal(shape.begin(), shape.end(),
                        wanted.end() - static_cast<std::ptrdiff_t>(shape.size())) &&
             std::all_of(wanted.begin(), wanted.end() - static_cast<std::ptrdiff_t>(shape.size()),
                         [](std::int64_t size) { return size == 1; });
    };
    if (!fits(space.shape) && !fits(rows)) {
      space.conflict = fmt::format(
          "output {} has shape {}, which is neither that of the rows, {}, "
          "nor that of what is reduced from them, {}",
          i, to_string(shape), to_string(space.shape), to_string(rows));
      return space;
    }
  }
  return space;
}

bool is_uniform(const Dims& shape, const ReduceSpace& space) {
  for (std::size_t k = 0; k < shape.size(); ++k) {
    const std::size_t axis = space.shape.size() - shape.size() + k;
    if (space.reduced[axis] && shape[k] != 1) return false;
  }
  return true;
}

std::vector<bool> uniform_nodes(const TypedGraph& graph,
                                const std::vector<bool>& uniform_arguments) {
  std::vector<bool> uniform;
  for (const TypedNode& node : graph.nodes) {
    bool one = is_reduction(node.op) || node.op != Op::input || uniform_arguments[node.payload];
    if (!is_reduction(node.op)) {
      for (const NodeId operand : node.inputs()) one = one && uniform[operand];
    }
    uniform.push_back(one);
  }
  return uniform;
}

Layout plan_rows(const ReduceSpace& space, std::span<const Operand> operands,
                 const std::vector<bool>& uniform, bool keep_order, Family family) {
  Layout layout;
  Variant& variant = layout.variant;
  variant.family = family;
  layout.offsets.assign(operands.size(), 0);
  const auto varying = std::ranges::find(uniform, false);
  const auto leading =
      varying == uniform.end() ? 0 : static_cast<std::size_t>(varying - uniform.begin());
  std::vector<Axis> outer = axes_where(space, operands, false);
  std::vector<Axis> inner = axes_where(space, operands, true);
  sort_by_memory(outer, leading);
  if (!keep_order) sort_by_memory(inner, leading);
  outer = merge(outer);
  inner = merge(inner);
  layout.rows = product(outer);
  layout.reduced = product(inner);

  variant.width = choose_width(inner.back(), operands, uniform, family);
  const std::int64_t per_line = (inner.back().size + variant.width - 1) / variant.width;
  layout.vectors = inner.back().size == 0 ? 0 : layout.reduced / inner.back().size * per_line;
  int held_bytes = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!uniform[i] && !operands[i].output)
      held_bytes += variant.width * element_bytes(operands[i]);
  }
  variant.reduction = share_out(layout.vectors, held_bytes, family);
  variant.reduction.axes = static_cast<int>(inner.size());

  std::vector<Axis> axes = outer;
  axes.insert(axes.end(), inner.begin(), inner.end());
  variant.rank = static_cast<int>(axes.size());
  variant.wide_index = needs_wide_index(axes, operands.size(), variant.width);
  layout.shape = Dims(axes.size());
  for (std::size_t k = 0; k < axes.size(); ++k) layout.shape[k] = axes[k].size;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    OperandVariant operand;
    operand.access = access_of(axes, i, uniform[i]);
    operand.alignment = element_bytes(operands[i]);
    if (family != Family::host && operand.access == Access::contiguous) {
      operand.alignment = alignment_of(operands[i], axes, i, variant.width);
    }
    layout.strides.emplace_back(axes.size());
    for (std::size_t k = 0; k < axes.size(); ++k) {
      layout.strides[i][k] = axes[k].strides[i];
      if (k + 1 < axes.size() && axes[k].strides[i] != 0) {
        operand.outer_axes |= std::uint64_t{1} << k;
      }
    }
    variant.operands.push_back(operand);
  }
  const auto per_block = static_cast<std::uint64_t>(variant.reduction.rows);
  layout.work_items = (static_cast<std::uint64_t>(layout.rows) + per_block - 1) / per_block;
  return layout;
}

}  // namespace kiln::fusion
