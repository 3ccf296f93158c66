#include "fusion/schedule/products/product_form.hpp"

#include "fusion/graph/dtype_lattice.hpp"
#include "kiln/dtype.hpp"

namespace kiln::fusion {
namespace {

class Matcher {
 public:
  Matcher(const TypedGraph& graph, const std::vector<ValuePlace>& places, bool small_floats)
      : graph_(graph), places_(places), small_floats_(small_floats) {}

  std::optional<ProductForm> terms(NodeId id) const {
    const NodeId product = plain(id);
    if (!is(product, Op::mul)) return std::nullopt;
    for (const std::size_t i : {0u, 1u}) {
      const NodeId shared = operand(product, i);
      if (!places_[shared].element || places_[shared].rows || !is_f32(shared)) continue;
      std::optional<ProductForm> form = weights(plain(operand(product, 1 - i)));
      if (!form) continue;
      form->shared = shared;
      return form;
    }
    return std::nullopt;
  }

 private:
  const TypedNode& node(NodeId id) const { return graph_.nodes[id]; }
  NodeId operand(NodeId id, std::size_t i) const { return node(id).operands[i]; }
  bool is_f32(NodeId id) const { return compute_dtype(node(id).dtype) == DType::f32; }
  bool is(NodeId id, Op op) const { return node(id).op == op && is_f32(id); }

  // Past conversions that change nothing: values of narrow floats are held as f32.
  NodeId plain(NodeId id) const {
    while (node(id).op == Op::promote && is_f32(id) && is_f32(operand(id, 0))) id = operand(id, 0);
    return id;
  }

  bool is_of_group(NodeId id) const {
    return !places_[id].element && !places_[id].columns && is_f32(id);
  }

  bool is_lane(NodeId id) const {
    return node(id).op == Op::input && places_[id].element && places_[id].rows &&
           !places_[id].columns;
  }

  // An argument of small floats, converted to wider ones or not.
  std::optional<NodeId> float_lane(NodeId id) const {
    const DType to = node(id).dtype;
    if (node(id).op == Op::cast && (to == DType::f32 || to == DType::f16 || to == DType::bf16))
      id = plain(operand(id, 0));
    const DType from = node(id).dtype;
    if ((from != DType::f8e4m3 && from != DType::f8e5m2) || !is_lane(id)) return std::nullopt;
    return id;
  }

  // An argument of small integers, converted to a float that holds them all.
  std::optional<NodeId> lane(NodeId id) const {
    if (small_floats_) {
      if (const auto found = float_lane(id)) return found;
    }
    const DType to = node(id).dtype;
    if (to != DType::f32 && to != DType::f16 && to != DType::bf16) return std::nullopt;
    while (node(id).op == Op::promote || node(id).op == Op::cast) {
      id = operand(id, 0);
      if (is_floating(node(id).dtype)) return std::nullopt;
    }
    const DType from = node(id).dtype;
    if (!is_integer(from) || bits(from) > 8 || !is_lane(id)) return std::nullopt;
    return id;
  }

  std::optional<ProductForm> weights(NodeId id) const {
    if (auto form = scaled(id)) return form;
    if (!is(id, Op::add) && !is(id, Op::sub)) return std::nullopt;
    for (const std::size_t i : {0u, 1u}) {
      if (i == 1 && node(id).op == Op::sub) break;
      const NodeId bias = operand(id, 1 - i);
      std::optional<ProductForm> form = scaled(plain(operand(id, i)));
      if (!form || form->point || !is_of_group(bias)) continue;
      if (!form->scale) {  // lane - point; lane + bias is left alone
        if (node(id).op != Op::sub) continue;
        form->point = bias;
        return form;
      }
      form->bias = bias;
      form->bias_is_subtracted = node(id).op == Op::sub;
      return form;
    }
    return std::nullopt;
  }

  // lane, lane * scale, or (lane - point) * scale.
  std::optional<ProductForm> scaled(NodeId id) const {
    if (const auto found = lane(id)) return ProductForm{*found, {}, {}, false, {}, 0};
    if (!is(id, Op::mul)) return std::nullopt;
    for (const std::size_t i : {0u, 1u}) {
      const NodeId scale = operand(id, 1 - i);
      if (!is_of_group(scale)) continue;
      const NodeId inner = plain(operand(id, i));
      std::optional<ProductForm> form;
      if (const auto found = lane(inner)) {
        form = ProductForm{*found, {}, {}, false, {}, 0};
      } else if (is(inner, Op::sub)) {
        const auto found_lane = lane(plain(operand(inner, 0)));
        const NodeId point = operand(inner, 1);
        if (found_lane && is_of_group(point)) {
          form = ProductForm{*found_lane, {}, {}, false, point, 0};
        }
      }
      if (!form) continue;
      form->scale = scale;
      return form;
    }
    return std::nullopt;
  }

  const TypedGraph& graph_;
  const std::vector<ValuePlace>& places_;
  bool small_floats_;
};

}  // namespace

std::optional<ProductForm> product_form(const TypedGraph& graph, NodeId sum,
                                        const std::vector<ValuePlace>& places, bool small_floats) {
  const TypedNode& node = graph.nodes[sum];
  if (node.op != Op::sum && node.op != Op::mean) return std::nullopt;
  if (graph.rounding != Rounding::once || compute_dtype(node.dtype) != DType::f32)
    return std::nullopt;
  const auto form = Matcher(graph, places, small_floats).terms(node.operands[0]);
  // The point that keeps the sums from cancelling is a whole number, for which floats have no room.
  if (form && form->has_rest() && is_floating(graph.nodes[form->lane].dtype)) return std::nullopt;
  return form;
}

}  // namespace kiln::fusion
