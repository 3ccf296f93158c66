#include "fusion/partition/facts.hpp"

#include <algorithm>

#include "fusion/infer/scan_space.hpp"

namespace kiln::fusion {

bool is_leaf(const TypedNode& node) {
  return node.op == Op::input || node.op == Op::scalar || node.op == Op::constant ||
         node.op == Op::iota;
}

namespace {

bool is_index(const TypedGraph& graph, NodeId id) {
  const TypedNode& node = graph.nodes[id];
  return node.op == Op::promote && graph.nodes[node.operands[0]].op == Op::iota;
}

}  // namespace

std::optional<std::int64_t> counted_axis(const PlacedGraph& graph, NodeId id) {
  const TypedNode& node = graph.graph.nodes[id];
  if (node.op != Op::view || !is_index(graph.graph, node.operands[0])) return {};
  // As store_iotas makes them: an array of one axis, of the dtype in which it is counted.
  const TypedNode& stored = graph.graph.nodes[node.operands[0]];
  const TypedNode& counted = graph.graph.nodes[stored.operands[0]];
  if (graph.shapes[node.operands[0]].size() != 1 || stored.dtype != counted.dtype) return {};
  const Dims& shape = graph.shapes[id];
  const ArrayLayout& layout = graph.views[node.payload];
  if (layout.offset != 0 || layout.indexed.exists()) return {};
  std::optional<std::int64_t> axis;
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (shape[k] == 1) continue;
    if (axis || layout.strides[k] != 1) return {};
    axis = static_cast<std::int64_t>(k) - std::ssize(shape);
  }
  return axis;
}

std::vector<bool> seen_as_views(const PlacedGraph& graph) {
  const std::vector<TypedNode>& nodes = graph.graph.nodes;
  std::vector<bool> seen(nodes.size(), false);
  const auto read = [&](NodeId id) {
    if (nodes[id].op == Op::view) seen[nodes[id].operands[0]] = true;
  };
  for (const TypedNode& node : nodes) std::ranges::for_each(node.inputs(), read);
  for (const PlacedCall& call : graph.calls) std::ranges::for_each(call.inputs, read);
  return seen;
}

PartitionFacts::PartitionFacts(const PlacedGraph& placed)
    : graph(placed), nodes(placed.graph.nodes) {
  pad_shapes();
  find_kept();
  find_reduced();
  find_places();
  find_early();
  find_updates();
}

void PartitionFacts::find_places() {
  says_places.assign(nodes.size(), false);
  std::vector<bool> otherwise = kept;  // used for something else
  std::vector<bool> used = kept;
  for (NodeId id = static_cast<NodeId>(nodes.size()); id-- > 0;) {
    if (!used[id]) continue;
    const TypedNode& node = nodes[id];
    const bool computes = (is_elementwise(node.op) && node.arity > 0) || node.op == Op::take;
    says_places[id] = says_places[id] && !otherwise[id] && !seen_as_view[id];
    for (std::size_t i = 0; i < node.arity; ++i) {
      used[node.operands[i]] = true;
      const bool place = (node.op == Op::put && i == 1) || (computes && says_places[id]);
      if (place) says_places[node.operands[i]] = true;
      if (!place) otherwise[node.operands[i]] = true;
    }
  }
}

void PartitionFacts::find_updates() {
  for (std::size_t i = 0; i < graph.updates.size(); ++i) {
    if (!graph.updates[i]) continue;
    for (const PlacedPart& part : graph.joins[i]) updates_[part.value] = *graph.updates[i];
  }
}

std::optional<NodeId> PartitionFacts::updates(NodeId id) const {
  const auto found = updates_.find(id);
  return found == updates_.end() ? std::nullopt : std::optional(found->second);
}

void PartitionFacts::pad_shapes() {
  std::size_t rank = 0;
  for (const Dims& shape : graph.shapes) rank = std::max(rank, shape.size());
  for (const Dims& shape : graph.shapes) {
    Dims padded(rank, 1);
    std::copy(shape.begin(), shape.end(), padded.begin() + (rank - shape.size()));
    shapes.push_back(std::move(padded));
  }
}

// What is stored whatever kernel computes it.
void PartitionFacts::find_kept() {
  kept.assign(nodes.size(), false);
  seen_as_view = seen_as_views(graph);
  for (const auto* lists : {&graph.stores, &graph.joins}) {
    for (const auto& parts : *lists) {
      for (const PlacedPart& part : parts) kept[part.value] = true;
    }
  }
  for (const PlacedCall& call : graph.calls) {
    for (const NodeId input : call.inputs) kept[viewed(graph.graph, input)] = true;
  }
  for (const std::vector<BoundedAxis>& bounds : graph.bounds) {
    for (const BoundedAxis& bound : bounds) {
      if (is_computed(nodes[bound.end])) kept[bound.end] = true;
    }
  }
}

// What is read in one dtype and computed with in another has no kernel of its own: each reader
// converts it, also an iota.
bool PartitionFacts::is_conversion(NodeId id) const {
  const TypedNode& node = nodes[id];
  if (node.op != Op::promote || kept[id] || seen_as_view[id]) return false;
  const NodeId read = node.operands[0];
  return is_leaf(nodes[read]) || is_view_of_argument(read) || is_deferred(read);
}

// What depends on arguments alone and is broadcast to something larger wherever it is needed, or
// says places: the kernels for it come first, so that they are between no others.
void PartitionFacts::find_early() {
  early.assign(nodes.size(), false);
  std::vector<bool> used(nodes.size(), false);
  std::vector<bool> broadcast(nodes.size(), true);
  find_alone();
  for (NodeId id = static_cast<NodeId>(nodes.size()); id-- > 0;) {
    const TypedNode& node = nodes[id];
    early[id] = used[id] && (broadcast[id] || says_places[id]) && alone[id] && !kept[id] &&
                is_computed(node);
    const bool computes = is_computed(node) && !has_axes(node.op);
    for (const NodeId operand : node.inputs()) {
      used[operand] = true;
      const bool larger = computes && shapes[operand] != shapes[id];
      if (!larger && !early[id]) broadcast[operand] = false;
    }
  }
  for (NodeId id = 0; id < nodes.size(); ++id) {
    early[id] = early[id] && std::ranges::all_of(nodes[id].inputs(), [&](NodeId operand) {
                  return !is_computed(nodes[operand]) || early[operand] || is_conversion(operand);
                });
  }
}

// What depends on leaves, and views of arguments and indices alone.
void PartitionFacts::find_alone() {
  alone.assign(nodes.size(), false);
  for (NodeId id = 0; id < nodes.size(); ++id) {
    const TypedNode& node = nodes[id];
    alone[id] = is_leaf(node) || is_view_of_argument(id) || is_view_of_indices(id) ||
                (is_computed(node) && !has_axes(node.op) &&
                 std::ranges::all_of(node.inputs(), [&](NodeId x) { return alone[x]; }));
  }
}

std::vector<bool> PartitionFacts::reduced_by(NodeId id) const {
  const Dims& from = shapes[nodes[id].operands[0]];
  std::vector<bool> axes(from.size());
  for (std::size_t k = 0; k < axes.size(); ++k) axes[k] = from[k] != shapes[id][k];
  return axes;
}

// The array that a value is read from, in which several views lie.
NodeId PartitionFacts::array_of(NodeId id) const { return viewed(graph.graph, read_of(id)); }

// What is read for a value.
NodeId PartitionFacts::read_of(NodeId id) const {
  return is_conversion(id) ? nodes[id].operands[0] : id;
}

// Stored by another kernel before this one begins, whatever kernel that is.
bool PartitionFacts::is_deferred(NodeId id) const {
  const NodeId root = viewed(graph.graph, id);
  const Op op = nodes[root].op;
  return op == Op::join || op == Op::custom_call || (root != id && op != Op::input);
}

bool PartitionFacts::stores_packed(NodeId id) const {
  return kept[id] && is_packed(nodes[id].dtype) && is_computed(nodes[id]);
}

bool PartitionFacts::takes_packed(NodeId id) const {
  return nodes[id].op == Op::take && is_packed(nodes[id].dtype);
}

bool PartitionFacts::is_in_memory(NodeId id) const {
  return nodes[array_of(id)].op == Op::input || is_deferred(read_of(id));
}

bool PartitionFacts::is_view_of_argument(NodeId id) const {
  return nodes[id].op == Op::view && nodes[nodes[id].operands[0]].op == Op::input;
}

bool PartitionFacts::is_stored_index(NodeId id) const {
  return seen_as_view[id] && is_index(graph.graph, id);
}

bool PartitionFacts::is_view_of_indices(NodeId id) const {
  return nodes[id].op == Op::view && is_index(graph.graph, nodes[id].operands[0]);
}

// Whether a value takes fewer bytes than any that it is computed from and that has its elements.
bool PartitionFacts::narrows(NodeId id) const {
  return std::ranges::all_of(nodes[id].inputs(), [&](NodeId operand) {
    return shapes[operand] != shapes[id] || !is_computed(nodes[operand]) ||
           stored_bytes(graph, id) < stored_bytes(graph, operand);
  });
}

// Which values reductions depend on, and which depend on an iota that is not stored.
void PartitionFacts::find_reduced() {
  reduced.assign(nodes.size(), false);
  after_iota.assign(nodes.size(), false);
  for (NodeId id = 0; id < nodes.size(); ++id) {
    after_iota[id] = nodes[id].op == Op::iota ||
                     (!has_axes(nodes[id].op) && !is_view_of_indices(id) &&
                      std::ranges::any_of(nodes[id].inputs(),
                                          [&](NodeId operand) { return after_iota[operand]; }));
  }
  for (NodeId id = static_cast<NodeId>(nodes.size()); id-- > 0;) {
    if (!reduced[id] && !is_reduction(nodes[id].op)) continue;
    for (const NodeId operand : nodes[id].inputs()) reduced[operand] = true;
  }
}

std::size_t PartitionFacts::running_axis(NodeId id) const {
  return scan_axis(nodes[id], graph.shapes[id]);
}

bool PartitionFacts::reads_iota(NodeId id) const {
  return std::ranges::any_of(
      nodes[id].inputs(), [&](NodeId operand) { return nodes[read_of(operand)].op == Op::iota; });
}

}  // namespace kiln::fusion
