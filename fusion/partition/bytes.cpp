#include "fusion/partition/bytes.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/partition/facts.hpp"
#include "kiln/view.hpp"

namespace kiln::fusion {
namespace {

// A number of bytes, and what sizes it was made of.
struct Amount {
  std::uint64_t bytes = 0;
  SizeSum sum{};

  Amount& operator+=(const Amount& other) {
    bytes += other.bytes;
    sum.add(1, other.sum);
    return *this;
  }
};

Amount twice(Amount amount) {
  const Amount once = amount;
  amount += once;
  return amount;
}

class Bytes {
 public:
  explicit Bytes(const PlacedGraph& graph)
      : graph_(graph),
        nodes_(graph.graph.nodes),
        read_(nodes_.size(), false),
        seen_as_view_(seen_as_views(graph)),
        copies_(nodes_.size()) {
    for (const TypedNode& node : nodes_) {
      if (node.op == Op::view) continue;
      for (const NodeId operand : node.inputs()) read_[viewed(graph.graph, operand)] = true;
    }
    for (const PlacedCall& call : graph.calls) {
      for (const NodeId input : call.inputs) read_[viewed(graph.graph, input)] = true;
    }
    find_copies();
  }

  void count(Partition& result) const {
    std::vector<bool> shared(nodes_.size(), false);
    for (const KernelPart& kernel : result.kernels) {
      for (const NodeId id : kernel.reads) shared[viewed(graph_.graph, id)] = true;
    }
    Amount all;
    for (KernelPart& kernel : result.kernels) {
      Amount moved;
      for (const NodeId id : kernel.values) {
        const bool array = nodes_[id].op == Op::input || is_view_of_argument(id);
        kernel.unfused_bytes += bytes_alone(id).bytes;
        if (array) moved += own(id);
      }
      for (const NodeId id : kernel.reads) moved += stored(id);
      for (const NodeId id : kernel.results) moved += bytes_written(id, shared[id]);
      kernel.bytes = moved.bytes;
      if (kernel.call) kernel.unfused_bytes = kernel.bytes;
      all += moved;
    }
    result.bytes = all.bytes;
    result.traced_bytes = std::move(all.sum);
    Amount unfused;
    std::unordered_set<NodeId> read;  // arguments and views of them
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      const TypedNode& node = nodes_[id];
      unfused += bytes_alone(id);
      if (node.op != Op::view) read.insert(node.inputs().begin(), node.inputs().end());
    }
    for (const PlacedCall& call : graph_.calls) {
      read.insert(call.inputs.begin(), call.inputs.end());
    }
    unfused += bytes_copied();
    result.unfused_bytes = unfused.bytes;
    result.traced_unfused_bytes = std::move(unfused.sum);
    result.lower_bound = bytes_read(read);
    for (const auto& parts : graph_.stores) {
      for (const PlacedPart& part : parts) {
        if (!updated_argument(graph_, part.value)) {
          result.lower_bound += bytes_of(graph_, part.value);
          continue;
        }
        for (const PlacedPart& put : graph_.joins[nodes_[part.value].payload]) {
          result.lower_bound += bytes_of(graph_, put.value);
        }
      }
    }
  }

 private:
  static Amount amount(DType dtype, const Dims& shape) {
    Amount result{byte_count(dtype, shape)};
    result.sum.add(bits(dtype) / 8.0, element_count(shape));
    return result;
  }
  Amount own(NodeId id) const { return amount(nodes_[id].dtype, graph_.shapes[id]); }
  Amount stored(NodeId id) const { return amount(stored_dtype(graph_, id), graph_.shapes[id]); }

  // Where a value goes whoever reads it.
  struct Copies {
    Amount bytes;  ///< in outputs and in arrays that are concatenated
    bool any = false;
    bool output = false;
    bool readable = false;  ///< an output has it in the dtype and order in which others read it
  };

  void find_copies() {
    for (const auto& parts : graph_.stores) {
      for (const PlacedPart& part : parts) {
        const NodeId id = part.value;
        Copies& copies = copies_[id];
        copies.any = true;
        copies.output = true;
        copies.bytes += own(id);
        const bool in_order = is_contiguous(part.layout, graph_.shapes[id]);
        copies.readable = copies.readable || (stored_dtype(graph_, id) == nodes_[id].dtype &&
                                              (in_order || !seen_as_view_[id]));
      }
    }
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      if (nodes_[id].op != Op::join) continue;
      const DType held = copies_[id].output ? nodes_[id].dtype : stored_dtype(graph_, id);
      for (const PlacedPart& part : graph_.joins[nodes_[id].payload]) {
        copies_[part.value].any = true;
        copies_[part.value].bytes += amount(held, graph_.shapes[part.value]);
      }
    }
  }

  // What storing a value writes: its place in each output and in each array that it is a part of,
  // and an array of its own for other kernels, unless they can read an output.
  Amount bytes_written(NodeId id, bool shared) const {
    const Copies& copies = copies_[id];
    if (nodes_[id].op == Op::custom_call) return stored(id);
    const bool apart = shared ? !copies.readable : !copies.any;
    Amount bytes = copies.bytes;
    if (apart) bytes += stored(id);
    return bytes;
  }

  bool is_view_of_argument(NodeId id) const {
    return nodes_[id].op == Op::view && nodes_[nodes_[id].operands[0]].op == Op::input;
  }

  // Conversions of what is read take no memory, unless they are what is stored or seen as a view.
  bool is_free(NodeId id) const {
    const TypedNode& node = nodes_[id];
    return node.op == Op::promote && nodes_[node.operands[0]].dtype != node.dtype &&
           !copies_[id].any && !seen_as_view_[id];
  }

  // A copy into arrays that are concatenated, of which a concatenation's bytes are.
  bool is_part(NodeId id) const {
    const TypedNode& node = nodes_[id];
    return node.op == Op::promote && nodes_[node.operands[0]].dtype == node.dtype &&
           copies_[id].any && !copies_[id].output && !read_[id];
  }

  // What one operation after the other copies into outputs: parts of a concatenation, and what is
  // another output already.
  Amount bytes_copied() const {
    Amount bytes;
    std::unordered_set<NodeId> written;
    for (const auto& parts : graph_.stores) {
      for (const PlacedPart& part : parts) {
        const bool first = written.insert(part.value).second;
        if (!first || parts.size() > 1) bytes += twice(own(part.value));
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

  // To one output, from which others are copied, and to an array of its own unless that is read.
  Amount bytes_written_alone(NodeId id) const {
    const Copies& copies = copies_[id];
    if (!copies.output || nodes_[id].op == Op::custom_call) return stored(id);
    const bool apart = read_[id] && !copies.readable;
    Amount bytes = own(id);
    if (apart) bytes += stored(id);
    return bytes;
  }

  // Had the operation a kernel of its own.
  Amount bytes_alone(NodeId id) const {
    const TypedNode& node = nodes_[id];
    Amount bytes;
    // A join of one part is that part, and what is put is where it is to be.
    if (node.op == Op::join) {
      const bool is_part = graph_.joins[node.payload].size() == 1 || updated_argument(graph_, id);
      return is_part ? Amount() : twice(stored(id));
    }
    if (node.op == Op::custom_call && call_result(node.payload) == 0) {
      const PlacedCall& call = graph_.calls[call_index(node.payload)];
      for (const NodeId input : call.inputs) bytes += stored(input);
    }
    if ((!is_computed(node) && node.op != Op::custom_call) || is_free(id) || is_part(id))
      return bytes;
    bytes += bytes_written_alone(id);
    for (NodeId operand : node.inputs()) {
      while (is_free(operand)) operand = nodes_[operand].operands[0];
      const Op op = nodes_[operand].op;
      if (op != Op::constant && op != Op::iota) bytes += stored(operand);
    }
    return bytes;
  }

  const PlacedGraph& graph_;
  const std::vector<TypedNode>& nodes_;
  std::vector<bool> read_;  ///< by operations and calls, or a view of it
  std::vector<bool> seen_as_view_;
  std::vector<Copies> copies_;
};

}  // namespace

std::uint64_t bytes_of(const ShapedGraph& graph, NodeId id) {
  return byte_count(graph.graph.nodes[id].dtype, graph.shapes[id]);
}

std::uint64_t stored_bytes(const PlacedGraph& graph, NodeId id) {
  return byte_count(stored_dtype(graph, id), graph.shapes[id]);
}

void count_bytes(const PlacedGraph& graph, Partition& partition) { Bytes(graph).count(partition); }

}  // namespace kiln::fusion
