// The identifiers of one kernel's text. Its operands come first, arrays that it reads in the order
// of the graph's arguments, then those that it writes; how their elements are addressed
// is up to the emitter of each form of kernel.
//
// What is compiled names operands by their positions: kernels that differ in the names of their
// arguments alone are one. in0, in1, ... are arguments, out0, out1, ... outputs, and what a kernel
// calls its strides, lanes and so on begins with such a name. No keyword, no macro of a compiler
// and nothing in the preamble or in a kernel begins so (tests/fusion/emit/names_test.cpp). So
// readers get names of the user, which may be anything, behind the positions: in0_gate.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/emit/kernel_writer.hpp"
#include "fusion/emit/node_text.hpp"
#include "fusion/graph/typed_graph.hpp"

namespace kiln::fusion {

struct NamedOperand {
  std::string name;          ///< of the value, and the stem of its pointer's and strides' names
  std::string label;         ///< what the user calls it
  std::size_t argument = 0;  ///< of inputs: the position among the arguments
  NodeId value = 0;          ///< of outputs
  DType dtype = DType::f32;
  bool output = false;

  /// The parameter that is its stride along a collapsed axis.
  std::string stride_name(std::uint32_t axis) const;
};

/// The parameter that is the stride of an operand of that name along a collapsed axis.
std::string stride_name(std::string_view operand, std::uint32_t axis);

/// "v0", "v1", ...: of each node of a graph.
std::vector<std::string> value_names(const TypedGraph& graph);

/// The text of a kernel for people: after what it computes, with what the user calls its arguments
/// and outputs.
std::string readable(std::string_view text, std::string_view function, std::string_view expression,
                     std::span<const std::string> arguments, std::span<const std::string> outputs);

/// The text with these names alone.
std::string with_names(std::string_view text, std::span<const std::string> arguments,
                       std::span<const std::string> outputs);

class KernelNames {
 public:
  explicit KernelNames(const TypedGraph& graph);

  const std::vector<NamedOperand>& operands() const { return operands_; }
  /// The parameter for an argument that is a number.
  std::string scalar_parameter(std::size_t argument) const;

  void add_pointers(KernelWriter& writer) const;
  void add_scalars(KernelWriter& writer, const NodeText& node_text) const;
  std::vector<CommentedOperand> commented() const;

 private:
  const TypedGraph& graph_;
  std::vector<std::string> argument_names_;
  std::vector<NamedOperand> operands_;
};

}  // namespace kiln::fusion
