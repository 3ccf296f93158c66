#include "fusion/infer/reduce_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/infer/iota.hpp"
#include "fusion/infer/shapes.hpp"

namespace kiln::fusion {
namespace {

// The axes along which `from` is longer than `to`, counted within `rank` axes from the end.
std::vector<bool> shortened_axes(const Dims& from, const Dims& to, std::size_t rank) {
  std::vector<bool> axes(rank, false);
  for (std::size_t k = 0; k < from.size(); ++k) {
    axes[rank - from.size() + k] = from[k] != to[k];
  }
  return axes;
}

// The position of a row's only element, 0. A constant would have no shape, and kernels infer shapes
// from what they read: so it is made from the operand, none of whose numbers is below itself.
std::array<TypedNode, 2> only_position(const TypedNode& node) {
  const NodeId operand = node.operands[0];
  TypedNode no;
  no.op = Op::less;
  no.dtype = DType::boolean;
  no.arity = 2;
  no.operands = {operand, operand};
  TypedNode zero;
  zero.op = Op::promote;
  zero.dtype = node.dtype;
  zero.arity = 1;
  return {no, zero};
}

// `before` is how many reductions are on the longest way to each node.
void find_read_again(const TypedGraph& graph, std::span<const Dims> shapes, ReduceSpace& space,
                     const std::vector<int>& before) {
  constexpr int kNone = -1;
  constexpr int kSeveral = -2;
  std::vector<int> pass(graph.nodes.size(), kNone);  // in which a node is needed
  const auto need = [&](NodeId id, int in) {
    pass[id] = pass[id] == kNone || pass[id] == in ? in : kSeveral;
  };
  for (const NodeId output : graph.outputs) {
    if (!is_row_invariant(shapes[output], space)) need(output, space.passes - 1);
  }
  std::vector<bool> again(graph.arguments.size(), false);
  for (NodeId id = static_cast<NodeId>(graph.nodes.size()); id-- > 0;) {
    const TypedNode& node = graph.nodes[id];
    if (is_reduction(node.op)) {
      need(node.operands[0], before[id] - 1);
    } else if (pass[id] != kNone && !is_row_invariant(shapes[id], space)) {
      for (const NodeId operand : node.inputs()) need(operand, pass[id]);
    }
    if (node.op == Op::input && pass[id] == kSeveral) again[node.payload] = true;
  }
  for (std::size_t i = 0; i < again.size(); ++i) {
    if (!graph.arguments[i].scalar) space.read_again.push_back(again[i]);
  }
}

void find_passes(const TypedGraph& graph, std::span<const Dims> shapes, ReduceSpace& space) {
  std::vector<int> before(graph.nodes.size(), 0);     // reductions on the longest way to a node
  std::vector<int> trees(graph.nodes.size() + 1, 0);  // of each pass
  int last = 0;
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    const TypedNode& node = graph.nodes[id];
    for (const NodeId operand : node.inputs()) before[id] = std::max(before[id], before[operand]);
    if (!is_reduction(node.op)) continue;
    last = std::max(last, before[id]);
    int& own = trees[static_cast<std::size_t>(before[id]++)];
    if (!sums_floats(node)) continue;
    space.trees = std::max(space.trees, ++own);
    space.tree_bytes = std::max(space.tree_bytes, bits(compute_dtype(node.dtype)) / 8);
  }
  for (const NodeId output : graph.outputs) {
    if (!is_row_invariant(shapes[output], space)) last = std::max(last, before[output]);
  }
  space.passes = last + 1;
  find_read_again(graph, shapes, space, before);
}

}  // namespace

Dims ReduceSpace::row_shape() const {
  Dims result = shape;
  for (std::size_t k = 0; k < result.size(); ++k) {
    if (reduced[k]) result[k] = 1;
  }
  return result;
}

Dims ReduceSpace::split_shape() const {
  Dims result = row_shape();
  result[split_axis(shape, result)] = splits;
  return result;
}

std::size_t split_axis(const Dims& from, const Dims& to) {
  std::size_t longest = 0;
  for (std::size_t k = 1; k < from.size(); ++k) {
    trace_order(from[k], from[longest]);
    const bool longer = from[longest] == to[longest] || from[k] > from[longest];
    if (from[k] != to[k] && longer) longest = k;
  }
  return longest;
}

TypedGraph drop_trivial_reductions(const TypedGraph& graph, std::vector<Dims>& shapes) {
  ShapedGraph result{without_nodes(graph), {}};
  GraphBuilder builder(result);
  std::vector<NodeId> moved;
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    TypedNode node = graph.nodes[id];
    const bool trivial = is_reduction(node.op) && shapes[node.operands[0]] == shapes[id];
    for (std::size_t i = 0; i < node.arity; ++i) node.operands[i] = moved[node.operands[i]];
    if (trivial && is_arg_reduction(node.op)) {
      auto [no, zero] = only_position(node);
      zero.operands = {builder.append(no, shapes[id])};
      node = zero;
    } else if (trivial) {
      node.op = Op::promote;
      node.payload = 0;
    }
    moved.push_back(builder.append(node, shapes[id]));
  }
  for (const NodeId output : graph.outputs) result.graph.outputs.push_back(moved[output]);
  for (IndexedOperand operand : graph.indexed) {
    operand.place = moved[operand.place];
    result.graph.indexed.push_back(operand);
  }
  for (BoundedAxis bound : graph.bounds) {
    bound.end = moved[bound.end];
    result.graph.bounds.push_back(bound);
  }
  shapes = std::move(result.shapes);
  return std::move(result.graph);
}

bool sums_floats(const TypedNode& reduction) {
  const Op op = reduction.op;
  return (op == Op::sum || op == Op::mean || op == Op::prod) && !is_integer(reduction.dtype);
}

ReduceSpace reduce_space(const TypedGraph& graph, std::span<const Dims> shapes) {
  ReduceSpace space;
  const TypedNode* first = nullptr;
  std::size_t rank = 0;
  for (const Dims& shape : shapes) rank = std::max(rank, shape.size());
  space.reduced.assign(rank, false);
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    const TypedNode& node = graph.nodes[id];
    if (!is_reduction(node.op)) continue;
    ++space.reductions;
    const Dims& operand = shapes[node.operands[0]];
    const std::vector<bool> axes = shortened_axes(operand, shapes[id], rank);
    if (first != nullptr && axes != space.reduced) {
      space.conflict =
          fmt::format("{} and {} reduce different axes", info(first->op).name, info(node.op).name);
      return space;
    }
    first = &node;
    space.reduced = axes;
    const auto wider = broadcast(space.shape, operand);
    if (!wider) {
      space.conflict = "the reductions are over different shapes";
      return space;
    }
    space.shape = *wider;
  }
  const std::size_t from = space.shape.size();
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const auto wider = broadcast(space.shape, shapes[graph.outputs[i]]);
    if (!wider) {
      space.conflict = fmt::format("output {} has another shape than what is reduced", i);
      return space;
    }
    space.shape = *wider;
  }
  if (space.shape.size() < rank || from > rank) rank = space.shape.size();
  space.reduced.erase(
      space.reduced.begin(),
      space.reduced.begin() + static_cast<std::ptrdiff_t>(space.reduced.size() - rank));
  const Dims rows = space.row_shape();
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    const TypedNode& node = graph.nodes[id];
    if (!is_reduction(node.op)) continue;
    // A row's length must be the whole row's: a shorter operand would be counted more than once.
    const Dims& operand = shapes[node.operands[0]];
    for (std::size_t k = 0; k < operand.size(); ++k) {
      const std::size_t axis = rank - operand.size() + k;
      if (space.reduced[axis] && operand[k] != space.shape[axis]) {
        space.conflict =
            fmt::format("{} is over a shorter axis than another value", info(node.op).name);
        return space;
      }
    }
  }
  find_passes(graph, shapes, space);
  space.gives_places = std::ranges::any_of(
      graph.nodes, [](const TypedNode& node) { return is_arg_reduction(node.op); });
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const Dims& shape = shapes[graph.outputs[i]];
    if (!same_but_for_ones_in_front(shape, space.shape) &&
        !same_but_for_ones_in_front(shape, rows)) {
      space.conflict = fmt::format(
          "output {} has shape {}, which is neither that of the rows, {}, "
          "nor that of what is reduced from them, {}",
          i, to_string(shape), to_string(space.shape), to_string(rows));
      return space;
    }
  }
  return space;
}

bool is_row_invariant(const Dims& shape, const ReduceSpace& space) {
  for (std::size_t k = 0; k < shape.size(); ++k) {
    const std::size_t axis = space.shape.size() - shape.size() + k;
    if (space.reduced[axis] && shape[k] != 1) return false;
  }
  return true;
}

std::vector<std::int64_t> iotas_within_rows(const TypedGraph& graph, const ReduceSpace& space) {
  std::vector<std::int64_t> found;
  for (const TypedNode& node : graph.nodes) {
    if (node.op != Op::iota) continue;
    const std::int64_t axis = iota_axis(node);
    const auto k = static_cast<std::size_t>(axis < 0 ? axis + std::ssize(space.shape) : axis);
    const bool within = axis == kAllAxes || space.reduced[k];
    if (within && std::ranges::find(found, axis) == found.end()) found.push_back(axis);
  }
  return found;
}

std::vector<bool> row_invariant_nodes(const TypedGraph& graph,
                                      const std::vector<bool>& row_invariant_arguments,
                                      std::span<const std::int64_t> iotas_within_rows) {
  std::vector<bool> invariant;
  for (const TypedNode& node : graph.nodes) {
    bool is_one = node.op != Op::input || row_invariant_arguments[node.payload];
    if (node.op == Op::iota) {
      is_one = std::ranges::find(iotas_within_rows, iota_axis(node)) == iotas_within_rows.end();
    }
    if (!is_reduction(node.op)) {
      for (const NodeId operand : node.inputs()) is_one = is_one && invariant[operand];
    }
    invariant.push_back(is_one);
  }
  return invariant;
}

}  // namespace kiln::fusion
