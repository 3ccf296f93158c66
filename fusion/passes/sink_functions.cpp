// The pass that moves functions past the largest or smallest of a row (passes.hpp): max(log(x))
// becomes log(max(x)), one logarithm for each row.
#include <algorithm>
#include <optional>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/rewriter.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/passes/passes.hpp"
#include "fusion/passes/signs.hpp"

namespace kiln::fusion {
namespace {

// Rows from which on no kernel keeps what it has computed of them for a second pass.
constexpr std::int64_t kLongRow = 1 << 18;

// Whether a node is an increasing function that takes more than a few instructions.
bool is_increasing_function(const TypedNode& node, const std::vector<bool>& never_negative) {
  if (info(node.op).cheap) return false;
  switch (info(node.op).order) {
    case Order::unknown: return false;
    case Order::increasing: return true;
    case Order::increasing_from_zero: return never_negative[node.operands[0]];
  }
  return false;
}

class FunctionSinking {
 public:
  explicit FunctionSinking(const ShapedGraph& from)
      : from_(from),
        to_(from),
        never_negative_(never_negative(from.graph)),
        uses_(use_counts(from.graph)),
        compared_(from.graph.nodes.size(), false) {
    for (const TypedNode& node : from.graph.nodes) {
      if (info(node.op).rule != Rule::compare) continue;
      for (const NodeId operand : node.inputs()) compared_[operand] = true;
    }
  }

  ShapedGraph run() {
    return to_.run([&](NodeId id) { return sink_into(id); });
  }

 private:
  const TypedNode& node(NodeId id) const { return from_.graph.nodes[id]; }

  NodeId sink_into(NodeId id) {
    const std::vector<NodeId> functions = functions_before(id);
    if (functions.empty()) return to_.copy(id);
    const NodeId first = *argument(functions.back());
    TypedNode reduction = node(id);
    reduction.operands[0] = to_.moved(first);
    reduction.dtype = node(first).dtype;
    NodeId result = to_.add(reduction, from_.shapes[id]);
    for (auto function = functions.rbegin(); function != functions.rend(); ++function) {
      TypedNode copy = to_.moved_node(*function);
      const NodeId of = *argument(*function);
      for (std::size_t i = 0; i < copy.arity; ++i) {
        if (node(*function).operands[i] == of) copy.operands[i] = result;
      }
      result = to_.add(copy, from_.shapes[id]);
    }
    return result;
  }

  // The functions that can be applied to the result of reduction `id` instead of its operand, the
  // last one first; none if that saves nothing.
  std::vector<NodeId> functions_before(NodeId id) const {
    std::vector<NodeId> functions;
    const TypedNode& reduction = node(id);
    if (reduction.op != Op::reduce_max && reduction.op != Op::reduce_min) return {};
    const NodeId operand = reduction.operands[0];
    const std::int64_t results = std::max<std::int64_t>(1, element_count(from_.shapes[id]));
    const std::int64_t length = element_count(from_.shapes[operand]) / results;
    if (length == 0) return {};
    trace_order(element_count(from_.shapes[operand]), kLongRow * results);
    bool saves = false;
    std::optional<NodeId> of;
    for (NodeId at = operand; (of = argument(at)); at = *of) {
      // Where others need the function of every element, a kernel computes a short row once for all
      // of them; and what is compared with the largest has to be the same number.
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

  const ShapedGraph& from_;
  GraphRewriter to_;
  std::vector<bool> never_negative_;
  std::vector<std::size_t> uses_;
  std::vector<bool> compared_;
};

}  // namespace

ShapedGraph sink_functions(const ShapedGraph& graph) {
  // Rounding::each promises the bits that every op gives when it is alone.
  if (graph.graph.rounding == Rounding::each) return graph;
  return FunctionSinking(graph).run();
}

}  // namespace kiln::fusion
