#include "fusion/passes/signs.hpp"

#include "fusion/reference/node.hpp"

namespace kiln::fusion {

bool is_never_negative(const TypedGraph& graph, NodeId id) {
  const TypedNode& node = graph.nodes[id];
  switch (node.op) {
    case Op::constant:
      return is_floating(node.dtype) && reference::evaluate_node(graph, node, {}).real >= 0;
    case Op::exp:
    case Op::exp2:
    case Op::abs:
    case Op::square:
    case Op::sqrt:
    case Op::sigmoid: return true;
    case Op::promote: return is_never_negative(graph, node.operands[0]);
    case Op::maximum:
      return is_floating(node.dtype) && (is_never_negative(graph, node.operands[0]) ||
                                         is_never_negative(graph, node.operands[1]));
    case Op::mul:
      return node.operands[0] == node.operands[1] || (is_never_negative(graph, node.operands[0]) &&
                                                      is_never_negative(graph, node.operands[1]));
    default: return false;
  }
}

}  // namespace kiln::fusion
