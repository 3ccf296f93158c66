#include "kiln/value.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "fusion/composition.hpp"
#include "fusion/graph.hpp"
#include "fusion/reduction.hpp"
#include "kiln/error.hpp"
#include "kiln/reduction.hpp"
#include "tracing.hpp"

namespace kiln {
namespace {

thread_local fusion::Graph* traced = nullptr;

// The graph that the operands belong to: literals have none, all others must agree.
fusion::Graph& common_graph(std::string_view function, std::initializer_list<Value> operands) {
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

Value apply(std::string_view function, std::initializer_list<Value> operands) {
  fusion::Graph& graph = common_graph(function, operands);
  std::vector<fusion::NodeId> ids;
  for (const Value& operand : operands) ids.push_back(operand.node_in(graph));
  return {&graph, fusion::call(graph, function, ids)};
}

Value reduce(std::string_view function, const Value& x, const Axes& axes) {
  fusion::Graph& graph = common_graph(function, {x});
  const fusion::AxisSet set = fusion::axis_set(axes.values(), function);
  return {&graph, fusion::reduce_by_name(graph, function, x.node_in(graph), set)};
}

Value iota(int axis, DType dtype) {
  fusion::Graph& graph = common_graph("iota", {});
  return {&graph, graph.iota(axis, dtype)};
}

Value iota(DType dtype) {
  fusion::Graph& graph = common_graph("iota", {});
  return {&graph, graph.iota(fusion::kAllAxes, dtype)};
}

Value cast(const Value& x, DType dtype) {
  fusion::Graph& graph = common_graph("cast", {x});
  return {&graph, graph.cast(x.node_in(graph), dtype)};
}

Value bitcast(const Value& x, DType dtype) {
  fusion::Graph& graph = common_graph("bitcast", {x});
  return {&graph, graph.bitcast(x.node_in(graph), dtype)};
}

}  // namespace kiln
