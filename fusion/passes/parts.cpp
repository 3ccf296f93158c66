#include "fusion/passes/parts.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/graph/size_trace.hpp"

namespace kiln::fusion {

std::optional<Window> window_of(const ShapedGraph& graph, NodeId id) {
  const TypedNode& node = graph.graph.nodes[id];
  if (node.op != Op::slice) return std::nullopt;
  const ShapeList& list = shape_list(graph.graph, node);
  if (list[3] != 1 || list[0] < 0 || list[1] < 0 || list[2] < list[1]) return std::nullopt;
  return Window{static_cast<std::size_t>(list[0]), list[1], list[2] - list[1]};
}

bool comes_of_reduction(const ShapedGraph& graph, NodeId id, bool whole) {
  constexpr std::size_t kMostValues = 24;
  const std::int64_t elements = element_count(graph.shapes[id]);
  std::vector<NodeId> open{id};
  for (std::size_t next = 0; next < open.size() && open.size() < kMostValues; ++next) {
    const TypedNode& node = graph.graph.nodes[open[next]];
    if (is_reduction(node.op)) {
      const std::int64_t own = element_count(graph.shapes[open[next]]);
      trace_order(own, elements);
      if (own == elements || (!whole && own > elements)) return true;
    }
    if (!is_view_op(node.op) && !is_elementwise(node.op)) continue;
    const auto inputs = node.inputs();
    open.insert(open.end(), inputs.begin(), inputs.end());
  }
  return false;
}

bool are_computed_together(const TypedGraph& graph, std::span<const NodeId> values) {
  std::map<NodeId, NodeId> made_of;
  for (const NodeId value : values) made_of[value] = value;
  for (NodeId id = *std::ranges::min_element(values); id < graph.nodes.size(); ++id) {
    const TypedNode& node = graph.nodes[id];
    if (!is_elementwise(node.op) && !is_view_op(node.op)) continue;
    for (const NodeId operand : node.inputs()) {
      const auto known = made_of.find(operand);
      if (known == made_of.end()) continue;
      const auto [own, fresh] = made_of.emplace(id, known->second);
      if (!fresh && own->second != known->second) return true;
    }
  }
  return false;
}

}  // namespace kiln::fusion
