#include "fusion/graph/typed_graph.hpp"

namespace kiln::fusion {

const NodeId* TypedGraph::place_of(bool output, std::size_t position) const {
  for (const IndexedOperand& operand : indexed) {
    if (operand.output == output && operand.position == position) return &operand.place;
  }
  return nullptr;
}

std::vector<NodeId> TypedGraph::roots() const {
  std::vector<NodeId> all = outputs;
  for (const IndexedOperand& operand : indexed) all.push_back(operand.place);
  for (const BoundedAxis& bound : bounds) all.push_back(bound.end);
  return all;
}

std::vector<std::vector<NodeId>> users_of(const std::vector<TypedNode>& nodes) {
  std::vector<std::vector<NodeId>> users(nodes.size());
  for (NodeId id = 0; id < nodes.size(); ++id) {
    for (const NodeId operand : nodes[id].inputs()) users[operand].push_back(id);
  }
  return users;
}

std::vector<std::size_t> use_counts(const TypedGraph& graph) {
  std::vector<std::size_t> counts(graph.nodes.size(), 0);
  for (const TypedNode& node : graph.nodes) {
    for (const NodeId operand : node.inputs()) ++counts[operand];
  }
  for (const NodeId root : graph.roots()) ++counts[root];
  return counts;
}

std::uint64_t hash_of(const TypedNode& node) {
  std::uint64_t hash =
      mixed(static_cast<std::uint64_t>(node.op), static_cast<std::uint64_t>(node.dtype));
  for (const NodeId operand : node.inputs()) hash = mixed(hash, operand);
  return mixed(hash, node.payload);
}

}  // namespace kiln::fusion
