#include "fusion/schedule/products/product_layout.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/infer/sum_tree.hpp"
#include "fusion/schedule/merged_axes.hpp"
#include "fusion/schedule/products/product_mapping.hpp"
#include "fusion/schedule/products/product_values.hpp"
#include "fusion/schedule/products/prologue.hpp"
#include "fusion/schedule/products/tile_layout.hpp"

namespace kiln::fusion {
namespace {

constexpr int kMostProductColumns = 8;
constexpr int kLanesAtATime = 8;
constexpr int kHostLanes = 64;
constexpr int kVectorBits = 128;
constexpr int kMostLanes = 32;

using Axis = MergedAxis;

// Whether what is read at places that data says has one element for each row, which is known before
// the row is reduced.
bool takes_for_rows(const TypedGraph& graph, std::span<const SizedOperand> operands,
                    const std::vector<bool>& row_invariant) {
  std::vector<bool> of_result(graph.nodes.size(), false);
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    const TypedNode& node = graph.nodes[id];
    of_result[id] =
        is_reduction(node.op) ||
        std::ranges::any_of(node.inputs(), [&](NodeId operand) { return of_result[operand]; });
    const NodeId* place = node.op == Op::input ? graph.place_of(false, node.payload) : nullptr;
    if (place != nullptr && (*place >= id || of_result[*place])) return false;
  }
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].output || !operands[i].indexed.exists()) continue;
    if (!row_invariant[i] || is_packed(operands[i].dtype)) return false;
  }
  return true;
}

// One pass, whose results are all that is stored, be it at places that data says. On GPUs there
// may be others before it, of what all rows share (prologue.hpp).
bool is_product(const TypedGraph& graph, const ReduceSpace& space, const Sizes& shape,
                std::span<const SizedOperand> operands, const std::vector<bool>& row_invariant,
                Backend backend) {
  if ((space.passes > 1 && backend == Backend::host) || space.gives_places) return false;
  if (!graph.indexed.empty() && !takes_for_rows(graph, operands, row_invariant)) return false;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].output && (!row_invariant[i] || is_packed(operands[i].dtype))) return false;
    if (operands[i].iota && !row_invariant[i]) return false;
  }
  return std::ranges::none_of(shape, [](Size size) { return size == 0; });
}

// Whether the order shows in which a reduction combines elements.
bool has_order(const TypedGraph& graph) {
  return std::ranges::any_of(graph.nodes, [](const TypedNode& node) {
    return (adds(node) || node.op == Op::prod) && !is_integer(node.dtype);
  });
}

Size bits_of(const SizedOperand& operand, const Sizes& shape) {
  return bits(operand.dtype) * element_count(shape, operand.strides);
}

// The operand with the most bytes: the one to be read once and in order.
std::size_t largest(std::span<const SizedOperand> operands, const Sizes& shape) {
  std::size_t found = 0;
  Size most = bits_of(operands[0], shape);
  for (std::size_t i = 1; i < operands.size(); ++i) {
    const bool reads = !operands[i].output && !operands[i].iota;
    const Size own = reads ? bits_of(operands[i], shape) : 0;
    if (SizeTrace::current() != nullptr) {  // else it would pin what a tape records
      trace_order(static_cast<std::int64_t>(own), static_cast<std::int64_t>(most));
    }
    if (own <= most) continue;
    most = own;
    found = i;
  }
  return found;
}

// The axes of a kernel before they are arranged.
struct ArrangedAxes {
  ScratchVector<Axis> batches;
  Axis columns;
  Axis rows;
  ScratchVector<Axis> reduced;
};

int most_columns(Size size) {
  if (size <= kMostProductColumns) return static_cast<int>(size);
  for (int columns = kMostProductColumns; columns > 1; columns /= 2) {
    if (size % columns == 0) return columns;
  }
  return 1;
}

// Columns are the axis along which the largest operand repeats, rows the axis along which its rows
// follow each other.
ArrangedAxes arrange(ScratchVector<Axis> outer, ScratchVector<Axis> reduced, std::size_t operand,
                     std::size_t operands) {
  ArrangedAxes axes;
  axes.columns.size = axes.rows.size = 1;
  axes.columns.strides = axes.rows.strides = SizedStrides(operands, 0);
  axes.reduced = std::move(reduced);
  axes.batches.reserve(outer.size());
  bool has_columns = false;
  for (Axis& axis : outer) {
    const int columns = most_columns(axis.size);
    if (axis.strides[operand] != 0 || has_columns || columns == 1) {
      axes.batches.push_back(std::move(axis));
      continue;
    }
    has_columns = true;
    axes.columns = {columns, axis.strides, axis.from};
    if (axis.size == columns) continue;
    axis.size /= columns;
    for (Size& stride : axis.strides) stride *= columns;
    axes.batches.push_back(std::move(axis));
  }
  // Axes along which the largest operand repeats are batches and come first.
  sort_axes(axes.batches, [&](const Axis& a, const Axis& b) {
    return a.strides[operand] == 0 && b.strides[operand] != 0;
  });
  if (!axes.batches.empty() && axes.batches.back().strides[operand] != 0) {
    axes.rows = std::move(axes.batches.back());
    axes.batches.pop_back();
  }
  return axes;
}

// Where rows lie along two axes, operands that have one element for all of the inner one would keep
// these apart, and so would outputs to which data says a place for each index of the outer one:
// that would be a batch of few rows. Instead rows are counted along both; such an input is found by
// the quotient, such an output's element at its place by the remainder.
struct RepeatedRows {
  Size rows = 1;
  ScratchVector<bool> operands;
};

RepeatedRows merge_repeated(ScratchVector<Axis>& outer, const ScratchVector<Axis>& reduced,
                            std::span<const SizedOperand> operands, std::size_t weights) {
  const RepeatedRows none{1, ScratchVector<bool>(operands.size(), false)};
  std::size_t count = outer.size();
  while (count > 0 && outer[count - 1].strides[weights] == 0) --count;
  if (count < 2) return none;
  Axis& around = outer[count - 2];
  const Axis& inner = outer[count - 1];
  RepeatedRows repeated{inner.size, none.operands};
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (around.strides[i] == inner.strides[i] * inner.size) continue;
    const bool of_row =
        std::ranges::all_of(reduced, [&](const Axis& axis) { return axis.strides[i] == 0; });
    const bool found =
        operands[i].output ? around.strides[i] == 0 : inner.strides[i] == 0 && of_row;
    if (!found) return none;
    repeated.operands[i] = true;
  }
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!repeated.operands[i] || operands[i].output) around.strides[i] = inner.strides[i];
  }
  around.size *= inner.size;
  around.from.append(inner.from.data(), inner.from.size());
  outer.erase(outer.begin() + static_cast<std::ptrdiff_t>(count - 1));
  return repeated;
}

// Axes along which operands repeat come last; others keep their order, that of the count, so that
// which of them are the rows does not depend on how these lie in memory.
void put_repeated_last(ScratchVector<Axis>& axes, std::size_t operand) {
  sort_axes(axes, [&](const Axis& a, const Axis& b) {
    return a.strides[operand] != 0 && b.strides[operand] == 0;
  });
}

// Vectors go along the innermost reduced axes along which the same operands move. They are counted
// as one axis, be there gaps between them or not: the order of adding depends on the width.
std::size_t axes_of_vectors(const ScratchVector<Axis>& reduced) {
  const Axis& inner = reduced.back();
  const auto is_alike = [&](const Axis& axis) {
    for (std::size_t i = 0; i < inner.strides.size(); ++i) {
      if ((axis.strides[i] == 0) != (inner.strides[i] == 0)) return false;
    }
    return true;
  };
  std::size_t count = 1;
  while (count < reduced.size() && is_alike(reduced[reduced.size() - 1 - count])) ++count;
  return count;
}

// The elements of the last axes.
Size elements_of_last(const ScratchVector<Axis>& axes, std::size_t count) {
  Size elements = 1;
  for (std::size_t k = axes.size() - count; k < axes.size(); ++k) elements *= axes[k].size;
  return elements;
}

// 16 bytes of the narrowest operand that moves along the innermost axis, as long as vectors divide
// those that they go along. Wider vectors would make neighbouring threads read shared operands from
// places so far apart that accesses are not coalesced.
int choose_width(const ScratchVector<Axis>& reduced, std::span<const SizedOperand> operands,
                 const RowOperands& of_rows, Backend backend) {
  int narrowest = of_rows.staged ? bits(*of_rows.staged) : kVectorBits;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (reduced.back().strides[i] == 0 || !of_rows.loaded[i]) continue;
    narrowest = std::min(narrowest, bits(operands[i].dtype));
  }
  int width = backend == Backend::host ? kHostLanes : std::min(kVectorBits / narrowest, kMostLanes);
  const Size elements = elements_of_last(reduced, axes_of_vectors(reduced));
  while (width > 1 && elements % width != 0) width /= 2;
  return width;
}

// Whether the elements of each vector are neighbours in memory, and begin with a whole byte.
// Vectors go along the last `count` axes.
bool has_vectors(const SizedOperand& operand, std::size_t index, const ScratchVector<Axis>& axes,
                 std::size_t count, int width) {
  const std::size_t first = axes.size() - count;
  Size beside = 1;
  for (std::size_t k = axes.size(); k-- > first;) {
    if (axes[k].strides[index] != beside) return false;
    beside *= axes[k].size;
  }
  if (!is_packed(operand.dtype) || width == 1) return true;
  bool whole_bytes = operand.offset % 2 == 0;
  for (std::size_t k = 0; k < first; ++k) {
    whole_bytes = whole_bytes && axes[k].strides[index] % 2 == 0;
  }
  return whole_bytes;
}

// Whether rows of elements that are not packed have vectors of less than eight bytes, as those of
// an odd number of elements have: GPUs then reduce them like any other row, in wide vectors
// wherever they begin. The largest of (x + b) of 1,001 bf16 stood at 0.26 of a copy on an H200.
bool has_narrow_vectors(const ScratchVector<Axis>& axes, std::span<const SizedOperand> operands,
                        const RowOperands& of_rows, int width) {
  constexpr int kLeastBits = 64;
  if (of_rows.staged && width * bits(*of_rows.staged) < kLeastBits) return true;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (axes.back().strides[i] == 0 || !of_rows.loaded[i]) continue;
    if (width * bits(operands[i].dtype) < kLeastBits) return true;
  }
  return false;
}

// Whether neighbours in the memory of an operand are of neighbouring rows rather than of one row.
bool lies_across(const ArrangedAxes& axes, std::size_t operand) {
  const Size along = abs(axes.reduced.back().strides[operand]);
  const Size across = abs(axes.rows.strides[operand]);
  return along > 1 && across > 0 && across < along;
}

// Whether a vector of rows is loaded at once for each element, of rows whose elements no vector
// has.
bool has_vectors_across(const OperandSchedule& schedule, const SizedOperand& operand,
                        std::size_t index, const ScratchVector<Axis>& axes, const Schedule& all) {
  constexpr int kMostBits = 256;  // of a row, which are not loaded part by part (product_loops.cpp)
  const ProductSchedule& products = all.products;
  const std::size_t row = axes.size() - static_cast<std::size_t>(all.reduction.axes) - 1;
  if (schedule.access != Access::strided || !products.across || products.rows == 1 ||
      axes[row].strides[index] != 1) {
    return false;
  }
  if (all.backend == Backend::host ? products.vector_axes != 1
                                   : all.width * bits(operand.dtype) > kMostBits) {
    return false;
  }
  if (products.columns > 1 && axes[row - 1].strides[index] != 0) return false;
  if (!is_packed(operand.dtype)) return true;
  bool whole_bytes = operand.offset % 2 == 0 && axes[row].size % 2 == 0;
  for (std::size_t k = 0; k < axes.size(); ++k) {
    whole_bytes = whole_bytes && (k == row || axes[k].strides[index] % 2 == 0);
  }
  return whole_bytes;
}

void schedule_operands(Schedule& schedule, const ScratchVector<Axis>& axes,
                       std::span<const SizedOperand> operands) {
  const auto count = static_cast<std::size_t>(schedule.products.vector_axes);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    OperandSchedule& operand = schedule.operands.emplace_back();
    operand.access = access_of(axes, i);
    const bool moves = axes.back().strides[i] != 0;
    const bool gathered = moves && !has_vectors(operands[i], i, axes, count, schedule.width);
    if (moves) operand.access = gathered ? Access::strided : Access::contiguous;
    operand.indexing = operands[i].indexed.exists() ? Indexing::row : Indexing::none;
    operand.start = is_packed(operands[i].dtype) && operands[i].offset % 2 != 0;
    operand.outer_axes = outer_axes_of(axes, i);
    if (!gathered) operand.outer_axes &= (std::uint64_t{1} << (axes.size() - count)) - 1;
  }
}

void align(OperandSchedule& schedule, const SizedOperand& operand, std::size_t index,
           const ScratchVector<Axis>& axes, const Schedule& all) {
  const auto row = axes.size() - static_cast<std::size_t>(all.reduction.axes) - 1;
  int width = all.width;
  constexpr int kMostRun = 16;
  if (schedule.access == Access::transposed) {
    const bool in_lines = all.products.tiles.beside != 0;  // choose_tiles()
    if (all.backend == Backend::host || in_lines) return;
    schedule.alignment = alignment_of(operand, operand.offset, axes, row, index, all.products.rows);
    return;
  }
  const Axis& inner = axes.back();
  const int element = std::max(1, bits(operand.dtype) / 8);
  schedule.alignment = element;
  if (schedule.access == Access::strided) {
    if (inner.strides[index] != 1 || is_packed(operand.dtype)) return;
    while (inner.size % width != 0) width /= 2;  // of a run
    schedule.alignment = std::min(kMostRun, width * element);
  }
  if (all.backend == Backend::host || schedule.access == Access::broadcast ||
      schedule.access == Access::scalar) {
    return;
  }
  schedule.alignment = alignment_of(operand, operand.offset, axes, axes.size() - 1, index, width);
}

// With `weights` as the operand whose rows are read once and in order. With `tiles` they are small
// weights that matrix instructions multiply; nothing if they are not.
std::optional<SizedLayout> plan_of(const TypedGraph& graph, const ReduceSpace& space,
                                   const Sizes& shape, std::span<const SizedOperand> operands,
                                   std::size_t weights, Backend backend, bool tiles) {
  ScratchVector<Axis> outer = axes_where(space, shape, operands, false);
  ScratchVector<Axis> reduced = axes_where(space, shape, operands, true);
  if (reduced.empty()) reduced.push_back({1, SizedStrides(operands.size(), 0), {}});
  if (tiles && reduced.back().strides[weights] == 0) return std::nullopt;
  put_repeated_last(outer, weights);
  merge(outer);
  const RepeatedRows repeated = merge_repeated(outer, reduced, operands, weights);
  ArrangedAxes arranged = arrange(std::move(outer), std::move(reduced), weights, operands.size());
  bool packed = false;
  bool shared = false;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    packed = packed || is_packed(operands[i].dtype);
    shared = shared || (arranged.rows.size > 1 && arranged.rows.strides[i] == 0 &&
                        arranged.reduced.back().strides[i] != 0);
  }
  // As few rows as there are take tiles too, but one row times one vector is a reduction like
  // others.
  shared =
      shared ||
      (tiles && (arranged.rows.size > 1 || arranged.columns.size > 1 || !arranged.batches.empty()));
  if (!packed && !shared) return std::nullopt;
  const Size apart = arranged.reduced.back().strides[weights];
  if (!packed && apart != 0 && apart != 1 && !has_order(graph)) return std::nullopt;
  const RowOperands of_rows =
      row_operands(graph, operands, arranged.rows,
                   std::span<const Axis>(arranged.reduced.data(), arranged.reduced.size()));
  int width = tiles ? tile_width(arranged.reduced, axes_of_vectors(arranged.reduced))
                    : choose_width(arranged.reduced, operands, of_rows, backend);
  if (width == 0) return std::nullopt;
  if (backend != Backend::host && !packed && !tiles &&
      has_narrow_vectors(arranged.reduced, operands, of_rows, width)) {
    return std::nullopt;
  }
  ProductSchedule products;
  products.columns = static_cast<int>(arranged.columns.size);
  products.tree = !tiles && !packed && adds_in_tree(operands, of_rows, arranged.reduced.back());
  const bool across = lies_across(arranged, weights);
  const ProductSums sums = sums_of(graph);
  if (products.tree) {
    Size length = 1;
    for (const Axis& axis : arranged.reduced) length *= axis.size;
    const int element_bits = bits(operands[weights].dtype);
    if (length > kTreeChunk) return std::nullopt;
    if (backend != Backend::host && is_faster_alone(products, across, length, element_bits)) {
      return std::nullopt;
    }
    width = width_in_tree(width, products, across, sums, length, backend);
  }
  merge(arranged.reduced);
  // Where vectors end with an axis, the axes around it are groups.
  const bool ends_axes = !tiles && arranged.reduced.back().size % width == 0;
  const std::size_t vector_axes = ends_axes ? 1 : axes_of_vectors(arranged.reduced);

  Size batches = 1;
  for (const Axis& axis : arranged.batches) batches *= axis.size;
  ScratchVector<Axis> axes = std::move(arranged.batches);
  std::optional<SizedLayout> planned;
  SizedLayout& layout = planned.emplace();
  Schedule& schedule = layout.schedule;
  schedule.backend = backend;
  reserve_operands(layout, operands.size());
  layout.starts.reserve(operands.size());
  layout.indexed.reserve(operands.size());
  schedule.products = products;
  const std::size_t count = arranged.reduced.size();
  axes.reserve(axes.size() + 2 + count);
  if (arranged.columns.size > 1) axes.push_back(std::move(arranged.columns));
  axes.push_back(std::move(arranged.rows));
  axes.insert(axes.end(), std::move_iterator(arranged.reduced.begin()),
              std::move_iterator(arranged.reduced.end()));
  const std::span<const Axis> reduced_axes = std::span<const Axis>(axes).last(count);
  schedule.rank = static_cast<int>(axes.size());
  schedule.reduction.axes = static_cast<int>(count);
  schedule.width = width;
  schedule.products.vector_axes = static_cast<int>(vector_axes);
  schedule.products.lanes =
      backend == Backend::host ? schedule.width : std::min(schedule.width, kLanesAtATime);
  layout.rows = axes[axes.size() - count - 1].size;
  layout.row_repeats = repeated.rows;
  schedule_operands(schedule, axes, operands);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    schedule.operands[i].repeats = repeated.operands[i];
  }
  std::optional<ProductValues> values;
  if (backend == Backend::host || space.passes > 1) values.emplace(graph, schedule);
  const bool integers = backend == Backend::host && values->in_integers();
  // What the CPU would compute lane by lane is a reduction like any other.
  if (backend == Backend::host && !packed && !integers &&
      (width < kLeastSimdWidth || !values->adds_vectors())) {
    return std::nullopt;
  }
  if (space.passes > 1 &&
      (across || !can_have_prologue(graph, *values, operands, axes, schedule))) {
    return std::nullopt;
  }
  if (tiles && !choose_tiles(graph, operands, axes, weights, layout)) return std::nullopt;
  layout.units = layout.rows;
  layout.reduced = 1;
  for (const Axis& axis : reduced_axes) layout.reduced *= axis.size;
  layout.vectors = layout.reduced / schedule.width;
  // Rows and their elements are counted, but never their product.
  const auto counted = std::max(layout.reduced, layout.rows * batches);
  schedule.wide_index = needs_wide_index(axes, operands, counted, schedule.width);
  if (tiles) {
    map_tiles(layout, batches);
  } else if (across && backend != Backend::host) {
    map_across(layout, batches, sums, bits(operands[weights].dtype));
  } else {
    schedule.products.across = across;
    if (across && !integers) {
      take_lines(layout, batches, bits(operands[weights].dtype));
    } else {
      map_to_threads(layout, batches, sums, backend, integers);
    }
  }
  if (space.passes > 1) map_prologue(graph, layout);

  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!tiles && has_vectors_across(schedule.operands[i], operands[i], i, axes, schedule)) {
      schedule.operands[i].access = Access::transposed;
    }
    align(schedule.operands[i], operands[i], i, axes, schedule);
    layout.offsets.push_back(operands[i].offset);
    layout.indexed.push_back(operands[i].indexed);
    layout.starts.push_back(is_packed(operands[i].dtype) ? operands[i].offset & 1 : 0);
  }
  take_axes(layout, axes);
  return planned;
}

}  // namespace

std::optional<SizedLayout> plan_products(const TypedGraph& graph, const ReduceSpace& space,
                                         const Sizes& shape, std::span<const SizedOperand> operands,
                                         const std::vector<bool>& row_invariant, Backend backend,
                                         bool tiles) {
  if (!is_product(graph, space, shape, operands, row_invariant, backend)) return std::nullopt;
  // Whether tiles are taken depends on dtypes and on what is reduced, not on which operand has more
  // bytes.
  for (std::size_t i = 0; tiles && i < operands.size(); ++i) {
    if (!may_be_tile_weights(operands[i])) continue;
    if (auto planned = plan_of(graph, space, shape, operands, i, backend, true)) return planned;
  }
  return plan_of(graph, space, shape, operands, largest(operands, shape), backend, false);
}

}  // namespace kiln::fusion
