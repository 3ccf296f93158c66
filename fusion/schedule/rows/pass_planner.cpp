#include "fusion/schedule/rows/pass_planner.hpp"

#include <algorithm>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/infer/reduce_space.hpp"
#include "fusion/schedule/iota_operands.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {

bool PassSchedule::is_needed(std::size_t id, int pass) const {
  return std::ranges::binary_search(needed[static_cast<std::size_t>(pass)], id);
}

int PassSchedule::vector_bytes(const RowOperand& operand) const {
  return width * std::max(1, bits(operand.dtype) / 8);
}

PassSchedule schedule_passes(const TypedGraph& graph, const Schedule& schedule, Accuracy accuracy) {
  return PassPlanner(graph, schedule, accuracy).run();
}

PassPlanner::PassPlanner(const TypedGraph& graph, const Schedule& schedule, Accuracy accuracy)
    : graph_(graph),
      schedule_(schedule),
      rows_(schedule.reduction),
      accuracy_(accuracy),
      methods_(graph, accuracy, schedule.backend) {
  passes_.rows = schedule.reduction;
  passes_.backend = schedule.backend;
  passes_.width = schedule.width;
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    if (graph.nodes[id].op == Op::input) {
      passes_.input_nodes[graph.nodes[id].payload].push_back(id);
    }
  }
}

PassSchedule PassPlanner::run() {
  find_operands();
  order_passes();
  find_needed();
  find_sums();
  choose_memory();
  find_quotients();
  choose_next_prefetched();
  passes_.row_group = row_group();
  return std::move(passes_);
}

void PassPlanner::find_operands() {
  std::vector<RowOperand>& operands = passes_.operands;
  for (std::size_t i = 0; i < graph_.arguments.size(); ++i) {
    if (graph_.arguments[i].scalar) continue;
    operands.push_back({.argument = i, .dtype = graph_.arguments[i].dtype});
  }
  for (const NodeId output : graph_.outputs) {
    operands.push_back({.value = output, .dtype = graph_.nodes[output].dtype, .output = true});
  }
  for (const std::int64_t axis : iota_axes(graph_)) {
    operands.push_back(
        {.argument = graph_.arguments.size(), .dtype = DType::i64, .iota = true, .axis = axis});
  }
  if (operands.size() != schedule_.operands.size()) {
    throw Error(Code::internal,
                "schedule_passes: the schedule and the graph differ in their number of operands");
  }
  for (std::size_t i = 0; i < operands.size(); ++i) {
    operands[i].row_invariant = schedule_.operands[i].row_invariant;
    if (operands[i].output) store_unrounded(i);
    operands[i].in_blocks = converts_in_blocks(i);
  }
}

// Vectors that are rounded when they are stored take the operand of a cast that rounds.
void PassPlanner::store_unrounded(std::size_t i) {
  RowOperand& operand = passes_.operands[i];
  const NodeId rounded = operand.value;
  operand.unrounded = converts_vectors(i);
  if (!operand.unrounded && !converts_in_blocks(i)) return;
  operand.value = methods_.unrounded(rounded);
  if (!operand.unrounded && !converts_in_blocks(i)) operand.value = rounded;
}

// Whether 8-bit floats are converted vector by vector, as NVIDIA GPUs do
// (preamble/small_floats.h).
bool PassPlanner::converts_vectors(std::size_t i) const {
  const RowOperand& operand = passes_.operands[i];
  return schedule_.backend == Backend::nvidia && operand.output && !operand.row_invariant &&
         (operand.dtype == DType::f8e4m3 || operand.dtype == DType::f8e5m2) &&
         schedule_.operands[i].access == Access::contiguous &&
         !methods_.needs_storage(operand.value) &&
         compute_dtype(graph_.nodes[methods_.unrounded(operand.value)].dtype) == DType::f32;
}

bool PassPlanner::converts_in_blocks(std::size_t i) const {
  const RowOperand& operand = passes_.operands[i];
  const bool of_columns = passes_.is_host() && rows_.columns != 0;
  if (!(passes_.in_parts() || of_columns) || operand.dtype != DType::f16 || operand.row_invariant ||
      !(schedule_.operands[i].access == Access::contiguous || schedule_.is_buffered(i))) {
    return false;
  }
  const auto is_plain = [&](std::size_t id) {
    return !methods_.needs_storage(static_cast<NodeId>(id));
  };
  if (operand.output) {
    return !is_indexed(i) && is_plain(operand.value) &&
           !(schedule_.streamed && rows_.ragged && !schedule_.is_buffered(i)) &&
           compute_dtype(graph_.nodes[operand.value].dtype) == DType::f32;
  }
  const auto nodes = passes_.input_nodes.find(operand.argument);
  return nodes == passes_.input_nodes.end() || std::ranges::all_of(nodes->second, is_plain);
}

void PassPlanner::order_passes() {
  std::vector<bool> row_invariant(graph_.arguments.size(), true);
  std::vector<std::int64_t> within;
  for (const RowOperand& operand : passes_.operands) {
    if (operand.iota && !operand.row_invariant) within.push_back(operand.axis);
    if (!operand.output && !operand.iota) row_invariant[operand.argument] = operand.row_invariant;
  }
  passes_.row_invariant = row_invariant_nodes(graph_, row_invariant, within);
  std::vector<int>& before = passes_.before;
  int& last = passes_.last;
  before.assign(graph_.nodes.size(), 0);
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    for (const NodeId operand : node.inputs()) before[id] = std::max(before[id], before[operand]);
    if (!is_reduction(node.op)) continue;
    last = std::max(last, before[id]);
    ++before[id];
  }
  for (const RowOperand& operand : passes_.operands) {
    if (operand.output && !operand.row_invariant) last = std::max(last, before[operand.value]);
  }
  const auto passes = static_cast<std::size_t>(last) + 1;
  passes_.reductions.resize(passes);
  passes_.row_values.resize(passes + 1);
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const auto after = static_cast<std::size_t>(before[id]);
    if (is_reduction(graph_.nodes[id].op)) {
      passes_.reductions[after - 1].push_back(id);
    } else if (passes_.row_invariant[id]) {
      passes_.row_values[after].push_back(id);
    }
  }
}

// The quotients of the last pass that share a divisor. Their lanes are computed again where a
// dividend or the divisor is outside the range of the fast method.
void PassPlanner::find_quotients() {
  const auto last = static_cast<std::size_t>(passes_.last);
  if (passes_.is_host() || accuracy_ == Accuracy::fast || !passes_.reductions[last].empty()) {
    return;
  }
  for (const std::size_t id : passes_.needed[last]) {
    const TypedNode& node = graph_.nodes[id];
    if (node.op != Op::div || compute_dtype(node.dtype) != DType::f32) continue;
    const NodeId by = node.operands[1];
    if (passes_.row_invariant[by] && graph_.nodes[by].op != Op::constant &&
        !passes_.is_cached_for(id, passes_.last)) {
      passes_.quotients.push_back(id);
    }
  }
}

// On the CPU. The last pass over a row reads from the caches, while memory has time to fetch the
// next row; where there is one pass it prefetches too: the largest of x + r of 1,024 bf16 takes 1.6
// times as long without that, as the hardware prefetcher stops at the end of a page. Elements of
// columns are not visited in the order of memory, which the hardware prefetcher expects: without
// this x - mean(x, -2) of 64 rows of 512 f32 takes 1.6 times as long.
void PassPlanner::choose_next_prefetched() {
  if (!passes_.is_host() || rows_.axes != 1) return;
  const bool of_rows = rows_.columns == 0;
  if (of_rows && (rows_.vectors == 0 || first_reduced() == 0)) return;
  const std::uint32_t axis = of_rows ? first_reduced() - 1 : first_reduced();
  for (std::size_t i = 0; i < passes_.operands.size(); ++i) {
    RowOperand& operand = passes_.operands[i];
    operand.next_prefetched = !operand.output && !operand.row_invariant &&
                              schedule_.has_stride(i, axis) && passes_.is_read(operand, 0) &&
                              schedule_.operands[i].access == Access::contiguous;
  }
}

// The CPU takes short rows in groups, one after the other within each pass: while one row waits at
// the end of a pass, others are computed. One row at a time takes softmax of 64 bf16 1.5 times as
// long. Each pass locates its rows and reloads what earlier passes have left, so for many passes
// the text would grow with their square. Buffers have one row.
int PassPlanner::row_group() const {
  constexpr int kMost = 8;
  constexpr int kElements = 512;
  constexpr int kMostPasses = 8;
  const bool is_short = passes_.in_parts() && rows_.vectors == 1 && !rows_.split &&
                        !schedule_.has_buffers() && passes_.last > 0 && passes_.last < kMostPasses;
  return is_short ? std::clamp(kElements / schedule_.width, 1, kMost) : 1;
}

}  // namespace kiln::fusion
