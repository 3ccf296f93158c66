#include "fusion/emit/kernel_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

#include "fusion/emit/device_text.hpp"
#include "fusion/graph/dtype_lattice.hpp"

namespace kiln::fusion {

namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_decimal(char c) { return c >= '0' && c <= '9'; }

// What follows the position: nothing where `wanted` is the position or has no letters. Words are
// joined by one underscore: C++ keeps names with two.
std::string suffix(std::string_view kind, std::size_t position, std::string_view wanted) {
  constexpr std::size_t kMost = 48;
  if (wanted == kind || wanted == fmt::format("{}{}", kind, position)) return {};
  std::string name;
  bool joint = true;
  for (const char c : wanted.substr(0, kMost)) {
    if (!is_letter(c) && !is_decimal(c)) {
      joint = true;
      continue;
    }
    if (joint) name += '_';
    joint = false;
    name += c;
  }
  return name;
}

std::vector<std::string> suffixes(std::string_view kind, std::span<const std::string> names) {
  std::vector<std::string> all;
  for (const std::string& name : names) all.push_back(suffix(kind, all.size(), name));
  return all;
}

}  // namespace

std::string stride_name(std::string_view operand, std::uint32_t axis) {
  return fmt::format("{}_stride_{}", operand, axis);
}

std::string NamedOperand::stride_name(std::uint32_t axis) const {
  return fusion::stride_name(name, axis);
}

std::vector<std::string> value_names(const TypedGraph& graph) {
  std::vector<std::string> names;
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) names.push_back(fmt::format("v{}", id));
  return names;
}

KernelNames::KernelNames(const TypedGraph& graph) : graph_(graph) {
  for (std::size_t i = 0; i < graph.arguments.size(); ++i) {
    const std::string& wanted = graph.argument_names[i];
    argument_names_.push_back(fmt::format("in{}", i));
    if (graph.arguments[i].scalar) continue;
    operands_.push_back({argument_names_[i], wanted.empty() ? argument_names_[i] : wanted, i, 0,
                         graph.arguments[i].dtype, false});
  }
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const std::string& wanted = graph.output_names[i];
    const std::string own = graph.outputs.size() == 1 ? "out" : fmt::format("out{}", i);
    const NodeId value = graph.outputs[i];
    operands_.push_back({fmt::format("out{}", i), wanted.empty() ? own : wanted, 0, value,
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
    commented.push_back({operand.name, operand.dtype, operand.output});
  }
  return commented;
}

std::string with_names(std::string_view text, std::span<const std::string> arguments,
                       std::span<const std::string> outputs) {
  const std::vector<std::string> of_inputs = suffixes("in", arguments);
  const std::vector<std::string> of_outputs = suffixes("out", outputs);
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    while (at < text.size() && (is_letter(text[at]) || is_decimal(text[at]) || text[at] == '_'))
      ++at;
    if (at == begin) {
      result += text[at++];
      continue;
    }
    const std::string_view word = text.substr(begin, at - begin);
    const std::string_view kind = word.starts_with("in")    ? "in"
                                  : word.starts_with("out") ? "out"
                                                            : "";
    const std::size_t end =
        std::min(word.find_first_not_of("0123456789", kind.size()), word.size());
    std::size_t position = 0;
    const auto [last, failure] =
        std::from_chars(word.data() + kind.size(), word.data() + end, position);
    const std::vector<std::string>& own = kind == "in" ? of_inputs : of_outputs;
    const bool is_operand = !kind.empty() && end > kind.size() && failure == std::errc() &&
                            (end == word.size() || word[end] == '_') && position < own.size();
    result += is_operand ? word.substr(0, end) : word;
    if (is_operand) result.append(own[position]).append(word.substr(end));
  }
  return result;
}

std::string readable(std::string_view text, std::string_view function, std::string_view expression,
                     std::span<const std::string> arguments, std::span<const std::string> outputs) {
  return fmt::format("// {}: {}\n{}", comment_text(function), comment_text(expression),
                     with_names(text, arguments, outputs));
}

}  // namespace kiln::fusion
