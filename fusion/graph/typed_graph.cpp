#include "fusion/graph/typed_graph.hpp"

namespace kiln::fusion {

std::uint64_t hash_of(const TypedNode& node) {
  std::uint64_t hash =
      static_cast<std::uint64_t>(node.op) * 64 + static_cast<std::uint64_t>(node.dtype);
  for (const NodeId operand : node.inputs()) hash = (hash ^ operand) * 0x9e3779b97f4a7c15u;
  hash = (hash ^ node.payload) * 0xff51afd7ed558ccdu;
  return hash ^ hash >> 32;
}

std::vector<bool> live_nodes(const TypedGraph& graph) {
  std::vector<bool> live(graph.nodes.size(), false);
  for (const NodeId output : graph.outputs) live[output] = true;
  for (std::size_t id = graph.nodes.size(); id-- > 0;) {
    if (!live[id]) continue;
    for (const NodeId operand : graph.nodes[id].inputs()) live[operand] = true;
  }
  return live;
}

}  // namespace kiln::fusion
