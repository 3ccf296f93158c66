#include "fusion/graph/reduction_calls.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "fusion/graph/describe.hpp"
#include "fusion/graph/term.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

constexpr std::array<std::string_view, 21> kReductionCalls = {
    "sum",     "mean",        "prod",       "max",      "min",       "any",     "all",
    "argmax",  "argmin",      "var",        "std",      "logsumexp", "norm2",   "count_nonzero",
    "softmax", "log_softmax", "layer_norm", "rms_norm", "cumsum",    "cumprod", "cummax"};

// A float of the same value: what integers and bool are computed with becomes f32.
Term floating(Term x) { return x * 1.0; }

Term variance(Term x, AxisSet axes) {
  return reduce(Op::mean, unary(Op::square, x - reduce(Op::mean, x, axes)), axes);
}

// What x is shifted by before it is exponentiated: its maximum, or 0 where that is infinite, so
// that no infinity is taken from itself.
Term finite_maximum(Term x, AxisSet axes) {
  const Term largest = reduce(Op::reduce_max, x, axes);
  return where(unary(Op::isfinite, largest), largest, literal(*x.graph, 0));
}

Term logsumexp(Term x, AxisSet axes) {
  const Term shift = finite_maximum(x, axes);
  return unary(Op::log, reduce(Op::sum, unary(Op::exp, x - shift), axes)) + shift;
}

// x below its maximum, as a float whatever x is: a difference of integers would wrap. Of floats
// nothing is left of the factor (infer.cpp).
Term below_maximum(Term x, AxisSet axes) { return x - floating(reduce(Op::reduce_max, x, axes)); }

// A row of nothing but -inf gives NaN, as 0 / 0 does.
Term softmax(Term x, AxisSet axes) {
  const Term e = unary(Op::exp, below_maximum(x, axes));
  return e * unary(Op::reciprocal, reduce(Op::sum, e, axes));  // one division for each row
}

Term log_softmax(Term x, AxisSet axes) {
  const Term shifted = below_maximum(x, axes);
  return shifted - unary(Op::log, reduce(Op::sum, unary(Op::exp, shifted), axes));
}

int axis_of(const Graph& graph, NodeId id, std::string_view function) {
  const Node& node = graph[id];
  const auto value = static_cast<std::int64_t>(node.payload);
  if (node.op != Op::constant || node.literal != Kind::signed_integer || value < -32 ||
      value > 31) {
    refuse_call(function, fmt::format("axis: expected an integer literal from -32 to 31, got {}",
                                      describe(graph, id)));
  }
  return static_cast<int>(value);
}

Term literal_of(Graph& graph, NodeId id, std::string_view function) {
  if (graph[id].op != Op::constant) {
    refuse_call(function, fmt::format("eps, the last argument: expected a number, got {}",
                                      describe(graph, id)));
  }
  return {&graph, id};
}

NodeId normalise(Graph& graph, std::string_view function, std::span<const NodeId> arguments) {
  const bool centred = function == "layer_norm";
  const std::size_t most = centred ? 4 : 3;
  if (arguments.size() < 2 || arguments.size() > most) {
    refuse_call(function, fmt::format("expected 2 to {} arguments (x, weight, {}eps), got {}", most,
                                      centred ? "bias, " : "", arguments.size()));
  }
  const AxisSet last = axis_set({-1}, function);
  const Term x{&graph, arguments[0]};
  const Term eps = literal_of(graph, arguments.back(), function);
  const Term centre = centred ? x - reduce(Op::mean, x, last) : x;
  // What is centred is a float; an integer's square would wrap.
  const Term squares = unary(Op::square, centred ? centre : floating(x));
  const Term scale = reduce(Op::mean, squares, last) + eps;
  Term result = centre * unary(Op::rsqrt, scale);
  if (arguments.size() > 2) result = result * Term{&graph, arguments[1]};
  if (arguments.size() > 3) result = result + Term{&graph, arguments[2]};
  return result.id;
}

}  // namespace

std::span<const std::string_view> reduction_names() { return kReductionCalls; }

NodeId reduce_by_name(Graph& graph, std::string_view function, NodeId value, AxisSet axes) {
  const Term x{&graph, value};
  if (const auto op = find_reduction(function)) {
    const std::size_t count = axes_of(axes).size();
    if (is_scan(*op) && count != 1) {
      refuse_call(function, fmt::format("axis: expected one, got {}", count));
    }
    return reduce(*op, x, axes).id;
  }
  if (function == "var") return variance(x, axes).id;
  if (function == "std") return unary(Op::sqrt, variance(x, axes)).id;
  if (function == "logsumexp") return logsumexp(x, axes).id;
  if (function == "norm2") {
    // An integer's square would wrap.
    const Term squares = unary(Op::square, floating(x));
    return unary(Op::sqrt, reduce(Op::sum, squares, axes)).id;
  }
  if (function == "count_nonzero") {
    return reduce(Op::sum, {&graph, graph.cast(value, DType::boolean)}, axes).id;
  }
  const AxisSet one = axes == 0 ? axis_set({-1}, function) : axes;
  if (function == "softmax") return softmax(x, one).id;
  if (function == "log_softmax") return log_softmax(x, one).id;
  refuse_call(function, "there is no such reduction");
}

std::optional<NodeId> call_reduction(Graph& graph, std::string_view function,
                                     std::span<const NodeId> arguments) {
  if (std::ranges::find(kReductionCalls, function) == kReductionCalls.end()) return std::nullopt;
  if (function == "layer_norm" || function == "rms_norm") {
    return normalise(graph, function, arguments);
  }
  if (arguments.empty()) refuse_call(function, "expected a value and axes, got nothing");
  std::vector<int> axes;
  for (const NodeId axis : arguments.subspan(1)) axes.push_back(axis_of(graph, axis, function));
  return reduce_by_name(graph, function, arguments[0], axis_set(axes, function));
}

}  // namespace kiln::fusion
