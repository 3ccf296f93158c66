#include "fusion/passes/parts.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/graph/size_trace.hpp"

namespace kiln::fusion {

std::optional<Window> window_of(const ShapedGraph& graph, NodeId id) {
  const TypedNode& node = graph.graph.nodes[id];
  if (node.op != Op::slice) return std::nullopt;
  const ShapeList& list = shape_list(graph.graph, node);
  if (list[3] != 1 || list[0] < 0 || list[1] < 0 || list[2] < list[1]) return std::nullopt;
  return Window{static_cast<std::size_t>(list[0]), list[1], list[2] - list[1]};
}

std::optional<Window> reshaped_window(const Dims& from, const Window& window, const Dims& to) {
  const auto product = [](const Dims& shape, std::size_t first, std::size_t end) {
    std::int64_t result = 1;
    for (std::size_t k = first; k < end; ++k) result *= shape[k];
    return result;
  };
  if (std::ranges::find(from, 0) != from.end()) return std::nullopt;
  const std::int64_t outer = product(from, 0, window.axis);
  const std::int64_t inner = product(from, window.axis + 1, from.size());
  for (std::size_t k = 0; k < to.size(); ++k) {
    trace_order(product(to, 0, k), outer);
    if (product(to, 0, k) != outer || to[k] == 1) continue;
    const std::int64_t own = product(to, k + 1, to.size());
    for (const std::int64_t at : {window.first, window.count}) {
      trace_divides(at * inner, own);
      if (at * inner % own != 0) return std::nullopt;
    }
    return Window{k, window.first * inner / own, window.count * inner / own};
  }
  return std::nullopt;
}

namespace {

// Whether a value, or one of a few of which it is a view or computed, is as asked for.
template <class Wanted>
bool any_behind(const TypedGraph& graph, NodeId id, const Wanted& wanted) {
  constexpr std::size_t kMostValues = 24;
  std::vector<NodeId> open{id};
  for (std::size_t next = 0; next < open.size() && open.size() < kMostValues; ++next) {
    const TypedNode& node = graph.nodes[open[next]];
    if (wanted(open[next])) return true;
    if (!is_view_op(node.op) && !is_elementwise(node.op)) continue;
    const auto inputs = node.inputs();
    open.insert(open.end(), inputs.begin(), inputs.end());
  }
  return false;
}

}  // namespace

bool comes_of_reduction(const ShapedGraph& graph, NodeId id, bool whole) {
  const std::int64_t elements = element_count(graph.shapes[id]);
  return any_behind(graph.graph, id, [&](NodeId at) {
    if (!is_reduction(graph.graph.nodes[at].op)) return false;
    const std::int64_t own = element_count(graph.shapes[at]);
    trace_order(own, elements);
    return own == elements || (!whole && own > elements);
  });
}

bool meets_its_reduction(const TypedGraph& graph, const std::vector<std::vector<NodeId>>& users,
                         NodeId id) {
  constexpr std::size_t kMostMade = 64;
  std::vector<NodeId> reductions;
  any_behind(graph, id, [&](NodeId at) {
    if (is_reduction(graph.nodes[at].op)) reductions.push_back(at);
    return false;
  });
  const auto is_reduced = [&](NodeId at) {
    return std::ranges::find(reductions, at) != reductions.end();
  };
  std::vector<NodeId> made{id};
  const auto is_made = [&](NodeId at) { return std::ranges::find(made, at) != made.end(); };
  for (std::size_t next = 0; next < made.size() && made.size() < kMostMade; ++next) {
    for (const NodeId user : users[made[next]]) {
      const TypedNode& node = graph.nodes[user];
      if ((is_elementwise(node.op) || is_view_op(node.op)) && !is_made(user)) made.push_back(user);
    }
  }
  return std::ranges::any_of(made, [&](NodeId at) {
    const auto meets = [&](NodeId operand) {
      return !is_made(operand) && any_behind(graph, operand, is_reduced);
    };
    return at != id && is_elementwise(graph.nodes[at].op) &&
           std::ranges::any_of(graph.nodes[at].inputs(), meets);
  });
}

bool are_computed_together(const TypedGraph& graph, std::span<const NodeId> values) {
  std::map<NodeId, NodeId> made_of;
  for (const NodeId value : values) made_of[value] = value;
  for (NodeId id = *std::ranges::min_element(values); id < graph.nodes.size(); ++id) {
    const TypedNode& node = graph.nodes[id];
    if (!is_elementwise(node.op) && !is_view_op(node.op)) continue;
    for (const NodeId operand : node.inputs()) {
      const auto known = made_of.find(operand);
      if (known == made_of.end()) continue;
      const auto [own, fresh] = made_of.emplace(id, known->second);
      if (!fresh && own->second != known->second) return true;
    }
  }
  return false;
}

}  // namespace kiln::fusion
