#include "fusion/passes/passes.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/reference/node.hpp"
#include "fusion/reference/operation.hpp"

namespace kiln::fusion {
namespace {

// ---- Simplification ----------------------------------------------------------------------------

bool is_exact_widening(DType from, DType to) {
  if (kind(from) == Kind::boolean) return is_integer(to);
  if (!is_integer(from) || !is_integer(to) || bits(to) < bits(from)) return false;
  return kind(from) == kind(to) || (kind(from) == Kind::unsigned_integer && bits(to) > bits(from));
}

// The value of a constant node, as a device has it.
reference::Value value_of(const TypedGraph& graph, const TypedNode& node) {
  return reference::evaluate_node(graph, node, {});
}

bool is_number(const TypedGraph& graph, NodeId id, double number) {
  const TypedNode& node = graph.nodes[id];
  if (node.op != Op::constant || kind(node.dtype) == Kind::complex) return false;
  const reference::Value value = value_of(graph, node);
  if (!is_floating(node.dtype)) return value.integer == static_cast<reference::Integer>(number);
  return value.real == static_cast<long double>(number) &&
         std::signbit(value.real) == std::signbit(number);
}

// Whether a value has been rounded to its dtype, as an array's elements are.
bool is_rounded(const TypedGraph& graph, NodeId id) {
  while (is_view_op(graph.nodes[id].op)) id = graph.nodes[id].operands[0];
  const Op op = graph.nodes[id].op;
  return op == Op::cast || op == Op::input || op == Op::custom_call;
}

std::optional<std::size_t> same_as_operand(const TypedGraph& graph, const TypedNode& node) {
  const auto& x = node.operands;
  const auto is = [&](std::size_t i, double number) { return is_number(graph, x[i], number); };
  const bool floating = is_floating(node.dtype);
  const bool integral = is_integer(node.dtype);
  if (info(node.op).idempotent && x[0] == x[1]) return 0;
  switch (node.op) {
    case Op::promote:
    case Op::cast: {
      const bool same = graph.nodes[x[0]].dtype == node.dtype;
      const bool rounds = node.op == Op::cast && compute_dtype(node.dtype) != node.dtype &&
                          !is_rounded(graph, x[0]);
      if (same && !rounds) return 0;
      return std::nullopt;
    }
    case Op::mul:
      if (!floating && !integral) return std::nullopt;
      if (is(1, 1)) return 0;
      if (is(0, 1)) return 1;
      return std::nullopt;
    case Op::div:
      if (floating && is(1, 1)) return 0;
      return std::nullopt;
    case Op::sub:
      if ((floating || integral) && is(1, 0.0)) return 0;
      return std::nullopt;
    case Op::add:
      if (!floating && !integral) return std::nullopt;
      if (is(1, floating ? -0.0 : 0)) return 0;
      if (is(0, floating ? -0.0 : 0)) return 1;
      return std::nullopt;
    case Op::where:
      if (x[1] == x[2]) return 1;
      if (is(0, 1)) return 1;
      if (is(0, 0)) return 2;
      return std::nullopt;
    default: return std::nullopt;
  }
}

// What an operation that undoes another gives back.
std::optional<NodeId> undone(const TypedGraph& graph, const TypedNode& node) {
  if (node.arity != 1) return std::nullopt;
  const TypedNode& inner = graph.nodes[node.operands[0]];
  if (info(node.op).undoes_itself && inner.op == node.op &&
      graph.nodes[inner.operands[0]].dtype == node.dtype) {
    return inner.operands[0];
  }
  switch (node.op) {
    case Op::abs:
      if (inner.op == Op::abs) return node.operands[0];
      return std::nullopt;
    case Op::cast: {
      if (inner.op != Op::cast && inner.op != Op::promote) return std::nullopt;
      const DType first = graph.nodes[inner.operands[0]].dtype;
      if (first == node.dtype && is_exact_widening(first, inner.dtype)) return inner.operands[0];
      return std::nullopt;
    }
    default: return std::nullopt;
  }
}

// ---- Views -------------------------------------------------------------------------------------

// A slice of neighbours with its axis and places counted from the front, so that equal ones are one
// node. One without elements stays.
void number_slice(GraphRewriter& to, TypedNode& node, const Dims& result) {
  const ShapeList list = shape_list(to.graph(), node);
  const Dims& whole = to.shape(node.operands[0]);
  const std::int64_t axis = list[0] < 0 ? list[0] + std::ssize(whole) : list[0];
  const std::int64_t length = whole[static_cast<std::size_t>(axis)];
  const std::int64_t count = result[static_cast<std::size_t>(axis)];
  if (list[3] != 1 || count == 0) return;
  const std::int64_t start = list[1] == kOmitted ? 0 : list[1] < 0 ? list[1] + length : list[1];
  const std::int64_t first = std::max<std::int64_t>(start, 0);
  node.payload = to.add_list({axis, first, first + count, 1});
}

// ---- Constants ---------------------------------------------------------------------------------

bool is_constant(const TypedGraph& graph, const TypedNode& node) {
  if (node.arity == 0 || !is_elementwise(node.op)) return false;
  for (const NodeId operand : node.inputs()) {
    if (graph.nodes[operand].op != Op::constant) return false;
  }
  return info(node.dtype).storage_only == false && kind(node.dtype) != Kind::complex;
}

std::optional<TypedNode> folded(const TypedGraph& graph, const TypedNode& node) {
  std::array<reference::Value, 3> operands;
  for (std::size_t i = 0; i < node.arity; ++i) {
    const TypedNode& operand = graph.nodes[node.operands[i]];
    if (kind(operand.dtype) == Kind::complex) return std::nullopt;
    operands[i] = value_of(graph, operand);
  }
  // Under Rounding::once a narrow constant has the bits of what it is computed in.
  const bool narrow = compute_dtype(node.dtype) != node.dtype;
  const bool is_wide = narrow && graph.rounding == Rounding::once;
  const DType stored = is_wide ? DType::f32 : node.dtype;
  const std::span<const reference::Value> given = std::span(operands).first(node.arity);
  reference::Value value;
  // What devices round correctly has to be rounded in its own format, not in a wider one before.
  if (is_floating(stored) && info(node.op).ieee) {
    TypedNode own = node;
    own.dtype = stored;
    value = reference::operate(own, given, Rounding::each);
  } else {
    value = reference::evaluate_node(graph, node, given);
  }
  value.dtype = node.dtype;
  value = reference::convert(value, stored, true);
  if (std::isnan(value.real)) return std::nullopt;
  TypedNode constant;
  constant.op = Op::constant;
  constant.dtype = node.dtype;
  constant.payload = reference::encode(value);
  return constant;
}

// ---- Clamps ------------------------------------------------------------------------------------

// The magnitude that everything larger is stored as.
std::optional<double> saturates_at(DType dtype) {
  switch (dtype) {
    case DType::f8e4m3: return 448;
    case DType::f8e4m3fnuz: return 240;
    case DType::f8e5m2:
    case DType::f8e5m2fnuz: return 57344;
    case DType::f4e2m1: return 6;
    default: return std::nullopt;
  }
}

// What a value is but for a bound beyond `largest`.
std::optional<NodeId> inside_clamp(const TypedGraph& graph, NodeId id, double largest) {
  const TypedNode& node = graph.nodes[id];
  const auto number = [&](std::size_t i) -> std::optional<long double> {
    const TypedNode& operand = graph.nodes[node.operands[i]];
    if (operand.op != Op::constant || !is_floating(operand.dtype)) return std::nullopt;
    return value_of(graph, operand).real;
  };
  const auto is_below = [&](std::size_t i) { return number(i) && *number(i) <= -largest; };
  const auto is_above = [&](std::size_t i) { return number(i) && *number(i) >= largest; };
  switch (node.op) {
    case Op::clip:
      if (is_below(1) && is_above(2)) return node.operands[0];
      return std::nullopt;
    case Op::maximum:
      if (is_below(1)) return node.operands[0];
      if (is_below(0)) return node.operands[1];
      return std::nullopt;
    case Op::minimum:
      if (is_above(1)) return node.operands[0];
      if (is_above(0)) return node.operands[1];
      return std::nullopt;
    default: return std::nullopt;
  }
}

}  // namespace

ShapedGraph simplify(const ShapedGraph& graph) {
  GraphRewriter to(graph);
  return to.run([&](NodeId id) {
    TypedNode node = to.moved_node(id);
    if (node.op == Op::reshape && to.node(node.operands[0]).op == Op::reshape) {
      node.operands[0] = to.node(node.operands[0]).operands[0];
      node.payload = to.add_list({graph.shapes[id].begin(), graph.shapes[id].end()});
    }
    if (node.op == Op::slice) number_slice(to, node, graph.shapes[id]);
    std::optional<NodeId> instead;
    const bool slices = node.op == Op::slice && shape_list(to.graph(), node)[3] == 1;
    if (node.op == Op::reshape || slices) {
      instead = node.operands[0];
    } else if (const auto operand = same_as_operand(to.graph(), node)) {
      instead = node.operands[*operand];
    } else {
      instead = undone(to.graph(), node);
    }
    // What stands for a value must have its shape, also where the other operand was the larger one.
    const bool fits =
        instead && to.node(*instead).dtype == node.dtype && to.shape(*instead) == graph.shapes[id];
    return fits ? *instead : to.add(node, graph.shapes[id]);
  });
}

ShapedGraph fold_constants(const ShapedGraph& graph) {
  GraphRewriter to(graph);
  return to.run([&](NodeId id) {
    const TypedNode node = to.moved_node(id);
    const auto constant = is_constant(to.graph(), node) ? folded(to.graph(), node) : std::nullopt;
    return to.add(constant.value_or(node), graph.shapes[id]);
  });
}

ShapedGraph drop_clamps(const ShapedGraph& graph) {
  GraphRewriter to(graph);
  return to.run([&](NodeId id) {
    TypedNode node = to.moved_node(id);
    const std::optional<double> largest =
        node.op == Op::cast ? saturates_at(node.dtype) : std::nullopt;
    while (largest) {
      const std::optional<NodeId> inner = inside_clamp(to.graph(), node.operands[0], *largest);
      if (!inner) break;
      node.operands[0] = *inner;
    }
    return to.add(node, graph.shapes[id]);
  });
}

TypedGraph drop_clamps(const TypedGraph& graph) {
  const auto saturates = [](const TypedNode& node) {
    return node.op == Op::cast && saturates_at(node.dtype).has_value();
  };
  if (std::ranges::none_of(graph.nodes, saturates)) return graph;
  const ShapedGraph shapeless = {graph, std::vector<Dims>(graph.nodes.size())};
  return drop_clamps(shapeless).graph;
}

ShapedGraph share_common(const ShapedGraph& graph) {
  GraphRewriter to(graph);
  return to.run([&](NodeId id) { return to.copy(id); });
}

ShapedGraph optimise(const ShapedGraph& graph) {
  const ShapedGraph once = spread_repeats(simplify(drop_clamps(fold_constants(graph))));
  const ShapedGraph read = expand_reversals(once);
  const ShapedGraph apart = sink_slices(simplify(split_concats(read)));
  const ShapedGraph simple = join_sums(simplify(group_terms(simplify(apart))));
  const ShapedGraph own = expand_windows(sink_functions(simple));
  const ShapedGraph parts = hoist_reduced_views(simplify(hoist_parts(own)));
  const ShapedGraph moved = sink_views(hoist_views(parts));
  return store_iotas(refine_shapes(reduce_halves(moved)));
}

}  // namespace kiln::fusion
