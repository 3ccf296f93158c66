#include "fusion/partition/kernel_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <unordered_map>

#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/shape_ops.hpp"
#include "fusion/partition/facts.hpp"
#include "fusion/reference/node.hpp"

namespace kiln::fusion {
namespace {

// The number with the fewest digits that is the same f32, where a number is one: of 1e-5 in f32 it
// is 1e-5 again.
double shortest(double number) {
  const auto narrow = static_cast<float>(number);
  if (!std::isfinite(number) || static_cast<double>(narrow) != number) return number;
  const double read = std::stod(fmt::format("{}", narrow));
  return static_cast<float>(read) == narrow ? read : number;
}

Literal literal_of(const TypedGraph& graph, const TypedNode& node) {
  const reference::Value value = reference::evaluate_node(graph, node, {});
  if (node.dtype == DType::boolean) return Literal::boolean(value.integer != 0);
  if (kind(node.dtype) == Kind::floating || kind(node.dtype) == Kind::complex) {
    const auto number = static_cast<double>(value.real);
    return Literal::floating(node.dtype == DType::f64 ? number : shortest(number));
  }
  if (kind(node.dtype) == Kind::unsigned_integer) {
    return Literal::unsigned_integer(static_cast<std::uint64_t>(value.integer));
  }
  return Literal::integer(static_cast<std::int64_t>(value.integer));
}

class Extraction {
 public:
  Extraction(const PlacedGraph& whole, const KernelPart& part)
      : whole_(whole),
        part_(part),
        reads_(part.reads.begin(), part.reads.end()),
        builder_(result_.graph) {
    for (const NodeId id : part.values) {
      const TypedNode& node = whole.graph.nodes[id];
      const bool argument = node.op == Op::input || node.op == Op::scalar;
      if (argument) taken_.insert(whole.graph.argument_names[node.payload]);
    }
  }

  KernelGraph run(std::span<const Store> stores) {
    result_.graph.rounding = whole_.graph.rounding;
    // Arguments are in the order in which they are used, whatever they are called in the whole
    // graph: equal parts are equal kernels.
    for (const NodeId id : part_.values) {
      if (is_computed(id)) define(id);
    }
    for (const NodeId id : part_.reads) define(id);
    for (const NodeId id : part_.values) define(id);
    for (const BoundedAxis& bound : part_.bounds) {
      define(bound.end);
      result_.graph.bounds.push_back({bound.axis, moved_.at(bound.end)});
    }
    for (const Store& store : stores) {
      const TypedNode& stored = whole_.graph.nodes[store.value];
      const bool at_places = stored.op == Op::put;
      if (at_places) {
        result_.graph.indexed.push_back(
            {true, result_.graph.outputs.size(), moved_.at(stored.operands[1])});
      }
      NodeId value = moved_.at(at_places ? stored.operands[0] : store.value);
      NodeId shown = shown_.at(store.value);
      if (result_.graph.nodes[value].dtype != store.dtype) {
        value = builder_.append({Op::promote, store.dtype, 1, {value}, 0});
      }
      result_.graph.outputs.push_back(value);
      result_.graph.output_names.emplace_back();
      result_.untyped.add_output(shown);
    }
    return std::move(result_);
  }

 private:
  bool is_computed(NodeId id) const {
    const Op op = whole_.graph.nodes[id].op;
    return op != Op::input && op != Op::scalar && op != Op::view;
  }

  // What a computed value needs is defined before it; values are in the graph's order.
  void define(NodeId id) {
    const TypedNode& node = whole_.graph.nodes[id];
    if (moved_.contains(id) || is_indexed_view(node)) return;
    if (reads_.contains(id)) {
      read(id);
    } else if (node.op == Op::input || node.op == Op::scalar) {
      argument(id, node);
    } else if (const auto axis = counted_axis(whole_, id)) {
      index(id, *axis, node.dtype);
    } else if (node.op == Op::view) {
      const TypedNode& root = whole_.graph.nodes[node.operands[0]];
      array(id, root.dtype, fmt::format("{}_view", whole_.graph.argument_names[root.payload]));
    } else if (node.op == Op::take) {
      define(node.operands[1]);
      take(id, node);
    } else {
      for (std::size_t i = 0; i < node.arity; ++i) define(node.operands[i]);
      if (node.op == Op::put) {
        put(id, node);
      } else {
        compute(id, node);
      }
    }
  }

  // What take() reads, for which it has an argument of its own.
  bool is_indexed_view(const TypedNode& node) const {
    return node.op == Op::view && whole_.views[node.payload].indexed.exists();
  }

  // An index is counted where the kernel does not read it from memory.
  void index(NodeId id, std::int64_t axis, DType dtype) {
    moved_[id] = builder_.append({Op::iota, dtype, 0, {}, static_cast<std::uint64_t>(axis)});
    shown_[id] = result_.untyped.iota(axis, dtype);
  }

  // The rows of an array are an argument for each value that says which.
  void take(NodeId id, const TypedNode& node) {
    const NodeId rows = node.operands[0];
    const NodeId root = viewed(whole_.graph, rows);
    const TypedNode& source = whole_.graph.nodes[root];
    const bool argument = source.op == Op::input;
    const std::string name =
        argument ? whole_.graph.argument_names[source.payload] : fmt::format("t{}", root);
    const NodeId shown = array(rows, stored_dtype(whole_, rows), name + "_rows");
    moved_[id] = moved_.at(rows);
    moved_.erase(rows);
    result_.graph.indexed.push_back(
        {false, result_.graph.arguments.size() - 1, moved_.at(node.operands[1])});
    shown_[id] = result_.untyped.shape_op(Op::take, std::array{shown, shown_.at(node.operands[1])},
                                          shape_list(whole_.graph, node));
  }

  void put(NodeId id, const TypedNode& node) {
    moved_[id] = moved_.at(node.operands[0]);
    const auto stores_it = [&](const std::vector<PlacedPart>& parts) {
      return std::ranges::find(parts, id, &PlacedPart::value) != parts.end();
    };
    const auto join = std::ranges::find_if(whole_.joins, stores_it) - whole_.joins.begin();
    const TypedNode& array = whole_.graph.nodes[*whole_.updates[static_cast<std::size_t>(join)]];
    shown_[id] = result_.untyped.shape_op(
        Op::put,
        std::array{result_.untyped.argument(whole_.graph.argument_names[array.payload]),
                   shown_.at(node.operands[1]), shown_.at(node.operands[0])},
        shape_list(whole_.graph, node));
  }

  // A value of another kernel, in the dtype in which it was stored.
  void read(NodeId id) { array(id, stored_dtype(whole_, id), fmt::format("t{}", id)); }

  NodeId array(NodeId id, DType stored, std::string name) {
    const std::string wanted = name;
    for (int i = 2; !taken_.insert(name).second; ++i) name = fmt::format("{}{}", wanted, i);
    const std::uint64_t position = add_argument(id, {stored, false, false}, name);
    NodeId value = builder_.append({Op::input, stored, 0, {}, position});
    const DType dtype = whole_.graph.nodes[id].dtype;
    if (dtype != stored) value = builder_.append({Op::promote, dtype, 1, {value}, 0});
    moved_[id] = value;
    shown_[id] = result_.untyped.argument(name);
    return shown_[id];
  }

  std::uint64_t add_argument(NodeId id, ArgumentType type, const std::string& name) {
    result_.arguments.push_back(id);
    result_.graph.arguments.push_back(type);
    result_.graph.argument_names.push_back(name);
    return result_.graph.arguments.size() - 1;
  }

  void argument(NodeId id, const TypedNode& node) {
    const std::string& name = whole_.graph.argument_names[node.payload];
    const auto [known, fresh] = positions_.emplace(node.payload, 0);
    if (fresh) known->second = add_argument(id, whole_.graph.arguments[node.payload], name);
    TypedNode own = node;
    own.payload = known->second;
    moved_[id] = builder_.append(own);
    shown_[id] = result_.untyped.argument(name);
  }

  void compute(NodeId id, const TypedNode& node) {
    TypedNode own = node;
    std::array<NodeId, 3> shown{};
    for (std::size_t i = 0; i < node.arity; ++i) {
      own.operands[i] = moved_.at(node.operands[i]);
      shown[i] = shown_.at(node.operands[i]);
    }
    moved_[id] = builder_.append(own);
    shown_[id] = show(node, std::span(shown).first(node.arity));
  }

  NodeId show(const TypedNode& node, std::span<const NodeId> operands) {
    Graph& graph = result_.untyped;
    if (node.op == Op::iota) {
      return graph.iota(static_cast<std::int64_t>(node.payload), node.dtype);
    }
    if (node.op == Op::constant) return graph.constant(literal_of(whole_.graph, node));
    if (node.op == Op::promote) return operands[0];
    if (node.op == Op::cast) return graph.cast(operands[0], node.dtype);
    if (node.op == Op::bitcast) return graph.bitcast(operands[0], node.dtype);
    if (has_axes(node.op)) return graph.reduce(node.op, operands[0], node.payload);
    return graph.apply(node.op, operands);
  }

  const PlacedGraph& whole_;
  const KernelPart& part_;
  const std::set<NodeId> reads_;
  KernelGraph result_;
  GraphBuilder builder_;         ///< of its typed graph
  std::set<std::string> taken_;  ///< names of arguments
  std::unordered_map<NodeId, NodeId> moved_;
  std::unordered_map<NodeId, NodeId> shown_;
  std::unordered_map<std::uint64_t, std::uint64_t> positions_;
};

}  // namespace

KernelGraph kernel_graph(const PlacedGraph& whole, const KernelPart& part,
                         std::span<const Store> stores) {
  return Extraction(whole, part).run(stores);
}

}  // namespace kiln::fusion
