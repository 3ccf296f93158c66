#include "kiln/value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "fusion/graph/composition.hpp"
#include "fusion/graph/graph.hpp"
#include "fusion/graph/indexed.hpp"
#include "fusion/graph/reduction_calls.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "kiln/dynamic.hpp"
#include "kiln/error.hpp"
#include "kiln/library_call.hpp"
#include "kiln/reduction.hpp"
#include "kiln/shape.hpp"
#include "trace/tracing.hpp"

namespace kiln {
namespace {

thread_local fusion::Graph* traced = nullptr;

// The graph that the operands belong to: literals have none, all others must agree.
fusion::Graph& common_graph(std::string_view function, std::span<const Value> operands) {
  fusion::Graph* graph = nullptr;
  bool literals_only = true;
  for (const Value& operand : operands) {
    if (operand.graph() == nullptr) continue;
    if (graph != nullptr && graph != operand.graph()) {
      throw Error(
          Code::invalid_argument,
          fmt::format("{}: the operands belong to two different functions; a Value must not "
                      "leave the callable it was given to",
                      function));
    }
    graph = operand.graph();
    literals_only = false;
  }
  if (literals_only) graph = traced;
  if (graph == nullptr) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: expected at least one operand that depends on an argument of the "
                            "function, got literals only, outside of a callable that is being "
                            "traced",
                            function));
  }
  return *graph;
}

fusion::Graph& graph_of(std::string_view function, const Value& x) {
  return common_graph(function, std::span(&x, 1));
}

std::vector<fusion::NodeId> nodes_of(fusion::Graph& graph, std::span<const Value> values) {
  std::vector<fusion::NodeId> ids;
  for (const Value& value : values) ids.push_back(value.node_in(graph));
  return ids;
}

}  // namespace

Tracing::Tracing(fusion::Graph& graph) : outer_(std::exchange(traced, &graph)) {}
Tracing::~Tracing() { traced = outer_; }

std::uint32_t Value::node_in(fusion::Graph& graph) const {
  if (!literal_) return node_;
  switch (kind_) {
    case Kind::boolean: return graph.constant(fusion::Literal::boolean(integer_ != 0));
    case Kind::signed_integer:
      return graph.constant(fusion::Literal::integer(static_cast<std::int64_t>(integer_)));
    case Kind::unsigned_integer: return graph.constant(fusion::Literal::unsigned_integer(integer_));
    default: return graph.constant(fusion::Literal::floating(floating_));
  }
}

Value apply(std::string_view function, std::span<const Value> operands) {
  fusion::Graph& graph = common_graph(function, operands);
  return {&graph, fusion::call(graph, function, nodes_of(graph, operands))};
}

Value apply(std::string_view function, std::initializer_list<Value> operands) {
  return apply(function, std::span(operands.begin(), operands.size()));
}

std::vector<std::string> function_names() {
  const std::vector<std::string_view> names = fusion::callable_names();
  std::vector<std::string> sorted(names.begin(), names.end());
  std::ranges::sort(sorted);
  return sorted;
}

Value reduce(std::string_view function, const Value& x, const Axes& axes) {
  fusion::Graph& graph = graph_of(function, x);
  const fusion::AxisSet set = fusion::axis_set(axes.values(), function);
  return {&graph, fusion::reduce_by_name(graph, function, x.node_in(graph), set)};
}

Value iota(int axis, DType dtype) {
  fusion::Graph& graph = common_graph("iota", std::span<const Value>());
  return {&graph, graph.iota(axis, dtype)};
}

Value iota(DType dtype) {
  fusion::Graph& graph = common_graph("iota", std::span<const Value>());
  return {&graph, graph.iota(fusion::kAllAxes, dtype)};
}

Value cast(const Value& x, DType dtype) {
  fusion::Graph& graph = graph_of("cast", x);
  return {&graph, graph.cast(x.node_in(graph), dtype)};
}

Value bitcast(const Value& x, DType dtype) {
  fusion::Graph& graph = graph_of("bitcast", x);
  return {&graph, graph.bitcast(x.node_in(graph), dtype)};
}

Value reshape(const Value& x, std::initializer_list<std::int64_t> extents) {
  fusion::Graph& graph = graph_of("reshape", x);
  return {&graph, fusion::reshape(graph, x.node_in(graph), {extents.begin(), extents.size()})};
}

Value transpose(const Value& x, std::initializer_list<std::int64_t> axes) {
  fusion::Graph& graph = graph_of("transpose", x);
  return {&graph, fusion::transpose(graph, x.node_in(graph), {axes.begin(), axes.size()})};
}

Value swapaxes(const Value& x, std::int64_t a, std::int64_t b) {
  fusion::Graph& graph = graph_of("swapaxes", x);
  return {&graph, fusion::swapaxes(graph, x.node_in(graph), a, b)};
}

Value slice(const Value& x, std::int64_t axis, std::optional<std::int64_t> start,
            std::optional<std::int64_t> stop, std::int64_t step) {
  fusion::Graph& graph = graph_of("slice", x);
  return {&graph, fusion::slice(graph, x.node_in(graph), axis, start.value_or(fusion::kOmitted),
                                stop.value_or(fusion::kOmitted), step)};
}

Value element(const Value& x, std::int64_t axis, std::int64_t index) {
  fusion::Graph& graph = graph_of("element", x);
  return {&graph, fusion::select(graph, x.node_in(graph), axis, index)};
}

Value expand_dims(const Value& x, std::int64_t axis) {
  fusion::Graph& graph = graph_of("expand_dims", x);
  return {&graph, fusion::expand_dims(graph, x.node_in(graph), axis)};
}

Value squeeze(const Value& x, std::int64_t axis) {
  fusion::Graph& graph = graph_of("squeeze", x);
  return {&graph, fusion::squeeze(graph, x.node_in(graph), axis)};
}

Value concat(std::int64_t axis, std::span<const Value> values) {
  fusion::Graph& graph = common_graph("concat", values);
  return {&graph, fusion::concat(graph, axis, nodes_of(graph, values))};
}

Value concat(std::int64_t axis, std::initializer_list<Value> values) {
  return concat(axis, std::span(values.begin(), values.size()));
}

Value stack(std::int64_t axis, std::span<const Value> values) {
  fusion::Graph& graph = common_graph("stack", values);
  return {&graph, fusion::stack(graph, axis, nodes_of(graph, values))};
}

Value stack(std::int64_t axis, std::initializer_list<Value> values) {
  return stack(axis, std::span(values.begin(), values.size()));
}

Value take(const Value& x, const Value& indices, std::int64_t axis) {
  const Value operands[] = {x, indices};
  fusion::Graph& graph = common_graph("take", operands);
  return {&graph, fusion::take(graph, x.node_in(graph), indices.node_in(graph), axis)};
}

Value put(const Value& x, const Value& indices, const Value& y, std::int64_t axis) {
  const Value operands[] = {x, indices, y};
  fusion::Graph& graph = common_graph("put", operands);
  return {&graph,
          fusion::put(graph, x.node_in(graph), indices.node_in(graph), y.node_in(graph), axis)};
}

Value bound(const Value& x, const Value& end, std::int64_t axis) {
  const Value operands[] = {x, end};
  fusion::Graph& graph = common_graph("bound", operands);
  return {&graph, fusion::bound(graph, x.node_in(graph), end.node_in(graph), axis)};
}

std::vector<Value> call(const LibraryCall& call, std::size_t results,
                        std::span<const Value> inputs) {
  if (!call.dtypes || !call.shapes || !call.run) {
    throw Error(
        Code::invalid_argument,
        fmt::format("{}: a LibraryCall needs the functions dtypes, shapes and run", call.name));
  }
  fusion::Graph& graph = common_graph(call.name, inputs);
  const auto body = std::make_shared<const LibraryCall>(call);
  std::vector<Value> made;
  for (const fusion::NodeId id : graph.custom_call({body->name, body->dtypes, body->shapes, body},
                                                   nodes_of(graph, inputs), results)) {
    made.emplace_back(&graph, id);
  }
  return made;
}

std::vector<Value> call(const LibraryCall& one, std::size_t results,
                        std::initializer_list<Value> inputs) {
  return call(one, results, std::span(inputs.begin(), inputs.size()));
}

Value call(const LibraryCall& one, std::initializer_list<Value> inputs) {
  return call(one, 1, inputs)[0];
}

}  // namespace kiln
