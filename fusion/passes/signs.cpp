#include "fusion/passes/signs.hpp"

#include <algorithm>

#include "fusion/reference/node.hpp"

namespace kiln::fusion {
namespace {

// Whether every value of `from` that is not negative stays so in `to`, which rounds, truncates,
// saturates or wraps.
bool keeps_sign(DType from, DType to) {
  const bool narrows = is_integer(from) && is_integer(to) && bits(to) <= bits(from);
  return !narrows || (kind(from) == kind(to) && bits(from) == bits(to));
}

bool is_never_negative(const TypedGraph& graph, const TypedNode& node,
                       const std::vector<bool>& known) {
  if (kind(node.dtype) == Kind::complex) return false;
  if (kind(node.dtype) == Kind::unsigned_integer || kind(node.dtype) == Kind::boolean) return true;
  // What is left is signed: a float has no largest number to pass, an integer wraps.
  const bool floating = is_floating(node.dtype);
  const auto of = [&](std::size_t i) { return known[node.operands[i]]; };
  const bool of_all = std::ranges::all_of(node.inputs(), [&](NodeId id) { return known[id]; });
  if (node.op == Op::constant) {
    const reference::Value value = reference::evaluate_node(graph, node, {});
    return floating ? value.real >= 0 : value.integer >= 0;
  }
  if (node.op == Op::promote) {
    return of(0) && keeps_sign(graph.nodes[node.operands[0]].dtype, node.dtype);
  }
  switch (info(node.op).sign) {
    case Sign::unknown: return false;
    case Sign::never_negative: return true;
    case Sign::magnitude: return floating || of(0);
    case Sign::square: return floating;
    case Sign::of_any_operand: return of(0) || of(1);
    case Sign::of_all_operands: return floating && of_all;
    case Sign::product: return floating && (node.operands[0] == node.operands[1] || of_all);
  }
  return false;
}

}  // namespace

std::vector<bool> never_negative(const TypedGraph& graph) {
  std::vector<bool> known;
  known.reserve(graph.nodes.size());
  for (const TypedNode& node : graph.nodes) {
    known.push_back(is_never_negative(graph, node, known));
  }
  return known;
}

}  // namespace kiln::fusion
