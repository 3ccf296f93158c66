// The identifiers of one kernel's text: each is given once. Those of its operands are given first,
// arrays that it reads in the order of the graph's arguments, then those that it writes; where
// their elements lie is for the emitter of each kind of kernel.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/emit/kernel_writer.hpp"
#include "fusion/emit/node_text.hpp"
#include "fusion/graph/typed_graph.hpp"

namespace kiln::fusion {

struct NamedOperand {
  std::string name;          ///< of the value, and the stem of its pointer's and strides' names
  std::size_t argument = 0;  ///< of inputs: the position among the arguments
  NodeId value = 0;          ///< of outputs
  DType dtype = DType::f32;
  bool output = false;
};

class KernelNames {
 public:
  /// No identifier is one of `taken`.
  explicit KernelNames(const TypedGraph& graph, std::set<std::string> taken = {});

  const std::vector<NamedOperand>& operands() const { return operands_; }
  /// What holds an argument that is a number.
  std::string scalar_parameter(std::size_t argument) const;
  /// An identifier like `wanted`, or like `fallback` where that has no letters.
  std::string give(std::string_view wanted, std::string_view fallback);

  void add_pointers(KernelWriter& writer) const;
  void add_scalars(KernelWriter& writer, const NodeText& node_text) const;
  std::vector<CommentedOperand> commented() const;

 private:
  const TypedGraph& graph_;
  std::set<std::string> taken_;
  std::vector<std::string> argument_names_;
  std::vector<NamedOperand> operands_;
};

}  // namespace kiln::fusion
