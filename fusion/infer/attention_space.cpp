#include "fusion/infer/attention_space.hpp"

#include <algorithm>
#include <bit>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/infer/iota.hpp"

namespace kiln::fusion {
namespace {

constexpr std::int64_t kMostDepth = 1024;
constexpr std::size_t kMostNodes = 192;

std::vector<Dims> with_one_rank(std::span<const Dims> shapes) {
  std::size_t rank = 0;
  for (const Dims& shape : shapes) rank = std::max(rank, shape.size());
  std::vector<Dims> all;
  for (const Dims& shape : shapes) {
    Dims padded(rank, 1);
    std::copy(shape.begin(), shape.end(), padded.begin() + (rank - shape.size()));
    all.push_back(std::move(padded));
  }
  return all;
}

bool is_computed_in_f32(DType dtype) {
  return compute_dtype(dtype) == DType::f32 && is_floating(dtype);
}

// Whether all keys of one row of scores end there.
bool is_end_of_keys(const BoundedAxis& bound, const std::vector<Dims>& shapes,
                    const AttentionNodes& nodes) {
  const Dims& end = shapes[bound.end];
  return static_cast<std::size_t>(std::ssize(end) + bound.axis) == nodes.key &&
         end[nodes.key] == 1 && end[nodes.depth] == 1 && end[nodes.value] == 1;
}

// Of each input the value that says where its elements are, if one does.
std::vector<std::optional<NodeId>> places_of_inputs(const TypedGraph& graph) {
  std::vector<std::optional<NodeId>> places(graph.nodes.size());
  if (graph.indexed.empty()) return places;
  for (NodeId id = 0; id < places.size(); ++id) {
    const TypedNode& node = graph.nodes[id];
    if (node.op != Op::input) continue;
    if (const auto place = graph.place_of(false, node.payload)) places[id] = *place;
  }
  return places;
}

// Finds the attention that ends in one sum.
class AttentionFinder {
 public:
  AttentionFinder(const TypedGraph& graph, const std::vector<Dims>& shapes,
                  const std::vector<std::vector<NodeId>>& users, const std::vector<bool>& kept,
                  std::span<const Ends> bounds)
      : graph_(graph),
        shapes_(shapes),
        users_(users),
        kept_(kept),
        bounds_(bounds),
        place_of_(places_of_inputs(graph)) {}

  std::optional<AttentionNodes> run(NodeId result) {
    inside_.assign(graph_.nodes.size(), false);
    places_.clear();
    found_ = {};
    if (!find_softmax(result) || !find_product() || !has_axes_of_attention() || !is_closed() ||
        !ends_along_keys()) {
      return std::nullopt;
    }
    for (NodeId id = 0; id < inside_.size(); ++id) {
      if (inside_[id]) found_.inside.push_back(id);
    }
    if (found_.inside.size() > kMostNodes) return std::nullopt;
    return found_;
  }

 private:
  const TypedNode& node(NodeId id) const { return graph_.nodes[id]; }

  // What a node converts without rounding it, noted as inside.
  NodeId unconverted(NodeId id) {
    while (node(id).op == Op::promote && is_computed_in_f32(node(id).dtype) &&
           is_computed_in_f32(node(node(id).operands[0]).dtype)) {
      inside_[id] = true;
      id = node(id).operands[0];
    }
    return id;
  }

  // Whether a node is another one or that converted, noted as inside.
  bool is_converted(NodeId id, NodeId from) {
    while (id != from) {
      if (node(id).op != Op::promote || !is_computed_in_f32(node(id).dtype)) return false;
      inside_[id] = true;
      id = node(id).operands[0];
    }
    return true;
  }

  // The one axis that a reduction reduces.
  std::optional<std::size_t> reduced_axis(NodeId id) const {
    const Dims& from = shapes_[node(id).operands[0]];
    std::optional<std::size_t> axis;
    for (std::size_t k = 0; k < from.size(); ++k) {
      if (from[k] == shapes_[id][k]) continue;
      if (axis) return std::nullopt;
      axis = k;
    }
    return axis;
  }

  bool is_sum_over_keys(NodeId id) const {
    return node(id).op == Op::sum && is_computed_in_f32(node(id).dtype) &&
           reduced_axis(id) == found_.key;
  }

  // -- From the result to the scores

  bool find_softmax(NodeId result) {
    if (node(result).op != Op::sum || !is_computed_in_f32(node(result).dtype)) return false;
    const auto key = reduced_axis(result);
    if (!key) return false;
    found_.key = *key;
    found_.result = result;
    const NodeId weighted = unconverted(node(result).operands[0]);
    if (node(weighted).op != Op::mul) return false;
    const auto before = inside_;
    for (const int side : {0, 1}) {
      inside_ = before;
      inside_[result] = inside_[weighted] = true;
      found_.values = node(weighted).operands[1 - side];
      if (found_.values != node(weighted).operands[side] &&
          are_weights(node(weighted).operands[side])) {
        return true;
      }
    }
    return false;
  }

  // exp(scores - max(scores)), or that divided by its sum.
  bool are_weights(NodeId id) {
    id = unconverted(id);
    const TypedNode& weights = node(id);
    if (weights.op == Op::exp) return are_exponentials(id) && find_total();
    found_.normalised = true;
    inside_[id] = true;
    if (weights.op == Op::div) return is_quotient(weights.operands[0], weights.operands[1]);
    if (weights.op != Op::mul) return false;
    for (const int side : {0, 1}) {
      const NodeId factor = unconverted(weights.operands[side]);
      if (node(factor).op != Op::reciprocal) continue;
      inside_[factor] = true;
      return is_quotient(weights.operands[1 - side], node(factor).operands[0]);
    }
    return false;
  }

  bool is_quotient(NodeId exponentials, NodeId total) {
    exponentials = unconverted(exponentials);
    total = unconverted(total);
    if (!are_exponentials(exponentials) || !is_total(total)) return false;
    found_.total = total;
    inside_[total] = true;
    return true;
  }

  bool is_total(NodeId id) {
    return is_sum_over_keys(id) && is_converted(node(id).operands[0], found_.weights);
  }

  // The sum of the weights, where the result is divided by it later or not at all.
  bool find_total() {
    found_.normalised = false;
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      if (!is_sum_over_keys(id)) continue;
      NodeId of = node(id).operands[0];
      while (node(of).op == Op::promote) of = node(of).operands[0];
      if (of != found_.weights || !is_total(id)) continue;
      found_.total = id;
      inside_[id] = true;
      return true;
    }
    return false;
  }

  bool are_exponentials(NodeId id) {
    if (node(id).op != Op::exp || !is_computed_in_f32(node(id).dtype)) return false;
    const NodeId difference = unconverted(node(id).operands[0]);
    if (node(difference).op != Op::sub) return false;
    const NodeId largest = unconverted(node(difference).operands[1]);
    if (node(largest).op != Op::reduce_max || reduced_axis(largest) != found_.key) return false;
    const NodeId scores = node(largest).operands[0];
    if (!is_converted(node(difference).operands[0], scores)) return false;
    if (!is_computed_in_f32(node(scores).dtype)) return false;
    inside_[id] = inside_[difference] = inside_[largest] = true;
    found_.weights = id;
    found_.largest = largest;
    found_.scores = scores;
    return true;
  }

  // -- From the scores and the values to what is read

  bool find_product() {
    std::vector<std::uint8_t> wanted(graph_.nodes.size(), 0);
    wanted[found_.scores] |= kScoreSide;
    wanted[found_.values] |= kValueSide;
    bool has_product = false;
    find_unfit();
    for (NodeId id = static_cast<NodeId>(graph_.nodes.size()); id-- > 0;) {
      if (wanted[id] == 0 || inside_[id]) continue;
      const TypedNode& own = node(id);
      std::uint8_t next = wanted[id];
      if (is_product(id) && wanted[id] == kScoreSide && !has_product) {
        has_product = true;
        found_.product = id;
        next = kProductSide;
      } else if (!is_own_function(id) && !is_own_take(id)) {
        if (!can_be_read(id, wanted[id])) return false;
        if (const auto place = place_of_[id]) {
          places_.push_back(*place);
          wanted[*place] |= next;
        }
        continue;
      }
      if (own.op == Op::take) places_.push_back(own.operands[1]);
      inside_[id] = true;
      for (const NodeId operand : own.inputs()) wanted[operand] |= next;
    }
    return has_product;
  }

  // Iotas over all elements, in whose numbers nothing here counts.
  void find_unfit() {
    unfit_.assign(graph_.nodes.size(), false);
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const TypedNode& own = node(id);
      unfit_[id] = (own.op == Op::iota && iota_axis(own) == kAllAxes) ||
                   (own.op == Op::promote && unfit_[own.operands[0]]);
    }
  }

  bool is_used_inside(NodeId id) const {
    return !kept_[id] &&
           std::ranges::all_of(users_[id], [&](NodeId user) { return inside_[user]; });
  }

  bool is_product(NodeId id) {
    if (node(id).op != Op::sum || !is_computed_in_f32(node(id).dtype)) return false;
    const auto depth = reduced_axis(id);
    if (!depth || *depth == found_.key || !runs_over_keys(id) || !is_used_inside(id)) return false;
    found_.depth = *depth;
    return true;
  }

  std::int64_t keys() const { return shapes_[node(found_.largest).operands[0]][found_.key]; }
  bool runs_over_keys(NodeId id) const { return shapes_[id][found_.key] == keys(); }

  // A function of elements that only this attention needs, for each key.
  bool is_own_function(NodeId id) const {
    const TypedNode& own = node(id);
    return own.arity > 0 && is_elementwise(own.op) && own.op != Op::bitcast &&
           info(own.op).rule != Rule::random && runs_over_keys(id) && is_used_inside(id) &&
           std::ranges::none_of(own.inputs(), [&](NodeId operand) { return unfit_[operand]; });
  }

  // Rows of an array that only this attention reads, of which data says where each key's is.
  bool is_own_take(NodeId id) const {
    return node(id).op == Op::take && runs_over_keys(id) && is_used_inside(id);
  }

  // Whether a leaf, or what another kernel stores, can be an operand.
  bool can_be_read(NodeId id, std::uint8_t sides) const {
    NodeId read = id;
    while (node(read).op == Op::promote || node(read).op == Op::cast) read = node(read).operands[0];
    if (is_packed(node(id).dtype) || is_packed(node(read).dtype) || unfit_[id]) return false;
    const bool both = (sides & kProductSide) != 0 && (sides & kValueSide) != 0;
    return !both || (shapes_[id][found_.depth] == 1);
  }

  // -- Axes

  bool has_axes_of_attention() {
    const Dims& scores = shapes_[found_.scores];
    const Dims& weighted = shapes_[node(found_.result).operands[0]];
    const Dims& products = shapes_[node(found_.product).operands[0]];
    if (scores[found_.depth] != 1 || keys() < 2) return false;
    std::optional<std::size_t> value;
    for (std::size_t k = 0; k < scores.size(); ++k) {
      if (scores[k] == 0 || weighted[k] == 0) return false;
      if (scores[k] == weighted[k]) continue;
      if (scores[k] != 1 || value) return false;
      value = k;
    }
    if (!value) return false;
    found_.value = *value;
    // Of a key or a value all elements are at one place.
    const auto is_of_row = [&](NodeId place) {
      return shapes_[place][found_.depth] == 1 && shapes_[place][found_.value] == 1;
    };
    if (!std::ranges::all_of(places_, is_of_row)) return false;
    trace_order(products[found_.depth], kMostDepth + 1);
    trace_order(weighted[found_.value], kMostDepth + 1);
    return products[found_.depth] <= kMostDepth && weighted[found_.value] <= kMostDepth;
  }

  // What is inside has no user outside but for the results, whose users come after it.
  bool is_closed() const {
    NodeId last = 0;
    for (NodeId id = 0; id < inside_.size(); ++id) {
      if (inside_[id]) last = id;
    }
    for (NodeId id = 0; id < inside_.size(); ++id) {
      if (!inside_[id]) continue;
      const bool is_result = id == found_.largest || id == found_.total || id == found_.result;
      const auto stays = [&](NodeId user) { return inside_[user] || (is_result && user > last); };
      if (!std::ranges::all_of(users_[id], stays) || (kept_[id] && !is_result)) return false;
    }
    return true;
  }

  // Scores, weights and what these multiply end alike, and nothing ends along another axis.
  bool ends_along_keys() {
    const auto bounds = [&](NodeId id) { return id < bounds_.size() ? bounds_[id] : Ends(); };
    found_.ends = bounds(found_.weights);
    for (NodeId id = 0; id < inside_.size(); ++id) {
      if (!inside_[id]) continue;
      for (const BoundedAxis& bound : bounds(id)) {
        if (!is_end_of_keys(bound, shapes_, found_)) return false;
      }
    }
    return bounds(found_.scores) == found_.ends &&
           bounds(node(found_.result).operands[0]) == found_.ends;
  }

  const TypedGraph& graph_;
  const std::vector<Dims>& shapes_;
  const std::vector<std::vector<NodeId>>& users_;
  const std::vector<bool>& kept_;
  const std::span<const Ends> bounds_;
  const std::vector<std::optional<NodeId>> place_of_;
  std::vector<bool> inside_;
  std::vector<bool> unfit_;
  std::vector<NodeId> places_;  ///< of what is read where data says
  AttentionNodes found_;
};

std::vector<bool> outputs_of(const TypedGraph& graph) {
  std::vector<bool> outputs(graph.nodes.size(), false);
  for (const NodeId output : graph.outputs) outputs[output] = true;
  return outputs;
}

// Whether nothing is stored where data says, and what says where inputs are comes before them.
bool places_come_first(const TypedGraph& graph) {
  const auto places = places_of_inputs(graph);
  for (NodeId id = 0; id < places.size(); ++id) {
    if (places[id] && *places[id] > id) return false;
  }
  return std::ranges::none_of(graph.indexed, &IndexedOperand::output);
}

// Which sides need each node: from the outputs back to the arguments.
std::vector<std::uint8_t> sides_of(const TypedGraph& graph, const AttentionNodes& nodes) {
  std::vector<std::uint8_t> sides(graph.nodes.size(), 0);
  for (const NodeId output : graph.outputs) sides[output] |= kResultSide;
  for (const BoundedAxis& bound : graph.bounds) sides[bound.end] |= kEndSide;
  const auto place_of = places_of_inputs(graph);
  for (NodeId id = static_cast<NodeId>(graph.nodes.size()); id-- > 0;) {
    const bool is_result = id == nodes.largest || id == nodes.total || id == nodes.result;
    if (is_result) continue;
    if (id == nodes.scores) sides[id] |= kScoreSide;
    if (id == nodes.values) sides[id] |= kValueSide;
    if (const auto place = place_of[id]) sides[*place] |= sides[id];
    for (const NodeId operand : graph.nodes[id].inputs()) {
      sides[operand] |= id == nodes.product ? static_cast<std::uint8_t>(kProductSide) : sides[id];
    }
  }
  return sides;
}

}  // namespace

std::vector<AttentionNodes> find_attention(const TypedGraph& graph, std::span<const Dims> shapes,
                                           const std::vector<bool>& kept,
                                           std::span<const Ends> bounds) {
  std::vector<AttentionNodes> found;
  const auto is_max = [](const TypedNode& node) { return node.op == Op::reduce_max; };
  if (graph.rounding != Rounding::once || std::ranges::none_of(graph.nodes, is_max)) return found;
  const std::vector<Dims> padded = with_one_rank(shapes);
  const auto users = users_of(graph.nodes);
  const std::vector<bool> outputs = kept.empty() ? outputs_of(graph) : kept;
  AttentionFinder finder(graph, padded, users, outputs, bounds);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (graph.nodes[id].op != Op::sum) continue;
    if (auto nodes = finder.run(id)) found.push_back(*std::move(nodes));
  }
  return found;
}

std::vector<AttentionNodes> find_attention(const ShapedGraph& graph) {
  std::vector<Ends> bounds;
  if (has_bounds(graph)) bounds = infer_bounds(graph, "bound");
  return find_attention(graph.graph, graph.shapes, {}, bounds);
}

std::optional<AttentionSpace> attention_space(const TypedGraph& graph,
                                              std::span<const Dims> shapes) {
  std::vector<AttentionNodes> found = find_attention(graph, shapes);
  if (found.size() != 1 || !places_come_first(graph)) return std::nullopt;
  AttentionSpace space;
  space.nodes = std::move(found.front());
  const AttentionNodes& nodes = space.nodes;
  space.sides = sides_of(graph, nodes);
  const std::vector<Dims> padded = with_one_rank(shapes);
  std::vector<bool> inside(graph.nodes.size(), false);
  for (const NodeId id : nodes.inside) inside[id] = true;
  const std::int64_t keys = padded[nodes.scores][nodes.key];
  for (const BoundedAxis& bound : graph.bounds) {
    if (!is_end_of_keys(bound, padded, nodes)) return std::nullopt;
  }
  space.nodes.ends = graph.bounds;
  for (const IndexedOperand& operand : graph.indexed) {
    const Dims& place = padded[operand.place];
    if (place[nodes.depth] != 1 || place[nodes.value] != 1) return std::nullopt;
  }
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const TypedNode& node = graph.nodes[id];
    if (space.sides[id] == 0 || inside[id] || node.arity == 0) continue;
    const bool own = is_elementwise(node.op) && node.op != Op::bitcast &&
                     info(node.op).rule != Rule::random && padded[id][nodes.key] != keys;
    if (!own) return std::nullopt;
  }
  // Every output has an element for each row of scores, or for each of the values' elements.
  const auto fits = [&](NodeId output) {
    const Dims& shape = padded[output];
    for (std::size_t k = 0; k < shape.size(); ++k) {
      const bool kept = k != nodes.key && k != nodes.value;
      if (kept && shape[k] != padded[nodes.scores][k]) return false;
    }
    return shape[nodes.key] == 1;
  };
  if (!std::ranges::all_of(graph.outputs, fits)) return std::nullopt;
  const std::size_t rank = padded.front().size();
  space.shape = Dims(rank + 1, 1);
  const Dims& weighted = padded[graph.nodes[nodes.result].operands[0]];
  for (std::size_t k = 0; k < rank; ++k) {
    space.shape[k] = k == nodes.value ? 1 : weighted[k];
  }
  space.shape[nodes.depth] = padded[graph.nodes[nodes.product].operands[0]][nodes.depth];
  space.shape[rank] = weighted[nodes.value];
  return space;
}

std::int64_t attention_splits(std::int64_t keys) {
  constexpr std::uint64_t kMostSplits = 64;
  if (keys <= kAttentionTile) return 1;
  const auto tiles = static_cast<std::uint64_t>((keys + kAttentionTile - 1) / kAttentionTile);
  const std::uint64_t part = keys <= 1024 ? 1 : keys <= 4096 ? 2 : 4;  // in tiles
  // Parts of half a tile take less than whole ones, of which there would be half as many.
  return static_cast<std::int64_t>(std::min(std::bit_ceil((tiles + part - 1) / part), kMostSplits));
}

bool fits_attention(const AttentionSpace& space, const Dims& shape) {
  return shape[space.nodes.key] >= 2 && shape[space.nodes.depth] <= kMostDepth &&
         shape[space.value_axis()] <= kMostDepth;
}

}  // namespace kiln::fusion
