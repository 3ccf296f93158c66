#include "fusion/partition_bytes.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace kiln::fusion {
namespace {

class Bytes {
 public:
  explicit Bytes(const PlacedGraph& graph)
      : graph_(graph),
        nodes_(graph.graph.nodes),
        output_(nodes_.size(), false),
        places_(nodes_.size(), 0) {
    for (const auto& parts : graph.stores) {
      for (const PlacedPart& part : parts) {
        output_[part.value] = true;
        ++places_[part.value];
      }
    }
    for (const auto& parts : graph.joins) {
      for (const PlacedPart& part : parts) ++places_[part.value];
    }
  }

  void count(Partition& result) const {
    for (KernelPart& kernel : result.kernels) {
      for (const NodeId id : kernel.values) {
        const bool array = nodes_[id].op == Op::input || is_view_of_argument(id);
        kernel.op_by_op += bytes_alone(id);
        if (array) kernel.bytes += bytes_of(graph_, id);
      }
      for (const NodeId id : kernel.reads) kernel.bytes += stored(id);
      for (const NodeId id : kernel.results) {
        kernel.bytes += stored(id) * std::max<std::uint64_t>(1, places_[id]);
      }
      if (kernel.call) kernel.op_by_op = kernel.bytes;
      result.bytes += kernel.bytes;
    }
    std::unordered_set<NodeId> read;  // arguments and views of them
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      const TypedNode& node = nodes_[id];
      result.op_by_op += bytes_alone(id);
      if (node.op != Op::view) read.insert(node.inputs().begin(), node.inputs().end());
    }
    for (const PlacedCall& call : graph_.calls) {
      read.insert(call.inputs.begin(), call.inputs.end());
    }
    result.op_by_op += bytes_copied();
    result.lower_bound = bytes_read(read);
    for (const auto& parts : graph_.stores) {
      for (const PlacedPart& part : parts) result.lower_bound += bytes_of(graph_, part.value);
    }
  }

 private:
  bool is_view_of_argument(NodeId id) const {
    return nodes_[id].op == Op::view && nodes_[nodes_[id].operands[0]].op == Op::input;
  }

  // As it is stored, in an output or between kernels.
  std::uint64_t stored(NodeId id) const {
    return output_[viewed(graph_.graph, id)] ? bytes_of(graph_, id) : stored_bytes(graph_, id);
  }

  // Conversions of what is read take no memory, unless they are what is stored.
  bool is_free(NodeId id) const {
    const TypedNode& node = nodes_[id];
    return node.op == Op::promote && nodes_[node.operands[0]].dtype != node.dtype &&
           places_[id] == 0;
  }

  // What one operation after the other copies into outputs: parts of a concatenation, and what is
  // another output already.
  std::uint64_t bytes_copied() const {
    std::uint64_t bytes = 0;
    std::unordered_set<NodeId> written;
    for (const auto& parts : graph_.stores) {
      for (const PlacedPart& part : parts) {
        const bool first = written.insert(part.value).second;
        if (!first || parts.size() > 1) bytes += 2 * bytes_of(graph_, part.value);
      }
    }
    return bytes;
  }

  // An argument is read no more than once, and no more of it than its views show.
  std::uint64_t bytes_read(const std::unordered_set<NodeId>& read) const {
    std::unordered_map<NodeId, std::uint64_t> arguments;
    for (const NodeId id : read) {
      const NodeId root = viewed(graph_.graph, id);
      if (nodes_[root].op == Op::input) arguments[root] += bytes_of(graph_, id);
    }
    std::uint64_t sum = 0;
    for (const auto& [id, bytes] : arguments) sum += std::min(bytes, bytes_of(graph_, id));
    return sum;
  }

  // Had the operation a kernel of its own.
  std::uint64_t bytes_alone(NodeId id) const {
    const TypedNode& node = nodes_[id];
    std::uint64_t bytes = 0;
    if (node.op == Op::join) return 2 * stored(id);
    if (node.op == Op::opaque && opaque_result(node.payload) == 0) {
      const PlacedCall& call = graph_.calls[opaque_call(node.payload)];
      for (const NodeId input : call.inputs) bytes += stored(input);
    }
    if ((!is_computed(node) && node.op != Op::opaque) || is_free(id)) return bytes;
    bytes += stored(id);
    for (NodeId operand : node.inputs()) {
      while (is_free(operand)) operand = nodes_[operand].operands[0];
      const Op op = nodes_[operand].op;
      if (op != Op::constant && op != Op::iota) bytes += stored(operand);
    }
    return bytes;
  }

  const PlacedGraph& graph_;
  const std::vector<TypedNode>& nodes_;
  std::vector<bool> output_;
  std::vector<std::uint64_t> places_;  ///< in outputs and joins, of each value
};

}  // namespace

namespace {

std::uint64_t byte_count(const Dims& shape, DType dtype) {
  std::uint64_t size = 1;
  for (const std::int64_t extent : shape) size *= static_cast<std::uint64_t>(extent);
  return (size * static_cast<std::uint64_t>(bits(dtype)) + 7) / 8;
}

}  // namespace

std::uint64_t bytes_of(const ShapedGraph& graph, NodeId id) {
  return byte_count(graph.shapes[id], graph.graph.nodes[id].dtype);
}

std::uint64_t stored_bytes(const PlacedGraph& graph, NodeId id) {
  return byte_count(graph.shapes[id], stored_dtype(graph, id));
}

void count_bytes(const PlacedGraph& graph, Partition& partition) { Bytes(graph).count(partition); }

}  // namespace kiln::fusion
