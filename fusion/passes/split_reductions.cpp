#include "fusion/passes/split_reductions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

#include "fusion/graph/axes.hpp"
#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/infer/bounds.hpp"
#include "fusion/infer/reduce_space.hpp"
#include "fusion/infer/sum_tree.hpp"

namespace kiln::fusion {
namespace {

// The shapes in which values are computed that wait for a reduction.
std::vector<Dims> shapes_read_again(const ShapedGraph& graph) {
  std::vector<Dims> again;
  std::vector<bool> waits;
  for (std::size_t id = 0; id < graph.graph.nodes.size(); ++id) {
    const TypedNode& node = graph.graph.nodes[id];
    const bool after = std::ranges::any_of(node.inputs(), [&](NodeId i) { return waits[i]; });
    const Dims& shape = is_reduction(node.op) ? graph.shapes[node.operands[0]] : graph.shapes[id];
    if (after && std::ranges::find(again, shape) == again.end()) again.push_back(shape);
    waits.push_back(after || is_reduction(node.op));
  }
  return again;
}

// Which values depend on packed elements one by one: no split reduction takes those.
std::vector<bool> of_packed(const TypedGraph& graph) {
  std::vector<bool> packed;
  for (const TypedNode& node : graph.nodes) {
    const bool own = node.op == Op::input && is_packed(node.dtype);
    const bool operands = is_elementwise(node.op) &&
                          std::ranges::any_of(node.inputs(), [&](NodeId i) { return packed[i]; });
    packed.push_back(own || operands);
  }
  return packed;
}

// Whether a reduction adds up, or multiplies, what is made of weights of up to eight bits and of
// numbers that several rows share, or that several vectors have. Such products have an order of
// their own (fusion/numerics.md), and their splits would have another one than all of them.
class SmallProducts {
 public:
  explicit SmallProducts(const ShapedGraph& graph) : graph_(graph) {
    for (const TypedNode& node : nodes()) of_weights_.push_back(is_of_weights(node));
  }

  bool has(NodeId reduction) const {
    const TypedNode& node = nodes()[reduction];
    const bool has_order = node.op == Op::sum || node.op == Op::mean || node.op == Op::prod;
    if (!has_order || is_integer(node.dtype) || !of_weights_[node.operands[0]]) return false;
    const std::vector<NodeId> factors = factors_of(node.operands[0]);
    for (const NodeId a : factors) {
      const auto is_shared_with = [&](NodeId b) {
        return is_shared(a, b, graph_.shapes[reduction]);
      };
      if (std::ranges::any_of(factors, is_shared_with)) return true;
    }
    return false;
  }

 private:
  const std::vector<TypedNode>& nodes() const { return graph_.graph.nodes; }

  // Whether it depends on small weights one by one, be they moved or seen in another shape.
  bool is_of_weights(const TypedNode& node) const {
    if (node.op == Op::input) return bits(node.dtype) <= 8 && node.dtype != DType::boolean;
    return (is_elementwise(node.op) || is_view_op(node.op)) &&
           std::ranges::any_of(node.inputs(), [&](NodeId i) { return of_weights_[i]; });
  }

  // What a value is computed of element by element, in the shapes in which it takes them.
  std::vector<NodeId> factors_of(NodeId value) const {
    std::vector<NodeId> factors;
    std::vector<NodeId> open = {value};
    std::vector<bool> seen(nodes().size(), false);
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      if (seen[id]) continue;
      seen[id] = true;
      const TypedNode& node = nodes()[id];
      if (!is_elementwise(node.op) || node.arity == 0) {
        factors.push_back(id);
        continue;
      }
      for (const NodeId operand : node.inputs()) open.push_back(operand);
    }
    return factors;
  }

  // Whether one of the two has one element along an axis of the results, and the other several,
  // and both have several along what is reduced.
  bool is_shared(NodeId a, NodeId b, const Dims& results) const {
    const auto extent = [&](NodeId id, std::size_t from_back) {
      const Dims& shape = graph_.shapes[id];
      return from_back <= shape.size() ? shape[shape.size() - from_back] : 1;
    };
    bool shared = false;
    bool reduced = false;
    for (std::size_t k = 1; k <= results.size(); ++k) {
      if (results[results.size() - k] == 1) {
        reduced = reduced || (extent(a, k) != 1 && extent(b, k) != 1);
      } else {
        shared = shared || (extent(a, k) == 1) != (extent(b, k) == 1);
      }
    }
    return shared && reduced;
  }

  const ShapedGraph& graph_;
  std::vector<bool> of_weights_;
};

class Splitter {
 public:
  Splitter(const ShapedGraph& from, const SplitModel& model)
      : from_(from), model_(model), to_(from) {}

  SplitGraph run() {
    const std::vector<Dims> again = shapes_read_again(from_);
    const std::vector<bool> packed = of_packed(from_.graph);
    const SmallProducts small_products(from_);
    const bool any_bounds = has_bounds(from_);
    const std::vector<Ends> ends = any_bounds ? infer_bounds(from_, "bound") : std::vector<Ends>();
    SplitGraph result;
    result.graph = to_.run([&](NodeId id) {
      const TypedNode node = to_.moved_node(id);
      std::int64_t splits = 1;
      const NodeId reduced = node.arity > 0 ? from_.graph.nodes[id].operands[0] : id;
      // Where a row ends, only its kernel knows.
      const bool bounded = any_bounds && !ends[reduced].empty();
      if (is_reduction(node.op) && !packed[reduced] && !bounded && !small_products.has(id)) {
        const Dims& rows = to_.shape(node.operands[0]);
        const bool read_again = std::ranges::find(again, rows) != again.end();
        splits = splits_of(rows, from_.shapes[id], read_again, model_);
        if (model_.forced == 0) trace_splits(rows, from_.shapes[id], read_again, splits);
      }
      return splits > 1 ? split(node, from_.shapes[id], splits) : to_.add(node, from_.shapes[id]);
    });
    add_lengths(result);
    return result;
  }

 private:
  void add_lengths(SplitGraph& result) {
    TypedGraph& graph = result.graph.graph;
    for (const auto& [length, dtype] : lengths_) {
      std::string name = "elements";
      for (int i = 2; std::ranges::find(graph.argument_names, name) != graph.argument_names.end();
           ++i) {
        name = fmt::format("elements{}", i);
      }
      graph.arguments.push_back({dtype, true, false});
      graph.argument_names.push_back(std::move(name));
      result.lengths.push_back(length);
    }
  }

  NodeId length(std::int64_t elements, DType dtype) {
    const std::pair wanted(elements, dtype);
    const auto known = std::ranges::find(lengths_, wanted) - lengths_.begin();
    if (known == std::ssize(lengths_)) lengths_.push_back(wanted);
    const std::uint64_t argument = from_.graph.arguments.size() + static_cast<std::uint64_t>(known);
    return to_.add({Op::scalar, dtype, 0, {}, argument}, {});
  }

  NodeId split(const TypedNode& node, const Dims& kept, std::int64_t splits) {
    split_shape_ = kept;
    axes_ = node.payload;
    axis_ = split_axis(to_.shape(node.operands[0]), kept);
    split_shape_[axis_] = splits;
    if (is_arg_reduction(node.op)) return split_place(node, kept);
    if (node.op == Op::mean) return split_mean(node, kept);
    return join(node.op, node.dtype, over_splits(node, node.op), kept);
  }

  // Partial results are what sums are computed in, not rounded.
  NodeId over_splits(const TypedNode& node, Op op) {
    TypedNode partial = node;
    partial.op = op;
    partial.dtype = compute_dtype(node.dtype);
    return to_.add(partial, split_shape_);
  }

  NodeId join(Op op, DType dtype, NodeId partial, const Dims& kept) {
    // A set counts few axes from the front. All axes of the reduction do as well, since the others
    // have size one by now.
    constexpr std::size_t kMostFromFront = 32;
    const AxisSet axes = axis_ < kMostFromFront ? AxisSet{1} << axis_ : axes_;
    return to_.add({op, dtype, 1, {partial}, axes}, kept);
  }

  NodeId split_mean(const TypedNode& node, const Dims& kept) {
    const DType dtype = compute_dtype(node.dtype);
    const NodeId sum = join(Op::sum, dtype, over_splits(node, Op::sum), kept);
    const std::int64_t elements =
        element_count(to_.shape(node.operands[0])) / std::max<std::int64_t>(1, element_count(kept));
    const NodeId count = length(elements, dtype);
    const NodeId mean = to_.add({Op::div, dtype, 2, {sum, count}, 0}, kept);
    return to_.converted(mean, node.dtype);
  }

  // The first of the indices of those splits whose value is the row's. If one is NaN, so is that.
  NodeId split_place(const TypedNode& node, const Dims& kept) {
    const bool largest = node.op == Op::argmax;
    const DType dtype = to_.node(node.operands[0]).dtype;
    const Op find = dtype == DType::boolean ? (largest ? Op::reduce_any : Op::reduce_all)
                                            : (largest ? Op::reduce_max : Op::reduce_min);
    const NodeId place = over_splits(node, node.op);
    TypedNode found = node;
    found.dtype = dtype;
    const NodeId value = over_splits(found, find);
    const DType computed = to_.node(value).dtype;
    const NodeId best = join(find, computed, value, kept);
    NodeId here = to_.add({Op::equal, DType::boolean, 2, {value, best}, 0}, split_shape_);
    if (is_floating(computed)) {
      const NodeId nan = to_.add({Op::isnan, DType::boolean, 1, {value}, 0}, split_shape_);
      here = to_.add({Op::logical_or, DType::boolean, 2, {here, nan}, 0}, split_shape_);
    }
    const auto last = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    const NodeId nowhere = to_.add({Op::constant, DType::i64, 0, {}, last}, {});
    const NodeId places =
        to_.add({Op::where, DType::i64, 3, {here, place, nowhere}, 0}, split_shape_);
    return join(Op::reduce_min, node.dtype, places, kept);
  }

  const ShapedGraph& from_;
  const SplitModel& model_;
  GraphRewriter to_;
  Dims split_shape_;
  AxisSet axes_ = 0;  ///< of the reduction that is split
  std::size_t axis_ = 0;
  std::vector<std::pair<std::int64_t, DType>> lengths_;  ///< numbers that are arguments
};

}  // namespace

namespace {

std::int64_t next_power_of_two(std::int64_t count) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(count)));
}

// How many parts a row or column of so many chunks has at most, so that the tree of sums
// (numerics.md) is that of all of it: a power of two.
std::int64_t parts_of(std::int64_t chunks) {
  if (chunks <= kMostParts) return kMostParts;
  return std::min<std::int64_t>(kMostParts, next_power_of_two(chunks) / kTreeTerms);
}

}  // namespace

std::int64_t splits_of(const SplitRows& rows, bool read_again, const SplitModel& model) {
  if (rows.rows == 0 || rows.length == 0) return 1;
  const bool columns = rows.columns != 0;
  const std::int64_t side_by_side = columns ? std::min(rows.columns, model.columns) : 1;
  const std::int64_t blocks = (rows.rows + side_by_side - 1) / side_by_side;
  const bool many = blocks >= (read_again ? model.few_read_again : model.few_blocks);
  if (many && model.forced == 0) return 1;
  const std::int64_t chunks = (rows.length - 1) / kTreeChunk + 1;
  const std::int64_t wanted = columns ? rows.length * side_by_side / model.least_length : chunks;
  // Parts of one chunk of a column have elements that are far apart: of few columns, pieces of
  // sectors.
  const bool whole_chunks = !columns || side_by_side < model.least_columns;
  const std::int64_t in_tree = std::min({rows.longest_axis - 1, parts_of(chunks),
                                         whole_chunks ? next_power_of_two(chunks) : kMostParts});
  if (model.forced != 0) {
    const auto most = static_cast<std::uint64_t>(std::max<std::int64_t>(1, in_tree));
    return std::min(model.forced, static_cast<std::int64_t>(std::bit_floor(most)));
  }
  const std::int64_t most = std::min(model.most_blocks / blocks, in_tree);
  if (std::min(wanted, most) < model.least_splits) return 1;
  const std::uint64_t splits = std::min(std::bit_ceil(static_cast<std::uint64_t>(wanted)),
                                        std::bit_floor(static_cast<std::uint64_t>(most)));
  return static_cast<std::int64_t>(splits);
}

std::int64_t splits_of(const Dims& from, const Dims& to, bool read_again, const SplitModel& model) {
  SplitRows own;
  std::int64_t elements = 1;
  for (std::size_t k = 0; k < from.size(); ++k) {
    const bool kept = from[k] == to[k];
    own.rows *= to[k];
    elements *= from[k];
    if (!kept) own.longest_axis = std::max(own.longest_axis, from[k]);
    if (from[k] != 1) own.columns = kept ? from[k] : 0;
  }
  own.length = own.rows != 0 ? elements / own.rows : 0;
  return splits_of(own, read_again, model);
}

SplitGraph split_reductions(const ShapedGraph& graph, const SplitModel& model) {
  return Splitter(graph, model).run();
}

std::int64_t splits_of(const TypedGraph& graph, std::span<const Dims> shapes, NodeId id) {
  const TypedNode& node = graph.nodes[id];
  if (!is_reduction(node.op)) return 1;
  const Dims& from = shapes[node.operands[0]];
  std::int64_t splits = 1;
  for (std::size_t k = 0; k < from.size(); ++k) {
    if (from[k] != shapes[id][k]) splits *= shapes[id][k];
  }
  return splits;
}

}  // namespace kiln::fusion
