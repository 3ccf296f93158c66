// A graph whose every value has its dtype: what inference (infer.hpp) makes of a graph and of one
// call's arguments, and what passes, layouts and emitters read.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fusion/graph/graph.hpp"
#include "kiln/dims.hpp"
#include "kiln/options.hpp"

namespace kiln::fusion {

/// What one call passes for one argument.
struct ArgumentType {
  DType dtype = DType::f32;
  bool scalar = false;  ///< a run-time scalar, passed by value
  bool weak = false;    ///< a scalar that takes its partner's dtype, like a literal
  friend bool operator==(const ArgumentType&, const ArgumentType&) = default;
};

/// A value with its dtype. `operands` have exactly the dtype that `op` computes in: the common
/// dtype for compare and select, the result's for the rest.
struct TypedNode {
  Op op = Op::input;
  DType dtype = DType::f32;
  std::uint8_t arity = 0;
  std::array<NodeId, 3> operands{};
  std::uint64_t payload = 0;  ///< of input and scalar: the argument's position; of constant: its
                              ///< bits in `dtype`, or for f16 and bf16 under Rounding::once the
                              ///< bits of an f32; of a reduction: its AxisSet; of iota: its axis;
                              ///< of what graph.hpp keeps in tables: its position there
  std::span<const NodeId> inputs() const { return {operands.data(), arity}; }
  friend bool operator==(const TypedNode&, const TypedNode&) = default;
};

/// An operand of a kernel that is read, or written, at the places that a value of the kernel says
/// (indexed.hpp).
struct IndexedOperand {
  bool output = false;
  std::size_t position = 0;  ///< among the graph's arguments, or outputs
  NodeId place = 0;
  friend bool operator==(const IndexedOperand&, const IndexedOperand&) = default;
};

/// An axis that ends where a value says (indexed.hpp), unless its extent ends before.
struct BoundedAxis {
  std::int64_t axis = -1;  ///< negative, from the end
  NodeId end = 0;
  friend auto operator<=>(const BoundedAxis&, const BoundedAxis&) = default;
};

struct TypedGraph {
  std::vector<TypedNode> nodes;  ///< live ones only, operands first
  std::vector<NodeId> outputs;   ///< of the dtype the caller stores, by a final `cast` where needed
  std::vector<ArgumentType> arguments;
  std::vector<std::string> argument_names;
  std::vector<std::string> output_names;
  Rounding rounding = Rounding::once;
  std::shared_ptr<const Tables> tables{};
  std::vector<IndexedOperand> indexed{};  ///< of a kernel, which has no indexed ops
  std::vector<BoundedAxis> bounds{};      ///< of a kernel: of the space that it runs over

  /// The place of an argument or output that is indexed, else null.
  const NodeId* place_of(bool output, std::size_t position) const;
  /// The outputs, and what indexed operands and bounds need: what nodes are there for.
  std::vector<NodeId> roots() const;
};

/// A typed graph with the shape of every node.
struct ShapedGraph {
  TypedGraph graph;
  std::vector<Dims> shapes;
};

/// Of each node, those that have it as an operand: as often as they do, and in their order.
std::vector<std::vector<NodeId>> users_of(const std::vector<TypedNode>& nodes);

/// Of each node, how often it is an operand or an output.
std::vector<std::size_t> use_counts(const TypedGraph& graph);

/// Equal nodes have equal hashes.
std::uint64_t hash_of(const TypedNode& node);

}  // namespace kiln::fusion
