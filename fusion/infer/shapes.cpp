#include "fusion/infer/shapes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/indexed.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/infer/iota.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

Dims reduced(const Dims& shape, const TypedNode& node, std::string_view function) {
  const std::vector<bool> axes =
      resolve_axes(node.payload, shape.size(), fmt::format("{}: {}", function, info(node.op).name));
  Dims result = shape;
  for (std::size_t k = 0; k < result.size(); ++k) {
    if (axes[k]) result[k] = 1;
  }
  return result;
}

Dims broadcast_operands(const TypedNode& node, const std::vector<Dims>& shapes,
                        std::string_view function) {
  Dims shape;
  for (const NodeId operand : node.inputs()) {
    const std::optional<Dims> wider = broadcast(shape, shapes[operand]);
    if (!wider) {
      throw Error(Code::invalid_argument,
                  fmt::format("{}: {}: shapes {} and {} do not broadcast", function,
                              info(node.op).name, to_string(shape), to_string(shapes[operand])));
    }
    shape = *wider;
  }
  return shape;
}

void check_not_empty(const TypedNode& node, const Dims& operand, const Dims& result,
                     std::string_view function) {
  const auto is_empty = [](const Dims& d) { return std::ranges::find(d, 0) != d.end(); };
  if (!is_arg_reduction(node.op) || !is_empty(operand) || is_empty(result)) return;
  throw Error(Code::invalid_argument,
              fmt::format("{}: {}: nothing to choose from in shape {}", function,
                          info(node.op).name, to_string(operand)));
}

Dims result_of_call(const TypedGraph& graph, const TypedNode& node, const std::vector<Dims>& shapes,
                    std::string_view function) {
  const CustomCall& call = graph.tables->calls[call_index(node.payload)];
  std::vector<Dims> inputs;
  for (const NodeId id : tuple_values(graph, node.operands[0])) inputs.push_back(shapes[id]);
  std::vector<Dims> results = call.shapes(inputs);
  if (results.size() <= call_result(node.payload)) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: shapes: expected those of {} results or more, got {}",
                            function, call.name, call_result(node.payload) + 1, results.size()));
  }
  Dims& shape = results[call_result(node.payload)];
  if (std::ranges::any_of(shape, [](std::int64_t extent) { return extent < 0; })) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: shapes: result {}: expected extents of 0 or more, got {}",
                            function, call.name, call_result(node.payload), to_string(shape)));
  }
  return std::move(shape);
}

// The shape of one node, where an iota has that of a number.
Dims any_shape_of(const TypedGraph& graph, const TypedNode& node, const std::vector<Dims>& shapes,
                  std::span<const Dims> arguments, std::string_view function) {
  if (node.op == Op::input) return arguments[node.payload];
  if (node.op == Op::tuple) return {};
  if (node.op == Op::custom_call) return result_of_call(graph, node, shapes, function);
  if (has_list(node.op)) {
    std::array<Dims, 3> operands;
    for (std::size_t i = 0; i < node.arity; ++i) operands[i] = shapes[node.operands[i]];
    const auto given = std::span<const Dims>(operands).first(node.arity);
    const ShapeList& list = shape_list(graph, node);
    return is_shape_op(node.op) ? result_shape(node.op, list, given, function)
                                : indexed_shape(node.op, list, given, function);
  }
  if (!has_axes(node.op)) return broadcast_operands(node, shapes, function);
  const Dims& operand = shapes[node.operands[0]];
  if (is_scan(node.op)) {
    resolve_axes(node.payload, operand.size(), fmt::format("{}: {}", function, info(node.op).name));
    return operand;
  }
  Dims result = reduced(operand, node, function);
  check_not_empty(node, operand, result, function);
  return result;
}

// Offsets in bytes, of 8 for an element or of all results of one kernel, stay within 64 bits.
constexpr std::int64_t kMostElements = std::int64_t{1} << 58;

bool is_countable(const Dims& shape) {
  std::int64_t size = 1;  // of an array of nothing: of its other axes
  for (const std::int64_t extent : shape) {
    if (extent > kMostElements / size) return false;
    size *= std::max<std::int64_t>(extent, 1);
  }
  return true;
}

Dims shape_of(const TypedGraph& graph, const TypedNode& node, const std::vector<Dims>& shapes,
              std::span<const Dims> arguments, std::string_view function) {
  Dims shape = any_shape_of(graph, node, shapes, arguments, function);
  if (is_countable(shape)) return shape;
  const std::string what = node.op == Op::input
                               ? fmt::format("argument '{}'", graph.argument_names[node.payload])
                               : std::string(info(node.op).name);
  throw Error(Code::invalid_argument,
              fmt::format("{}: {}: expected a shape of 2^58 elements or fewer, got {}", function,
                          what, to_string(shape)));
}

// ---- Iota --------------------------------------------------------------------------------------

// Gives every iota the shape of what it is a part of.
class IotaShapes {
 public:
  IotaShapes(const TypedGraph& graph, std::span<const Dims> arguments, std::string_view function)
      : graph_(graph), arguments_(arguments), function_(function) {}

  ShapedGraph run() {
    find_shapes();
    find_wanted();
    ShapedGraph result{without_nodes(graph_), {}};
    GraphBuilder builder(result);
    moved_.resize(graph_.nodes.size());
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      if (!depends_on_iota_[id]) moved_[id] = {builder.add(moved_node(id, nullptr), natural_[id])};
      for (const Dims& shape : wanted_[id]) {
        moved_[id].push_back(builder.add(moved_node(id, &shape), shape));
      }
    }
    for (const NodeId output : graph_.outputs) {
      result.graph.outputs.push_back(moved(output, &natural_[output]));
    }
    for (const IndexedOperand& one : graph_.indexed) {
      const Dims shape = shape_of_places(one);
      result.graph.indexed.push_back({one.output, one.position, moved(one.place, &shape)});
    }
    for (const BoundedAxis& bound : graph_.bounds) {
      result.graph.bounds.push_back({bound.axis, moved(bound.end, &natural_[bound.end])});
    }
    return result;
  }

 private:
  // Which values depend on an iota element by element, and the shapes that all have without.
  void find_shapes() {
    for (const TypedNode& node : graph_.nodes) {
      const auto depends = [&](NodeId operand) { return depends_on_iota_[operand]; };
      depends_on_iota_.push_back(
          node.op == Op::iota ||
          (is_elementwise(node.op) && std::ranges::any_of(node.inputs(), depends)));
      counted_.emplace_back();
      if (node.op == Op::iota) counted_.back().insert(iota_axis(node));
      for (const NodeId operand : node.inputs()) {
        if (!depends_on_iota_.back()) break;
        counted_.back().insert(counted_[operand].begin(), counted_[operand].end());
      }
      natural_.push_back(shape_of(graph_, node, natural_, arguments_, function_));
      if (SizeTrace* const trace = SizeTrace::current()) trace->add_extents(natural_.back());
    }
  }

  // From the last node to the first: the shapes in which such values are wanted.
  void find_wanted() {
    wanted_.resize(graph_.nodes.size());
    for (const NodeId output : graph_.outputs) want(output, natural_[output]);
    for (const IndexedOperand& one : graph_.indexed) want(one.place, shape_of_places(one));
    for (const BoundedAxis& bound : graph_.bounds) want(bound.end, natural_[bound.end]);
    for (std::size_t id = graph_.nodes.size(); id-- > 0;) {
      for (const NodeId operand : graph_.nodes[id].inputs()) {
        if (!depends_on_iota_[operand]) continue;
        if (!depends_on_iota_[id]) want(operand, natural_[operand]);
        for (const Dims& shape : wanted_[id]) want(operand, seen_in(operand, shape));
      }
    }
  }

  // Places have an index along the axes along which they count it, which are the operand's.
  Dims shape_of_places(const IndexedOperand& one) const {
    const Dims& natural = natural_[one.place];
    const std::set<std::int64_t>& counted = counted_[one.place];
    if (counted.empty()) return natural;
    const Dims& array =
        one.output ? natural_[graph_.outputs[one.position]] : arguments_[one.position];
    if (counted.contains(kAllAxes)) return array;
    Dims shape(std::max(array.size(), natural.size()), 1);
    std::ranges::copy(natural, shape.begin() + (shape.size() - natural.size()));
    for (const std::int64_t axis : counted) {
      const std::int64_t k = axis < 0 ? axis + std::ssize(array) : axis;
      if (k < 0 || k >= std::ssize(array)) continue;  // check_iota() refuses it
      shape[static_cast<std::size_t>(k) + shape.size() - array.size()] =
          array[static_cast<std::size_t>(k)];
    }
    return shape;
  }

  // The shape in which a value is wanted as an operand of what has the shape `whole`: its own where
  // it counts the same indices there, and is broadcast as any other.
  Dims seen_in(NodeId id, const Dims& whole) const {
    const Dims& own = natural_[id];
    const auto is_same = [&](std::int64_t axis) {
      if (axis == kAllAxes || (axis >= 0 && own.size() != whole.size())) return false;
      const auto rank = static_cast<std::int64_t>(whole.size());
      const auto from_end = static_cast<std::size_t>(axis < 0 ? -axis : rank - axis);
      return from_end > 0 && from_end <= own.size() && from_end <= whole.size() &&
             own[own.size() - from_end] == whole[whole.size() - from_end];
    };
    return std::ranges::all_of(counted_[id], is_same) ? own : whole;
  }

  void want(NodeId id, const Dims& shape) {
    if (!depends_on_iota_[id] || std::ranges::find(wanted_[id], shape) != wanted_[id].end()) return;
    wanted_[id].push_back(shape);
  }

  NodeId moved(NodeId id, const Dims* shape) const {
    if (!depends_on_iota_[id]) return moved_[id][0];
    const auto found = std::ranges::find(wanted_[id], *shape);
    return moved_[id][static_cast<std::size_t>(found - wanted_[id].begin())];
  }

  TypedNode moved_node(NodeId id, const Dims* wanted) const {
    TypedNode node = graph_.nodes[id];
    for (std::size_t i = 0; i < node.arity; ++i) {
      const NodeId operand = node.operands[i];
      const Dims seen = wanted != nullptr ? seen_in(operand, *wanted) : natural_[operand];
      node.operands[i] = moved(operand, &seen);
    }
    if (node.op == Op::iota) {
      check_iota(node, *wanted, function_);
      const auto axis = static_cast<std::int64_t>(node.payload);
      if (axis >= 0) {
        node.payload = static_cast<std::uint64_t>(axis - static_cast<std::int64_t>(wanted->size()));
      }
    }
    return node;
  }

  const TypedGraph& graph_;
  std::span<const Dims> arguments_;
  std::string_view function_;
  std::vector<bool> depends_on_iota_;
  std::vector<std::set<std::int64_t>> counted_;  ///< axes along which a value counts
  std::vector<Dims> natural_;
  std::vector<std::vector<Dims>> wanted_;
  std::vector<std::vector<NodeId>> moved_;
};

}  // namespace

bool works_along_axes(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const Node& n) { return has_axes(n.op); });
}

bool works_along_axes(const TypedGraph& graph) {
  return std::ranges::any_of(graph.nodes, [](const TypedNode& n) { return has_axes(n.op); });
}

bool has_custom_calls(const Graph& graph) {
  return std::ranges::find(graph.nodes(), Op::custom_call, &Node::op) != graph.nodes().end();
}

const OpInfo* program_op(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (!is_elementwise(node.op) && !has_axes(node.op) && !is_indexed(node.op)) {
      return &info(node.op);
    }
  }
  return nullptr;
}

bool has_indexed(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const Node& n) { return is_indexed(n.op); });
}

std::vector<NodeId> tuple_values(const TypedGraph& graph, NodeId tuple) {
  std::vector<NodeId> values;
  for (; graph.nodes[tuple].op == Op::tuple; tuple = graph.nodes[tuple].operands[0]) {
    values.push_back(graph.nodes[tuple].operands[1]);
  }
  std::ranges::reverse(values);
  return values;
}

std::vector<Dims> infer_shapes(const TypedGraph& graph, std::span<const Dims> arguments,
                               std::string_view function) {
  std::vector<Dims> shapes;
  shapes.reserve(graph.nodes.size());
  for (const TypedNode& node : graph.nodes) {
    if (node.op == Op::iota) {
      throw Error(Code::internal,
                  fmt::format("{}: infer_shapes: an iota has no shape of its own", function));
    }
    shapes.push_back(shape_of(graph, node, shapes, arguments, function));
    if (SizeTrace* const trace = SizeTrace::current()) trace->add_extents(shapes.back());
  }
  return shapes;
}

ShapedGraph shape_graph(const TypedGraph& graph, std::span<const Dims> arguments,
                        std::string_view function) {
  const bool has_iota =
      std::ranges::find(graph.nodes, Op::iota, &TypedNode::op) != graph.nodes.end();
  if (has_iota) return IotaShapes(graph, arguments, function).run();
  return {graph, infer_shapes(graph, arguments, function)};
}

Dims without_axes(const Dims& shape, const std::vector<bool>& axes) {
  std::vector<std::int64_t> kept;
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (!axes[k]) kept.push_back(shape[k]);
  }
  return Dims(std::span<const std::int64_t>(kept));
}

}  // namespace kiln::fusion
