// The pass that gives places of take and put the axes that follow them in the array, with one
// element along each (passes.hpp), so that they broadcast against what is read or written there.
#include <algorithm>

#include "fusion/graph/indexed.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/passes/passes.hpp"

namespace kiln::fusion {
namespace {

bool has_places(const TypedNode& node) { return node.op == Op::take || node.op == Op::put; }

class PlaceExpansion {
 public:
  explicit PlaceExpansion(const ShapedGraph& from) : from_(from), to_(from) {}

  ShapedGraph run() {
    return to_.run([&](NodeId id) {
      if (!has_places(from_.graph.nodes[id])) return to_.copy(id);
      TypedNode node = to_.moved_node(id);
      const std::size_t after = axes_after(node);
      if (after != 0 && !to_.shape(node.operands[1]).empty()) {
        node.operands[1] = expanded(node.operands[1], after);
      }
      return to_.add(node, from_.shapes[id]);
    });
  }

 private:
  const ShapeList& list_of(const TypedNode& node) const {
    return to_.graph().tables->lists[node.payload];
  }

  // The axes of the array that follow the indexed one.
  std::size_t axes_after(const TypedNode& node) const {
    const Dims& array = to_.shape(node.operands[0]);
    return array.size() - 1 - indexed_axis(node.op, list_of(node), array, "places");
  }

  // A value with so many more axes of one element. Places that are taken from the last axis of an
  // array are so at expanded places.
  NodeId expanded(NodeId id, std::size_t axes) {
    TypedNode node = to_.node(id);
    const Dims shape = to_.shape(id);
    Dims wanted(shape.size() + axes, 1);
    std::ranges::copy(shape, wanted.begin());
    if (node.op == Op::take && axes_after(node) == 0 && !to_.shape(node.operands[1]).empty()) {
      node.operands[1] = expanded(node.operands[1], axes);
      return to_.add(node, wanted);
    }
    // An extent of 0 stands for the operand's own.
    const std::vector<std::int64_t> extents(wanted.begin(), wanted.end());
    return to_.add({Op::reshape, node.dtype, 1, {id}, to_.add_list(extents)}, wanted);
  }

  const ShapedGraph& from_;
  GraphRewriter to_;
};

}  // namespace

ShapedGraph expand_places(const ShapedGraph& graph) {
  return std::ranges::any_of(graph.graph.nodes, has_places) ? PlaceExpansion(graph).run() : graph;
}

}  // namespace kiln::fusion
