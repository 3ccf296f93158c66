// The pass that stores indices beside reductions (passes.hpp): what is computed of an index takes
// as many elements as its axis has, not as many as what it is broadcast to. Kernels count what
// they read of them (Stores::may_count in partition/stores.cpp), but for those with running results
// and of products, which read an array.
#include <algorithm>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/infer/attention_space.hpp"
#include "fusion/infer/iota.hpp"
#include "fusion/passes/passes.hpp"

namespace kiln::fusion {
namespace {

class IotaStoring {
 public:
  explicit IotaStoring(const ShapedGraph& from)
      : from_(from), nodes_(from.graph.nodes), stored_(nodes_.size(), false), to_(from) {}

  ShapedGraph run() {
    choose();
    if (std::ranges::find(stored_, true) == stored_.end()) return from_;
    ShapedGraph result = to_.run([&](NodeId id) { return moved(id); });
    for (std::size_t i = 0; i < result.graph.outputs.size(); ++i) {
      const Dims& shape = result.shapes[result.graph.outputs[i]];
      is_whole_ = is_whole_ && shape == from_.shapes[from_.graph.outputs[i]];
    }
    return is_whole_ ? result : from_;
  }

 private:
  // Not where it says places alone, which kernels count for their rows, nor where it numbers random
  // elements.
  void choose() {
    const auto along_axes = [](const TypedNode& node) { return has_axes(node.op); };
    if (std::ranges::none_of(nodes_, along_axes)) return;
    std::vector<bool> of_iota(nodes_.size(), false);
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      const TypedNode& node = nodes_[id];
      of_iota[id] = node.op == Op::iota;
      for (const NodeId operand : node.inputs()) {
        of_iota[id] = of_iota[id] || (is_elementwise(node.op) && of_iota[operand]);
      }
    }
    std::vector<bool> is_random(nodes_.size(), false);
    std::vector<bool> is_read(nodes_.size(), false);  // for something else than places
    for (const NodeId output : from_.graph.outputs) is_read[output] = true;
    for (NodeId id = static_cast<NodeId>(nodes_.size()); id-- > 0;) {
      const TypedNode& node = nodes_[id];
      is_random[id] = is_random[id] || info(node.op).rule == Rule::random;
      for (std::size_t i = 0; i < node.arity; ++i) {
        const NodeId operand = node.operands[i];
        const bool place = is_indexed(node.op) && i == 1;
        const bool moves = of_iota[id] && is_elementwise(node.op);
        is_read[operand] = is_read[operand] || (!place && (!moves || is_read[id]));
        if (of_iota[operand]) is_random[operand] = is_random[operand] || is_random[id];
      }
      stored_[id] = node.op == Op::iota && is_read[id] && !is_random[id] &&
                    iota_axis(node) != kAllAxes && !from_.shapes[id].empty();
    }
    leave_attention();
  }

  // A kernel of attention counts by itself.
  void leave_attention() {
    std::vector<bool> inside(nodes_.size(), false);
    for (const AttentionNodes& attention : find_attention(from_)) {
      for (const NodeId id : attention.inside) inside[id] = true;
    }
    const auto users = users_of(nodes_);
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      const auto is_inside = [&](NodeId user) { return inside[user]; };
      if (stored_[id] && std::ranges::all_of(users[id], is_inside)) stored_[id] = false;
    }
  }

  // What is computed of an index has fewer elements than before until it meets something larger. It
  // has to before it is reduced, moved or stored.
  NodeId moved(NodeId id) {
    if (stored_[id]) return index(id);
    const TypedNode node = to_.moved_node(id);
    if (node.arity == 0 || !is_elementwise(node.op)) {
      for (const NodeId operand : nodes_[id].inputs()) check_whole(operand);
      return to_.add(node, from_.shapes[id]);
    }
    Dims shape;
    for (const NodeId operand : node.inputs()) {
      shape = broadcast(shape, to_.shape(operand)).value();
    }
    return to_.add(node, shape);
  }

  void check_whole(NodeId id) {
    is_whole_ = is_whole_ && to_.shape(to_.moved(id)) == from_.shapes[id];
  }

  // An array of as many indices as the axis has, seen with the other axes of one element.
  NodeId index(NodeId id) {
    const Dims& whole = from_.shapes[id];
    const std::int64_t axis = iota_axis(nodes_[id]);
    const auto k = static_cast<std::size_t>(axis < 0 ? axis + std::ssize(whole) : axis);
    TypedNode iota = nodes_[id];
    iota.payload = static_cast<std::uint64_t>(std::int64_t{-1});
    const Dims own = {whole[k]};
    const NodeId counted = to_.add(iota, own);
    // It has to be computed to be stored.
    const NodeId stored = to_.add({Op::promote, iota.dtype, 1, {counted}}, own);
    Dims seen(whole.size(), 1);
    seen[k] = whole[k];
    const std::uint64_t list = to_.add_list({seen.begin(), seen.end()});
    return to_.add({Op::reshape, iota.dtype, 1, {stored}, list}, seen);
  }

  const ShapedGraph& from_;
  const std::vector<TypedNode>& nodes_;
  std::vector<bool> stored_;  ///< of each iota
  bool is_whole_ = true;      ///< what others than elementwise operations read
  GraphRewriter to_;
};

}  // namespace

ShapedGraph store_iotas(const ShapedGraph& graph) { return IotaStoring(graph).run(); }

}  // namespace kiln::fusion
