// The pass that moves functions past the largest or smallest of a row (passes.hpp): max(log(x))
// becomes log(max(x)), one logarithm for each row.
#include <algorithm>
#include <optional>

#include "fusion/passes/passes.hpp"
#include "fusion/passes/signs.hpp"

namespace kiln::fusion {
namespace {

// Rows from which on no kernel keeps what it has computed of them for a second pass.
constexpr std::int64_t kLongRow = 1 << 18;

std::int64_t elements(const Dims& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

// Takes more than a few instructions, and is never smaller of a larger number; NaN of NaN.
bool is_increasing_function(const TypedNode& node, const std::vector<bool>& never_negative) {
  switch (node.op) {
    case Op::exp:
    case Op::exp2:
    case Op::expm1:
    case Op::tanh:
    case Op::sinh:
    case Op::asinh:
    case Op::atan:
    case Op::cbrt:
    case Op::sigmoid:
    case Op::erf:
    case Op::ndtr: return true;
    case Op::sqrt:
    case Op::log:
    case Op::log2:
    case Op::log10:
    case Op::log1p: return never_negative[node.operands[0]];
    default: return false;
  }
}

class Raising {
 public:
  explicit Raising(const ShapedGraph& from)
      : from_(from),
        never_negative_(never_negative(from.graph)),
        uses_(from.graph.nodes.size(), 0),
        compared_(from.graph.nodes.size(), false) {
    for (const TypedNode& node : from.graph.nodes) {
      for (const NodeId operand : node.inputs()) {
        ++uses_[operand];
        if (info(node.op).rule == Rule::compare) compared_[operand] = true;
      }
    }
    for (const NodeId output : from.graph.outputs) ++uses_[output];
    to_.graph = from.graph;
    to_.graph.nodes.clear();
  }

  ShapedGraph run() {
    for (NodeId id = 0; id < from_.graph.nodes.size(); ++id) moved_.push_back(move(id));
    for (NodeId& output : to_.graph.outputs) output = moved_[output];
    return std::move(to_);
  }

 private:
  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }

  NodeId move(NodeId id) {
    const std::vector<NodeId> functions = functions_before(id);
    TypedNode reduction = node(id);
    const NodeId first = functions.empty() ? reduction.operands[0] : *argument(functions.back());
    if (!functions.empty()) {
      reduction.operands[0] = first;
      reduction.dtype = node(first).dtype;
    }
    for (std::size_t i = 0; i < reduction.arity; ++i)
      reduction.operands[i] = moved_[reduction.operands[i]];
    NodeId result = append(reduction, from_.shapes[id]);
    for (auto function = functions.rbegin(); function != functions.rend(); ++function) {
      TypedNode copy = node(*function);
      const NodeId of = *argument(*function);
      for (std::size_t i = 0; i < copy.arity; ++i)
        copy.operands[i] = copy.operands[i] == of ? result : moved_[copy.operands[i]];
      result = append(copy, from_.shapes[id]);
    }
    return result;
  }

  // What can be computed of the result of a reduction instead of its operand, the last of it first;
  // nothing if that saves nothing.
  std::vector<NodeId> functions_before(NodeId id) const {
    std::vector<NodeId> functions;
    const TypedNode& reduction = node(id);
    if (reduction.op != Op::reduce_max && reduction.op != Op::reduce_min) return {};
    const NodeId operand = reduction.operands[0];
    const std::int64_t results = std::max<std::int64_t>(1, elements(from_.shapes[id]));
    const std::int64_t length = elements(from_.shapes[operand]) / results;
    if (length == 0) return {};
    bool saves = false;
    std::optional<NodeId> of;
    for (NodeId at = operand; (of = argument(at)); at = *of) {
      // Where others need the function of every element, a short row is computed once for all, and
      // what is compared with the largest has to be the same number.
      if (uses_[at] > 1 && (length < kLongRow || compared_[at])) break;
      saves = saves || is_increasing_function(node(at), never_negative_);
      functions.push_back(at);
    }
    return saves ? functions : std::vector<NodeId>();
  }

  // What `id` is a function of that keeps the order of numbers, if it is one: the operand that is
  // no constant.
  std::optional<NodeId> argument(NodeId id) const {
    const TypedNode& of = node(id);
    if (!is_floating(of.dtype)) return std::nullopt;
    std::optional<NodeId> found;
    switch (of.op) {
      case Op::maximum:
      case Op::minimum:
        for (std::size_t i = 0; i < 2; ++i) {
          if (node(of.operands[i]).op == Op::constant) found = of.operands[1 - i];
        }
        break;
      case Op::promote: found = of.operands[0]; break;
      default:
        if (is_increasing_function(of, never_negative_)) found = of.operands[0];
    }
    const bool keeps = found && is_floating(node(*found).dtype) &&
                       from_.shapes[*found] == from_.shapes[id] && node(*found).op != Op::constant;
    return keeps ? found : std::nullopt;
  }

  NodeId append(const TypedNode& node, const Dims& shape) {
    to_.graph.nodes.push_back(node);
    to_.shapes.push_back(shape);
    return static_cast<NodeId>(to_.graph.nodes.size() - 1);
  }

  const ShapedGraph& from_;
  std::vector<bool> never_negative_;
  std::vector<int> uses_;
  std::vector<bool> compared_;
  ShapedGraph to_;
  std::vector<NodeId> moved_;
};

}  // namespace

ShapedGraph raise_functions(const ShapedGraph& graph) {
  // There every op gives the bits that it has alone.
  if (graph.graph.rounding == Rounding::each) return graph;
  return Raising(graph).run();
}

}  // namespace kiln::fusion
