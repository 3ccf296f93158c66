// See place_views.hpp. Two walks: from the results backwards (dissolved_views.hpp), then forwards,
// here, where everything that is left gets a view or a copy.
#include "fusion/passes/place_views.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/indexed.hpp"
#include "fusion/graph/reshape.hpp"
#include "fusion/infer/bounds.hpp"
#include "fusion/passes/dissolved_views.hpp"
#include "fusion/passes/placed_arrays.hpp"
#include "fusion/passes/places.hpp"
#include "fusion/passes/taken_views.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

// What take() gives: the arrays that its rows and its places are in, and how it sees them.
struct Taken {
  NodeId rows = 0;
  NodeId places = 0;
  TakenView view;
};

class Placer {
 public:
  Placer(const ShapedGraph& from, std::span<const ArrayLayout> arguments,
         std::span<const ArrayLayout> outputs, const Unpacked& unpacked)
      : from_(from),
        unpacked_(unpacked),
        bounds_(has_bounds(from) ? infer_bounds(from, "bound") : std::vector<Ends>{}),
        dissolved_(dissolve_views(from, arguments, outputs, bounds_)),
        arrays_(from, arguments),
        to_(arrays_.graph) {}

  PlacedGraph run() {
    moved_.resize(from_.graph.nodes.size());
    for (NodeId id = 0; id < moved_.size(); ++id) {
      if (dissolved_.dissolved[id]) continue;
      moved_[id] = place(id);
      if (!bounds_.empty()) set_bounds(id, put_value_of(moved_[id]));
    }
    for (const std::vector<StoredPart>& output : dissolved_.outputs) {
      std::vector<PlacedPart>& parts = to_.stores.emplace_back();
      for (const StoredPart& part : output) parts.push_back(store(part, true));
      // For the dtype and the shape: what the output is, or a part of it.
      to_.graph.outputs.push_back(parts.front().value);
    }
    check_updates();
    return std::move(to_);
  }

 private:
  const TypedNode& source(NodeId id) const { return from_.graph.nodes[id]; }
  const TypedNode& placed(NodeId id) const { return arrays_.node(id); }

  NodeId place(NodeId id) {
    TypedNode node = source(id);
    if (node.op == Op::tuple) return 0;
    if (node.op == Op::concat) return join(id);
    if (node.op == Op::custom_call) return call(id);
    if (node.op == Op::bound) return bound(id);
    if (node.op == Op::take) return take(id);
    if (node.op == Op::put) return put(id);
    if (is_shape_op(node.op)) return view(id, moved_[node.operands[0]]);
    const bool converts = node.op == Op::promote || node.op == Op::cast;
    for (std::size_t i = 0; i < node.arity; ++i) {
      node.operands[i] = converts ? in_bytes(node.operands[i]) : moved_[node.operands[i]];
    }
    return arrays_.append(node, from_.shapes[id]);
  }

  // -- Places given by data

  NodeId take(NodeId id) {
    const TypedNode& node = source(id);
    NodeId array = moved_[node.operands[0]];
    if (!is_array(placed(array)) || arrays_.layout_of(array).indexed.exists())
      array = arrays_.copy(array);
    const NodeId root = viewed(to_.graph, array);
    const NodeId rows = arrays_.view_of(root, from_.shapes[id],
                                        indexed_layout(from_, node, arrays_.layout_of(array)));
    TypedNode taken = node;
    const NodeId places = moved_[node.operands[1]];
    taken.operands = {rows, places, 0};
    const NodeId made = arrays_.append(taken, from_.shapes[id]);
    if (is_array(placed(places)) && to_.shapes[places].size() == from_.shapes[id].size()) {
      ArrayLayout along = arrays_.layout_of(places);
      for (std::size_t k = 0; k < along.strides.size(); ++k) {
        if (to_.shapes[places][k] == 1) along.strides[k] = 0;
      }
      taken_.emplace(made,
                     Taken{root, viewed(to_.graph, places), {arrays_.layout_of(rows), along, {}}});
    }
    return made;
  }

  NodeId places_of_part(NodeId whole, const PutPart& part) {
    const NodeId places = places_in(arrays_, whole, part.places);
    if (!part.window) return places;
    return places_within(arrays_, places, *part.window, from_.shapes[part.value]);
  }

  // What is stored, and the array that it is stored in.
  NodeId put(NodeId id) {
    const TypedNode& node = source(id);
    const NodeId array = moved_[node.operands[0]];
    std::vector<PlacedPart> stored;
    const auto store_at = [&](NodeId value, NodeId places, const Dims& shape, ArrayLayout layout) {
      const TypedNode made{Op::put, node.dtype, 2, {value, places, 0}, node.payload};
      stored.push_back({arrays_.append(made, shape), std::move(layout)});
    };
    if (const auto parts = dissolved_.puts.find(id); parts != dissolved_.puts.end()) {
      const std::vector<PutPart>& all = parts->second;
      std::vector<NodeId> places;
      for (const PutPart& part : all) {
        const auto alike = std::ranges::find_if(all, [&](const PutPart& other) {
          return other.places == part.places && other.window == part.window &&
                 from_.shapes[other.value] == from_.shapes[part.value];
        });
        const auto first = static_cast<std::size_t>(alike - all.begin());
        places.push_back(first < places.size() ? places[first]
                                               : places_of_part(moved_[node.operands[1]], part));
        const NodeId value = applied(part.then, moved_[part.value]);
        store_at(value, places.back(), Dims(to_.shapes[value]), part.layout);
      }
    } else {
      store_at(moved_[node.operands[2]], moved_[node.operands[1]],
               taken_shape(from_.shapes[id], places_of(from_, node), places_axis(from_, node)),
               indexed_layout(from_, node, arrays_.layout_of(array)));
    }
    const NodeId joined = arrays_.join(node.dtype, std::move(stored), from_.shapes[id]);
    to_.updates.resize(to_.joins.size());
    to_.updates.back() = array;
    return joined;
  }

  // -- Bounds

  // Who reads what is bounded reads no further. What is stored is a value of its own.
  NodeId bound(NodeId id) {
    const NodeId value = moved_[source(id).operands[0]];
    const bool stored = std::ranges::find(from_.graph.outputs, id) != from_.graph.outputs.end();
    return stored ? arrays_.new_copy(value) : value;
  }

  NodeId put_value_of(NodeId id) const {
    return updated_argument(to_, id) ? to_.joins[placed(id).payload].front().value : id;
  }

  void set_bounds(NodeId id, NodeId made) {
    if (!is_computed(placed(made)) || (source(id).op == Op::bound && !is_copy_of_bound(id, made))) {
      return;
    }
    set_ends(made, placed_ends(bounds_of_space(from_, bounds_, id)));
  }

  Ends placed_ends(Ends ends) {
    for (BoundedAxis& bound : ends) bound.end = end_of(bound.end);
    std::ranges::sort(ends);
    return ends;
  }

  void set_ends(NodeId made, Ends ends) {
    if (ends.empty()) return;
    to_.bounds.resize(to_.graph.nodes.size());
    to_.bounds[made] = std::move(ends);
  }

  // A copy of what is stored up to an end, where the value itself is computed further or not at
  // all.
  std::optional<NodeId> copy_to_end(const StoredPart& part, NodeId value) {
    if (bounds_.empty() || bounds_[part.value].empty()) return {};
    Ends ends = placed_ends(bounds_[part.value]);
    const bool known = value < to_.bounds.size();
    if (is_computed(placed(value)) && known && to_.bounds[value] == ends) return {};
    const NodeId copied = arrays_.new_copy(value);
    set_ends(copied, std::move(ends));
    return copied;
  }

  bool is_copy_of_bound(NodeId id, NodeId made) const {
    return moved_[source(id).operands[0]] != made;
  }

  // An end as it lies in memory, or a number: its dtype is no matter.
  NodeId end_of(NodeId id) {
    while (source(id).op == Op::promote) id = source(id).operands[0];
    return moved_[id];
  }

  void check_updates() const {
    for (NodeId id = 0; id < to_.graph.nodes.size(); ++id) {
      if (!updated_argument(to_, id) || claimed_.contains(id)) continue;
      throw Error(
          Code::unsupported,
          fmt::format("put: the result, argument '{}' updated in place, is no output; "
                      "what has been put has to be an output",
                      to_.graph.argument_names[placed(*updated_argument(to_, id)).payload]));
    }
  }

  // -- Packed numbers

  // Whether a value lies in memory as packed numbers that are to be read in bytes.
  bool is_unpacked(NodeId id) const {
    while (true) {
      const TypedNode& node = source(id);
      if (!is_packed(node.dtype)) return false;
      const std::vector<bool>& arguments = unpacked_.arguments;
      if (node.op == Op::input) return node.payload < arguments.size() && arguments[node.payload];
      if (node.op == Op::custom_call) return unpacked_.results;
      if (!is_view_op(node.op) && node.op != Op::bitcast) return false;
      id = node.operands[0];
    }
  }

  // A value as a conversion reads it. One of a conversion reads what that does: bytes that become
  // numbers to compute with keep their values.
  NodeId in_bytes(NodeId id) {
    const TypedNode& node = source(id);
    if (node.op == Op::promote && is_unpacked(node.operands[0])) return in_bytes(node.operands[0]);
    if (!is_unpacked(id)) return moved_[id];
    if (const auto known = bytes_.find(id); known != bytes_.end()) return known->second;
    const bool view_of_it = is_shape_op(source(id).op);
    const NodeId bytes =
        view_of_it ? view(id, in_bytes(source(id).operands[0])) : unpack(moved_[id]);
    bytes_.emplace(id, bytes);
    return bytes;
  }

  NodeId unpack(NodeId packed) {
    const DType dtype = byte_dtype(placed(packed).dtype);
    const Dims shape = to_.shapes[packed];
    const NodeId bytes = arrays_.append({Op::cast, dtype, 1, {packed}, 0}, shape);
    return arrays_.join(dtype, {{bytes, contiguous_layout(shape)}}, shape);
  }

  // -- Views

  // The view `id` of the value `operand`.
  NodeId view(NodeId id, NodeId operand) {
    const TypedNode& node = source(id);
    if (placed(operand).op == Op::take) {
      if (const auto taken = view_of_taken(id, operand)) return *taken;
    }
    return arrays_.view(node.op, shape_list(from_.graph, node), operand, from_.shapes[id]);
  }

  // The view `id` of what take() gives, as rows seen so at places seen so (taken_views.hpp);
  // nothing where places are no array.
  std::optional<NodeId> view_of_taken(NodeId id, NodeId operand) {
    const auto known = taken_.find(operand);
    if (known == taken_.end()) return std::nullopt;
    const Taken from = known->second;
    const Dims& shape = from_.shapes[id];
    auto seen = seen_through(source(id).op, shape_list(from_.graph, source(id)),
                             to_.shapes[operand], shape, from.view);
    if (!seen) return std::nullopt;
    TypedNode taken = placed(operand);
    const NodeId places =
        seen->paged ? places_in_pages(arrays_, taken, shape, *seen, from.places)
                    : arrays_.view_of(from.places, varying(shape, seen->places), seen->places);
    taken.operands = {arrays_.view_of(from.rows, shape, seen->rows), places, 0};
    const NodeId made = arrays_.append(taken, shape);
    taken_.emplace(made, Taken{from.rows, from.places, std::move(*seen)});
    return made;
  }

  NodeId join(NodeId id) {
    std::vector<PlacedPart> parts;
    for (const StoredPart& part : dissolved_.concats.at(id)) parts.push_back(store(part, false));
    return arrays_.join(source(id).dtype, std::move(parts), from_.shapes[id]);
  }

  // A value after operations that were applied to the whole, of which the last one is first.
  NodeId applied(const std::vector<NodeId>& operations, NodeId value) {
    for (std::size_t k = operations.size(); k-- > 0;) {
      TypedNode node = source(operations[k]);
      node.operands[0] = value;
      value = arrays_.append(node, to_.shapes[value]);
    }
    return value;
  }

  PlacedPart store(const StoredPart& part, bool output) {
    const NodeId value = applied(part.then, moved_[part.value]);
    ArrayLayout layout = part.layout;
    if (const std::optional<NodeId> copied = copy_to_end(part, value)) return {*copied, layout};
    // What is a part of several arrays is copied to each when that is needed, lest all of them live
    // from the first on.
    if (!output && (dissolved_.uses[part.value] > 1 || !is_computed(placed(value)))) {
      return {arrays_.new_copy(value), layout};
    }
    if (is_computed(placed(value))) return {value, layout};
    const NodeId root = viewed(to_.graph, value);
    const auto behind = root == value ? layout
                                      : layout_behind(to_.shapes[root], to_.shapes[value],
                                                      arrays_.layout_of(value), layout);
    if (output && behind && lives_at(root, *behind)) return {root, *behind};
    return {arrays_.copy(value), layout};
  }

  // Whether a value can be stored in an output and nowhere else, or there too. What several kernels
  // or a custom call write has one layout, in C order.
  bool lives_at(NodeId root, const ArrayLayout& layout) {
    if (is_computed(placed(root))) return true;
    const Op op = placed(root).op;
    if (const auto argument = updated_argument(to_, root)) {
      if (is_same(layout, arrays_.layout_of(*argument))) return claimed_.insert(root).second;
      throw Error(
          Code::invalid_argument,
          fmt::format("put: expected an output that is the view of argument '{}', which it "
                      "updates: strides {}, got {}",
                      to_.graph.argument_names[placed(*argument).payload],
                      to_string(arrays_.layout_of(*argument).strides), to_string(layout.strides)));
    }
    return (op == Op::join || op == Op::custom_call) && is_contiguous(layout, to_.shapes[root]) &&
           stored_dtype(to_, root) == placed(root).dtype && claimed_.insert(root).second;
  }

  NodeId call(NodeId id) {
    const TypedNode& node = source(id);
    const std::size_t which = call_index(node.payload);
    const auto [known, fresh] = calls_.emplace(which, to_.calls.size());
    if (fresh) to_.calls.push_back(placed_call(which, node.operands[0]));
    return to_.calls[known->second].results[call_result(node.payload)];
  }

  // With all of its results, also those that nothing reads: the caller's code writes them.
  PlacedCall placed_call(std::size_t which, NodeId list) {
    PlacedCall made;
    made.call = which;
    std::vector<DType> dtypes;
    std::vector<Dims> shapes;
    for (const NodeId value : tuple_values(from_.graph, list)) {
      dtypes.push_back(source(value).dtype);
      shapes.push_back(from_.shapes[value]);
      const NodeId input = moved_[value];
      made.inputs.push_back(is_array(placed(input)) ? input : arrays_.copy(input));
    }
    const CustomCall& call = from_.graph.tables->calls[which];
    dtypes = call.dtypes(dtypes);
    shapes = call.shapes(shapes);
    if (dtypes.size() != shapes.size() || dtypes.size() > kMostResults) {
      throw Error(Code::invalid_argument,
                  fmt::format("{}: expected as many dtypes as shapes of results, {} or fewer, got "
                              "{} dtypes and {} shapes",
                              call.name, kMostResults, dtypes.size(), shapes.size()));
    }
    for (std::size_t i = 0; i < dtypes.size(); ++i) {
      const TypedNode result{
          Op::custom_call, dtypes[i], 0, {}, to_.calls.size() * kMostResults + i};
      made.results.push_back(arrays_.append(result, shapes[i]));
    }
    return made;
  }

  const ShapedGraph& from_;
  const Unpacked& unpacked_;
  const std::vector<Ends> bounds_;  ///< of each node of `from_`; none if nothing is bounded
  const DissolvedViews dissolved_;
  PlacedArrays arrays_;
  PlacedGraph& to_;  ///< theirs
  std::vector<NodeId> moved_;
  std::map<NodeId, NodeId> bytes_;  ///< of what is unpacked
  std::map<NodeId, Taken> taken_;   ///< of what take() gives
  std::map<std::size_t, std::size_t> calls_;
  std::set<NodeId> claimed_;  ///< joins and results that are an output
};

}  // namespace

PlacedGraph place_views(const ShapedGraph& graph, std::span<const ArrayLayout> arguments,
                        std::span<const ArrayLayout> outputs, const Unpacked& unpacked) {
  return Placer(graph, arguments, outputs, unpacked).run();
}

PlacedGraph place_views(const ShapedGraph& graph) {
  std::vector<ArrayLayout> arguments(graph.graph.arguments.size());
  for (std::size_t id = 0; id < graph.graph.nodes.size(); ++id) {
    const TypedNode& node = graph.graph.nodes[id];
    if (node.op == Op::input) arguments[node.payload] = contiguous_layout(graph.shapes[id]);
  }
  std::vector<ArrayLayout> outputs;
  for (const NodeId output : graph.graph.outputs) {
    outputs.push_back(contiguous_layout(graph.shapes[output]));
  }
  return place_views(graph, arguments, outputs);
}

}  // namespace kiln::fusion
