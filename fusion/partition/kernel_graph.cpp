#include "fusion/partition/kernel_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <unordered_map>

#include "fusion/graph/rewriter.hpp"
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
    for (const Store& store : stores) {
      NodeId value = moved_.at(store.value);
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
    if (moved_.contains(id)) return;
    const TypedNode& node = whole_.graph.nodes[id];
    if (reads_.contains(id)) {
      read(id);
    } else if (node.op == Op::input || node.op == Op::scalar) {
      argument(id, node);
    } else if (node.op == Op::view) {
      const TypedNode& root = whole_.graph.nodes[node.operands[0]];
      array(id, root.dtype, fmt::format("{}_view", whole_.graph.argument_names[root.payload]));
    } else {
      for (std::size_t i = 0; i < node.arity; ++i) define(node.operands[i]);
      compute(id, node);
    }
  }

  // A value of another kernel, in the dtype in which it was stored.
  void read(NodeId id) { array(id, stored_dtype(whole_, id), fmt::format("t{}", id)); }

  void array(NodeId id, DType stored, std::string name) {
    const std::string wanted = name;
    for (int i = 2; !taken_.insert(name).second; ++i) name = fmt::format("{}{}", wanted, i);
    const std::uint64_t position = add_argument(id, {stored, false, false}, name);
    NodeId value = builder_.append({Op::input, stored, 0, {}, position});
    const DType dtype = whole_.graph.nodes[id].dtype;
    if (dtype != stored) value = builder_.append({Op::promote, dtype, 1, {value}, 0});
    moved_[id] = value;
    shown_[id] = result_.untyped.argument(name);
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
