// See dissolved_views.hpp.
#include "fusion/passes/dissolved_views.hpp"

#include <optional>
#include <utility>

#include "fusion/graph/indexed.hpp"
#include "fusion/graph/reshape.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/passes/placed_graph.hpp"
#include "fusion/passes/taken_views.hpp"

namespace kiln::fusion {
namespace {

class Dissolution {
 public:
  Dissolution(const ShapedGraph& from, std::span<const ArrayLayout> arguments,
              std::span<const Ends> bounds)
      : from_(from),
        arguments_(arguments),
        bounds_(bounds),
        is_put_(from.graph.nodes.size(), false) {
    made_.uses = use_counts(from.graph);
    made_.dissolved = is_put_;
  }

  DissolvedViews run(std::span<const ArrayLayout> outputs) {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      std::vector<StoredPart>& parts = made_.outputs.emplace_back();
      dissolve({from_.graph.outputs[i], outputs[i], {}}, true, parts);
    }
    for (auto id = static_cast<NodeId>(from_.graph.nodes.size()); id-- > 0;) {
      const Op op = source(id).op;
      if (op == Op::put) dissolve_put(id);
      if (op != Op::concat || made_.dissolved[id]) continue;
      dissolve({id, contiguous_layout(from_.shapes[id]), {}}, false, made_.concats[id]);
    }
    return std::move(made_);
  }

 private:
  const TypedNode& source(NodeId id) const { return from_.graph.nodes[id]; }

  // Each of the values that a concatenation is made of is put by itself, whoever else reads the
  // whole.
  void dissolve_put(NodeId id) {
    const TypedNode& node = source(id);
    const TypedNode& array = source(node.operands[0]);
    const Dims shape =
        taken_shape(from_.shapes[id], places_of(from_, node), places_axis(from_, node));
    const bool bounded = !bounds_.empty() && !bounds_[node.operands[2]].empty();
    if (array.op != Op::input || bounded || from_.shapes[node.operands[2]] != shape) return;
    auto parts = put_parts(from_, id, indexed_layout(from_, node, arguments_[array.payload]));
    if (!parts) return;
    bool ours = true;  // nothing else reads what is above
    for (const NodeId above : parts->above) {
      ours = ours && made_.uses[above] == 1;
      if (ours) made_.dissolved[above] = true;
    }
    for (const PutPart& part : parts->parts) is_put_[part.value] = true;
    made_.puts[id] = std::move(parts->parts);
  }

  // Splits what lies at `whole.layout` into parts. The root of a join stays.
  void dissolve(const StoredPart& whole, bool with_root, std::vector<StoredPart>& parts) {
    std::vector<StoredPart> open{whole};
    for (bool root = true; !open.empty(); root = false) {
      StoredPart part = std::move(open.back());
      open.pop_back();
      const TypedNode& node = source(part.value);
      const bool stays = root && !with_root;
      // Parts of a packed array would share a byte; a join has a byte for each number.
      const bool single = made_.uses[part.value] == 1 && !is_put_[part.value];
      const bool ours = stays || (single && !is_packed(node.dtype));
      const bool dissolves = ours && (node.op == Op::concat || is_movable(part.value));
      if (!dissolves || !push_operands(part, open)) {
        parts.push_back(std::move(part));
        continue;
      }
      if (!stays) made_.dissolved[part.value] = true;
    }
  }

  // Whether a value of one operand is better dissolved: something is computed below it.
  bool is_movable(NodeId id) const {
    bool shaped = false;
    if (!bounds_.empty() && !bounds_[id].empty()) return false;
    while (true) {
      const TypedNode& node = source(id);
      if (node.op == Op::concat) return true;
      const bool shapes = is_shape_op(node.op);
      const bool single = node.arity == 1 && (shapes || is_elementwise(node.op));
      if (!single) return shaped && is_computed(node);
      shaped = shaped || shapes;
      const NodeId below = node.operands[0];
      if (made_.uses[below] != 1) return shaped && shapes && is_computed(source(below));
      id = below;
    }
  }

  bool push_operands(const StoredPart& part, std::vector<StoredPart>& open) {
    const TypedNode& node = source(part.value);
    if (node.op == Op::concat) {
      const Dims& first = from_.shapes[node.operands[0]];
      const std::int64_t given = shape_list(from_.graph, node)[0];
      const auto axis = static_cast<std::size_t>(
          given < 0 ? given + static_cast<std::int64_t>(first.size()) : given);
      StoredPart second{node.operands[1], part.layout, part.then};
      second.layout.offset += first[axis] * part.layout.strides[axis];
      open.push_back(std::move(second));
      open.push_back({node.operands[0], part.layout, part.then});
      return true;
    }
    const NodeId operand = node.operands[0];
    if (!is_shape_op(node.op)) {
      open.push_back({operand, part.layout, part.then});
      open.back().then.push_back(part.value);
      return true;
    }
    const Dims& shape = from_.shapes[operand];
    const Dims& seen_shape = from_.shapes[part.value];
    const auto seen = result_layout(node.op, shape_list(from_.graph, node), shape, seen_shape,
                                    contiguous_layout(shape));
    if (!seen) return false;
    const auto behind = layout_behind(shape, seen_shape, *seen, part.layout);
    if (!behind) return false;
    open.push_back({operand, *behind, part.then});
    return true;
  }

  const ShapedGraph& from_;
  std::span<const ArrayLayout> arguments_;
  std::span<const Ends> bounds_;
  std::vector<bool> is_put_;  ///< values that are parts of what is put
  DissolvedViews made_;
};

}  // namespace

DissolvedViews dissolve_views(const ShapedGraph& graph, std::span<const ArrayLayout> arguments,
                              std::span<const ArrayLayout> outputs, std::span<const Ends> bounds) {
  return Dissolution(graph, arguments, bounds).run(outputs);
}

}  // namespace kiln::fusion
