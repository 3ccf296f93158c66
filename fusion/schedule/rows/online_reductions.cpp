#include "fusion/schedule/rows/online_reductions.hpp"

#include <algorithm>

#include "fusion/graph/dtype_lattice.hpp"

namespace kiln::fusion {
namespace {

// The difference in exp(x - centre) or (x - centre) squared, if `term` is one of these.
const TypedNode* difference_in(const TypedGraph& graph, const TypedNode& term) {
  const bool square =
      term.op == Op::square || (term.op == Op::mul && term.operands[0] == term.operands[1]);
  if (term.op != Op::exp && !square) return nullptr;
  const TypedNode& difference = graph.nodes[term.operands[0]];
  return difference.op == Op::sub ? &difference : nullptr;
}

bool is_centre(const TypedGraph& graph, const TypedNode& difference, bool square) {
  const TypedNode& centre = graph.nodes[difference.operands[1]];
  return centre.op == (square ? Op::mean : Op::reduce_max) &&
         centre.operands[0] == difference.operands[0];
}

}  // namespace

std::vector<OnlineReductions> online_reductions(const TypedGraph& graph,
                                                const std::vector<int>& pass,
                                                const std::vector<bool>& row_invariant,
                                                int last_pass) {
  std::vector<OnlineReductions> found;
  if (graph.rounding != Rounding::once) return found;
  const bool stores =
      std::ranges::any_of(graph.outputs, [&](NodeId output) { return !row_invariant[output]; });
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const TypedNode& around = graph.nodes[id];
    if (around.op != Op::sum && around.op != Op::mean) continue;
    const NodeId term = around.operands[0];
    const TypedNode* const difference = difference_in(graph, graph.nodes[term]);
    const bool square = graph.nodes[term].op != Op::exp;
    if (difference == nullptr || !is_centre(graph, *difference, square)) continue;
    const NodeId centre = difference->operands[1];
    if (compute_dtype(around.dtype) != DType::f32 || (around.op == Op::mean && !square)) continue;
    // In the pass of the second reduction other values would use a wrong centre.
    const bool alone =
        pass[id] == pass[centre] + 1 && (!stores || pass[id] <= last_pass) &&
        std::ranges::none_of(graph.nodes, [&](const TypedNode& node) {
          const auto other = static_cast<NodeId>(&node - graph.nodes.data());
          const bool reduces = is_reduction(node.op) && pass[other] == pass[id];
          const bool uses = std::ranges::find(node.inputs(), centre) != node.inputs().end();
          return (reduces && other != id) ||
                 (uses && &node != difference && (row_invariant[other] || is_reduction(node.op)) &&
                  pass[other] <= pass[id]);
        });
    if (alone) found.push_back({centre, id, square ? NodeId{0} : term, square});
  }
  return found;
}

}  // namespace kiln::fusion
