// The pass that stores indices which meet reductions (passes.hpp): a kernel that reduces reads
// arrays only, and an index takes as many elements as its axis has, where what is computed of it
// would take as many as what it is broadcast to.
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
  // An iota is stored if something that is computed of it is reduced, or is computed beside what a
  // reduction gives.
  void choose() {
    std::vector<bool> of_iota(nodes_.size(), false);
    std::vector<bool> after_axes(nodes_.size(), false);
    std::vector<bool> meets(nodes_.size(), false);
    for (NodeId id = 0; id < nodes_.size(); ++id) {
      const TypedNode& node = nodes_[id];
      after_axes[id] = has_axes(node.op);
      of_iota[id] = node.op == Op::iota;
      for (const NodeId operand : node.inputs()) {
        after_axes[id] = after_axes[id] || after_axes[operand];
        of_iota[id] = of_iota[id] || (is_elementwise(node.op) && of_iota[operand]);
      }
      meets[id] = of_iota[id] && after_axes[id];
    }
    std::vector<bool> is_random(nodes_.size(),
                                false);  // the numbers of random elements are counted
    for (NodeId id = static_cast<NodeId>(nodes_.size()); id-- > 0;) {
      const TypedNode& node = nodes_[id];
      is_random[id] = is_random[id] || info(node.op).rule == Rule::random;
      for (const NodeId operand : node.inputs()) {
        if (!of_iota[operand]) continue;
        is_random[operand] = is_random[operand] || is_random[id];
        meets[operand] = meets[operand] || has_axes(node.op) || meets[id];
      }
      stored_[id] = node.op == Op::iota && meets[id] && !is_random[id] &&
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
