#include "fusion/schedule/products/prologue.hpp"

#include <algorithm>
#include <bit>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/infer/sum_tree.hpp"
#include "fusion/schedule/products/product_values.hpp"

namespace kiln::fusion {
namespace {

constexpr std::int64_t kMostStaged = 16384;       // elements of a vector: one chunk of the tree
constexpr std::int64_t kMostStagedBytes = 16384;  // of a block's 48 KiB; tiles may copy them
constexpr int kPrologueThreads = 512;
constexpr int kPrologueWidth = 8;

// Whether an operand's vectors are neighbours along all reduced axes, or one element.
bool is_linear(std::span<const MergedAxis> reduced, std::size_t operand) {
  Size beside = 1;
  bool moves = false;
  bool linear = true;
  for (std::size_t k = reduced.size(); k-- > 0;) {
    moves = moves || reduced[k].strides[operand] != 0;
    linear = linear && reduced[k].strides[operand] == beside;
    beside *= reduced[k].size;
  }
  return linear || !moves;
}

}  // namespace

ScratchVector<bool> statistics_of(const TypedGraph& graph) {
  ScratchVector<bool> statistics(graph.nodes.size(), false);
  ScratchVector<bool> reduced(graph.nodes.size(), false);  // a reduction is made of it
  for (std::size_t id = graph.nodes.size(); id-- > 0;) {
    const bool reduces = is_reduction(graph.nodes[id].op);
    statistics[id] = reduces && reduced[id];
    if (!reduces && !reduced[id]) continue;
    for (const NodeId operand : graph.nodes[id].inputs()) reduced[operand] = true;
  }
  return statistics;
}

std::optional<NodeId> staged_vector(const TypedGraph& graph, const ScratchVector<Scope>& scopes,
                                    const ScratchVector<bool>& statistics) {
  ScratchVector<bool> depends(graph.nodes.size(), false);
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    depends[id] = statistics[id] || std::ranges::any_of(graph.nodes[id].inputs(),
                                                        [&](NodeId from) { return depends[from]; });
  }
  const auto is_shared = [&](NodeId id) {
    return !scopes[id].rows && scopes[id].level != Level::result;
  };
  std::optional<NodeId> staged;
  bool one = true;
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    one = one && !(statistics[id] && scopes[id].rows);
  }
  const auto take = [&](NodeId id) {
    while (graph.nodes[id].op == Op::promote) id = graph.nodes[id].operands[0];
    one = one && scopes[id].level == Level::element && (!staged || *staged == id);
    staged = id;
  };
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    const TypedNode& node = graph.nodes[id];
    if (is_shared(static_cast<NodeId>(id))) continue;
    for (const NodeId operand : node.inputs()) {
      if (depends[operand] && is_shared(operand)) take(operand);
    }
  }
  for (const NodeId root : graph.roots()) one = one && !is_shared(root);
  return one ? staged : std::nullopt;
}

DType staged_dtype(const TypedGraph& graph, NodeId staged) {
  const TypedNode& node = graph.nodes[staged];
  const bool rounded = node.op == Op::cast || graph.rounding == Rounding::each;
  return rounded ? node.dtype : compute_dtype(node.dtype);
}

RowOperands row_operands(const TypedGraph& graph, std::span<const SizedOperand> operands,
                         const MergedAxis& rows, std::span<const MergedAxis> reduced) {
  RowOperands result{ScratchVector<bool>(operands.size(), true), std::nullopt};
  const ScratchVector<bool> statistics = statistics_of(graph);
  if (std::ranges::find(statistics, true) == statistics.end()) return result;
  ScratchVector<std::size_t> operand_of(graph.arguments.size(), 0);
  for (std::size_t i = 0, next = 0; i < graph.arguments.size(); ++i) {
    operand_of[i] = next;
    next += graph.arguments[i].scalar ? 0 : 1;
  }
  ScratchVector<Scope> scopes(graph.nodes.size(), Scope());
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    const TypedNode& node = graph.nodes[id];
    Scope& scope = scopes[id];
    if (node.op == Op::input) {
      const std::size_t i = operand_of[node.payload];
      scope.rows = rows.strides[i] != 0;
      const bool moves = std::ranges::any_of(
          reduced, [&](const MergedAxis& axis) { return axis.strides[i] != 0; });
      scope.level = moves ? Level::element : Level::row;
    }
    for (const NodeId from : node.inputs()) {
      scope.level = std::max(scope.level, scopes[from].level);
      scope.rows = scope.rows || scopes[from].rows;
    }
    if (is_reduction(node.op)) scope.level = statistics[id] ? Level::row : Level::result;
  }
  const std::optional<NodeId> staged = staged_vector(graph, scopes, statistics);
  if (!staged) return result;
  result.staged = staged_dtype(graph, *staged);
  const ScratchVector<bool> live = live_but(graph, graph.roots(), *staged);
  for (const bool from_main : {false, true}) {
    for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
      const TypedNode& node = graph.nodes[id];
      if (node.op != Op::input || live[id] != from_main) continue;
      result.loaded[operand_of[node.payload]] = from_main;
    }
  }
  return result;
}

ScratchVector<bool> live_but(const TypedGraph& graph, std::span<const NodeId> roots, NodeId cut) {
  ScratchVector<bool> live(graph.nodes.size(), false);
  for (const NodeId root : roots) live[root] = true;
  for (std::size_t id = graph.nodes.size(); id-- > 0;) {
    if (!live[id] || id == cut) continue;
    for (const NodeId operand : graph.nodes[id].inputs()) live[operand] = true;
  }
  return live;
}

bool can_have_prologue(const TypedGraph& graph, const ProductValues& values,
                       std::span<const SizedOperand> operands,
                       const ScratchVector<MergedAxis>& axes, const Schedule& schedule) {
  const auto count = static_cast<std::size_t>(schedule.reduction.axes);
  const std::span<const MergedAxis> reduced = std::span(axes.data(), axes.size()).last(count);
  const std::size_t columns = schedule.products.columns > 1 ? 1 : 0;
  const std::size_t batches = axes.size() - count - 1 - columns;
  Size elements = 1;
  for (const MergedAxis& axis : reduced) elements *= axis.size;
  if (elements > kMostStaged || !values.staged()) return false;
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    const TypedNode& node = graph.nodes[id];
    if (!values.is_in_prologue(id)) continue;
    if (node.op == Op::iota || node.dtype == DType::c64) return false;
    if (node.op != Op::input) continue;
    const std::size_t i = values.operand_of(node);
    if (is_packed(operands[i].dtype) || operands[i].indexed.exists() || !is_linear(reduced, i)) {
      return false;
    }
    for (std::size_t k = 0; k < batches; ++k) {
      if (axes[k].strides[i] != 0) return false;
    }
  }
  const int element = std::max(1, bits(staged_dtype(graph, *values.staged())) / 8);
  return Size{bit_ceil(elements)} * schedule.products.columns * element <= kMostStagedBytes;
}

void map_prologue(const TypedGraph& graph, SizedLayout& layout) {
  PrologueSchedule& prologue = layout.schedule.products.prologue;
  int threads = std::min<int>(
      kPrologueThreads,
      static_cast<int>(std::bit_floor(static_cast<unsigned>(layout.schedule.reduction.block()))));
  if (threads > kPrologueThreads / 2 && layout.reduced <= kLeastResidues * kTreeTerms)
    threads = kPrologueThreads / 2;
  prologue.threads = threads;
  prologue.elements = 1;
  while (Size{prologue.elements} * threads < layout.reduced) prologue.elements *= 2;
  // Neighbouring residues, of which a thread has so many.
  const int residues =
      std::clamp(threads * prologue.elements / kTreeTerms, kLeastResidues, kMostResidues);
  prologue.width = std::min({residues / threads, prologue.elements, kPrologueWidth});
  while (layout.reduced % prologue.width != 0) prologue.width /= 2;
  if (!keeps_vectors(layout.schedule.products)) return;
  const ProductValues values(graph, layout.schedule);
  ScratchVector<bool> of_statistics(graph.nodes.size(), false);
  for (std::size_t id = graph.nodes.size(); id-- > 0;) {
    if (!of_statistics[id] && !values.is_statistic(id)) continue;
    for (const NodeId operand : graph.nodes[id].inputs()) of_statistics[operand] = true;
  }
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    const TypedNode& node = graph.nodes[id];
    const bool early = node.op == Op::input && values.is_in_prologue(id) && !of_statistics[id] &&
                       values.scope(id).level == Level::element;
    if (early) layout.schedule.operands[values.operand_of(node)].before_pdl_wait = true;
  }
}

bool keeps_vectors(const ProductSchedule& products) {
  constexpr int kMost = 32;
  return products.prologue.elements * products.columns <= kMost;
}

}  // namespace kiln::fusion
