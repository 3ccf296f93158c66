#include "fusion/emit/kernel_names.hpp"

#include <fmt/format.h>

#include <utility>

#include "fusion/emit/device_text.hpp"
#include "fusion/graph/dtype_lattice.hpp"

namespace kiln::fusion {

KernelNames::KernelNames(const TypedGraph& graph, std::set<std::string> taken)
    : graph_(graph), taken_(std::move(taken)) {
  for (std::size_t i = 0; i < graph.arguments.size(); ++i) {
    argument_names_.push_back(give(graph.argument_names[i], fmt::format("in{}", i)));
    if (graph.arguments[i].scalar) continue;
    operands_.push_back({argument_names_[i], i, 0, graph.arguments[i].dtype, false});
  }
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const std::string& wanted = graph.output_names[i];
    const std::string fallback = graph.outputs.size() == 1 ? "out" : fmt::format("out{}", i);
    const NodeId value = graph.outputs[i];
    operands_.push_back({give(wanted.empty() ? fallback : wanted, fallback), 0, value,
                         graph.nodes[value].dtype, true});
  }
}

std::string KernelNames::scalar_parameter(std::size_t argument) const {
  return argument_names_[argument] + "_value";
}

std::string KernelNames::give(std::string_view wanted, std::string_view fallback) {
  return identifier(wanted, fallback, taken_);
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
    commented.push_back({operand.name, operand.dtype, operand.output});
  }
  return commented;
}

}  // namespace kiln::fusion
