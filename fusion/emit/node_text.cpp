#include "fusion/emit/node_text.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <optional>

#include "fusion/emit/device_text.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/number.hpp"
#include "fusion/passes/signs.hpp"

namespace kiln::fusion {
namespace {

// Whether a node is a row's element minus the row's maximum, as in softmax.
bool is_below_row_maximum(const TypedGraph& graph, NodeId id) {
  const TypedNode& node = graph.nodes[id];
  if (node.op != Op::sub) return false;
  const TypedNode& maximum = graph.nodes[node.operands[1]];
  return maximum.op == Op::reduce_max && maximum.operands[0] == node.operands[0];
}

// The relative error of a sum is at most that of its terms if they all have one sign.
bool keeps_relative_error(const TypedNode& node, const std::vector<bool>& never_negative) {
  switch (info(node.op).relative_error) {
    case RelativeError::kept: return true;
    case RelativeError::kept_of_one_sign: return never_negative[node.operands[0]];
    case RelativeError::amplified:
    case RelativeError::dampened: return false;
  }
  return false;
}

// Often exactly zero, as masked or gated values are.
bool is_often_zero(const TypedGraph& graph, NodeId id) {
  const TypedNode& node = graph.nodes[id];
  const auto is_zero = [&](NodeId operand) {
    return graph.nodes[operand].op == Op::constant && graph.nodes[operand].payload == 0;
  };
  switch (node.op) {
    case Op::promote: return is_often_zero(graph, node.operands[0]);
    case Op::where: return is_zero(node.operands[1]) || is_zero(node.operands[2]);
    case Op::maximum: return is_zero(node.operands[0]) || is_zero(node.operands[1]);
    default: return false;
  }
}

// Whether quotient_of_integer (preamble/arithmetic.h) applies: a small integer divided by a
// constant.
bool is_quotient_of_integer(const TypedGraph& graph, const TypedNode& node) {
  if (node.op != Op::div || node.dtype != DType::f32) return false;
  const TypedNode& a = graph.nodes[node.operands[0]];
  const TypedNode& b = graph.nodes[node.operands[1]];
  if ((a.op != Op::promote && a.op != Op::cast) || b.op != Op::constant) return false;
  const DType from = graph.nodes[a.operands[0]].dtype;
  const double by = fusion::decode(b.payload, DType::f32);
  return is_integer(from) && bits(from) <= 16 && by >= std::ldexp(1.0, -60) &&
         by <= std::ldexp(1.0, 60);
}

// 1 / the constant, if it is a normal number as the constant is.
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

// Whether a node is a promotion to the dtype that its operand has, which computes nothing.
bool is_copy(const TypedGraph& graph, const TypedNode& node) {
  return node.op == Op::promote && graph.nodes[node.operands[0]].dtype == node.dtype;
}

bool has_storage(NodeId id, std::span<const std::string> storage) {
  return id < storage.size() && !storage[id].empty();
}

bool is_negative_zero(const TypedGraph& graph, const TypedNode& node) {
  if (node.op != Op::constant) return false;
  const bool own = graph.rounding == Rounding::each && is_narrow_float(node.dtype);
  const DType dtype = own ? node.dtype : compute_dtype(node.dtype);
  return is_floating(dtype) && node.payload == std::uint64_t{1} << (bits(dtype) - 1);
}

bool is_not_positive(const TypedGraph& graph, NodeId id) {
  const TypedNode& node = graph.nodes[id];
  if (node.op == Op::neg) {
    const Op turned = graph.nodes[node.operands[0]].op;
    return turned == Op::abs || turned == Op::square;
  }
  return is_below_row_maximum(graph, id);
}

// Between 0 and 1, or NaN.
bool is_fraction(const TypedGraph& graph, NodeId id) {
  const TypedNode& node = graph.nodes[id];
  return node.op == Op::exp && is_not_positive(graph, node.operands[0]);
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

// Whether every NaN has its bits in the upper half of an f32: NaNs come only from arithmetic and
// from types of at most 16 bits.
bool has_short_nans(const TypedGraph& graph) {
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

NodeText::NodeText(const TypedGraph& graph, Accuracy accuracy, Backend backend)
    : graph_(graph), accuracy_(accuracy), backend_(backend), short_nans_(has_short_nans(graph)) {
  find_narrow();
  find_terms();
  find_loose();
  find_storage();
}

NodeText::Expression NodeText::of(NodeId id, std::span<const std::string> values,
                                  std::span<const std::string> storage) const {
  const TypedNode& node = graph_.nodes[id];
  switch (node.op) {
    case Op::constant: return {constant_text(node, graph_.rounding), true};
    case Op::promote:
    case Op::cast: return conversion(node, values);
    case Op::bitcast: {
      const std::string text = has_storage(id, storage) ? storage[id] : bits(node, values, storage);
      if (compute_dtype(node.dtype) == node.dtype) return {text};
      return {fmt::format("to<{}>({})", compute_type(node.dtype), text)};
    }
    default: return {rounded(node, operation(node, values))};
  }
}

DType NodeText::scalar_dtype(std::size_t argument) const {
  const DType* found = nullptr;
  for (const TypedNode& node : graph_.nodes) {
    if (node.op != Op::scalar || node.payload != argument) continue;
    if (found != nullptr) return graph_.arguments[argument].dtype;
    found = &node.dtype;
  }
  return found != nullptr ? *found : graph_.arguments[argument].dtype;
}

std::string NodeText::scalar(const TypedNode& node, const std::string& parameter) const {
  const DType given = compute_dtype(scalar_dtype(node.payload));
  const ArgumentType& argument = graph_.arguments[node.payload];
  if (!argument.weak && compute_dtype(argument.dtype) != argument.dtype) {
    // A scalar of a narrow dtype is rounded to it, as an array's element was when it was stored.
    return fmt::format("to<{}>(to<{}>({}))", compute_type(node.dtype), name(argument.dtype),
                       parameter);
  }
  if (given == DType::boolean || given != compute_dtype(node.dtype)) {
    return rounded(node, fmt::format("to<{}>({})", compute_type(node.dtype), parameter));
  }
  return rounded(node, parameter);
}

std::string NodeText::rounded(const TypedNode& node, std::string text) const {
  if (graph_.rounding == Rounding::once || !is_narrow_float(node.dtype)) return text;
  return fmt::format("to<f32>(to<{}>({}))", name(node.dtype), text);
}

NodeText::Expression NodeText::conversion(const TypedNode& node,
                                          std::span<const std::string> values) const {
  const TypedNode& operand = graph_.nodes[node.operands[0]];
  const std::string& value = values[node.operands[0]];
  if (rounds(node)) {
    return {fmt::format("to<{}>({})", compute_type(node.dtype), narrowed(node, values))};
  }
  if (compute_dtype(operand.dtype) == compute_dtype(node.dtype)) return {value, true};
  const bool rounded_before = operand.op == Op::round && is_integer(node.dtype) &&
                              compute_dtype(operand.dtype) == DType::f32 &&
                              !values[operand.operands[0]].empty();
  if (rounded_before) {
    return {fmt::format("to_rounded<{}>({}, {})", compute_type(node.dtype),
                        values[operand.operands[0]], value)};
  }
  return {fmt::format("to<{}>({})", compute_type(node.dtype), value)};
}

bool NodeText::rounds(const TypedNode& node) const {
  const bool narrows = info(node.dtype).storage_only || is_narrow_float(node.dtype);
  const bool promotes = node.op == Op::promote && !is_copy(graph_, node);
  return narrows && (node.op == Op::cast || (promotes && graph_.rounding == Rounding::each));
}

NodeId NodeText::unrounded(NodeId id) const {
  const TypedNode& node = graph_.nodes[id];
  return rounds(node) ? node.operands[0] : id;
}

std::string NodeText::narrowed(const TypedNode& node, std::span<const std::string> values) const {
  return fmt::format("to<{}>({})", name(node.dtype), values[node.operands[0]]);
}

std::string NodeText::bits(const TypedNode& node, std::span<const std::string> values,
                           std::span<const std::string> storage) const {
  const NodeId operand = node.operands[0];
  if (node.op == Op::promote) return storage[operand];
  const DType from = graph_.nodes[operand].dtype;
  const std::string text =
      compute_dtype(from) == from ? values[operand] : store(operand, values, storage);
  return fmt::format("bit_cast<{}>({})", name(node.dtype), text);
}

std::string NodeText::store(NodeId id, std::span<const std::string> values,
                            std::span<const std::string> storage) const {
  if (has_storage(id, storage)) return storage[id];
  return fmt::format("to<{}>({})", storage_type(graph_.nodes[id].dtype), values[id]);
}

std::string NodeText::store_on_host(NodeId id, std::span<const std::string> values,
                                    std::span<const std::string> storage) const {
  if (graph_.nodes[id].dtype != DType::bf16 || !short_nans_ || has_storage(id, storage)) {
    return store(id, values, storage);
  }
  return fmt::format("to_bf16_of_short_nan({})", values[id]);
}

std::string NodeText::operation(const TypedNode& node, std::span<const std::string> values) const {
  const OpInfo& op = info(node.op);
  const DType dtype = compute_dtype(graph_.nodes[node.operands[0]].dtype);
  const auto value = [&](std::size_t i) -> const std::string& { return values[node.operands[i]]; };
  const bool real_number = dtype != DType::c64;
  if (real_number && (node.op == Op::real || node.op == Op::conj)) return value(0);
  if (real_number && node.op == Op::imag) return fmt::format("{}(0)", compute_type(node.dtype));
  if (node.op == Op::where) return fmt::format("{} ? {} : {}", value(0), value(1), value(2));
  if (loose_[static_cast<std::size_t>(&node - graph_.nodes.data())]) {
    const TypedNode reciprocal = *reciprocal_of(graph_.nodes[node.operands[1]]);
    return fmt::format("{} * {}", value(0), constant_text(reciprocal, graph_.rounding));
  }
  if (node.op == Op::div && dtype == DType::f32 && accuracy_ != Accuracy::fast &&
      is_often_zero(graph_, node.operands[0]))
    return fmt::format("quotient_or_zero({}, {})", value(0), value(1));
  if (accuracy_ != Accuracy::fast && is_quotient_of_integer(graph_, node))
    return fmt::format("quotient_of_integer({}, {})", value(0), value(1));
  // Integer arithmetic wraps and has its own rules, so it is spelled as calls. So is a quotient of
  // f32 or f64: compilers for AMD GPUs round not every one of them correctly, and `fast`
  // approximates those of f32.
  const bool is_fast = accuracy_ == Accuracy::fast && dtype == DType::f32;
  const bool is_quotient_of_f32 =
      node.op == Op::div && dtype == DType::f32 && (is_fast || node.dtype == DType::f32);
  // LLVM 14 takes a quotient for positive if no operand is below zero, which -0.0 is not.
  if (node.op == Op::div && !is_fast && is_negative_zero(graph_, graph_.nodes[node.operands[1]]))
    return fmt::format("-({}) / {}", value(0), dtype == DType::f64 ? "0.0" : "0.0f");
  if (node.op == Op::div && dtype == DType::f64)
    return fmt::format("div({}, {})", value(0), value(1));
  const bool plain = (op.rule == Rule::compare || is_floating(dtype)) && !is_quotient_of_f32;
  if (!op.infix.empty() && plain) {
    if (op.arity == 1) return fmt::format("{}({})", op.infix, value(0));
    return fmt::format("{} {} {}", value(0), op.infix, value(1));
  }
  std::string call = is_floating(compute_dtype(node.dtype)) && is_floating(dtype)
                         ? std::string(qualifier(node))
                         : "";
  call += op.name;
  if (is_term(static_cast<NodeId>(&node - graph_.nodes.data()))) call = "narrow::exp_term";
  if (accuracy_ == Accuracy::storage && dtype == DType::f32) {
    const NodeId operand = node.operands[0];
    if (node.op == Op::exp && is_not_positive(graph_, operand)) call += "_not_positive";
    if (node.op == Op::log1p && is_fraction(graph_, operand)) call += "_of_fraction";
  }
  // The neighbour is one of the result's own dtype, not of the f32 that it is computed in.
  if (node.op == Op::nextafter && is_narrow_float(node.dtype))
    call += fmt::format("<{}>", name(node.dtype));
  call += '(';
  for (std::size_t i = 0; i < node.arity; ++i) call += (i == 0 ? "" : ", ") + value(i);
  return call + ')';
}

// Finds values that end only in 16-bit stores or casts, through operations that do not amplify a
// relative error: they may use a cheaper method under Accuracy::storage (numerics.md). So may a
// value of f32 on GPUs, unless each operation rounds, which then is what unfused execution gives.
void NodeText::find_narrow() {
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

bool NodeText::may_be_narrow(DType dtype) const {
  return dtype == DType::f16 || dtype == DType::bf16 ||
         (dtype == DType::f32 && graph_.rounding == Rounding::once && backend_ != Backend::host);
}

// Finds exponentials in 16 bits that only sums take, where one term is 1 and none is more. On an
// H200 logsumexp of bf16 goes from 0.70 of a copy to 0.95 (rows of 64), from 0.69 to 1.06 (512) and
// from 0.89 to 1.075 (4,096).
void NodeText::find_terms() {
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
void NodeText::find_loose() {
  loose_.assign(graph_.nodes.size(), false);
  if (accuracy_ != Accuracy::storage || graph_.rounding != Rounding::once) return;
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    loose_[id] = node.op == Op::div && compute_dtype(node.dtype) == DType::f32 &&
                 reciprocal_of(graph_.nodes[node.operands[1]]).has_value();
  }
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    const bool allows =
        info(node.op).relative_error == RelativeError::dampened && !qualifier(node).empty();
    for (const NodeId operand : node.inputs()) {
      if (!allows) loose_[operand] = false;
    }
  }
  for (const NodeId output : graph_.outputs) loose_[output] = false;
}

// Finds values that come from memory or a bitcast, or are a copy of such, in a dtype that is not
// computed in, and that go to memory or to a bitcast.
void NodeText::find_storage() {
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

std::string_view NodeText::qualifier(const TypedNode& node) const {
  switch (accuracy_) {
    case Accuracy::strict: return "strict::";
    case Accuracy::fast: return "fast::";
    case Accuracy::storage: break;
  }
  const auto id = static_cast<std::size_t>(&node - graph_.nodes.data());
  return narrow_[id] && may_be_narrow(node.dtype) ? "narrow::" : "";
}

}  // namespace kiln::fusion
