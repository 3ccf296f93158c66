// Random programs for the property tests: integer graphs, whose results are exact, and graphs of
// floats whose numbers stay small; elementwise ops, broadcasts, reductions, several outputs.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "fusion/graph.hpp"
#include "kiln/dims.hpp"

namespace kiln::testing {

struct RandomGraph {
  fusion::Graph graph;
  std::vector<Dims> arguments;  ///< shapes
};

/// `nodes` operations or a few more. Equal seeds give equal graphs.
inline RandomGraph random_graph(std::uint64_t seed, std::size_t nodes, bool integers) {
  using fusion::NodeId;
  using fusion::Op;
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::vector<Dims> shapes = {{6, 10}, {6, 10}, {6, 10}, {10}, {6, 1}, {1, 10}};
  RandomGraph result;
  fusion::Graph& graph = result.graph;
  std::vector<NodeId> values;
  std::vector<Dims> own;
  for (std::size_t i = 0; i < 2 + below(4); ++i) {
    result.arguments.push_back(shapes[i == 0 ? 0 : below(shapes.size())]);
    values.push_back(graph.argument("a" + std::to_string(i)));
    own.push_back(result.arguments.back());
  }
  const auto pick = [&] {
    // Recent values more often, so that graphs are deep as well as wide.
    const std::size_t window =
        std::min<std::size_t>(values.size(), below(4) == 0 ? values.size() : 8);
    return values.size() - 1 - below(window);
  };
  const auto add = [&](NodeId id, Dims shape) {
    values.push_back(id);
    own.push_back(std::move(shape));
  };
  const auto wider = [](const Dims& a, const Dims& b) {
    const Dims& longer = a.size() >= b.size() ? a : b;
    const Dims& other = a.size() >= b.size() ? b : a;
    Dims shape = longer;
    for (std::size_t k = 0; k < other.size(); ++k) {
      std::int64_t& extent = shape[longer.size() - other.size() + k];
      extent = std::max(extent, other[k]);
    }
    return shape;
  };
  while (values.size() < nodes) {
    const std::size_t i = pick();
    const std::size_t kind = below(10);
    if (kind < 2) {
      const Op ops[] = {Op::sum, Op::reduce_max, Op::reduce_min, Op::sum};
      const Op op = integers || below(2) == 0 ? ops[below(4)] : Op::mean;
      const int axis = -1 - static_cast<int>(below(own[i].size()));
      Dims shape = own[i];
      shape[static_cast<std::size_t>(axis + static_cast<int>(shape.size()))] = 1;
      NodeId id = graph.reduce(op, values[i], fusion::axis_set({axis}, "random"));
      if (!integers && op == Op::sum) id = graph.apply(Op::tanh, std::vector<NodeId>{id});
      add(id, shape);
    } else if (kind < 4) {
      const Op ops[] = {Op::neg, Op::abs, Op::square};
      const Op floats[] = {Op::tanh, Op::sin, Op::neg};
      add(graph.apply(integers ? ops[below(3)] : floats[below(3)], std::vector<NodeId>{values[i]}),
          own[i]);
    } else {
      const std::size_t k = pick();
      const Op ops[] = {Op::add, Op::sub, Op::mul, Op::maximum};
      const Op op = ops[below(integers ? 4 : 2)];
      NodeId id = graph.apply(op, std::vector<NodeId>{values[i], values[k]});
      if (!integers && below(2) == 0) id = graph.apply(Op::sin, std::vector<NodeId>{id});
      add(id, wider(own[i], own[k]));
    }
  }
  const std::size_t outputs = 1 + below(4);
  for (std::size_t i = 0; i < outputs; ++i)
    graph.add_output(
        values[values.size() - 1 - below(std::min<std::size_t>(values.size(), 6 * i + 1))]);
  return result;
}

}  // namespace kiln::testing
