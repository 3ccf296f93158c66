// The model behind fusion::estimate: costs of operations and what targets do while they copy a
// byte. Rough on purpose; `kiln bench` measures.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/operation_cost.hpp"
#include "fusion/infer/reduce_space.hpp"
#include "fusion/partition/row_work.hpp"
#include "fusion/schedule/device_model.hpp"
#include "fusion/schedule/explain.hpp"
#include "fusion/schedule/iota_operands.hpp"
#include "fusion/schedule/node_methods.hpp"
#include "fusion/schedule/products/product_values.hpp"
#include "fusion/schedule/residency.hpp"

namespace kiln::fusion {
namespace {

// Operations on f32 that a target can do while its memory copies one byte (read and write counted).
double balance_of(std::string_view target) {
  const DeviceModel& model = device_model(target);
  return model.lanes_per_ns() / (kCopiedFraction * model.bandwidth_gbs);
}

// `methods`: which functions of a GPU are cheaper ones; null: those of results of 16 bits.
double operations_of(const TypedNode& node, const TypedGraph& graph,
                     const NodeMethods* methods = nullptr) {
  const int width = node.arity == 0 ? 32 : bits(graph.nodes[node.operands[0]].dtype);
  const auto id = static_cast<NodeId>(&node - graph.nodes.data());
  const double cost =
      methods == nullptr
          ? operation_cost(graph.nodes, node)
          : operation_cost(graph.nodes, node, methods->is_narrow(id) || methods->is_term(id));
  return cost * (width == 64 ? 2 : 1);
}

// The same where some values are one for each row: by these a quotient is a product that is
// corrected.
double operations_of(const TypedNode& node, const TypedGraph& graph,
                     const std::vector<bool>& invariant, const NodeMethods& methods) {
  constexpr double kQuotientByInvariant = 5;
  const double cost = operations_of(node, graph, &methods);
  const bool by_invariant = node.op == Op::div && invariant[node.operands[1]];
  return by_invariant ? std::min(cost, kQuotientByInvariant) : cost;
}

// A CPU has instructions for all of IEEE 754's operations, and for what costs a GPU a few.
double operations_on_host(const TypedNode& node, const TypedGraph& graph) {
  constexpr double kQuotient = 8;
  const double cost = operations_of(node, graph);
  if (info(node.op).ieee) return std::min(cost, kQuotient);
  return cost <= kMostCheap || node.op == Op::cast ? std::min(cost, 1.0) : cost;
}

double operations_of(const TypedGraph& graph, const NodeMethods& methods) {
  double total = 0;
  for (const TypedNode& node : graph.nodes) total += operations_of(node, graph, &methods);
  return total;
}

// The argument that each operand is, but for outputs, which come last.
std::vector<std::size_t> argument_numbers(const TypedGraph& graph,
                                          std::span<const Operand> operands) {
  std::vector<std::size_t> result(operands.size(), 0);
  std::size_t argument = 0;
  for (std::size_t i = 0; i < operands.size() && !operands[i].output; ++i) {
    while (graph.arguments[argument].scalar) ++argument;
    result[i] = argument++;
  }
  return result;
}

// What a CPU's vectors do to read and to write an element, in operations: it has instructions for
// f16 alone among the narrow types.
struct Conversion {
  double read;
  double write;
};
Conversion conversion_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return {1, 1};
    case DType::bf16: return {2, 7};
    case DType::f8e4m3:
    case DType::f8e5m2: return {8, 14};
    default: return bits(dtype) < 32 ? Conversion{2, 3} : Conversion{1, 1};
  }
}

// The operations of a CPU on each element. Every pass over a row reads its operands and computes
// again what costs little; the rest is kept, where there is room. Of a kernel without reductions
// only what is the same everywhere does not count.
class HostOperations {
 public:
  HostOperations(const TypedGraph& graph, std::span<const Operand> operands, const Layout& layout)
      : graph_(graph), operands_(operands), layout_(layout), kept_(graph.nodes.size(), false) {
    const std::vector<std::size_t> arguments = argument_numbers(graph, operands);
    std::vector<bool> invariant(graph.arguments.size(), true);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].output || operands[i].iota) continue;
      const OperandSchedule& own = layout.schedule.operands[i];
      invariant[arguments[i]] = own.row_invariant || own.access == Access::scalar;
    }
    invariant_ = row_invariant_nodes(graph, invariant, varying_iotas(graph, layout.schedule));
  }

  double count() {
    double total = 0;
    for (const std::vector<NodeId>& roots : pass_roots(graph_, invariant_)) total += pass(roots);
    for (const TypedNode& node : graph_.nodes) {
      if (is_reduction(node.op)) total += operations_on_host(node, graph_);
    }
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (operands_[i].output && !layout_.schedule.operands[i].row_invariant) {
        total += conversion_of(operands_[i].dtype).write;
      }
    }
    for (std::size_t i = 0; i < operands_.size(); ++i) total += moves(i) * kMoved;
    if (layout_.schedule.scan == ScanSchedule::along) total += kRunning;
    return total;
  }

 private:
  static constexpr double kMostAgain = 8;  // operations of what is computed again
  static constexpr double kRunning = 16;   // each element waits for the one before it
  static constexpr double kMoved = 16;     // transposed, through a buffer

  // How often an operand goes through a buffer: by each pass, if that has no whole rows.
  int moves(std::size_t operand) const {
    if (!layout_.schedule.is_buffered(operand)) return 0;
    const bool again = layout_.schedule.reduction.buffered != 0 && !operands_[operand].output;
    return again ? static_cast<int>(pass_roots(graph_, invariant_).size()) : 1;
  }

  double pass(const std::vector<NodeId>& roots) {
    std::vector<bool> needed(graph_.nodes.size(), false);
    for (const NodeId root : roots) needed[root] = true;
    double total = 0;
    for (std::size_t id = graph_.nodes.size(); id-- > 0;) {
      if (!needed[id] || invariant_[id]) continue;
      if (kept_[id]) {
        total += 1;
        continue;
      }
      const TypedNode& node = graph_.nodes[id];
      const double own =
          node.op == Op::input ? conversion_of(node.dtype).read : operations_on_host(node, graph_);
      total += own;
      kept_[id] = own >= kMostAgain && layout_.schedule.reduction.vectors != 0;
      for (const NodeId operand : node.inputs()) needed[operand] = true;
    }
    return total;
  }

  const TypedGraph& graph_;
  std::span<const Operand> operands_;
  const Layout& layout_;
  std::vector<bool> invariant_;
  std::vector<bool> kept_;  // by an earlier pass
};

// What a GPU's kernel does for each element. Of rows that are not kept on chip every pass reads
// what it needs, and computes it again; else each operand is read once, and each value computed
// once. What there is one of for each row takes no time beside its elements.
class Passes {
 public:
  Passes(const TypedGraph& graph, std::span<const Operand> operands, const Layout& layout)
      : methods_(graph, Accuracy::storage, layout.schedule.backend),
        reads_(operands.size(), 1),
        operations_(operations_of(graph, methods_)) {
    const RowSchedule& rows = layout.schedule.reduction;
    const bool gpu = layout.schedule.backend != Backend::host;
    if (!gpu || rows.axes == 0 || layout.schedule.attention.threads != 0) return;
    const std::vector<std::size_t> arguments = argument_numbers(graph, operands);
    std::vector<bool> invariant(graph.arguments.size(), true);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].output || operands[i].iota) continue;
      invariant[arguments[i]] = is_of_row(layout, i);
    }
    // Products have none within rows.
    std::vector<std::int64_t> iotas;
    if (layout.schedule.products.rows == 0) iotas = varying_iotas(graph, layout.schedule);
    invariant = row_invariant_nodes(graph, invariant, iotas);
    operations_ = 0;
    if (layout.schedule.products.rows != 0) {
      add_products(graph, invariant, layout);
      return;
    }
    for (const TypedNode& node : graph.nodes) {
      if (is_reduction(node.op)) operations_ += operations_of_reduction(node, graph, layout);
    }
    if (rows.vectors != 0) {
      of_row_ = static_cast<int>(pass_roots(graph, invariant).size());
      for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
        if (!invariant[id])
          operations_ += operations_of(graph.nodes[id], graph, invariant, methods_);
      }
      return;
    }
    std::ranges::fill(reads_, 0);
    for (const std::vector<NodeId>& roots : pass_roots(graph, invariant)) {
      ++count_;
      const std::vector<bool> read = add_pass(graph, invariant, roots);
      for (std::size_t i = 0; i < operands.size() && !operands[i].output; ++i) {
        reads_[i] += read[arguments[i]] ? 1 : 0;
      }
    }
  }

  int reads(std::size_t operand) const { return std::max(1, reads_[operand]); }
  double operations() const { return operations_; }
  /// Of those that read their row again, if there are any.
  int count() const { return count_; }
  /// Of those over a row that is kept on chip.
  int of_row() const { return of_row_; }

 private:
  // With what threads combine of each row, as a part of each of its elements: an exchange and an
  // operation for each halving. Threads of columns keep a half of their lanes each time, so that
  // all halvings are as much as two of all lanes.
  static double operations_of_reduction(const TypedNode& node, const TypedGraph& graph,
                                        const Layout& layout) {
    constexpr double kExchange = 3;
    constexpr double kHalvingsOfColumns = 2;
    const double own = operations_of(node, graph);
    const RowSchedule& rows = layout.schedule.reduction;
    double length = 1;
    const std::size_t end = layout.shape.size() - (rows.columns == 0 ? 0 : 1);
    for (std::size_t k = end - std::min(end, static_cast<std::size_t>(rows.axes)); k < end; ++k) {
      length *= static_cast<double>(layout.shape[k]);
    }
    const double all = std::log2(rows.threads);
    const double halvings = rows.columns == 0 ? all : std::min(all, kHalvingsOfColumns);
    return own + halvings * (own + kExchange) / std::max(1.0, length / rows.threads);
  }

  // What blocks compute of vectors before their rows, each of them does.
  void add_products(const TypedGraph& graph, const std::vector<bool>& invariant,
                    const Layout& layout) {
    const ProductValues values(graph, layout.schedule);
    const double blocks =
        static_cast<double>(layout.work_items) / std::max(1.0, static_cast<double>(layout.rows));
    for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
      const TypedNode& node = graph.nodes[id];
      const double share = values.is_in_prologue(id) ? blocks : 1;
      if (is_reduction(node.op)) {
        operations_ += share * operations_of_reduction(node, graph, layout);
      }
      if (!invariant[id]) operations_ += share * operations_of(node, graph, invariant, methods_);
    }
  }

  // Whether an operand has one element for each row. Of products the strides say so: their
  // innermost axes are reduced.
  static bool is_of_row(const Layout& layout, std::size_t operand) {
    if (layout.schedule.products.rows == 0) return layout.schedule.operands[operand].row_invariant;
    const auto axes = static_cast<std::size_t>(layout.schedule.reduction.axes);
    for (std::size_t k = layout.shape.size() - axes; k < layout.shape.size(); ++k) {
      if (layout.strides(operand, k) != 0) return false;
    }
    return true;
  }

  // Returns which arguments the pass reads.
  std::vector<bool> add_pass(const TypedGraph& graph, const std::vector<bool>& invariant,
                             const std::vector<NodeId>& roots) {
    std::vector<bool> read(graph.arguments.size(), false);
    std::vector<bool> needed(graph.nodes.size(), false);
    for (const NodeId root : roots) needed[root] = true;
    for (std::size_t id = graph.nodes.size(); id-- > 0;) {
      const TypedNode& node = graph.nodes[id];
      if (!needed[id] || invariant[id]) continue;
      if (node.op == Op::input) read[node.payload] = true;
      operations_ += operations_of(node, graph, invariant, methods_);
      for (const NodeId operand : node.inputs()) needed[operand] = true;
    }
    return read;
  }

  NodeMethods methods_;
  std::vector<int> reads_;
  double operations_;
  int count_ = 0;
  int of_row_ = 1;
};

// The part of a copy's speed that the loads of a kernel's rows allow which are in flight at a time:
// a thread of a multiprocessor that is full of them needs so many bytes.
double in_flight(const Layout& layout, std::span<const Operand> operands) {
  constexpr double kEnoughBytes = 8;
  const RowSchedule& rows = layout.schedule.reduction;
  const bool own_loads = layout.schedule.backend != Backend::host && rows.axes != 0 &&
                         layout.schedule.products.rows == 0;
  if (!own_loads) return 1;
  double bytes = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const OperandSchedule& own = layout.schedule.operands[i];
    if (operands[i].output || operands[i].iota || own.row_invariant) continue;
    bytes += layout.schedule.width * bits(operands[i].dtype) / 8.0;
  }
  return std::min(1.0, bytes * std::max(1, std::max(rows.vectors, rows.batch)) / kEnoughBytes);
}

// The same of rows that a cluster keeps, whose blocks wait for each other at each reduction: of 40
// functions of 65,536 to 262,144 elements an H100 reaches 0.7 to 0.94 of a copy.
double in_cluster(const Layout& layout) {
  constexpr double kShare = 0.85;
  const RowSchedule& rows = layout.schedule.reduction;
  return rows.cluster_blocks == 1 || rows.vectors == 0 || rows.columns != 0 ? 1 : kShare;
}

// The same of columns that blocks copy to shared memory, as they were chosen.
double in_residence(const Layout& layout, std::span<const Operand> operands, int passes) {
  const RowSchedule& rows = layout.schedule.reduction;
  if (!rows.copied || rows.columns == 0) return 1;
  double bytes = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const OperandSchedule& own = layout.schedule.operands[i];
    const bool stored = operands[i].output && !own.row_invariant;
    if (own.in_registers || stored) bytes += layout.schedule.width * bits(operands[i].dtype) / 8.0;
  }
  ResidentBlock block;
  block.moved = static_cast<std::int64_t>(bytes * rows.vectors * rows.block());
  block.passes = passes;
  block.cluster = rows.in_cluster();
  return static_cast<double>(share_of_copy(block, rows.min_blocks)) / 1000;
}

// The same of columns that each pass reads again, of which a block reads lines or, where there are
// few columns, halves of lines, and a multiprocessor has one block at a time.
double in_lines(const Layout& layout, std::span<const Operand> operands, std::string_view target) {
  constexpr double kLine = 128;
  constexpr double kLines = 0.9;
  constexpr double kHalves = 0.72;
  const Schedule& schedule = layout.schedule;
  const RowSchedule& rows = schedule.reduction;
  if (schedule.backend != Backend::nvidia || rows.columns == 0 || rows.vectors != 0) return 1;
  double widest = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const bool moves = !operands[i].iota && !schedule.operands[i].row_invariant;
    if (moves) widest = std::max(widest, bits(operands[i].dtype) / 8.0);
  }
  const double units = device_model(target).compute_units;
  const double turns = std::max(1.0, static_cast<double>(layout.work_items) / units);
  const double busy = turns / std::ceil(turns);
  return (widest * schedule.width * rows.columns < kLine ? kHalves : kLines) * busy;
}

// Whether what is between the elements of neighbouring columns is of the same columns, and read by
// the same threads.
bool fills_gaps(const Layout& layout, std::size_t operand) {
  bool any = false;
  for (std::size_t k = 0; layout.schedule.reduction.columns != 0 && k < layout.shape.size(); ++k) {
    any = any || layout.strides(operand, k) == 1;
  }
  return any;
}

// From an element of a row to the nearest other one that a work item has.
std::int64_t nearest_stride(const Layout& layout, std::size_t operand) {
  std::int64_t nearest = 0;
  for (int n = 1; n <= layout.schedule.row_axes; ++n) {
    const std::int64_t stride =
        std::abs(layout.strides(operand, layout.shape.size() - static_cast<std::size_t>(n)));
    if (stride != 0 && (nearest == 0 || stride < nearest)) nearest = stride;
  }
  return nearest;
}

// The same of running results on GPUs: what comes next waits for what is before it. Of 25 functions
// an H200 reaches 0.68 to 1 of a copy, half of them more than 0.85.
double in_order(const Layout& layout) {
  constexpr double kShare = 0.87;
  const bool runs = layout.schedule.scan != ScanSchedule::none;
  return layout.schedule.backend != Backend::host && runs ? kShare : 1;
}

// How far what a GPU computes and what it moves hide each other: the time of both is their norm of
// such a power. Without rows other threads compute meanwhile. What is computed of a row waits for
// all of its loads, and stores for that. A block that keeps much leaves its multiprocessor no room
// for many others, and those of a cluster wait for each other: there nothing is hidden. Of 410
// functions an H200 takes within 15 % of such times for 0.81; for 0.74 of the maximum without rows
// and the norm of power 2 of all rows, where functions count by their dtypes.
double overlap_power(const Layout& layout, std::span<const Operand> operands) {
  constexpr double kWithoutRows = 3;
  constexpr double kOfRows = 2;
  constexpr double kAlone = 1;
  constexpr double kMuch = 80 << 10;  // bytes
  const RowSchedule& rows = layout.schedule.reduction;
  if (rows.axes == 0) return kWithoutRows;
  if (rows.vectors == 0) return kOfRows;
  if (rows.in_cluster()) return kAlone;
  double kept = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].output || !layout.schedule.operands[i].in_registers) continue;
    kept += layout.schedule.width * bits(operands[i].dtype) / 8.0 * rows.in_smem * rows.block();
  }
  return kept > kMuch ? kAlone : kOfRows;
}

// The same of few blocks, where a copy of so many bytes has a block for each multiprocessor: no
// multiprocessor has much more than its share of the bandwidth.
double in_blocks(const Layout& layout, double bytes, std::string_view target) {
  constexpr double kMostShares = 2;
  constexpr double kCopied = 16 << 10;  // by a block
  const Schedule& schedule = layout.schedule;
  if (schedule.backend == Backend::host || schedule.reduction.axes == 0) return 1;
  const auto blocks = static_cast<double>(layout.work_items);
  const double busy = std::min<double>(device_model(target).compute_units, bytes / kCopied);
  return blocks == 0 ? 1 : std::min(1.0, kMostShares * blocks / std::max(1.0, busy));
}

}  // namespace

Estimate estimate(const TypedGraph& graph, const Dims& shape, std::span<const Operand> operands,
                  const Layout& layout, std::string_view target) {
  const double sector = layout.schedule.backend == Backend::host ? 64 : 32;
  const std::size_t inner = layout.shape.size() - 1;
  auto elements = static_cast<double>(element_count(shape));
  // Products are over the depth, weighted sums over the values' elements.
  if (layout.schedule.attention.threads != 0) elements /= layout.schedule.attention.values.extent;
  const Passes passes(graph, operands, layout);
  double useful = 0;
  double moved = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].iota) continue;
    double own = bits(operands[i].dtype) / 8.0;
    for (std::size_t k = 0; k <= inner; ++k) {
      if (layout.strides(i, k) != 0) own *= static_cast<double>(layout.shape[k]);
    }
    const double width = bits(operands[i].dtype) / 8.0;
    const double step = std::abs(static_cast<double>(nearest_stride(layout, i))) * width;
    // Where elements are counted over all axes, rows are short, and what is read beside an element
    // is read by a neighbouring thread.
    const Access access = layout.schedule.operands[i].access;
    const bool apart = access == Access::strided || access == Access::offsets;
    const bool far = apart && !layout.schedule.flat && !fills_gaps(layout, i);
    const bool again = !operands[i].output && !layout.schedule.operands[i].row_invariant &&
                       layout.schedule.operands[i].outer_axes != 0;
    useful += own;
    moved += (far ? own * std::min(step, sector) / width : own) * (again ? passes.reads(i) : 1);
  }
  Estimate result;
  const bool on_host = layout.schedule.backend == Backend::host;
  result.operations =
      on_host ? HostOperations(graph, operands, layout).count() : passes.operations();
  if (useful == 0) return result;
  result.memory = moved / useful / in_flight(layout, operands) / in_cluster(layout) /
                  in_residence(layout, operands, passes.of_row()) / in_order(layout) /
                  in_blocks(layout, useful, target);
  if (passes.count() > 1) result.memory /= in_lines(layout, operands, target);
  result.arithmetic = result.operations * elements / useful / balance_of(target);
  const double longer = std::max(result.memory, result.arithmetic);
  const double shorter = std::min(result.memory, result.arithmetic);
  const double power = overlap_power(layout, operands);
  const double waits = on_host ? 1 : std::pow(1 + std::pow(shorter / longer, power), 1 / power);
  result.fraction_of_copy = 1 / (longer * waits);
  return result;
}

}  // namespace kiln::fusion
