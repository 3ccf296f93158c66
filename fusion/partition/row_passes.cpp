#include "fusion/partition/row_passes.hpp"

#include <algorithm>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/operation_cost.hpp"

namespace kiln::fusion {

RowPasses::RowPasses(const PartitionFacts& facts, const CostModel& model,
                     std::span<const std::int64_t> home, std::uint64_t& steps)
    : facts_(facts),
      model_(model),
      home_(home),
      after_(facts.nodes.size(), 0),
      passes_(facts.nodes.size()),
      visited_(facts.nodes.size(), 0),
      steps_(&steps) {}

// What there is one of for each row is computed between the passes.
bool RowPasses::is_of_row(NodeId id, const Group& group) const {
  return is_reduction(facts_.nodes[id].op) || facts_.shapes[id] != group.shape;
}

// The pass that first has all of a value's operands.
int RowPasses::pass_of(NodeId id, std::int64_t place) const {
  int pass = 0;
  for (const NodeId operand : facts_.nodes[id].inputs()) {
    if (home_[operand] == place) pass = std::max(pass, after_[operand]);
  }
  return pass;
}

bool RowPasses::is_computed_in(NodeId id, int pass) const {
  return std::ranges::find(passes_[id], pass) != passes_[id].end();
}

// The elements that `from` is computed from in a pass, and itself, without those that the pass
// computes anyway. What has no kernel yet comes along with what needs it.
template <class Visit>
void RowPasses::for_each_new(NodeId from, int pass, std::int64_t place, const Group& group,
                             const Visit& visit) {
  ++walk_;
  std::vector<NodeId> open{from};
  visited_[from] = walk_;
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    ++*steps_;
    if (is_of_row(id, group) || is_computed_in(id, pass)) continue;
    visit(id);
    for (const NodeId operand : facts_.nodes[id].inputs()) {
      const bool waits = home_[operand] == kNoKernel && is_computed(facts_.nodes[operand]) &&
                         !facts_.is_conversion(operand);
      if (home_[operand] != place && !waits) continue;
      if (visited_[operand] == walk_) continue;
      visited_[operand] = walk_;
      open.push_back(operand);
    }
  }
}

// Of each row, divided by its elements: what the value is computed from is written, unless it is
// anyway, and read.
double RowPasses::bytes_of_cut(NodeId id, std::int64_t place, const Group& group) const {
  std::uint64_t bytes = 0;
  for (const NodeId operand : facts_.nodes[id].inputs()) {
    if (home_[operand] != place || is_of_row(operand, group)) continue;
    const std::uint64_t own = stored_bytes(facts_.graph, operand);
    bytes += facts_.kept[operand] ? own : 2 * own;
  }
  const auto elements = static_cast<double>(element_count(group.shape));
  return static_cast<double>(bytes) / std::max(1.0, elements);
}

bool RowPasses::recomputes_too_much(NodeId id, std::int64_t place, const Group& group) {
  const TypedNode& node = facts_.nodes[id];
  const int pass = pass_of(id, place);
  if (group.reduced.empty()) return false;
  if (!is_reduction(node.op) && (pass == 0 || is_of_row(id, group))) return false;
  double again = group.again;
  const NodeId from = is_reduction(node.op) ? node.operands[0] : id;
  if (is_reduction(node.op) && home_[from] != place) return false;
  for_each_new(from, pass, place, group, [&](NodeId each) {
    if (!passes_[each].empty()) again += operation_cost(facts_.nodes, facts_.nodes[each]);
  });
  return again > group.once + model_.operations_per_byte * bytes_of_cut(id, place, group);
}

void RowPasses::add(NodeId id, std::int64_t place, Group& group) {
  const TypedNode& node = facts_.nodes[id];
  const int pass = pass_of(id, place);
  after_[id] = is_reduction(node.op) ? pass + 1 : pass;
  const bool of_row = is_of_row(id, group);
  if (is_reduction(node.op) || !of_row) group.passes = std::max(group.passes, pass + 1);
  if (!of_row) group.once += operation_cost(facts_.nodes, node);
  if (!is_reduction(node.op) || home_[node.operands[0]] != place) return;
  for_each_new(node.operands[0], pass, place, group, [&](NodeId each) {
    if (!passes_[each].empty()) group.again += operation_cost(facts_.nodes, facts_.nodes[each]);
    passes_[each].push_back(pass);
  });
}

}  // namespace kiln::fusion
