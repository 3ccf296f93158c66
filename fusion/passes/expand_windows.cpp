// The pass that computes reductions over small windows element by element (passes.hpp): of the mean
// of 2 by 2 pixels, the sum of four views of the image, each with every other pixel of every other
// line. One work item then has as many results as a vector has elements, where it had one.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/passes/passes.hpp"

namespace kiln::fusion {
namespace {

constexpr std::int64_t kMostInWindow = 16;  ///< of a window
constexpr std::int64_t kMostAlong = 4;  ///< of it along the innermost axis: OperandSchedule::ways

std::optional<Op> combining_op(Op op) {
  switch (op) {
    case Op::sum:
    case Op::mean: return Op::add;
    case Op::reduce_max: return Op::maximum;
    case Op::reduce_min: return Op::minimum;
    default: return std::nullopt;
  }
}

class WindowExpanding {
 public:
  explicit WindowExpanding(const ShapedGraph& from)
      : from_(from), to_(from), users_(users_of(from.graph.nodes)) {}

  ShapedGraph run() {
    return to_.run([&](NodeId id) { return is_window(id) ? expand(id) : to_.copy(id); });
  }

 private:
  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }
  const Dims& shape(NodeId id) const { return from_.shapes[id]; }
  const Dims& reduced_shape(NodeId id) const { return shape(node(id).operands[0]); }

  // Whether a few elements of several axes are reduced, the innermost and others that are not next
  // to it, of an array that nothing else needs in that shape.
  bool is_window(NodeId id) const {
    if (!is_reduction(node(id).op) || !combining_op(node(id).op)) return false;
    const NodeId source = node(id).operands[0];
    if (!is_floating(node(id).dtype) || node(source).dtype != node(id).dtype) return false;
    if (!is_array(source) || !is_only_reduced(source)) return false;
    const Dims& from = reduced_shape(id);
    std::int64_t elements = 1;
    bool kept_before = false;  // an axis that is kept, after which others are reduced
    bool apart = false;
    for (std::size_t k = from.size(); k-- > 0;) {
      if (from[k] == 1) continue;
      const bool reduced = shape(id)[k] != from[k];
      if (elements == 1 && (!reduced || !is_at_most(from[k], kMostAlong))) return false;
      if (reduced && !is_at_most(from[k] * elements, kMostInWindow)) return false;
      if (reduced) elements *= from[k];
      apart = apart || (reduced && kept_before);
      kept_before = kept_before || !reduced;
    }
    return apart;
  }

  static bool is_at_most(std::int64_t number, std::int64_t most) {
    SizeSum().add(1, number).add(-static_cast<double>(most), 1).decide();
    return number > 0 && number <= most;
  }

  bool is_array(NodeId id) const {
    while (is_view_op(node(id).op)) id = node(id).operands[0];
    return node(id).op == Op::input;
  }

  bool is_only_reduced(NodeId id) const {
    for (const NodeId user : users_[id]) {
      if (!is_reduction(node(user).op) || !combining_op(node(user).op)) return false;
    }
    for (const NodeId output : from_.graph.outputs) {
      if (output == id) return false;
    }
    return true;
  }

  // In the order of the tree of numerics.md: elements that are half of all residues apart first.
  NodeId expand(NodeId id) {
    const TypedNode& own = node(id);
    const DType dtype = compute_dtype(own.dtype);
    std::vector<NodeId> partial{to_.moved(own.operands[0])};
    for (std::size_t k = 0; k < shape(id).size(); ++k) {
      if (shape(id)[k] != reduced_shape(id)[k]) partial = slices(partial, k);
    }
    for (NodeId& element : partial) element = to_.converted(element, dtype);
    for (std::size_t half = std::bit_ceil(partial.size()) / 2; half != 0; half /= 2) {
      for (std::size_t i = 0; i + half < partial.size(); ++i) {
        partial[i] = to_.combined(*combining_op(own.op), partial[i], partial[i + half]);
      }
      partial.resize(std::min(half, partial.size()));
    }
    NodeId result = partial[0];
    if (own.op == Op::sum || own.op == Op::mean) {
      // A sum of nothing but -0 is +0.
      result = to_.combined(Op::add, result, to_.number(0, dtype));
    }
    if (own.op == Op::mean) {
      const std::int64_t elements = element_count(reduced_shape(id)) / element_count(shape(id));
      result = to_.combined(Op::div, result, to_.number(static_cast<double>(elements), dtype));
    }
    return to_.converted(result, own.dtype);
  }

  // Of each value, its elements along an axis, one after the other.
  std::vector<NodeId> slices(const std::vector<NodeId>& values, std::size_t axis) {
    std::vector<NodeId> result;
    for (const NodeId value : values) {
      Dims one = to_.shape(value);
      const std::int64_t extent = one[axis];
      SizeSum().add(1, extent).add(-static_cast<double>(extent), 1).decide();
      one[axis] = 1;
      for (std::int64_t at = 0; at < extent; ++at) {
        const std::uint64_t list =
            to_.add_list({static_cast<std::int64_t>(axis), at, at + 1, std::int64_t{1}});
        result.push_back(to_.add({Op::slice, to_.node(value).dtype, 1, {value}, list}, one));
      }
    }
    return result;
  }

  const ShapedGraph& from_;
  GraphRewriter to_;
  std::vector<std::vector<NodeId>> users_;
};

}  // namespace

ShapedGraph expand_windows(const ShapedGraph& graph) { return WindowExpanding(graph).run(); }

}  // namespace kiln::fusion
