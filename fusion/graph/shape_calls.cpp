// How shape ops are written (shape_ops.hpp): calls of the text form, subscripts, and what is
// composed of the ops.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "fusion/graph/describe.hpp"
#include "fusion/graph/indexed.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

constexpr std::array<std::string_view, 8> kShapeCalls = {
    "reshape", "transpose", "swapaxes", "slice", "expand_dims", "squeeze", "concat", "stack"};

NodeId apply(Graph& graph, Op op, NodeId value, ShapeList list) {
  return graph.shape_op(op, std::span(&value, 1), std::move(list));
}

std::int64_t integer_of(const Graph& graph, NodeId id, std::string_view function) {
  const Node& node = graph[id];
  if (node.op != Op::constant || node.literal != Kind::signed_integer) {
    refuse_call(function,
                fmt::format("axes, extents and indices: expected integer literals, got {}",
                            describe(graph, id)));
  }
  return static_cast<std::int64_t>(node.payload);
}

}  // namespace

NodeId reshape(Graph& graph, NodeId value, std::span<const std::int64_t> extents) {
  if (extents.empty()) refuse_call("reshape", "expected at least one extent");
  for (const std::int64_t extent : extents) {
    if (extent < -1)
      refuse_call("reshape", fmt::format("expected an extent, -1 or 0, got {}", extent));
  }
  return apply(graph, Op::reshape, value, {extents.begin(), extents.end()});
}

NodeId transpose(Graph& graph, NodeId value, std::span<const std::int64_t> axes) {
  return apply(graph, Op::transpose, value, {axes.begin(), axes.end()});
}

NodeId swapaxes(Graph& graph, NodeId value, std::int64_t a, std::int64_t b) {
  return apply(graph, Op::swapaxes, value, {a, b});
}

NodeId slice(Graph& graph, NodeId value, std::int64_t axis, std::int64_t start, std::int64_t stop,
             std::int64_t step) {
  if (step == 0) refuse_call("slice", "the step is 0");
  return apply(graph, Op::slice, value, {axis, start, stop, step});
}

NodeId select(Graph& graph, NodeId value, std::int64_t axis, std::int64_t index) {
  const bool last = index == -1 || index == std::numeric_limits<std::int64_t>::max();
  const std::int64_t stop = last ? kOmitted : index + 1;
  return squeeze(graph, apply(graph, Op::slice, value, {axis, index, stop, 1, 1}), axis);
}

NodeId expand_dims(Graph& graph, NodeId value, std::int64_t axis) {
  return apply(graph, Op::expand_dims, value, {axis});
}

NodeId squeeze(Graph& graph, NodeId value, std::int64_t axis) {
  return apply(graph, Op::squeeze, value, {axis});
}

NodeId concat(Graph& graph, std::int64_t axis, std::span<const NodeId> values) {
  if (values.empty()) refuse_call("concat", "expected an axis and values, got no values");
  NodeId result = values[0];
  for (const NodeId value : values.subspan(1)) {
    result = graph.shape_op(Op::concat, std::array{result, value}, {axis});
  }
  return result;
}

NodeId stack(Graph& graph, std::int64_t axis, std::span<const NodeId> values) {
  if (values.empty()) refuse_call("stack", "expected an axis and values, got no values");
  std::vector<NodeId> expanded;
  for (const NodeId value : values) expanded.push_back(expand_dims(graph, value, axis));
  return concat(graph, axis, expanded);
}

NodeId subscript(Graph& graph, NodeId value, std::span<const Subscript> items) {
  using Item = Subscript::Kind;
  const auto rest = std::ranges::find(items, Item::rest, &Subscript::kind);
  const auto before = static_cast<std::size_t>(rest - items.begin());
  NodeId result = value;
  std::int64_t axis = 0;
  const auto apply_item = [&](const Subscript& item, std::int64_t step) {
    switch (item.kind) {
      case Item::rest: refuse_call("[]", "more than one '...'");
      case Item::index: result = select(graph, result, axis, item.start); return;
      case Item::new_axis: result = expand_dims(graph, result, axis); break;
      case Item::slice: {
        if (item.end) {
          result = bound(graph, result, *item.end, axis);
          break;
        }
        const bool all = item.start == kOmitted && item.stop == kOmitted && item.step == 1;
        if (!all) result = slice(graph, result, axis, item.start, item.stop, item.step);
        break;
      }
    }
    axis += step;
  };
  for (const Subscript& item : items.first(before)) apply_item(item, 1);
  axis = -1;
  for (std::size_t k = items.size(); k-- > before + 1;) apply_item(items[k], -1);
  return result;
}

std::span<const std::string_view> shape_op_names() { return kShapeCalls; }

std::optional<NodeId> call_shape_op(Graph& graph, std::string_view function,
                                    std::span<const NodeId> arguments) {
  if (std::ranges::find(kShapeCalls, function) == kShapeCalls.end()) return std::nullopt;
  const bool joins = function == "concat" || function == "stack";
  if (arguments.empty()) refuse_call(function, "expected arguments, got none");
  std::vector<std::int64_t> numbers;
  for (const NodeId id : joins ? arguments.first(1) : arguments.subspan(1)) {
    numbers.push_back(integer_of(graph, id, function));
  }
  if (function == "concat") return concat(graph, numbers[0], arguments.subspan(1));
  if (function == "stack") return stack(graph, numbers[0], arguments.subspan(1));
  if (function == "reshape") return reshape(graph, arguments[0], numbers);
  if (function == "transpose") return transpose(graph, arguments[0], numbers);
  const std::size_t least = function == "slice" ? 3 : function == "swapaxes" ? 2 : 1;
  const std::size_t most = function == "slice" ? 4 : least;
  if (numbers.size() < least || numbers.size() > most) {
    refuse_call(function, fmt::format("expected a value and {}{} integer{}, got {}", least,
                                      least == most ? "" : fmt::format(" to {}", most),
                                      most == 1 ? "" : "s", numbers.size()));
  }
  if (function == "swapaxes") return swapaxes(graph, arguments[0], numbers[0], numbers[1]);
  if (function == "expand_dims") return expand_dims(graph, arguments[0], numbers[0]);
  if (function == "squeeze") return squeeze(graph, arguments[0], numbers[0]);
  return slice(graph, arguments[0], numbers[0], numbers[1], numbers[2],
               numbers.size() > 3 ? numbers[3] : 1);
}

}  // namespace kiln::fusion
