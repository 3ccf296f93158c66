#include "fusion/reference_node.hpp"

#include <bit>

#include "fusion/reference_operation.hpp"

namespace kiln::fusion::reference {
namespace {

Value constant(const TypedNode& node, Rounding rounding) {
  const bool narrow = node.dtype == DType::f16 || node.dtype == DType::bf16;
  if (!narrow || rounding == Rounding::each) return decode(node.dtype, node.payload);
  const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(node.payload));
  return from_real(node.dtype, value);
}

// A float passes unrounded under Rounding::once. An integer becomes a number of the dtype it is
// computed in, which need not hold it exactly.
Value promoted(const TypedGraph& graph, const TypedNode& node, const Value& value) {
  const bool each = graph.rounding == Rounding::each;
  const DType from = graph.nodes[node.operands[0]].dtype;
  if (each || is_floating(from) || !is_floating(node.dtype)) {
    return convert(value, node.dtype, each);
  }
  return convert(convert(value, compute_dtype(node.dtype), true), node.dtype, false);
}

}  // namespace

Value evaluate_node(const TypedGraph& graph, const TypedNode& node,
                    std::span<const Value> operands) {
  switch (node.op) {
    case Op::constant: return constant(node, graph.rounding);
    case Op::cast: return convert(operands[0], node.dtype, true);
    case Op::promote: return promoted(graph, node, operands[0]);
    case Op::bitcast: {
      const DType from = graph.nodes[node.operands[0]].dtype;
      return decode(node.dtype, encode(convert(operands[0], from, true)));
    }
    default: return operate(node, operands, graph.rounding);
  }
}

}  // namespace kiln::fusion::reference
