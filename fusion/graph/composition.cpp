#include "fusion/graph/composition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "fusion/graph/indexed.hpp"
#include "fusion/graph/reduction_calls.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/graph/term.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

using Arguments = std::span<const NodeId>;

// softplus(x) = log(1 + exp(x)), without overflow for large x.
Term softplus_of(Term x) {
  return apply(Op::maximum, {x, literal(*x.graph, 0)}) +
         unary(Op::log1p, unary(Op::exp, -unary(Op::abs, x)));
}

// The parameter at `index`, or its default.
Term parameter(Graph& graph, Arguments arguments, std::size_t index, double otherwise) {
  if (index < arguments.size()) return {&graph, arguments[index]};
  return literal(graph, otherwise);
}

NodeId relu(Graph& g, Arguments a) {
  // An integer literal, so that relu of an integer stays one.
  return apply(Op::maximum, {Term{&g, a[0]}, integer(g, 0)}).id;
}
NodeId relu6(Graph& g, Arguments a) {
  return apply(Op::minimum, {apply(Op::maximum, {Term{&g, a[0]}, integer(g, 0)}), integer(g, 6)})
      .id;
}
NodeId leaky_relu(Graph& g, Arguments a) {
  const Term x{&g, a[0]};
  return where(greater(x, 0), x, x * parameter(g, a, 1, 0.01)).id;
}
NodeId elu(Graph& g, Arguments a) {
  const Term x{&g, a[0]};
  return where(greater(x, 0), x, unary(Op::expm1, x) * parameter(g, a, 1, 1.0)).id;
}
NodeId selu(Graph& g, Arguments a) {
  // Klambauer et al., "Self-Normalizing Neural Networks", 2017: alpha and lambda to f64.
  constexpr double kAlpha = 1.6732632423543772848;
  constexpr double kLambda = 1.0507009873554804934;
  const Term x{&g, a[0]};
  return (where(greater(x, 0), x, unary(Op::expm1, x) * kAlpha) * kLambda).id;
}
NodeId celu(Graph& g, Arguments a) {
  const Term x{&g, a[0]};
  const Term alpha = parameter(g, a, 1, 1.0);
  return where(greater(x, 0), x, unary(Op::expm1, x / alpha) * alpha).id;
}
NodeId gelu(Graph& g, Arguments a) {
  const Term x{&g, a[0]};
  return (x * unary(Op::ndtr, x)).id;
}
NodeId gelu_tanh(Graph& g, Arguments a) {
  // 0.5 (1 + tanh(u)) = sigmoid(2u): one exponential and no cancellation for negative x. Factored
  // so that it takes the fewest operations.
  constexpr double kTwoSqrtTwoOverPi = 1.5957691216057307117;
  const Term x{&g, a[0]};
  const Term u = x * ((x * x) * (0.044715 * kTwoSqrtTwoOverPi) + kTwoSqrtTwoOverPi);
  return (x * unary(Op::sigmoid, u)).id;
}
NodeId quick_gelu(Graph& g, Arguments a) {
  const Term x{&g, a[0]};
  return (x * unary(Op::sigmoid, x * 1.702)).id;
}
NodeId silu(Graph& g, Arguments a) {
  const Term x{&g, a[0]};
  return (x * unary(Op::sigmoid, x)).id;
}
// tanh(log(1 + e^x)) = n / (n + 2) with n = e^x (e^x + 2); for positive x both by e^2x smaller, so
// that nothing overflows.
NodeId mish(Graph& g, Arguments a) {
  const Term x{&g, a[0]};
  const Term e = unary(Op::exp, -unary(Op::abs, x));
  const Term positive = greater(x, 0);
  const Term n = where(positive, 1.0 + e * 2.0, e * (e + 2.0));
  return (x * (n / (n + where(positive, e * e * 2.0, literal(g, 2))))).id;
}
NodeId softplus(Graph& g, Arguments a) { return softplus_of({&g, a[0]}).id; }
NodeId softsign(Graph& g, Arguments a) {
  const Term x{&g, a[0]};
  return (x / (1.0 + unary(Op::abs, x))).id;
}
NodeId hardsigmoid(Graph& g, Arguments a) {
  return (minimum(maximum(Term{&g, a[0]} + 3.0, 0), 6) / 6.0).id;
}
NodeId hardswish(Graph& g, Arguments a) {
  const Term x{&g, a[0]};
  return (x * (minimum(maximum(x + 3.0, 0), 6) / 6.0)).id;  // x * 6 might overflow
}
NodeId tanhshrink(Graph& g, Arguments a) {
  const Term x{&g, a[0]};
  return (x - unary(Op::tanh, x)).id;
}
NodeId squared_relu(Graph& g, Arguments a) {
  return unary(Op::square, apply(Op::maximum, {Term{&g, a[0]}, integer(g, 0)})).id;
}
NodeId logit(Graph& g, Arguments a) {
  const Term x{&g, a[0]};
  return (unary(Op::log, x) - unary(Op::log1p, -x)).id;
}
NodeId nan_to_num(Graph& g, Arguments a) {
  // NumPy's: the infinities become the outermost finite numbers of the dtype, their neighbours.
  const Term x{&g, a[0]};
  const Term finite = apply(Op::nextafter, {x, literal(g, 0)});
  const Term high = a.size() > 2 ? Term{&g, a[2]} : finite;
  const Term low = a.size() > 3 ? Term{&g, a[3]} : finite;
  const Term outermost = a.size() > 2 ? where(greater(x, 0), high, low) : finite;
  const Term replaced = where(unary(Op::isnan, x), parameter(g, a, 1, 0.0), x);
  return where(unary(Op::isinf, x), outermost, replaced).id;
}

constexpr Bounds kNoError{0, 0, 0, 0};
constexpr Bounds kHalfUnit{0.5, 0.5, 0.5, 0.5};
constexpr Bounds measured(double libm, double cuda, double hip) { return {libm, libm, cuda, hip}; }

// AMD's bounds follow from those of the ops, as NVIDIA's do, which were measured, or are those of
// the emulated GPU of op.cpp.
constexpr std::array kCompositions = {
    Composition{"relu", 1, 1, "maximum(x, 0)", kNoError, kNoError, relu},
    Composition{"relu6", 1, 1, "minimum(maximum(x, 0), 6)", kNoError, kNoError, relu6},
    Composition{"leaky_relu",
                1,
                2,
                "x if x > 0 else x * slope (0.01)",
                {0.85, 0.85, 0.85, 0.85},
                measured(0.7, 0.7, 0.7),
                leaky_relu},
    Composition{"elu",
                1,
                2,
                "x if x > 0 else expm1(x) * alpha (1)",
                {0.95, 0.8, 1.5, 1.5},
                measured(0.75, 1.5, 2.5),
                elu},
    Composition{"selu",
                1,
                1,
                "lambda * (x if x > 0 else alpha * expm1(x))",
                {1.8, 1.8, 2.5, 2.5},
                measured(2.6, 3, 3.5),
                selu},
    Composition{"celu",
                1,
                2,
                "x if x > 0 else alpha (1) * expm1(x / alpha)",
                {0.95, 0.8, 1.5, 1.5},
                measured(0.75, 1.5, 2.5),
                celu},
    Composition{"gelu", 1, 1, "x * ndtr(x)", {6.5, 1.5, 10, 11}, measured(5, 5, 5), gelu},
    Composition{"gelu_tanh",
                1,
                1,
                "x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x**3))",
                {2.3, 2.3, 4, 4},
                measured(2.5, 3, 3),
                gelu_tanh},
    Composition{"quick_gelu",
                1,
                1,
                "x * sigmoid(1.702 * x)",
                {2.1, 2.1, 4, 4},
                measured(2.3, 3, 3),
                quick_gelu},
    Composition{"silu", 1, 1, "x * sigmoid(x)", {3.4, 2.7, 4, 4}, measured(2.7, 3, 3), silu},
    Composition{
        "mish", 1, 1, "x * tanh(softplus(x))", {4.5, 3.2, 4.2, 4.2}, measured(3.4, 3.9, 3.9), mish},
    Composition{"softplus",
                1,
                1,
                "maximum(x, 0) + log1p(exp(-abs(x)))",
                {1.8, 1.4, 2.4, 3},
                measured(1.4, 2, 2),
                softplus},
    Composition{"softsign",
                1,
                1,
                "x / (1 + abs(x))",
                {1.5, 1.5, 1.5, 1.5},
                measured(1.45, 1.45, 1.45),
                softsign},
    Composition{"hardswish",
                1,
                1,
                "x * (minimum(maximum(x + 3, 0), 6) / 6)",
                {1.9, 1.9, 1.9, 1.9},
                measured(1.9, 1.9, 1.9),
                hardswish},
    Composition{"hardsigmoid",
                1,
                1,
                "minimum(maximum(x + 3, 0), 6) / 6",
                {1, 1, 1, 1},
                measured(1, 1, 1),
                hardsigmoid},
    Composition{
        "tanhshrink", 1, 1, "x - tanh(x)", {2.2, 2, 2.5, 2.5}, measured(2, 2, 2), tanhshrink},
    Composition{"squared_relu", 1, 1, "square(maximum(x, 0))", kHalfUnit, kHalfUnit, squared_relu},
    Composition{
        "logit", 1, 1, "log(x) - log1p(-x)", {1.9, 1.9, 2.5, 2.5}, measured(2, 2, 2), logit},
    Composition{"nan_to_num", 1, 4,
                "nan to `nan` (0), inf to `high`, -inf to `low` (the largest of the dtype)",
                kNoError, kNoError, nan_to_num},
};

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

std::string nearest_name(std::string_view wanted) {
  std::string_view best;
  std::size_t distance = std::max<std::size_t>(2, wanted.size() / 3) + 1;
  for (const std::string_view candidate : callable_names()) {
    const std::size_t d = edit_distance(wanted.substr(0, 64), candidate);
    if (d < distance) {
      distance = d;
      best = candidate;
    }
  }
  return best.empty() ? std::string() : fmt::format("; did you mean '{}'?", best);
}

void check_arity(std::string_view function, std::size_t given, int least, int most) {
  if (given >= static_cast<std::size_t>(least) && given <= static_cast<std::size_t>(most)) return;
  const std::string expected =
      least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most);
  throw Error(Code::invalid_argument, fmt::format("{}: expected {} argument{}, got {}", function,
                                                  expected, most == 1 ? "" : "s", given));
}

}  // namespace

std::span<const Composition> all_compositions() { return kCompositions; }

const Composition* find_composition(std::string_view name) {
  const auto* const found = std::find_if(kCompositions.begin(), kCompositions.end(),
                                         [&](const Composition& c) { return c.name == name; });
  return found == kCompositions.end() ? nullptr : found;
}

std::vector<std::string_view> callable_names() {
  std::vector<std::string_view> names;
  for (const OpInfo& entry : all_ops()) {
    if (find_op(entry.name)) names.push_back(entry.name);
  }
  for (const Composition& composition : kCompositions) names.push_back(composition.name);
  for (const std::string_view reduction : reduction_names()) names.push_back(reduction);
  for (const std::string_view shape_op : shape_op_names()) names.push_back(shape_op);
  for (const std::string_view indexed : indexed_names()) names.push_back(indexed);
  return names;
}

NodeId call(Graph& graph, std::string_view function, std::span<const NodeId> arguments) {
  if (const std::optional<Op> op = find_op(function)) {
    if (info(*op).rule == Rule::random) {
      check_arity(function, arguments.size(), 2, 3);
      if (arguments.size() == 3) return graph.apply(*op, arguments);
      const NodeId operands[] = {arguments[0], arguments[1], graph.iota(kAllAxes, DType::u64)};
      return graph.apply(*op, operands);
    }
    check_arity(function, arguments.size(), info(*op).arity, info(*op).arity);
    return graph.apply(*op, arguments);
  }
  if (const Composition* composition = find_composition(function)) {
    check_arity(function, arguments.size(), composition->min_arity, composition->max_arity);
    return composition->build(graph, arguments);
  }
  if (const std::optional<NodeId> reduced = call_reduction(graph, function, arguments)) {
    return *reduced;
  }
  if (const std::optional<NodeId> moved = call_shape_op(graph, function, arguments)) return *moved;
  if (const std::optional<NodeId> made = call_indexed(graph, function, arguments)) return *made;
  throw Error(Code::invalid_argument, fmt::format("unknown function '{}'{}", function.substr(0, 64),
                                                  nearest_name(function)));
}

}  // namespace kiln::fusion
