// See parts.hpp.
#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/infer/bounds.hpp"
#include "fusion/passes/parts.hpp"

namespace kiln::fusion {
namespace {

// Values of which some operations read parts along one axis, all of it, and others read more: these
// read the parts, concatenated.
class PartReading {
 public:
  explicit PartReading(const ShapedGraph& from)
      : from_(from), to_(from), users_(users_of(from.graph.nodes)) {
    std::vector<bool> is_output(users_.size(), false);
    for (const NodeId output : from.graph.outputs) is_output[output] = true;
    std::vector<Ends> bounds;
    if (has_bounds(from)) bounds = infer_bounds(from, "slice");
    for (NodeId id = 0; id < users_.size(); ++id) {
      const bool ends = !bounds.empty() && !bounds[id].empty();
      if (!is_output[id] && !ends) choose(id);
    }
  }

  bool changes() const { return !instead_.empty(); }

  ShapedGraph run() {
    return to_.run([&](NodeId id) {
      const auto known = instead_.find(id);
      if (known == instead_.end()) return to_.copy(id);
      TypedNode copy = to_.moved_node(id);
      for (std::size_t i = 0; i < copy.arity; ++i) {
        const NodeId operand = node(id).operands[i];
        if (!shape(operand).empty()) copy.operands[i] = joined(operand, known->second);
      }
      return to_.add(copy, from_.shapes[id]);
    });
  }

 private:
  // Slices of a value in a shape, along an axis: neighbours, or every second element and such.
  struct Parts {
    Dims shape;
    std::size_t axis = 0;
    std::vector<NodeId> slices;  ///< in order
    bool in_steps = false;
  };

  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }
  const Dims& shape(NodeId id) const { return from_.shapes[id]; }

  void choose(NodeId value) {
    if (node(value).op == Op::reshape && users_[value].size() < 2) return;
    for (const NodeId user : users_[value]) {
      if (node(user).op == Op::reshape && read_parts(value, user)) return;
    }
    read_parts(value, value);
  }

  // `seen` is the value or a reshape of it.
  bool read_parts(NodeId value, NodeId seen) {
    std::map<std::size_t, std::vector<NodeId>> slices;  // by axis
    for (const NodeId user : users_[seen]) {
      if (node(user).op == Op::slice) slices[axis_of(user)].push_back(user);
    }
    for (const auto& [axis, own] : slices) {
      const auto parts = partition(seen, axis, own);
      if (!parts) continue;
      std::vector<NodeId> others;
      for (const NodeId user : users_[value]) {
        if (user != seen && std::ranges::find(own, user) == own.end()) others.push_back(user);
      }
      const auto is_sliced = [&](NodeId user) { return shows_slices(user); };
      if (others.empty() || !std::ranges::all_of(others, is_sliced)) continue;
      if (!comes_of_reduction(from_, value)) continue;
      for (const NodeId other : others) instead_.emplace(other, *parts);
      return true;
    }
    return false;
  }

  // Whether nothing but slices is read of a value, or of what is made of it with numbers, or seen.
  bool shows_slices(NodeId id) const {
    if (node(id).op == Op::slice) return window_of(from_, id).has_value();
    const auto is_array = [&](NodeId operand) { return !shape(operand).empty(); };
    const bool passes =
        keeps_element_order(node(id).op) ||
        (is_elementwise(node(id).op) && std::ranges::count_if(node(id).inputs(), is_array) == 1);
    return passes && !users_[id].empty() &&
           std::ranges::all_of(users_[id], [&](NodeId user) { return shows_slices(user); });
  }

  std::size_t axis_of(NodeId slice) const {
    const std::int64_t axis = shape_list(from_.graph, node(slice))[0];
    return static_cast<std::size_t>(axis < 0 ? axis + std::ssize(shape(slice)) : axis);
  }

  std::optional<Parts> partition(NodeId seen, std::size_t axis, std::vector<NodeId> slices) const {
    if (slices.size() < 2) return std::nullopt;
    const auto first = [&](NodeId slice) {
      const std::int64_t start = shape_list(from_.graph, node(slice))[1];
      return start == kOmitted ? 0 : start;
    };
    std::ranges::sort(slices, {}, first);
    Parts parts{shape(seen), axis, slices, false};
    const std::int64_t extent = shape(seen)[axis];
    std::int64_t end = 0;
    for (const NodeId slice : slices) {
      const auto window = window_of(from_, slice);
      if (!window) {
        parts.in_steps = true;
        continue;
      }
      trace_order(window->first, end);
      if (window->first != end) return std::nullopt;
      end += window->count;
    }
    if (parts.in_steps) return takes_turns(parts, extent) ? std::optional(parts) : std::nullopt;
    trace_order(end, extent);
    return end == extent ? std::optional(parts) : std::nullopt;
  }

  // Whether each of n slices shows every n-th element, from another one on.
  bool takes_turns(const Parts& parts, std::int64_t extent) const {
    const auto step = std::ssize(parts.slices);
    trace_divides(extent, step);
    if (extent % step != 0) return false;
    for (std::int64_t turn = 0; turn < step; ++turn) {
      const NodeId slice = parts.slices[static_cast<std::size_t>(turn)];
      const ShapeList& list = shape_list(from_.graph, node(slice));
      const std::int64_t start = list[1] == kOmitted ? 0 : list[1];
      if (list[3] != step || start != turn || list[2] != kOmitted) return false;
    }
    return true;
  }

  // A value of the parts that are read of it.
  NodeId joined(NodeId value, const Parts& parts) {
    const DType dtype = node(value).dtype;
    const NodeId seen = to_.reshaped(to_.moved(value), parts.shape);
    const std::size_t axis = parts.axis + (parts.in_steps ? 1 : 0);
    std::optional<NodeId> all;
    for (const NodeId slice : parts.slices) {
      TypedNode copy = node(slice);
      copy.operands[0] = seen;
      NodeId part = to_.add(copy, shape(slice));
      if (parts.in_steps) part = to_.reshaped(part, with_axis(shape(slice), axis));
      if (!all) {
        all = part;
        continue;
      }
      Dims both = to_.shape(*all);
      both[axis] += to_.shape(part)[axis];
      const std::uint64_t list = to_.add_list({static_cast<std::int64_t>(axis)});
      all = to_.add({Op::concat, dtype, 2, {*all, part}, list}, both);
    }
    return to_.reshaped(*all, shape(value));
  }

  static Dims with_axis(const Dims& shape, std::size_t axis) {
    std::vector<std::int64_t> extents(shape.begin(), shape.end());
    extents.insert(extents.begin() + static_cast<std::ptrdiff_t>(axis), 1);
    return Dims(std::span<const std::int64_t>(extents));
  }

  const ShapedGraph& from_;
  GraphRewriter to_;
  std::vector<std::vector<NodeId>> users_;
  std::map<NodeId, Parts> instead_;  ///< what those read instead of their operand
};

}  // namespace

ShapedGraph read_parts(const ShapedGraph& graph) {
  PartReading reading(graph);
  return reading.changes() ? reading.run() : graph;
}

}  // namespace kiln::fusion
