#include "fusion/partition/row_work.hpp"

#include <algorithm>

#include "fusion/graph/operation_cost.hpp"
#include "fusion/partition/partition.hpp"

namespace kiln::fusion {
namespace {

// What a pass computes: the roots' elements and what those need.
class PassWork {
 public:
  PassWork(const TypedGraph& graph, const std::vector<bool>& row_invariant)
      : graph_(graph), row_invariant_(row_invariant), pass_(graph.nodes.size(), -1) {}

  double add(NodeId root, int pass) {
    double work = 0;
    if (!row_invariant_[root]) open_.push_back(root);
    while (!open_.empty()) {
      const NodeId id = open_.back();
      open_.pop_back();
      if (pass_[id] == pass) continue;
      pass_[id] = pass;
      work += operation_cost(graph_.nodes, graph_.nodes[id]);
      for (const NodeId operand : graph_.nodes[id].inputs()) {
        if (!row_invariant_[operand] && pass_[operand] != pass) open_.push_back(operand);
      }
    }
    return work;
  }

  double once() const {
    double work = 0;
    for (NodeId id = 0; id < pass_.size(); ++id) {
      if (pass_[id] >= 0) work += operation_cost(graph_.nodes, graph_.nodes[id]);
    }
    return work;
  }

 private:
  const TypedGraph& graph_;
  const std::vector<bool>& row_invariant_;
  std::vector<int> pass_;  ///< the last one that computes a node
  std::vector<NodeId> open_;
};

}  // namespace

bool RowWork::is_better_cut() const {
  constexpr double kBytes = 2 * 4;  // of an f32, written and read
  return again > once + CostModel().operations_per_byte * kBytes;
}

bool RowWork::is_out_of_bounds() const {
  constexpr double kMost = 8;
  constexpr double kFew = 1024;
  return again > kMost * once + kFew;
}

std::vector<std::vector<NodeId>> pass_roots(const TypedGraph& graph,
                                            const std::vector<bool>& row_invariant) {
  std::vector<std::vector<NodeId>> roots(1);
  std::vector<std::size_t> after(graph.nodes.size(), 0);
  std::size_t last = 0;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const TypedNode& node = graph.nodes[id];
    for (const NodeId operand : node.inputs()) after[id] = std::max(after[id], after[operand]);
    if (!is_reduction(node.op)) continue;
    last = std::max(last, after[id]);
    roots.resize(std::max(roots.size(), after[id] + 1));
    roots[after[id]++].push_back(node.operands[0]);
  }
  for (const NodeId output : graph.outputs) {
    if (!row_invariant[output]) last = std::max(last, after[output]);
  }
  roots.resize(last + 1);
  for (const NodeId output : graph.outputs) roots[last].push_back(output);
  return roots;
}

RowWork row_work(const TypedGraph& graph, const std::vector<bool>& row_invariant) {
  const std::vector<std::vector<NodeId>> roots = pass_roots(graph, row_invariant);
  double bound = 0;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    bound += row_invariant[id] ? 0 : operation_cost(graph.nodes, graph.nodes[id]);
  }
  PassWork passes(graph, row_invariant);
  double all = 0;
  for (std::size_t pass = 0; pass < roots.size(); ++pass) {
    for (const NodeId root : roots[pass]) all += passes.add(root, static_cast<int>(pass));
    const RowWork most{bound, all - bound};
    if (most.is_out_of_bounds()) return most;
  }
  const double once = passes.once();
  return {once, all - once};
}

}  // namespace kiln::fusion
