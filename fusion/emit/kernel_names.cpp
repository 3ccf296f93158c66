#include "fusion/emit/kernel_names.hpp"

#include <fmt/format.h>

#include <string_view>

#include "fusion/graph/dtype_lattice.hpp"

namespace kiln::fusion {

namespace {

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// in2_gate: the position makes it unique, the rest is for readers. Nothing follows where `wanted`
// is the position or has no letters. Words are joined by one underscore: C++ keeps names with two.
std::string identifier(std::string_view kind, std::size_t position, std::string_view wanted) {
  constexpr std::size_t kMost = 48;
  std::string name = fmt::format("{}{}", kind, position);
  if (wanted == name || wanted == kind) return name;
  bool joint = true;
  for (const char c : wanted.substr(0, kMost)) {
    if (!is_letter_or_digit(c)) {
      joint = true;
      continue;
    }
    if (joint) name += '_';
    joint = false;
    name += c;
  }
  return name;
}

}  // namespace

std::string NamedOperand::stride_name(std::uint32_t axis) const {
  return fmt::format("{}_stride_{}", name, axis);
}

std::vector<std::string> value_names(const TypedGraph& graph) {
  std::vector<std::string> names;
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) names.push_back(fmt::format("v{}", id));
  return names;
}

KernelNames::KernelNames(const TypedGraph& graph) : graph_(graph) {
  for (std::size_t i = 0; i < graph.arguments.size(); ++i) {
    const std::string& wanted = graph.argument_names[i];
    argument_names_.push_back(identifier("in", i, wanted));
    if (graph.arguments[i].scalar) continue;
    operands_.push_back({argument_names_[i], wanted.empty() ? argument_names_[i] : wanted, i, 0,
                         graph.arguments[i].dtype, false});
  }
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const std::string& wanted = graph.output_names[i];
    const std::string own = graph.outputs.size() == 1 ? "out" : fmt::format("out{}", i);
    const NodeId value = graph.outputs[i];
    operands_.push_back({identifier("out", i, wanted), wanted.empty() ? own : wanted, 0, value,
                         graph.nodes[value].dtype, true});
  }
}

std::string KernelNames::scalar_parameter(std::size_t argument) const {
  return argument_names_[argument] + "_value";
}

void KernelNames::add_pointers(KernelWriter& writer) const {
  for (std::uint32_t i = 0; i < operands_.size(); ++i) {
    const NamedOperand& operand = operands_[i];
    writer.add_pointer(i, operand.dtype, operand.output, operand.name);
  }
}

void KernelNames::add_scalars(KernelWriter& writer, const NodeText& node_text) const {
  for (std::uint32_t i = 0; i < graph_.arguments.size(); ++i) {
    if (!graph_.arguments[i].scalar) continue;
    writer.add_scalar(i, compute_dtype(node_text.scalar_dtype(i)), scalar_parameter(i));
  }
}

std::vector<CommentedOperand> KernelNames::commented() const {
  std::vector<CommentedOperand> commented;
  for (const NamedOperand& operand : operands_) {
    commented.push_back({operand.label, operand.dtype, operand.output});
  }
  return commented;
}

}  // namespace kiln::fusion
