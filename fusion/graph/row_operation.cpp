#include "fusion/graph/row_operation.hpp"

namespace kiln::fusion {

std::optional<RowOperation> row_operation(const TypedNode& node, const Dims& shape,
                                          std::span<const Dims> shapes) {
  if (node.arity == 0 || node.arity > 2 || !is_elementwise(node.op) || !info(node.op).cheap)
    return {};
  if (node.arity == 1) return RowOperation{node.operands[0], {}};
  std::size_t axis = shape.size();
  while (axis > 0 && shape[axis - 1] == 1) --axis;
  if (axis == 0) return {};
  const std::size_t from_end = shape.size() - axis;
  const auto is_of_row = [&](const Dims& own) {
    return own.size() <= from_end || own[own.size() - 1 - from_end] == 1;
  };
  for (const std::size_t i : {0u, 1u}) {
    const NodeId elements = node.operands[1 - i];
    if (shapes[elements] == shape && is_of_row(shapes[node.operands[i]]))
      return RowOperation{elements, node.operands[i]};
  }
  return {};
}

}  // namespace kiln::fusion
