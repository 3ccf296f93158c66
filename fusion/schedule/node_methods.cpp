#include "fusion/schedule/node_methods.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/passes/signs.hpp"

namespace kiln::fusion {
namespace {

// The relative error of a sum is at most that of its terms if they all have one sign.
bool keeps_relative_error(const TypedNode& node, const std::vector<bool>& never_negative) {
  switch (info(node.op).relative_error) {
    case RelativeError::kept: return true;
    case RelativeError::kept_of_one_sign:
      return std::ranges::all_of(node.inputs(), [&](NodeId id) { return never_negative[id]; });
    case RelativeError::amplified:
    case RelativeError::dampened: return false;
  }
  return false;
}

// Whether a node is a promotion to the dtype that its operand has, which computes nothing.
bool is_copy(const TypedGraph& graph, const TypedNode& node) {
  return node.op == Op::promote && graph.nodes[node.operands[0]].dtype == node.dtype;
}

// The maximum that is subtracted from a row's elements, or replaced by 0 where it is infinite, as
// in logsumexp; or null.
const TypedNode* shifting_maximum(const TypedGraph& graph, NodeId difference) {
  const TypedNode& node = graph.nodes[difference];
  if (node.op != Op::sub) return nullptr;
  NodeId largest = node.operands[1];
  const TypedNode& shift = graph.nodes[largest];
  if (shift.op == Op::where) {
    const TypedNode& finite = graph.nodes[shift.operands[0]];
    largest = shift.operands[1];
    if (finite.op != Op::isfinite || finite.operands[0] != largest) return nullptr;
  }
  const TypedNode& maximum = graph.nodes[largest];
  const bool is_own = maximum.op == Op::reduce_max && maximum.operands[0] == node.operands[0];
  return is_own ? &maximum : nullptr;
}

bool has_only_short_nans(const TypedGraph& graph) {
  const auto is_short = [](const ArgumentType& argument) {
    const bool narrow = argument.dtype == DType::bf16 || bits(argument.dtype) <= 8;
    return narrow ? !argument.scalar : is_integer(argument.dtype);
  };
  return std::ranges::all_of(graph.arguments, is_short) &&
         std::ranges::none_of(graph.nodes, [](const TypedNode& node) {
           return node.op == Op::bitcast || bits(node.dtype) == 64 ||
                  (node.op == Op::constant && (node.payload & 0xffff) != 0 &&
                   (node.payload & 0x7fffffff) > 0x7f800000);
         });
}

}  // namespace

std::optional<TypedNode> reciprocal_of(const TypedNode& node) {
  const bool computed_in_f32 =
      node.dtype == DType::f32 || node.dtype == DType::f16 || node.dtype == DType::bf16;
  if (node.op != Op::constant || !computed_in_f32) return std::nullopt;
  const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(node.payload));
  const float result = 1.0F / value;
  if (!std::isnormal(value) || !std::isnormal(result)) return std::nullopt;
  TypedNode reciprocal = node;
  reciprocal.dtype = DType::f32;
  reciprocal.payload = std::bit_cast<std::uint32_t>(result);
  return reciprocal;
}

NodeMethods::NodeMethods(const TypedGraph& graph, Accuracy accuracy, Backend backend)
    : graph_(graph),
      accuracy_(accuracy),
      backend_(backend),
      short_nans_(has_only_short_nans(graph)) {
  find_narrow();
  find_terms();
  find_loose();
  find_storage();
}

bool NodeMethods::rounds(const TypedNode& node) const {
  const bool narrows = info(node.dtype).storage_only || is_narrow_float(node.dtype);
  const bool promotes = node.op == Op::promote && !is_copy(graph_, node);
  return narrows && (node.op == Op::cast || (promotes && graph_.rounding == Rounding::each));
}

NodeId NodeMethods::unrounded(NodeId id) const {
  const TypedNode& node = graph_.nodes[id];
  return rounds(node) ? node.operands[0] : id;
}

// Finds values that end only in 16-bit stores or casts, through operations that do not amplify a
// relative error: they may use a cheaper method under Accuracy::storage (numerics.md). So may a
// value of f32 on GPUs, unless each operation rounds, which then is what unfused execution gives.
void NodeMethods::find_narrow() {
  narrow_.assign(graph_.nodes.size(), true);
  for (const NodeId output : graph_.outputs) {
    narrow_[output] = is_narrow_float(graph_.nodes[output].dtype);
  }
  const std::vector<bool> signs = never_negative(graph_);
  for (std::size_t id = graph_.nodes.size(); id-- > 0;) {
    const TypedNode& node = graph_.nodes[id];
    const bool rounds_here = is_narrow_float(node.dtype) && node.op == Op::cast;
    const bool passes =
        narrow_[id] && may_be_narrow(node.dtype) && keeps_relative_error(node, signs);
    if (rounds_here || passes) continue;
    for (const NodeId operand : node.inputs()) narrow_[operand] = false;
  }
}

bool NodeMethods::may_be_narrow(DType dtype) const {
  return dtype == DType::f16 || dtype == DType::bf16 ||
         (dtype == DType::f32 && graph_.rounding == Rounding::once && backend_ != Backend::host);
}

// Finds exponentials in 16 bits that only sums take, where one term is 1 and none is more. On an
// H200 logsumexp of bf16 goes from 0.70 of a copy to 0.95 (rows of 64), from 0.69 to 1.06 (512) and
// from 0.89 to 1.075 (4,096).
void NodeMethods::find_terms() {
  terms_.assign(graph_.nodes.size(), false);
  if (accuracy_ != Accuracy::storage || graph_.rounding != Rounding::once) return;
  std::vector<const TypedNode*> maxima(graph_.nodes.size(), nullptr);
  for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    if (node.op != Op::exp || !is_narrow_float(node.dtype)) continue;
    maxima[id] = shifting_maximum(graph_, node.operands[0]);
    terms_[id] = maxima[id] != nullptr;
  }
  for (const TypedNode& node : graph_.nodes) {
    for (const NodeId term : node.inputs()) {
      const bool same = node.op == Op::sum && terms_[term] && node.payload == maxima[term]->payload;
      if (!same) terms_[term] = false;
    }
  }
  for (const NodeId output : graph_.outputs) terms_[output] = false;
  has_terms_ = std::ranges::find(terms_, true) != terms_.end();
}

// Finds quotients by a constant whose only users end in 16 bits and use a cheaper method: there the
// product with the reciprocal is good enough. It is within 1.5 units in the last place of an f32,
// where the functions' results need not be within 32.
void NodeMethods::find_loose() {
  loose_.assign(graph_.nodes.size(), false);
  if (accuracy_ != Accuracy::storage || graph_.rounding != Rounding::once) return;
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    loose_[id] = node.op == Op::div && compute_dtype(node.dtype) == DType::f32 &&
                 reciprocal_of(graph_.nodes[node.operands[1]]).has_value();
  }
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    const bool allows = info(node.op).relative_error == RelativeError::dampened &&
                        is_narrow(static_cast<NodeId>(id));
    for (const NodeId operand : node.inputs()) {
      if (!allows) loose_[operand] = false;
    }
  }
  for (const NodeId output : graph_.outputs) loose_[output] = false;
}

// Finds values that come from memory or a bitcast, or are a copy of such, in a dtype that is not
// computed in, and that go to memory or to a bitcast.
void NodeMethods::find_storage() {
  needs_storage_.assign(graph_.nodes.size(), false);
  needs_value_.assign(graph_.nodes.size(), false);
  std::vector<bool> has_storage_form;
  for (const TypedNode& node : graph_.nodes) {
    const bool source = node.op == Op::input || node.op == Op::bitcast;
    const bool copy = is_copy(graph_, node) && has_storage_form[node.operands[0]];
    has_storage_form.push_back(compute_dtype(node.dtype) != node.dtype && (source || copy));
  }
  const auto use = [&](NodeId id, bool as_storage) {
    (as_storage && has_storage_form[id] ? needs_storage_ : needs_value_)[id] = true;
  };
  for (const NodeId output : graph_.outputs) use(output, true);
  for (const IndexedOperand& operand : graph_.indexed) use(operand.place, false);
  for (const BoundedAxis& bound : graph_.bounds) use(bound.end, false);
  for (NodeId id = static_cast<NodeId>(graph_.nodes.size()); id-- > 0;) {
    const TypedNode& node = graph_.nodes[id];
    if (has_storage_form[id] && is_copy(graph_, node)) {
      if (needs_storage_[id]) use(node.operands[0], true);
      if (needs_value_[id]) use(node.operands[0], false);
      continue;
    }
    for (const NodeId operand : node.inputs()) use(operand, node.op == Op::bitcast);
  }
}

}  // namespace kiln::fusion
