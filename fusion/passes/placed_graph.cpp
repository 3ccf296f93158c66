// See placed_graph.hpp.
#include "fusion/passes/placed_graph.hpp"

#include <algorithm>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/indexed.hpp"
#include "fusion/graph/size_trace.hpp"
#include "fusion/reference/node.hpp"
#include "fusion/reference/value.hpp"
#include "kiln/view.hpp"

namespace kiln::fusion {
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

DType byte_dtype(DType packed) {
  switch (packed) {
    case DType::u4: return DType::u8;
    case DType::i4: return DType::i8;
    default: return DType::f8e4m3;
  }
}

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

}  // namespace kiln::fusion
