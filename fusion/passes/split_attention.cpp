#include "fusion/passes/split_attention.hpp"

#include <algorithm>
#include <unordered_map>

#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/infer/attention_space.hpp"

namespace kiln::fusion {
namespace {

class AttentionSplitter {
 public:
  explicit AttentionSplitter(const ShapedGraph& from) : from_(from), to_(from) {
    for (const Dims& shape : from.shapes) rank_ = std::max(rank_, shape.size());
  }

  ShapedGraph run() {
    for (AttentionNodes& nodes : find_attention(from_)) {
      if (splits_of(nodes) > 1 && can_be_replaced(nodes)) {
        const NodeId last = nodes.inside.back();
        split_at_.emplace(last, std::move(nodes));
      }
    }
    return to_.run([&](NodeId id) {
      const auto attention = split_at_.find(id);
      if (attention != split_at_.end()) {
        split(attention->second);
        const auto own = replaced_.find(id);
        if (own != replaced_.end()) return own->second;
      }
      TypedNode node = to_.moved_node(id);
      for (std::size_t i = 0; i < node.arity; ++i) {
        const NodeId operand = from_.graph.nodes[id].operands[i];
        const auto other = replaced_.find(operand);
        if (other != replaced_.end()) node.operands[i] = other->second;
        const auto row = of_rows_.find(operand);
        if (row == of_rows_.end()) continue;
        const Rows& rows = row->second;
        node.operands[i] = from_.shapes[id] == rows.whole ? rows.seen : joined_rows(rows);
      }
      return to_.add(node, from_.shapes[id]);
    });
  }

 private:
  std::int64_t splits_of(const AttentionNodes& nodes) const {
    const Dims& scores = from_.shapes[nodes.scores];
    const std::size_t more = rank_ - scores.size();
    if (nodes.key < more) return 1;
    const std::int64_t keys = scores[nodes.key - more];
    const std::int64_t splits = attention_splits(keys);
    trace_key_splits(keys, splits);
    return splits;
  }

  // What is an output itself can be replaced only where it is the last one and the result.
  bool can_be_replaced(const AttentionNodes& nodes) const {
    const auto& outputs = from_.graph.outputs;
    const auto is_output = [&](NodeId id) {
      const bool is_last = id == nodes.result && id == nodes.inside.back();
      return !is_last && std::ranges::find(outputs, id) != outputs.end();
    };
    return !is_output(nodes.largest) && !is_output(nodes.total) && !is_output(nodes.result);
  }

  // The largest score of each row, or its sum of weights, joined twice: seen in the shape of the
  // results beside which one kernel computes it, and in its own where something else needs it.
  struct Rows {
    DType dtype = DType::f32;
    Dims whole;             ///< the results' shape
    NodeId seen = 0;        ///< in that shape
    NodeId largest = 0;     ///< of each part
    NodeId total = 0;       ///< of each part
    bool is_total = false;  ///< which of the two it is
    const AttentionNodes* nodes = nullptr;
  };

  NodeId joined_rows(const Rows& rows) {
    key_ = rows.nodes->key;
    const NodeId most = reduce(Op::reduce_max, rows.largest);
    NodeId result = most;
    if (rows.is_total) {
      const Dims parts = to_.shape(rows.largest);
      const NodeId below = binary(Op::sub, rows.largest, most, parts);
      const NodeId scale = to_.add({Op::exp, DType::f32, 1, {below}, 0}, parts);
      result = sum_of_keys(*rows.nodes, reduce(Op::sum, binary(Op::mul, rows.total, scale, parts)));
    }
    return to_.converted(result, rows.dtype);
  }

  NodeId binary(Op op, NodeId a, NodeId b, const Dims& shape) {
    return to_.add({op, DType::f32, 2, {a, b}, 0}, shape);
  }

  // Over the parts, which lie along the axis of the keys.
  NodeId reduce(Op op, NodeId id) {
    Dims shape = to_.shape(id);
    const std::size_t key = key_ - (rank_ - shape.size());
    const AxisSet axis = AxisSet{1} << (32 + shape.size() - key - 1);
    shape[key] = 1;
    return to_.add({op, DType::f32, 1, {id}, axis}, shape);
  }

  Dims in_parts(Dims shape, const AttentionNodes& nodes) const {
    shape[nodes.key - (rank_ - shape.size())] = splits_of(nodes);
    return shape;
  }

  void split(const AttentionNodes& nodes) {
    const auto partial = [&](NodeId old, NodeId operand) {
      TypedNode node = from_.graph.nodes[old];
      node.dtype = DType::f32;
      node.operands = {operand};
      return to_.add(node, in_parts(from_.shapes[old], nodes));
    };
    key_ = nodes.key;
    const NodeId scores = to_.converted(to_.moved(nodes.scores), DType::f32);
    const Dims over_keys = to_.shape(scores);
    const NodeId largest = partial(nodes.largest, scores);
    const NodeId below = binary(Op::sub, scores, largest, over_keys);
    const NodeId weights = to_.add({Op::exp, DType::f32, 1, {below}, 0}, over_keys);
    const NodeId total = partial(nodes.total, weights);
    const NodeId weighted =
        binary(Op::mul, weights, to_.converted(to_.moved(nodes.values), DType::f32),
               from_.shapes[from_.graph.nodes[nodes.result].operands[0]]);
    const NodeId result = partial(nodes.result, weighted);
    join(nodes, largest, total, result);
  }

  // A sum over the keys, which is 0 where there is none: no part has a largest score then. In the
  // sum's shape the comparison takes no kernel of its own.
  NodeId sum_of_keys(const AttentionNodes& nodes, NodeId sum) {
    const Dims shape = to_.shape(sum);
    for (const BoundedAxis& bound : nodes.ends) {
      const NodeId end = to_.moved(bound.end);
      const NodeId zero = to_.add({Op::constant, to_.node(end).dtype, 0, {}, 0}, {});
      const NodeId any = to_.add({Op::greater, DType::boolean, 2, {end, zero}, 0}, shape);
      const NodeId none = to_.add({Op::constant, DType::f32, 0, {}, 0}, {});
      sum = to_.add({Op::where, DType::f32, 3, {any, sum, none}, 0}, shape);
    }
    return sum;
  }

  // The parts' results, all seen in one shape so that one kernel reduces them.
  void join(const AttentionNodes& nodes, NodeId largest, NodeId total, NodeId result) {
    const Dims parts = to_.shape(result);
    const auto seen = [&](NodeId id) {
      return to_.add({Op::promote, DType::f32, 1, {id}, 0}, parts);
    };
    const NodeId own = seen(largest);
    const NodeId most = reduce(Op::reduce_max, own);
    const NodeId below = binary(Op::sub, own, most, parts);
    const NodeId scale = to_.add({Op::exp, DType::f32, 1, {below}, 0}, parts);
    const NodeId all = reduce(Op::sum, binary(Op::mul, seen(total), scale, parts));
    NodeId sum = reduce(Op::sum, binary(Op::mul, result, scale, parts));
    const Dims whole = to_.shape(sum);
    if (nodes.normalised) {
      const NodeId inverse = to_.add({Op::reciprocal, DType::f32, 1, {all}, 0}, whole);
      sum = binary(Op::mul, sum, inverse, whole);
    }
    const auto dtype = [&](NodeId old) { return from_.graph.nodes[old].dtype; };
    replaced_[nodes.result] = to_.converted(sum_of_keys(nodes, sum), dtype(nodes.result));
    of_rows_[nodes.largest] = {dtype(nodes.largest),
                               whole,
                               to_.converted(most, dtype(nodes.largest)),
                               largest,
                               total,
                               false,
                               &nodes};
    of_rows_[nodes.total] = {dtype(nodes.total),
                             whole,
                             to_.converted(sum_of_keys(nodes, all), dtype(nodes.total)),
                             largest,
                             total,
                             true,
                             &nodes};
  }

  const ShapedGraph& from_;
  GraphRewriter to_;
  std::size_t rank_ = 0;
  std::unordered_map<NodeId, AttentionNodes> split_at_;  ///< by the last node inside
  std::unordered_map<NodeId, NodeId> replaced_;          ///< results of those, by what joins them
  std::unordered_map<NodeId, Rows> of_rows_;             ///< of each row, likewise
  std::size_t key_ = 0;                                  ///< the axis of the keys that are split
};

}  // namespace

ShapedGraph split_attention(const ShapedGraph& graph) { return AttentionSplitter(graph).run(); }

}  // namespace kiln::fusion
