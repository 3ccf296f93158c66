#include "fusion/graph/typed_graph.hpp"

namespace kiln::fusion {

std::vector<std::vector<NodeId>> users_of(const std::vector<TypedNode>& nodes) {
  std::vector<std::vector<NodeId>> users(nodes.size());
  for (NodeId id = 0; id < nodes.size(); ++id) {
    for (const NodeId operand : nodes[id].inputs()) users[operand].push_back(id);
  }
  return users;
}

std::uint64_t hash_of(const TypedNode& node) {
  std::uint64_t hash =
      mixed(static_cast<std::uint64_t>(node.op), static_cast<std::uint64_t>(node.dtype));
  for (const NodeId operand : node.inputs()) hash = mixed(hash, operand);
  return mixed(hash, node.payload);
}

}  // namespace kiln::fusion
