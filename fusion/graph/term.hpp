// What compositions and reductions are written in: operators and calls on values of one graph.
#pragma once

#include <initializer_list>

#include "fusion/graph/graph.hpp"

namespace kiln::fusion {

struct Term {
  Graph* graph;
  NodeId id;
};

inline Term literal(Graph& graph, double value) {
  return {&graph, graph.constant(Literal::floating(value))};
}
inline Term integer(Graph& graph, std::int64_t value) {
  return {&graph, graph.constant(Literal::integer(value))};
}

inline Term apply(Op op, std::initializer_list<Term> operands) {
  std::array<NodeId, 3> ids{};
  std::size_t count = 0;
  for (const Term& operand : operands) ids[count++] = operand.id;
  Graph* graph = operands.begin()->graph;
  return {graph, graph->apply(op, {ids.data(), count})};
}
inline Term unary(Op op, Term x) { return apply(op, {x}); }
inline Term reduce(Op op, Term x, AxisSet axes) {
  return {x.graph, x.graph->reduce(op, x.id, axes)};
}

inline Term operator+(Term a, Term b) { return apply(Op::add, {a, b}); }
inline Term operator-(Term a, Term b) { return apply(Op::sub, {a, b}); }
inline Term operator*(Term a, Term b) { return apply(Op::mul, {a, b}); }
inline Term operator/(Term a, Term b) { return apply(Op::div, {a, b}); }
inline Term operator-(Term a) { return apply(Op::neg, {a}); }
inline Term operator+(Term a, double b) { return a + literal(*a.graph, b); }
inline Term operator+(double a, Term b) { return literal(*b.graph, a) + b; }
inline Term operator*(Term a, double b) { return a * literal(*a.graph, b); }
inline Term operator/(Term a, double b) { return a / literal(*a.graph, b); }
inline Term maximum(Term a, double b) { return apply(Op::maximum, {a, literal(*a.graph, b)}); }
inline Term minimum(Term a, double b) { return apply(Op::minimum, {a, literal(*a.graph, b)}); }
inline Term greater(Term a, double b) { return apply(Op::greater, {a, literal(*a.graph, b)}); }
inline Term where(Term condition, Term a, Term b) { return apply(Op::where, {condition, a, b}); }

}  // namespace kiln::fusion
