// What each pass needs, and which values are cached for later passes: in registers, on the CPU in
// its caches, or in the places of the operands that they are computed from, of rows in shared
// memory, where what a thread reads and writes is its own, and of columns in registers.
#include <algorithm>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/operation_cost.hpp"
#include "fusion/schedule/rows/pass_planner.hpp"

namespace kiln::fusion {

// The passes that compute each value that varies within the row, or read it from its cache. What is
// cached is chosen as far as there is room for it.
void PassPlanner::find_needed() {
  std::vector<bool> has_room(graph_.nodes.size(), true);
  while (true) {
    walk_passes(has_room);
    const std::optional<std::size_t> homeless =
        passes_.caches_in_place() ? place_cached() : std::nullopt;
    if (!homeless) return;
    has_room[*homeless] = false;
  }
}

// One walk from the results to the arguments. On the way the results of functions that a later pass
// needs again, such as the exponentials of a softmax, are cached: in registers if a thread's part
// of a row is there, on the CPU in its caches. Outermost functions come first, since the operands
// of a cached value are not needed again.
void PassPlanner::walk_passes(const std::vector<bool>& has_room) {
  std::vector<std::vector<int>> passes(graph_.nodes.size());
  for (int pass = 0; pass <= passes_.last; ++pass) {
    for (const std::size_t id : passes_.reductions[static_cast<std::size_t>(pass)])
      passes[graph_.nodes[id].operands[0]].push_back(pass);
  }
  for (const RowOperand& operand : passes_.operands) {
    if (operand.output && !operand.row_invariant) passes[operand.value].push_back(passes_.last);
  }
  passes_.cached_in.assign(graph_.nodes.size(), -1);
  passes_.needed.assign(passes_.reductions.size(), {});
  passes_.read.assign(passes_.reductions.size(), {});
  int left = most_cached();
  for (std::size_t id = graph_.nodes.size(); id-- > 0;) {
    const TypedNode& node = graph_.nodes[id];
    std::vector<int> own = std::move(passes[id]);
    if (passes_.row_invariant[id]) continue;
    std::ranges::sort(own);
    own.erase(std::ranges::unique(own).begin(), own.end());
    if (own.size() > 1 && left > 0 && has_room[id] && is_worth_caching(id)) {
      passes_.cached_in[id] = own.front();
      --left;
    }
    for (const int pass : own) {
      const auto p = static_cast<std::size_t>(pass);
      passes_.needed[p].push_back(id);
      if (node.op == Op::input) passes_.read[p].insert(node.payload);
      if (passes_.is_cached_for(id, pass)) continue;
      for (const NodeId operand : node.inputs()) passes[operand].push_back(pass);
    }
  }
  for (Ids& ids : passes_.needed) std::ranges::reverse(ids);
}

// How many values a thread can cache.
int PassPlanner::most_cached() const {
  constexpr int kMostRegisters = 64;
  constexpr int kMostOnHost = 1 << 17;
  if (rows_.vectors == 0 || (passes_.is_host() && rows_.columns != 0)) return 0;
  return (passes_.is_host() ? kMostOnHost : kMostRegisters) /
         std::max(1, rows_.register_vectors() * schedule_.width);
}

bool PassPlanner::is_worth_caching(std::size_t id) const {
  const TypedNode& node = graph_.nodes[id];
  if (compute_dtype(node.dtype) != DType::f32) return false;
  if (passes_.caches_in_place()) return saves_in_place(id);
  return info(node.op).rule == Rule::floating;
}

// Whether reading a value again saves more than writing it costs: a quarter of an instruction for
// each lane. On an H100 min, max and std of gelu_tanh(x) * g go from 0.52 of a copy to 0.79
// (11,008 f16), a softmax of silu(x) * g from 0.69 to 0.89 (8,192 f16), and that of columns, whose
// operands and exponentials no longer need registers side by side, from 0.59 to 0.93 (1,024 f32).
// On an H200 softmax of gelu_tanh(x) * g of 65,536 bf16, which a cluster shares, goes from 0.37 to
// 0.78.
bool PassPlanner::saves_in_place(std::size_t id) const {
  constexpr double kLeastCost = 4;
  const TypedNode& result = graph_.nodes[id];
  if (result.op == Op::input || methods_.rounds(result)) return false;
  std::vector<bool> needed(id + 1, false);
  needed[id] = true;
  double cost = 0;
  for (std::size_t i = id + 1; i-- > 0;) {
    if (!needed[i] || passes_.row_invariant[i]) continue;
    const TypedNode& node = graph_.nodes[i];
    cost += node.op == Op::input ? 1 : operation_cost(graph_.nodes, node);
    for (const NodeId operand : node.inputs()) needed[operand] = true;
  }
  return cost >= kLeastCost;
}

// Finds a place for each value that is cached, among those that nothing needs any more once the
// value is computed. Returns a value that has none.
std::optional<std::size_t> PassPlanner::place_cached() {
  constexpr int kBytes = 4;  // of an f32
  const std::vector<RowOperand>& operands = passes_.operands;
  passes_.places.assign(graph_.nodes.size(), {});
  std::vector<int> busy_until(operands.size(), -1);  // by operand: the last pass that needs it
  for (std::size_t i = 0; i < operands.size(); ++i) {
    for (int pass = 0; pass <= passes_.last; ++pass) {
      if (passes_.is_read(operands[i], pass)) busy_until[i] = pass;
    }
  }
  for (int pass = 0; pass < passes_.last; ++pass) {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (passes_.cached_in[id] != pass) continue;
      int missing = schedule_.width;  // lanes
      for (std::size_t i = 0; i < operands.size() && missing > 0; ++i) {
        const bool is_kept =
            !operands[i].output && schedule_.operands[i].in_registers && busy_until[i] >= 0;
        const int lanes = passes_.vector_bytes(operands[i]) / kBytes;
        if (!is_kept || busy_until[i] > pass || lanes == 0) continue;
        passes_.places[id].push_back(i);
        missing -= lanes;
      }
      if (missing > 0) return id;
      int last = pass;
      for (int later = pass; later <= passes_.last; ++later) {
        if (passes_.is_needed(id, later)) last = later;
      }
      for (const std::size_t i : passes_.places[id]) busy_until[i] = last;
    }
  }
  return std::nullopt;
}

}  // namespace kiln::fusion
