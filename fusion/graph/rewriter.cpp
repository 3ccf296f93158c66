#include "fusion/graph/rewriter.hpp"

#include <algorithm>
#include <utility>

#include "fusion/graph/number.hpp"
#include "fusion/graph/size_trace.hpp"

namespace kiln::fusion {
namespace {

// The new position of each live node; of the others one that no node has.
std::vector<NodeId> renumbered(const std::vector<bool>& live) {
  std::vector<NodeId> positions;
  positions.reserve(live.size());
  NodeId next = 0;
  for (const bool is_live : live) positions.push_back(is_live ? next++ : ~NodeId{0});
  return positions;
}

void drop_dead_nodes(TypedGraph& graph, std::vector<Dims>* shapes) {
  const std::vector<bool> live = live_nodes(graph.nodes, graph.roots());
  if (std::ranges::find(live, false) == live.end()) return;
  const std::vector<NodeId> positions = renumbered(live);
  std::size_t kept = 0;
  for (std::size_t id = 0; id < live.size(); ++id) {
    if (!live[id]) continue;
    TypedNode& node = graph.nodes[id];
    for (std::size_t i = 0; i < node.arity; ++i) node.operands[i] = positions[node.operands[i]];
    if (kept < id) {
      graph.nodes[kept] = node;
      if (shapes != nullptr) (*shapes)[kept] = std::move((*shapes)[id]);
    }
    ++kept;
  }
  graph.nodes.resize(kept);
  if (shapes != nullptr) shapes->resize(kept);
  for (NodeId& output : graph.outputs) output = positions[output];
  for (IndexedOperand& operand : graph.indexed) operand.place = positions[operand.place];
  for (BoundedAxis& bound : graph.bounds) bound.end = positions[bound.end];
}

}  // namespace

NodeId GraphBuilder::add(const TypedNode& node, const Dims& shape) {
  const std::vector<TypedNode>& nodes = graph_->nodes;
  const auto next = static_cast<NodeId>(nodes.size());
  const auto is_equal = [&](NodeId id) {
    return nodes[id] == node && (shapes_ == nullptr || (*shapes_)[id] == shape);
  };
  const NodeId known = index_.find_or_enter(hash_of(node), next, is_equal);
  return known == next ? append(node, shape) : known;
}

NodeId GraphBuilder::append(const TypedNode& node, const Dims& shape) {
  graph_->nodes.push_back(node);
  if (shapes_ != nullptr) {
    shapes_->push_back(shape);
    if (SizeTrace* const trace = SizeTrace::current()) trace->add_extents(shapes_->back());
  }
  return static_cast<NodeId>(graph_->nodes.size() - 1);
}

std::uint64_t GraphBuilder::add_list(const std::vector<std::int64_t>& list) {
  if (own_tables_ == nullptr) {
    own_tables_ = graph_->tables != nullptr ? std::make_shared<Tables>(*graph_->tables)
                                            : std::make_shared<Tables>();
    graph_->tables = own_tables_;
  }
  return own_tables_->add_list(list);
}

TypedGraph without_nodes(const TypedGraph& graph) {
  TypedGraph result;
  result.arguments = graph.arguments;
  result.argument_names = graph.argument_names;
  result.output_names = graph.output_names;
  result.rounding = graph.rounding;
  result.tables = graph.tables;
  return result;
}

void drop_dead_nodes(TypedGraph& graph) { drop_dead_nodes(graph, nullptr); }

void drop_dead_nodes(ShapedGraph& graph) { drop_dead_nodes(graph.graph, &graph.shapes); }

TypedNode GraphRewriter::moved_node(NodeId old) const {
  TypedNode node = from_.graph.nodes[old];
  for (std::size_t i = 0; i < node.arity; ++i) node.operands[i] = moved_[node.operands[i]];
  return node;
}

NodeId GraphRewriter::reshaped(NodeId id, const Dims& wanted) {
  for (NodeId at = id;; at = node(at).operands[0]) {
    if (shape(at) == wanted) return at;
    if (!keeps_element_order(node(at).op)) break;
  }
  const std::uint64_t list = add_list({wanted.begin(), wanted.end()});
  return add({Op::reshape, node(id).dtype, 1, {id}, list}, wanted);
}

NodeId GraphRewriter::converted(NodeId id, DType dtype) {
  if (node(id).dtype == dtype) return id;
  return add({Op::promote, dtype, 1, {id}, 0}, Dims(shape(id)));
}

NodeId GraphRewriter::combined(Op op, NodeId a, NodeId b) {
  return add({op, node(a).dtype, 2, {a, b}, 0}, Dims(shape(a)));
}

NodeId GraphRewriter::number(double value, DType dtype) {
  return add({Op::constant, dtype, 0, {}, encode(value, dtype)}, {});
}

}  // namespace kiln::fusion
