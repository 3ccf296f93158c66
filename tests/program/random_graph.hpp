// Random programs for the property tests: integer graphs, whose results are exact, and graphs of
// floats whose numbers stay small; elementwise ops, broadcasts, reductions, shape ops, several
// outputs.
#pragma once

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "fusion/graph.hpp"
#include "fusion/shape_ops.hpp"
#include "kiln/dims.hpp"

namespace kiln::testing {

struct RandomGraph {
  fusion::Graph graph;
  std::vector<Dims> arguments;  ///< shapes
};

/// Whether arrays of those shapes are operands of one operation.
inline bool do_broadcast(const Dims& a, const Dims& b) {
  for (std::size_t k = 1; k <= std::min(a.size(), b.size()); ++k) {
    const std::int64_t x = a[a.size() - k];
    const std::int64_t y = b[b.size() - k];
    if (x != y && x != 1 && y != 1) return false;
  }
  return true;
}

/// A shape op on `value` or on it and `other`; nothing if the one that was drawn does not fit.
template <class Random>
std::optional<std::pair<fusion::NodeId, Dims>> random_shape_op(fusion::Graph& graph, Random& random,
                                                               fusion::NodeId value,
                                                               const Dims& shape,
                                                               fusion::NodeId other,
                                                               const Dims& other_shape) {
  const auto below = [&](std::size_t n) { return static_cast<std::int64_t>(random() % n); };
  const auto size_of = [](const Dims& dims) {
    std::int64_t size = 1;
    for (const std::int64_t extent : dims) size *= extent;
    return size;
  };
  const auto rank = static_cast<std::int64_t>(shape.size());
  if (rank == 0 || size_of(shape) + size_of(other_shape) > 400) return std::nullopt;
  const std::int64_t axis = below(shape.size()) - (below(2) == 0 ? rank : 0);
  const auto place = static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
  using fusion::Op;
  Op op = Op::slice;
  std::vector<std::int64_t> list;
  std::vector<Dims> shapes{shape};
  std::vector<fusion::NodeId> operands{value};
  switch (below(7)) {
    case 0:
    case 1: {
      const std::int64_t steps[] = {1, 1, 2, -1, 3};
      list = {axis, below(3), below(2) == 0 ? fusion::kOmitted : shape[place], steps[below(5)]};
      if (list[3] < 0) std::swap(list[1], list[2]);
      break;
    }
    case 2:
      op = below(2) == 0 ? Op::transpose : Op::swapaxes;
      if (op == Op::swapaxes) list = {axis, below(shape.size())};
      break;
    case 3: {
      op = Op::reshape;
      list =
          below(2) == 0 ? std::vector<std::int64_t>{-1} : std::vector<std::int64_t>{shape[0], -1};
      if (below(3) == 0 && shape[shape.size() - 1] % 2 == 0) list = {-1, 2};
      break;
    }
    case 4:
      op = shape[place] == 1 && rank > 1 ? Op::squeeze : Op::expand_dims;
      list = {axis};
      if (op == Op::expand_dims && rank >= 4) return std::nullopt;
      break;
    default: {
      op = Op::concat;
      list = {axis};
      operands.push_back(other);
      shapes.push_back(other_shape);
      if (other_shape.size() != shape.size()) return std::nullopt;
      for (std::size_t k = 0; k < shape.size(); ++k) {
        if (k != place && shape[k] != other_shape[k]) return std::nullopt;
      }
    }
  }
  Dims result = fusion::result_shape(op, list, shapes, "random");
  if (size_of(result) == 0) return std::nullopt;
  return std::pair(graph.shape_op(op, operands, list), std::move(result));
}

/// `nodes` operations or a few more, with `views` also shape ops. Equal seeds give equal graphs.
inline RandomGraph random_graph(std::uint64_t seed, std::size_t nodes, bool integers,
                                bool views = false) {
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
    if (views && below(3) == 0) {
      const std::size_t k = below(2) == 0 ? i : pick();
      auto moved = random_shape_op(graph, random, values[i], own[i], values[k], own[k]);
      if (moved) add(moved->first, std::move(moved->second));
      continue;
    }
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
      if (!do_broadcast(own[i], own[k])) continue;
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
