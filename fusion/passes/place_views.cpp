// See place_views.hpp. Two walks: from the results backwards, where what stands between a concat or
// an output and the values that are computed for it dissolves into strides; then forwards, where
// everything else gets a view or a copy.
#include "fusion/passes/place_views.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/indexed.hpp"
#include "fusion/graph/reshape.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/infer/bounds.hpp"
#include "fusion/infer/iota.hpp"
#include "fusion/passes/put_parts.hpp"
#include "fusion/passes/taken_views.hpp"
#include "fusion/reference/node.hpp"
#include "fusion/reference/value.hpp"
#include "kiln/error.hpp"
#include "kiln/view.hpp"

namespace kiln::fusion {
namespace {

// Has memory of its own, or is given some where another kernel needs it.
bool is_array(const TypedNode& node) {
  return node.op == Op::input || node.op == Op::view || node.op == Op::join ||
         node.op == Op::custom_call || node.arity > 0;
}

// The 8-bit dtype that holds every number of a packed one.
DType byte_dtype(DType packed) {
  switch (packed) {
    case DType::u4: return DType::u8;
    case DType::i4: return DType::i8;
    default: return DType::f8e4m3;
  }
}

// A part before the values have been placed: the source's node, and operations of one operand that
// were applied to the whole and are now applied to each part; the last one first.
struct Part {
  NodeId value = 0;
  ArrayLayout layout;
  std::vector<NodeId> then;
};

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
      : from_(from), arguments_(arguments), outputs_(outputs), unpacked_(unpacked), builder_(to_) {}

  PlacedGraph run() {
    uses_ = use_counts(from_.graph);
    if (has_bounds(from_)) bounds_ = infer_bounds(from_, "bound");
    dissolve();
    to_.graph = without_nodes(from_.graph);
    moved_.resize(from_.graph.nodes.size());
    for (NodeId id = 0; id < moved_.size(); ++id) {
      if (dissolved_[id]) continue;
      moved_[id] = place(id);
      if (!bounds_.empty()) set_bounds(id, put_value_of(moved_[id]));
    }
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      std::vector<PlacedPart>& parts = to_.stores.emplace_back();
      for (const Part& part : output_parts_[i]) parts.push_back(store(part, true));
      // For the dtype and the shape: what the output is, or a part of it.
      to_.graph.outputs.push_back(parts.front().value);
    }
    check_updates();
    return std::move(to_);
  }

 private:
  const TypedNode& source(NodeId id) const { return from_.graph.nodes[id]; }
  const TypedNode& placed(NodeId id) const { return to_.graph.nodes[id]; }

  // -- Backwards

  void dissolve() {
    dissolved_.assign(from_.graph.nodes.size(), false);
    is_put_ = dissolved_;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      std::vector<Part>& parts = output_parts_.emplace_back();
      dissolve({from_.graph.outputs[i], outputs_[i], {}}, true, parts);
    }
    for (auto id = static_cast<NodeId>(from_.graph.nodes.size()); id-- > 0;) {
      const Op op = source(id).op;
      if (op == Op::put) dissolve_put(id);
      if (op != Op::concat || dissolved_[id]) continue;
      dissolve({id, contiguous_layout(from_.shapes[id]), {}}, false, concat_parts_[id]);
    }
  }

  // Each of the values that a concatenation is made of is put by itself, whoever else reads the
  // whole.
  void dissolve_put(NodeId id) {
    const TypedNode& node = source(id);
    const TypedNode& array = source(node.operands[0]);
    const Dims shape = taken_shape(from_.shapes[id], places_of(node), axis_of(node));
    const bool bounded = !bounds_.empty() && !bounds_[node.operands[2]].empty();
    if (array.op != Op::input || bounded || from_.shapes[node.operands[2]] != shape) return;
    auto parts = put_parts(from_, id, indexed_layout(node, arguments_[array.payload]));
    if (!parts) return;
    bool ours = true;  // nothing else reads what is above
    for (const NodeId above : parts->above) {
      ours = ours && uses_[above] == 1;
      if (ours) dissolved_[above] = true;
    }
    for (const PutPart& part : parts->parts) is_put_[part.value] = true;
    put_parts_[id] = std::move(parts->parts);
  }

  // Splits what lies at `whole.layout` into parts. The root of a join stays.
  void dissolve(const Part& whole, bool with_root, std::vector<Part>& parts) {
    std::vector<Part> open{whole};
    for (bool root = true; !open.empty(); root = false) {
      Part part = std::move(open.back());
      open.pop_back();
      const TypedNode& node = source(part.value);
      const bool stays = root && !with_root;
      // Parts of a packed array would share a byte; a join has a byte for each number.
      const bool single = uses_[part.value] == 1 && !is_put_[part.value];
      const bool ours = stays || (single && !is_packed(node.dtype));
      const bool dissolves = ours && (node.op == Op::concat || is_movable(part.value));
      if (!dissolves || !push_operands(part, open)) {
        parts.push_back(std::move(part));
        continue;
      }
      if (!stays) dissolved_[part.value] = true;
    }
  }

  // Whether a value of one operand is better dissolved: something is computed below it.
  bool is_movable(NodeId id) const {
    bool shaped = false;
    if (!bounds_.empty() && !bounds_[id].empty()) return false;
    while (true) {
      const TypedNode& node = source(id);
      if (node.op == Op::concat) return true;
      const bool shapes = is_shape_op(node.op);
      const bool single = node.arity == 1 && (shapes || is_elementwise(node.op));
      if (!single) return shaped && is_computed(node);
      shaped = shaped || shapes;
      const NodeId below = node.operands[0];
      if (uses_[below] != 1) return shaped && shapes && is_computed(source(below));
      id = below;
    }
  }

  bool push_operands(const Part& part, std::vector<Part>& open) {
    const TypedNode& node = source(part.value);
    if (node.op == Op::concat) {
      const Dims& first = from_.shapes[node.operands[0]];
      const std::int64_t given = shape_list(from_.graph, node)[0];
      const auto axis = static_cast<std::size_t>(
          given < 0 ? given + static_cast<std::int64_t>(first.size()) : given);
      Part second{node.operands[1], part.layout, part.then};
      second.layout.offset += first[axis] * part.layout.strides[axis];
      open.push_back(std::move(second));
      open.push_back({node.operands[0], part.layout, part.then});
      return true;
    }
    const NodeId operand = node.operands[0];
    if (!is_shape_op(node.op)) {
      open.push_back({operand, part.layout, part.then});
      open.back().then.push_back(part.value);
      return true;
    }
    const Dims& shape = from_.shapes[operand];
    const Dims& seen_shape = from_.shapes[part.value];
    const auto seen = result_layout(node.op, shape_list(from_.graph, node), shape, seen_shape,
                                    contiguous_layout(shape));
    if (!seen) return false;
    const auto behind = layout_behind(shape, seen_shape, *seen, part.layout);
    if (!behind) return false;
    open.push_back({operand, *behind, part.then});
    return true;
  }

  // -- Forwards

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
    return builder_.append(node, from_.shapes[id]);
  }

  // -- Places given by data

  // The layout of what take(array, places) has, in an array that lies so.
  ArrayLayout indexed_layout(const TypedNode& node, const ArrayLayout& array) const {
    const Dims& shape = from_.shapes[node.operands[0]];
    const std::size_t axis = axis_of(node);
    const std::size_t of_places = places_of(node).size();
    ArrayLayout layout{
        Dims(shape.size() - 1 + of_places, 0), array.offset, {array.strides[axis], shape[axis]}};
    for (std::size_t k = 0; k < axis; ++k) layout.strides[k] = array.strides[k];
    for (std::size_t k = axis + 1; k < shape.size(); ++k) {
      layout.strides[of_places + k - 1] = array.strides[k];
    }
    return layout;
  }

  std::size_t axis_of(const TypedNode& node) const {
    return indexed_axis(node.op, shape_list(from_.graph, node), from_.shapes[node.operands[0]],
                        "places");
  }

  // The shape of the places before they were expanded by the array's axes that follow.
  Dims places_of(const TypedNode& node) const {
    const Dims& places = from_.shapes[node.operands[1]];
    const std::size_t after = from_.shapes[node.operands[0]].size() - 1 - axis_of(node);
    return places.empty()
               ? places
               : Dims(std::span<const std::int64_t>(places).first(places.size() - after));
  }

  NodeId take(NodeId id) {
    const TypedNode& node = source(id);
    NodeId array = moved_[node.operands[0]];
    if (!is_array(placed(array)) || layout_of(array).indexed.exists()) array = copy(array);
    const NodeId root = viewed(to_.graph, array);
    const NodeId rows = view_of(root, from_.shapes[id], indexed_layout(node, layout_of(array)));
    TypedNode taken = node;
    const NodeId places = moved_[node.operands[1]];
    taken.operands = {rows, places, 0};
    const NodeId made = builder_.append(taken, from_.shapes[id]);
    if (is_array(placed(places)) && to_.shapes[places].size() == from_.shapes[id].size()) {
      ArrayLayout along = layout_of(places);
      for (std::size_t k = 0; k < along.strides.size(); ++k) {
        if (to_.shapes[places][k] == 1) along.strides[k] = 0;
      }
      taken_.emplace(made, Taken{root, viewed(to_.graph, places), {layout_of(rows), along, {}}});
    }
    return made;
  }

  // What is stored, and the array that it is stored in.
  NodeId put(NodeId id) {
    const TypedNode& node = source(id);
    const NodeId array = moved_[node.operands[0]];
    std::vector<PlacedPart> stored;
    const auto store_at = [&](NodeId value, NodeId places, const Dims& shape, ArrayLayout layout) {
      const TypedNode made{Op::put, node.dtype, 2, {value, places, 0}, node.payload};
      stored.push_back({builder_.append(made, shape), std::move(layout)});
    };
    if (const auto parts = put_parts_.find(id); parts != put_parts_.end()) {
      for (const PutPart& part : parts->second) {
        const NodeId value = applied(part.then, moved_[part.value]);
        NodeId places = places_in(moved_[node.operands[1]], part.places);
        if (part.window) places = places_within(places, *part.window, Dims(to_.shapes[value]));
        store_at(value, places, Dims(to_.shapes[value]), part.layout);
      }
    } else {
      store_at(moved_[node.operands[2]], moved_[node.operands[1]],
               taken_shape(from_.shapes[id], places_of(node), axis_of(node)),
               indexed_layout(node, layout_of(array)));
    }
    to_.joins.push_back(std::move(stored));
    to_.updates.resize(to_.joins.size());
    to_.updates.back() = array;
    return builder_.append({Op::join, node.dtype, 0, {}, to_.joins.size() - 1}, from_.shapes[id]);
  }

  // Places of what is within a window of a value's axis, and none of what is not.
  NodeId places_within(NodeId places, const PutWindow& window, const Dims& shape) {
    const auto number = [&](DType dtype, std::int64_t value) {
      return builder_.append({Op::constant, dtype, 0, {}, static_cast<std::uint64_t>(value)}, {});
    };
    const auto axis = static_cast<std::int64_t>(window.axis) - std::ssize(shape);
    Dims along(shape.size(), 1);
    along[window.axis] = shape[window.axis];
    const Dims all = broadcast(to_.shapes[places], along).value();
    const NodeId index =
        builder_.append({Op::iota, DType::u32, 0, {}, static_cast<std::uint64_t>(axis)}, along);
    const NodeId within = builder_.append(
        {Op::sub, DType::u32, 2, {index, number(DType::u32, window.first), 0}, 0}, along);
    const NodeId there = builder_.append(
        {Op::less, DType::boolean, 2, {within, number(DType::u32, window.count), 0}, 0}, along);
    const DType dtype = placed(places).dtype;
    return builder_.append({Op::where, dtype, 3, {there, places, number(dtype, -1)}, 0}, all);
  }

  // Places that are seen in another shape.
  NodeId places_in(NodeId places, const Dims& shape) {
    if (to_.shapes[places] == shape) return places;
    if (placed(places).arity > 0 && is_elementwise(placed(places).op)) {
      if (const auto made = computed_in(places, Dims(to_.shapes[places]), shape)) return *made;
    }
    if (!is_array(placed(places))) places = copy(places);
    const auto seen = [&] {
      return result_layout(Op::reshape, ShapeList(shape.begin(), shape.end()), to_.shapes[places],
                           shape, layout_of(places));
    };
    auto layout = seen();
    if (!layout) {
      places = copy(places);
      layout = seen();
    }
    return view_of(viewed(to_.graph, places), shape, std::move(*layout));
  }

  // What is computed element by element, computed in another shape, of which axes of one element
  // are more or fewer: an index is counted there. Nothing where it cannot be. The recursion is as
  // deep as the expression.
  std::optional<NodeId> computed_in(NodeId id, const Dims& whole, const Dims& shape) {
    TypedNode node = placed(id);
    const Dims own = to_.shapes[id];
    if (own.empty()) return id;
    const std::optional<Dims> wanted = reshaped_operand(own, whole, shape);
    if (!wanted) return std::nullopt;
    if (node.op == Op::iota) {
      const auto at = static_cast<std::size_t>(std::ssize(own) + iota_axis(node));
      if (own[at] == 1) return builder_.append({Op::constant, node.dtype, 0, {}, 0}, {});
      const auto axis = same_axis(own, at, *wanted);
      if (!axis) return std::nullopt;
      node.payload =
          static_cast<std::uint64_t>(static_cast<std::int64_t>(*axis) - std::ssize(*wanted));
      return builder_.append(node, *wanted);
    }
    if (node.arity == 0 || !is_elementwise(node.op)) return places_in(id, *wanted);
    for (std::size_t i = 0; i < node.arity; ++i) {
      const auto operand = computed_in(node.operands[i], whole, shape);
      if (!operand) return std::nullopt;
      node.operands[i] = *operand;
    }
    return builder_.append(node, *wanted);
  }

  // -- Bounds

  // Who reads what is bounded reads no further. What is stored is a value of its own.
  NodeId bound(NodeId id) {
    const NodeId value = moved_[source(id).operands[0]];
    const bool stored = std::ranges::find(from_.graph.outputs, id) != from_.graph.outputs.end();
    return stored ? new_copy(value) : value;
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
  std::optional<NodeId> copy_to_end(const Part& part, NodeId value) {
    if (bounds_.empty() || bounds_[part.value].empty()) return {};
    Ends ends = placed_ends(bounds_[part.value]);
    const bool known = value < to_.bounds.size();
    if (is_computed(placed(value)) && known && to_.bounds[value] == ends) return {};
    const NodeId copied = new_copy(value);
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
    const NodeId bytes = builder_.append({Op::cast, dtype, 1, {packed}, 0}, shape);
    to_.joins.push_back({{bytes, contiguous_layout(shape)}});
    return builder_.append({Op::join, dtype, 0, {}, to_.joins.size() - 1}, shape);
  }

  // -- Arrays

  ArrayLayout layout_of(NodeId id) const {
    const TypedNode& node = placed(id);
    if (node.op == Op::view) return to_.views[node.payload];
    if (node.op == Op::input) return arguments_[node.payload];
    if (const auto argument = updated_argument(to_, id)) return layout_of(*argument);
    return contiguous_layout(to_.shapes[id]);
  }

  // The value of `id` in a new array in C order, made once.
  NodeId copy(NodeId id) {
    const auto [known, fresh] = copies_.emplace(id, 0);
    if (fresh) known->second = new_copy(id);
    return known->second;
  }

  NodeId new_copy(NodeId id) {
    return builder_.append({Op::promote, placed(id).dtype, 1, {id}, 0}, to_.shapes[id]);
  }

  // The view `id` of the value `operand`, as that lies in memory, or of a copy of it where strides
  // cannot express the view.
  NodeId view(NodeId id, NodeId operand) {
    const TypedNode& node = source(id);
    const ShapeList& list = shape_list(from_.graph, node);
    const Dims& shape = from_.shapes[id];
    if (placed(operand).op == Op::take) {
      if (const auto taken = view_of_taken(id, operand)) return *taken;
    }
    if (!is_array(placed(operand))) operand = copy(operand);
    auto layout = result_layout(node.op, list, to_.shapes[operand], shape, layout_of(operand));
    if (!layout) {
      operand = copy(operand);
      layout = result_layout(node.op, list, to_.shapes[operand], shape, layout_of(operand));
    }
    return view_of(viewed(to_.graph, operand), shape, std::move(*layout));
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
    const NodeId places = seen->paged
                              ? places_in_pages(taken, shape, *seen, from.places)
                              : view_of(from.places, varying(shape, seen->places), seen->places);
    taken.operands = {view_of(from.rows, shape, seen->rows), places, 0};
    const NodeId made = builder_.append(taken, shape);
    taken_.emplace(made, Taken{from.rows, from.places, std::move(*seen)});
    return made;
  }

  // The extents along which a layout moves.
  static Dims varying(Dims shape, const ArrayLayout& layout) {
    for (std::size_t k = 0; k < shape.size(); ++k) {
      if (layout.strides[k] == 0) shape[k] = 1;
    }
    return shape;
  }

  // Element k along the pages is at place table[k / length] * step + k % length, and at none where
  // the page is none.
  NodeId places_in_pages(const TypedNode& taken, const Dims& shape, const TakenView& view,
                         NodeId table) {
    const PagedAxis& paged = *view.paged;
    Dims keys(shape.size(), 1);
    keys[paged.axis] = shape[paged.axis];
    Dims all = varying(shape, view.places);
    all[paged.axis] = shape[paged.axis];
    const auto number = [&](DType dtype, std::int64_t value) {
      return builder_.append({Op::constant, dtype, 0, {}, static_cast<std::uint64_t>(value)}, {});
    };
    const auto axis = static_cast<std::int64_t>(paged.axis) - std::ssize(shape);
    const NodeId key =
        builder_.append({Op::iota, DType::u32, 0, {}, static_cast<std::uint64_t>(axis)}, keys);
    const NodeId length = number(DType::u32, paged.length);
    const NodeId which =
        builder_.append({Op::floor_divide, DType::u32, 2, {key, length, 0}, 0}, keys);
    const NodeId within =
        builder_.append({Op::remainder, DType::u32, 2, {key, length, 0}, 0}, keys);
    const NodeId page = builder_.append({Op::take,
                                         placed(table).dtype,
                                         2,
                                         {view_of(table, all, view.places), which, 0},
                                         taken.payload},
                                        all);
    const NodeId wide = builder_.append({Op::cast, DType::i64, 1, {page}, 0}, all);
    const NodeId known =
        builder_.append({Op::clip,
                         DType::i64,
                         3,
                         {wide, number(DType::i64, -1), number(DType::i64, std::int64_t{1} << 31)},
                         0},
                        all);
    const NodeId first = builder_.append(
        {Op::mul, DType::i64, 2, {known, number(DType::i64, paged.step), 0}, 0}, all);
    const NodeId offset = builder_.append({Op::promote, DType::i64, 1, {within}, 0}, keys);
    return builder_.append({Op::add, DType::i64, 2, {first, offset, 0}, 0}, all);
  }

  NodeId view_of(NodeId root, const Dims& shape, ArrayLayout layout) {
    if (to_.shapes[root] == shape && is_same(layout_of(root), layout)) return root;
    for (const NodeId other : views_[root]) {
      if (to_.shapes[other] == shape && is_same(layout_of(other), layout)) return other;
    }
    const NodeId made =
        builder_.append({Op::view, placed(root).dtype, 1, {root}, to_.views.size()}, shape);
    to_.views.push_back(std::move(layout));
    views_[root].push_back(made);
    return made;
  }

  NodeId join(NodeId id) {
    const TypedNode& node = source(id);
    std::vector<PlacedPart> parts;
    for (const Part& part : concat_parts_.at(id)) parts.push_back(store(part, false));
    to_.joins.push_back(std::move(parts));
    return builder_.append({Op::join, node.dtype, 0, {}, to_.joins.size() - 1}, from_.shapes[id]);
  }

  // A value after operations that were applied to the whole, of which the last one is first.
  NodeId applied(const std::vector<NodeId>& operations, NodeId value) {
    for (std::size_t k = operations.size(); k-- > 0;) {
      TypedNode node = source(operations[k]);
      node.operands[0] = value;
      value = builder_.append(node, to_.shapes[value]);
    }
    return value;
  }

  PlacedPart store(const Part& part, bool output) {
    const NodeId value = applied(part.then, moved_[part.value]);
    ArrayLayout layout = part.layout;
    if (const std::optional<NodeId> copied = copy_to_end(part, value)) return {*copied, layout};
    // What is a part of several arrays is copied to each when that is needed, lest all of them live
    // from the first on.
    if (!output && (uses_[part.value] > 1 || !is_computed(placed(value)))) {
      return {new_copy(value), layout};
    }
    if (is_computed(placed(value))) return {value, layout};
    const NodeId root = viewed(to_.graph, value);
    const auto behind = root == value ? layout
                                      : layout_behind(to_.shapes[root], to_.shapes[value],
                                                      layout_of(value), layout);
    if (output && behind && lives_at(root, *behind)) return {root, *behind};
    return {copy(value), layout};
  }

  // Whether a value can be stored in an output and nowhere else, or there too. What several kernels
  // or a custom call write has one layout, in C order.
  bool lives_at(NodeId root, const ArrayLayout& layout) {
    if (is_computed(placed(root))) return true;
    const Op op = placed(root).op;
    if (const auto argument = updated_argument(to_, root)) {
      if (is_same(layout, layout_of(*argument))) return claimed_.insert(root).second;
      throw Error(Code::invalid_argument,
                  fmt::format("put: expected an output that is the view of argument '{}', which it "
                              "updates: strides {}, got {}",
                              to_.graph.argument_names[placed(*argument).payload],
                              to_string(layout_of(*argument).strides), to_string(layout.strides)));
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
      made.inputs.push_back(is_array(placed(input)) ? input : copy(input));
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
      made.results.push_back(builder_.append(result, shapes[i]));
    }
    return made;
  }

  const ShapedGraph& from_;
  std::span<const ArrayLayout> arguments_;
  std::span<const ArrayLayout> outputs_;
  const Unpacked& unpacked_;
  std::vector<std::size_t> uses_;
  std::vector<bool> dissolved_;
  std::vector<std::vector<Part>> output_parts_;
  std::map<NodeId, std::vector<Part>> concat_parts_;
  std::map<NodeId, std::vector<PutPart>> put_parts_;  ///< of a concatenation that is put
  std::vector<bool> is_put_;                          ///< of those parts, the values
  std::vector<NodeId> moved_;
  std::map<NodeId, NodeId> bytes_;  ///< of what is unpacked
  std::map<NodeId, Taken> taken_;   ///< of what take() gives
  std::map<NodeId, NodeId> copies_;
  std::map<NodeId, std::vector<NodeId>> views_;  ///< of each root
  std::map<std::size_t, std::size_t> calls_;
  std::set<NodeId> claimed_;  ///< joins and results that are an output
  std::vector<Ends> bounds_;  ///< of each node of `from_`; none if nothing is bounded
  PlacedGraph to_;
  GraphBuilder builder_;  ///< of it; copies are nodes of their own
};

}  // namespace

ArrayLayout contiguous_layout(const Dims& shape) { return {contiguous_strides(shape), 0}; }

bool is_same(const ArrayLayout& a, const ArrayLayout& b) {
  trace_order(a.strides, b.strides);
  trace_order(a.offset, b.offset);
  trace_order(a.indexed.stride, b.indexed.stride);
  trace_order(a.indexed.extent, b.indexed.extent);
  return a == b;
}

bool is_contiguous(const ArrayLayout& layout, const Dims& shape) {
  const Dims in_order = contiguous_strides(shape);
  trace_order(layout.strides, in_order);
  return layout.strides == in_order;
}

namespace {

// Whether an op gives one of its operands, or that with another sign.
bool selects(Op op) {
  switch (op) {
    case Op::where:
    case Op::maximum:
    case Op::minimum:
    case Op::fmax:
    case Op::fmin:
    case Op::abs:
    case Op::neg:
    case Op::reduce_max:
    case Op::reduce_min: return true;
    default: return false;
  }
}

// Whether a value of a narrow float has been chosen among numbers of that dtype: then none is lost
// when it is stored as that. Of long chains of choices that is not asked.
bool is_selected(const PlacedGraph& placed, NodeId id, int depth) {
  constexpr int kMostDepth = 4;
  const TypedGraph& graph = placed.graph;
  const TypedNode& node = graph.nodes[id];
  if (!selects(node.op) || depth == kMostDepth) return false;
  const auto choices = node.inputs().subspan(node.op == Op::where ? 1 : 0);
  return std::ranges::all_of(choices, [&](NodeId choice) {
    const TypedNode& own = graph.nodes[choice];
    if (own.dtype != node.dtype) return false;
    if (own.op == Op::constant) {
      const reference::Value value = reference::evaluate_node(graph, own, {});
      return reference::convert(value, own.dtype, true).real == value.real;
    }
    return selects(own.op) ? is_selected(placed, choice, depth + 1)
                           : stored_dtype(placed, choice) == own.dtype;
  });
}

}  // namespace

NodeId viewed(const TypedGraph& graph, NodeId id) {
  return graph.nodes[id].op == Op::view ? graph.nodes[id].operands[0] : id;
}

std::optional<NodeId> updated_argument(const PlacedGraph& graph, NodeId id) {
  const TypedNode& node = graph.graph.nodes[id];
  const bool known = node.op == Op::join && node.payload < graph.updates.size();
  return known ? graph.updates[node.payload] : std::nullopt;
}

bool is_computed(const TypedNode& node) {
  return node.arity > 0 && (is_elementwise(node.op) || has_axes(node.op) || node.op == Op::take ||
                            node.op == Op::put);
}

DType stored_dtype(const PlacedGraph& placed, NodeId id) {
  const TypedGraph& graph = placed.graph;
  const TypedNode& node = graph.nodes[id];
  if (node.op == Op::view) return stored_dtype(placed, node.operands[0]);
  const DType wide = compute_dtype(node.dtype);
  if (node.op == Op::put || updated_argument(placed, id)) return node.dtype;
  // Kernels that reduce read no packed numbers, and parts would share a byte.
  const bool shared = is_computed(node) || node.op == Op::join;
  if (is_packed(node.dtype) && shared) return byte_dtype(node.dtype);
  if (graph.rounding == Rounding::each || wide == node.dtype) return node.dtype;
  switch (node.op) {
    case Op::cast:
    case Op::input:
    case Op::custom_call: return node.dtype;
    case Op::take: return stored_dtype(placed, node.operands[0]);
    case Op::promote: {
      const bool copy = graph.nodes[node.operands[0]].dtype == node.dtype;
      return copy ? stored_dtype(placed, node.operands[0]) : wide;
    }
    case Op::join: {
      const auto is_exact = [&](const PlacedPart& part) {
        return stored_dtype(placed, part.value) == node.dtype;
      };
      return std::ranges::all_of(placed.joins[node.payload], is_exact) ? node.dtype : wide;
    }
    default: return is_selected(placed, id, 0) ? node.dtype : wide;
  }
}

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
