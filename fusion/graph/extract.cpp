#include "fusion/graph/extract.hpp"

namespace kiln::fusion {
namespace {

std::vector<bool> read_arguments(const Graph& graph, const std::vector<bool>& live) {
  std::vector<bool> read(graph.arguments().size(), false);
  for (std::size_t id = 0; id < live.size(); ++id) {
    if (live[id] && graph.nodes()[id].op == Op::input) read[graph.nodes()[id].payload] = true;
  }
  return read;
}

NodeId copy_node(const Graph& from, Node node, const std::vector<NodeId>& moved, Graph& to) {
  if (node.op == Op::input) return to.argument(from.arguments()[node.payload]);
  for (std::size_t i = 0; i < node.arity; ++i) node.operands[i] = moved[node.operands[i]];
  return to.add(node);
}

}  // namespace

std::vector<bool> arguments_of(const Graph& graph, std::span<const NodeId> values) {
  return read_arguments(graph, live_nodes(graph.nodes(), values));
}

Extract extract(const Graph& graph, std::span<const std::size_t> outputs) {
  std::vector<NodeId> roots;
  for (const std::size_t output : outputs) roots.push_back(graph.outputs()[output]);
  const std::vector<bool> live = live_nodes(graph.nodes(), roots);
  const std::vector<bool> read = read_arguments(graph, live);
  Extract result;
  result.graph.share_tables(graph);
  for (std::size_t i = 0; i < read.size(); ++i) {
    if (!read[i]) continue;
    result.graph.argument(graph.arguments()[i]);
    result.arguments.push_back(i);
  }
  std::vector<NodeId> moved(live.size(), 0);
  for (std::size_t id = 0; id < live.size(); ++id) {
    if (live[id]) moved[id] = copy_node(graph, graph.nodes()[id], moved, result.graph);
  }
  for (const std::size_t output : outputs) {
    result.graph.add_output(moved[graph.outputs()[output]], graph.output_names()[output]);
  }
  return result;
}

}  // namespace kiln::fusion
