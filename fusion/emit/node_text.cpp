#include "fusion/emit/node_text.hpp"

#include <fmt/format.h>

#include <cmath>

#include "fusion/emit/device_text.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/number.hpp"

namespace kiln::fusion {
namespace {

// Whether a node is a row's element minus the row's maximum, as in softmax.
bool is_below_row_maximum(const TypedGraph& graph, NodeId id) {
  const TypedNode& node = graph.nodes[id];
  if (node.op != Op::sub) return false;
  const TypedNode& maximum = graph.nodes[node.operands[1]];
  return maximum.op == Op::reduce_max && maximum.operands[0] == node.operands[0];
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

// Whether a node is a quotient by a constant of which preamble/arithmetic.h knows a shorter way.
bool is_quotient_by_constant(const TypedGraph& graph, const TypedNode& node) {
  if (node.op != Op::div || compute_dtype(node.dtype) != DType::f32) return false;
  const TypedNode& by = graph.nodes[node.operands[1]];
  if (by.op != Op::constant) return false;
  const bool own = graph.rounding == Rounding::each && is_narrow_float(by.dtype);
  const double number = fusion::decode(by.payload, own ? by.dtype : DType::f32);
  int exponent = 0;  // quotients by powers of two are products
  return number >= std::ldexp(1.0, -60) && number <= std::ldexp(1.0, 60) &&
         std::frexp(number, &exponent) != 0.5;
}

bool is_small_integer(const TypedGraph& graph, NodeId id) {
  const TypedNode& node = graph.nodes[id];
  if (node.dtype != DType::f32 || (node.op != Op::promote && node.op != Op::cast)) return false;
  const DType from = graph.nodes[node.operands[0]].dtype;
  return is_integer(from) && bits(from) <= 16;
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

}  // namespace

NodeText::NodeText(const TypedGraph& graph, Accuracy accuracy, Backend backend)
    : NodeMethods(graph, accuracy, backend), graph_(graph), accuracy_(accuracy) {}

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
  return {cast(node, compute_type(node.dtype), values)};
}

std::string NodeText::narrowed(const TypedNode& node, std::span<const std::string> values) const {
  return cast(node, name(node.dtype), values);
}

std::string NodeText::cast(const TypedNode& node, std::string_view type,
                           std::span<const std::string> values) const {
  const TypedNode& operand = graph_.nodes[node.operands[0]];
  const std::string& value = values[node.operands[0]];
  const bool rounded_before = operand.op == Op::round && is_integer(node.dtype) &&
                              compute_dtype(operand.dtype) == DType::f32 &&
                              !values[operand.operands[0]].empty();
  if (!rounded_before) return fmt::format("to<{}>({})", type, value);
  return fmt::format("to_rounded<{}>({}, {})", type, values[operand.operands[0]], value);
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
  if (graph_.nodes[id].dtype != DType::bf16 || !has_short_nans() || has_storage(id, storage)) {
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
  if (is_loose(static_cast<NodeId>(&node - graph_.nodes.data()))) {
    const TypedNode reciprocal = *reciprocal_of(graph_.nodes[node.operands[1]]);
    return fmt::format("{} * {}", value(0), constant_text(reciprocal, graph_.rounding));
  }
  if (accuracy_ != Accuracy::fast && is_quotient_by_constant(graph_, node)) {
    const bool integer = is_small_integer(graph_, node.operands[0]);
    return fmt::format("{}({}, {})", integer ? "quotient_of_integer" : "quotient_by_constant",
                       value(0), value(1));
  }
  if (node.op == Op::div && dtype == DType::f32 && accuracy_ != Accuracy::fast &&
      is_often_zero(graph_, node.operands[0]))
    return fmt::format("quotient_or_zero({}, {})", value(0), value(1));
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

std::string_view NodeText::qualifier(const TypedNode& node) const {
  switch (accuracy_) {
    case Accuracy::strict: return "strict::";
    case Accuracy::fast: return "fast::";
    case Accuracy::storage: break;
  }
  return is_narrow(static_cast<NodeId>(&node - graph_.nodes.data())) ? "narrow::" : "";
}

}  // namespace kiln::fusion
