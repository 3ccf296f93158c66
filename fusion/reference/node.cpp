#include "fusion/reference/node.hpp"

#include <bit>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/reference/operation.hpp"

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
  // The parts of a complex number hold no more than an f32 does.
  const bool wide = is_integer(from) || from == DType::f64;
  if (kind(node.dtype) == Kind::complex && wide) return convert(value, node.dtype, true);
  if (each || is_floating(from) || !is_floating(node.dtype)) {
    return convert(value, node.dtype, each);
  }
  return convert(convert(value, compute_dtype(node.dtype), true), node.dtype, false);
}

}  // namespace

Value scalar_value(const TypedGraph& graph, const TypedNode& node, const Value& number) {
  const bool wide = graph.arguments[node.payload].weak && graph.rounding == Rounding::once;
  Value value = convert(number, wide ? compute_dtype(node.dtype) : node.dtype, true);
  if (value.dtype != node.dtype) value.pattern.reset();
  value.dtype = node.dtype;
  return value;
}

Value evaluate_node(const TypedGraph& graph, const TypedNode& node,
                    std::span<const Value> operands) {
  Value result;
  switch (node.op) {
    case Op::bitcast: {
      const DType from = graph.nodes[node.operands[0]].dtype;
      return decode(node.dtype, encode(convert(operands[0], from, true)));
    }
    case Op::constant: result = constant(node, graph.rounding); break;
    case Op::cast: result = convert(operands[0], node.dtype, true); break;
    case Op::promote:
      // A copy: every bit of it.
      if (graph.nodes[node.operands[0]].dtype == node.dtype) return operands[0];
      result = promoted(graph, node, operands[0]);
      break;
    default: result = operate(node, operands, graph.rounding);
  }
  // Where it is an operand's: which NaN a computation gives is open.
  result.pattern.reset();
  return result;
}

}  // namespace kiln::fusion::reference
