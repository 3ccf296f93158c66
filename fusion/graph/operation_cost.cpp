#include "fusion/graph/operation_cost.hpp"

#include "fusion/graph/op.hpp"

namespace kiln::fusion {
namespace {

// Fitted to rows of 16 bits and of f32 that an H200 quantises and dequantises.
double cost_of_cast(DType from, DType to) {
  if (to == DType::f8e5m2 || to == DType::f8e5m2fnuz) return 6;
  if (to == DType::f8e4m3 || to == DType::f8e4m3fnuz) return 2;
  if (is_integer(to) && is_floating(from)) return 3;
  if (is_integer(from) && is_floating(to)) return 2;
  return 1;
}

bool is_constant(std::span<const TypedNode> nodes, const TypedNode& node) {
  if (node.op == Op::promote) return is_constant(nodes, nodes[node.operands[0]]);
  return node.op == Op::constant;
}

}  // namespace

double operation_cost(std::span<const TypedNode> nodes, const TypedNode& node) {
  return operation_cost(nodes, node, node.dtype == DType::f16 || node.dtype == DType::bf16);
}

double operation_cost(std::span<const TypedNode> nodes, const TypedNode& node, bool narrow) {
  constexpr double kQuotientByConstant = 8;
  if (node.op == Op::cast) return cost_of_cast(nodes[node.operands[0]].dtype, node.dtype);
  if (node.op == Op::div && is_constant(nodes, nodes[node.operands[1]])) {
    return kQuotientByConstant;
  }
  const OpInfo& op = info(node.op);
  return narrow && op.narrow_cost != 0 ? op.narrow_cost : op.cost;
}

}  // namespace kiln::fusion
