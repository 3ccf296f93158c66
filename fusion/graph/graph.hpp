// The graph: what a user wrote, before dtypes are known. Built by tracing a callable or parsing
// text; equal nodes are shared as they are added. Values have no dtype here: inference (infer.hpp)
// gives each one for a signature, so one graph serves every mix of dtypes.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/graph/axes.hpp"
#include "fusion/graph/hash_index.hpp"
#include "fusion/graph/op.hpp"
#include "kiln/dims.hpp"
#include "kiln/dtype.hpp"

namespace kiln::fusion {

using NodeId = std::uint32_t;

/// A literal as written. A weak one takes the dtype of its partner (numerics.md); a typed one has
/// its own. `bits` holds the value of kind: bool 0/1, an i64, or the pattern of an f64, so that
/// -0.0, NaN payloads and INT64_MIN survive.
struct Literal {
  Kind kind =
      Kind::floating;  ///< boolean, signed_integer, unsigned_integer (above INT64_MAX) or floating
  std::uint64_t bits = 0;

  static Literal boolean(bool value);
  static Literal integer(std::int64_t value);
  static Literal unsigned_integer(std::uint64_t value);
  static Literal floating(double value);
  double as_double() const;
  friend bool operator==(const Literal&, const Literal&) = default;
};

/// The axis of an iota over all elements of the outputs, in C order.
inline constexpr std::int64_t kAllAxes = INT64_MIN;

/// A call of the caller's code as the graph sees it: what comes out of it. `body` is what it does,
/// which only those who put it there know.
struct CustomCall {
  std::string name;
  std::function<std::vector<DType>(std::span<const DType>)> dtypes;
  std::function<std::vector<Dims>(std::span<const Dims>)> shapes;
  std::shared_ptr<const void> body;
};

/// What does not fit a node; nodes hold positions. Entries are only ever added, so that graphs made
/// of one another share them.
struct Tables {
  std::vector<std::vector<std::int64_t>> lists;  ///< of shape ops (shape_ops.hpp), each once
  std::vector<CustomCall> calls;

  /// The position of a list, which is appended unless it is there.
  std::uint64_t add_list(const std::vector<std::int64_t>& list);

 private:
  HashIndex list_index_;
};

/// The payload of Op::custom_call: which call of the tables, and which of its results.
inline constexpr std::uint64_t kMostResults = 64;
inline std::size_t call_index(std::uint64_t payload) { return payload / kMostResults; }
inline std::size_t call_result(std::uint64_t payload) { return payload % kMostResults; }

struct Node {
  Op op = Op::input;
  DType dtype = DType::f32;  ///< of cast, bitcast and iota
  std::uint8_t arity = 0;
  std::array<NodeId, 3> operands{};
  std::uint64_t payload = 0;  ///< of input: its position among the arguments; of constant:
                              ///< Literal::bits; of a reduction: its AxisSet; of iota: its axis,
                              ///< an i64; of an op that has_list(): that
  Kind literal = Kind::floating;  ///< of constant

  std::span<const NodeId> inputs() const { return {operands.data(), arity}; }
  friend bool operator==(const Node&, const Node&) = default;
};

/// Of each node, whether one of `roots` depends on it. Operands come before what uses them, so one
/// walk backwards is enough.
template <class AnyNode>
std::vector<bool> live_nodes(const std::vector<AnyNode>& nodes, std::span<const NodeId> roots) {
  std::vector<bool> live(nodes.size(), false);
  for (const NodeId root : roots) live[root] = true;
  for (std::size_t id = nodes.size(); id-- > 0;) {
    if (!live[id]) continue;
    for (const NodeId operand : nodes[id].inputs()) live[operand] = true;
  }
  return live;
}

class Graph {
 public:
  /// The argument of that name; a new one is appended. Arguments are arrays or scalars: which one
  /// is decided by what a call passes.
  NodeId argument(std::string_view name);
  NodeId constant(Literal literal);
  /// Throws Error(invalid_argument) when the number of operands is not the op's arity.
  NodeId apply(Op op, std::span<const NodeId> operands);
  NodeId cast(NodeId value, DType dtype);
  NodeId bitcast(NodeId value, DType dtype);
  /// The index of each element along `axis` of the outputs' shape, negative from its end, or in all
  /// of it (kAllAxes). Throws Error(invalid_argument) for a dtype that is no number.
  NodeId iota(std::int64_t axis, DType dtype);
  /// `node` as it is, whose operands are nodes of this graph: for passes that take graphs apart.
  NodeId add(const Node& node) { return intern(node); }
  /// A reduction over `axes`, or a running result along one. Throws Error(invalid_argument) for
  /// another op.
  NodeId reduce(Op op, NodeId value, AxisSet axes);
  /// A shape op with its parameters, or an indexed op with its axis. Throws
  /// Error(invalid_argument) for an op that is neither.
  NodeId shape_op(Op op, std::span<const NodeId> operands,
                  const std::vector<std::int64_t>& parameters);
  /// A custom call's results. Throws Error(invalid_argument) without inputs or for too many.
  std::vector<NodeId> custom_call(CustomCall call, std::span<const NodeId> inputs,
                                  std::size_t results);
  void add_output(NodeId value, std::string_view name = {});

  /// Nodes in an order in which operands come first.
  const std::vector<Node>& nodes() const { return nodes_; }
  const Node& operator[](NodeId id) const { return nodes_[id]; }
  const std::vector<std::string>& arguments() const { return arguments_; }
  const std::vector<NodeId>& outputs() const { return outputs_; }
  const std::vector<std::string>& output_names() const { return output_names_; }
  /// Null if there are none.
  const std::shared_ptr<Tables>& tables() const { return tables_; }
  /// Before nodes of another graph are added.
  void share_tables(const Graph& other) { tables_ = other.tables_; }

 private:
  Tables& own_tables();

  NodeId intern(const Node& node);

  std::vector<Node> nodes_;
  std::vector<std::string> arguments_;
  std::vector<NodeId> outputs_;
  std::vector<std::string> output_names_;
  std::shared_ptr<Tables> tables_;
  HashIndex index_;  ///< of the nodes
};

}  // namespace kiln::fusion
