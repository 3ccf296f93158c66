#include "fusion/graph/indexed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/describe.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

constexpr std::array<std::string_view, 3> kIndexedCalls = {"take", "put", "bound"};

[[noreturn]] void fail(Op op, std::string_view function, const std::string& message) {
  throw Error(Code::invalid_argument, fmt::format("{}: {}: {}", function, info(op).name, message));
}

bool is_empty(const Dims& shape) { return std::ranges::find(shape, 0) != shape.end(); }

}  // namespace

std::size_t indexed_axis(Op op, const ShapeList& list, const Dims& array,
                         std::string_view function) {
  const auto rank = static_cast<std::int64_t>(array.size());
  if (rank == 0) fail(op, function, "expected an array with axes, got a number");
  const std::int64_t axis = list[0];
  if (axis < -rank || axis >= rank) {
    fail(op, function,
         fmt::format("axis: expected one of {} ({} to {}), got {}", to_string(array), -rank,
                     rank - 1, axis));
  }
  return static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
}

Dims taken_shape(const Dims& array, const Dims& places, std::size_t axis) {
  Dims result(array.size() - 1 + places.size(), 0);
  for (std::size_t k = 0; k < axis; ++k) result[k] = array[k];
  for (std::size_t k = 0; k < places.size(); ++k) result[axis + k] = places[k];
  for (std::size_t k = axis + 1; k < array.size(); ++k) {
    result[places.size() + k - 1] = array[k];
  }
  return result;
}

Dims indexed_shape(Op op, const ShapeList& list, std::span<const Dims> operands,
                   std::string_view function) {
  const Dims& array = operands[0];
  const std::size_t axis = indexed_axis(op, list, array, function);
  switch (op) {
    case Op::take: {
      Dims result = taken_shape(array, operands[1], axis);
      if (array[axis] == 0 && !is_empty(result)) {
        fail(op, function,
             fmt::format("nothing to take along axis {} of shape {}", list[0], to_string(array)));
      }
      return result;
    }
    case Op::put: {
      const Dims places = taken_shape(array, operands[1], axis);
      if (broadcast(operands[2], places) != places) {
        fail(op, function,
             fmt::format("expected a value that broadcasts to {}, which places of shape {} are "
                         "along axis {} of {}, got {}",
                         to_string(places), to_string(operands[1]), list[0], to_string(array),
                         to_string(operands[2])));
      }
      return array;
    }
    default: {
      Dims ends = array;
      ends[axis] = 1;
      if (broadcast(operands[1], ends) != ends) {
        fail(op, function,
             fmt::format("expected an end that broadcasts to {}, {} with one element along axis "
                         "{}, got shape {}",
                         to_string(ends), to_string(array), list[0], to_string(operands[1])));
      }
      return array;
    }
  }
}

NodeId take(Graph& graph, NodeId array, NodeId places, std::int64_t axis) {
  return graph.shape_op(Op::take, std::array{array, places}, {axis});
}

NodeId put(Graph& graph, NodeId array, NodeId places, NodeId value, std::int64_t axis) {
  if (graph[array].op != Op::input) {
    refuse_call("put", fmt::format("expected an argument, which is updated in place, got {}",
                                   describe(graph, array)));
  }
  return graph.shape_op(Op::put, std::array{array, places, value}, {axis});
}

NodeId bound(Graph& graph, NodeId value, NodeId end, std::int64_t axis) {
  return graph.shape_op(Op::bound, std::array{value, end}, {axis});
}

std::span<const std::string_view> indexed_names() { return kIndexedCalls; }

std::optional<NodeId> call_indexed(Graph& graph, std::string_view function,
                                   std::span<const NodeId> arguments) {
  if (std::ranges::find(kIndexedCalls, function) == kIndexedCalls.end()) return std::nullopt;
  const std::size_t values = function == "put" ? 3 : 2;
  if (arguments.size() < values || arguments.size() > values + 1) {
    refuse_call(function, fmt::format("expected {} values and an axis, got {} arguments", values,
                                      arguments.size()));
  }
  std::int64_t axis = 0;
  if (arguments.size() > values) {
    const Node& node = graph[arguments[values]];
    if (node.op != Op::constant || node.literal != Kind::signed_integer) {
      refuse_call(function, fmt::format("axis: expected an integer literal, got {}",
                                        describe(graph, arguments[values])));
    }
    axis = static_cast<std::int64_t>(node.payload);
  }
  if (function == "take") return take(graph, arguments[0], arguments[1], axis);
  if (function == "put") return put(graph, arguments[0], arguments[1], arguments[2], axis);
  return bound(graph, arguments[0], arguments[1], axis);
}

}  // namespace kiln::fusion
