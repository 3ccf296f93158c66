// The pass that reads two elements in reverse order one by one (passes.hpp): of x = sum(w * y,
// -1), reshape(x, n, 2, h)[:, ::-1] becomes the concatenation of both halves, which the kernel of x
// computes with what is made of them.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/infer/bounds.hpp"
#include "fusion/passes/parts.hpp"
#include "fusion/passes/passes.hpp"

namespace kiln::fusion {
namespace {

class ReversalExpanding {
 public:
  explicit ReversalExpanding(const ShapedGraph& from)
      : from_(from), to_(from), users_(users_of(from.graph.nodes)) {
    if (has_bounds(from)) bounds_ = infer_bounds(from, "slice");
  }

  ShapedGraph run() {
    return to_.run([&](NodeId id) { return is_reversal(id) ? expand(id) : to_.copy(id); });
  }

 private:
  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }
  const ShapeList& list_of(NodeId id) const { return shape_list(from_.graph, node(id)); }

  std::size_t axis_of(NodeId id) const {
    const std::int64_t axis = list_of(id)[0];
    return static_cast<std::size_t>(axis < 0 ? axis + std::ssize(from_.shapes[id]) : axis);
  }

  // Whether two elements go backwards along an axis of what a reduction gives, and meet what else
  // is computed of it: else, and of more elements, their concatenation would be stored for a kernel
  // of its own.
  bool is_reversal(NodeId id) const {
    if (node(id).op != Op::slice || list_of(id)[3] >= 0 || is_packed(node(id).dtype)) return false;
    if (!bounds_.empty() && !bounds_[id].empty()) return false;
    const std::int64_t count = from_.shapes[id][axis_of(id)];
    trace_order(count, 2);
    if (count != 2) return false;
    return comes_of_reduction(from_, node(id).operands[0], false) &&
           meets_its_reduction(from_.graph, users_, id);
  }

  NodeId expand(NodeId id) {
    const ShapeList list = list_of(id);
    const std::size_t axis = axis_of(id);
    const NodeId whole = to_.moved(node(id).operands[0]);
    const std::int64_t extent = to_.shape(whole)[axis];
    const std::int64_t start = list[1] == kOmitted ? -1 : list[1];
    const std::int64_t first = std::min(start < 0 ? start + extent : start, extent - 1);
    Dims one = from_.shapes[id];
    one[axis] = 1;
    const auto along = static_cast<std::int64_t>(axis);
    const auto part = [&](std::int64_t at) {
      const std::uint64_t place = to_.add_list({along, at, at + 1, 1});
      return to_.add({Op::slice, node(id).dtype, 1, {whole}, place}, one);
    };
    const NodeId last = part(first);
    const NodeId other = part(first + list[3]);
    const std::uint64_t place = to_.add_list({along});
    return to_.add({Op::concat, node(id).dtype, 2, {last, other}, place}, from_.shapes[id]);
  }

  const ShapedGraph& from_;
  GraphRewriter to_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<Ends> bounds_;  ///< of each node; none if nothing is bounded
};

}  // namespace

ShapedGraph expand_reversals(const ShapedGraph& graph) {
  const auto reverses = [&](const TypedNode& node) {
    return node.op == Op::slice && shape_list(graph.graph, node)[3] < 0;
  };
  if (std::ranges::none_of(graph.graph.nodes, reverses)) return graph;
  return ReversalExpanding(graph).run();
}

}  // namespace kiln::fusion
