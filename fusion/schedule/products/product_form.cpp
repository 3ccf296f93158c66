#include "fusion/schedule/products/product_form.hpp"

#include "fusion/graph/dtype_lattice.hpp"
#include "kiln/dtype.hpp"

namespace kiln::fusion {
namespace {

class Matcher {
 public:
  Matcher(const TypedGraph& graph, const ScratchVector<Scope>& scopes, bool small_floats)
      : graph_(graph), scopes_(scopes), small_floats_(small_floats) {}

  std::optional<ProductForm> terms(NodeId id) const {
    const NodeId product = plain(id);
    if (!is(product, Op::mul)) return std::nullopt;
    for (const std::size_t i : {0u, 1u}) {
      const NodeId activation = operand(product, i);
      if (!is_element(activation) || scopes_[activation].rows || !is_f32(activation)) continue;
      std::optional<ProductForm> form = dequantised(plain(operand(product, 1 - i)));
      if (!form) continue;
      form->activation = activation;
      return form;
    }
    return std::nullopt;
  }

 private:
  const TypedNode& node(NodeId id) const { return graph_.nodes[id]; }
  NodeId operand(NodeId id, std::size_t i) const { return node(id).operands[i]; }
  bool is_element(NodeId id) const { return scopes_[id].level == Level::element; }
  bool is_f32(NodeId id) const { return compute_dtype(node(id).dtype) == DType::f32; }
  bool is(NodeId id, Op op) const { return node(id).op == op && is_f32(id); }

  // Skips conversions that change nothing: values of narrow floats are computed in f32.
  NodeId plain(NodeId id) const {
    while (node(id).op == Op::promote && is_f32(id) && is_f32(operand(id, 0))) id = operand(id, 0);
    return id;
  }

  bool is_of_group(NodeId id) const {
    return !is_element(id) && !scopes_[id].columns && is_f32(id);
  }

  bool is_weight(NodeId id) const {
    return node(id).op == Op::input && is_element(id) && scopes_[id].rows && !scopes_[id].columns;
  }

  // An argument of small floats, converted to wider ones or not.
  std::optional<NodeId> float_weight(NodeId id) const {
    const DType to = node(id).dtype;
    if (node(id).op == Op::cast && (to == DType::f32 || to == DType::f16 || to == DType::bf16))
      id = plain(operand(id, 0));
    const DType from = node(id).dtype;
    if ((from != DType::f8e4m3 && from != DType::f8e5m2) || !is_weight(id)) return std::nullopt;
    return id;
  }

  // An argument of small integers, converted to a float that holds them all.
  std::optional<NodeId> weight(NodeId id) const {
    if (small_floats_) {
      if (const auto found = float_weight(id)) return found;
    }
    const DType to = node(id).dtype;
    if (to != DType::f32 && to != DType::f16 && to != DType::bf16) return std::nullopt;
    while (node(id).op == Op::promote || node(id).op == Op::cast) {
      id = operand(id, 0);
      if (is_floating(node(id).dtype)) return std::nullopt;
    }
    const DType from = node(id).dtype;
    if (!is_integer(from) || bits(from) > 8 || !is_weight(id)) return std::nullopt;
    return id;
  }

  std::optional<ProductForm> dequantised(NodeId id) const {
    if (auto form = scaled(id)) return form;
    if (!is(id, Op::add) && !is(id, Op::sub)) return std::nullopt;
    for (const std::size_t i : {0u, 1u}) {
      if (i == 1 && node(id).op == Op::sub) break;
      const NodeId bias = operand(id, 1 - i);
      std::optional<ProductForm> form = scaled(plain(operand(id, i)));
      if (!form || form->zero_point || !is_of_group(bias)) continue;
      if (!form->scale) {  // weight - zero point; weight + bias is not a form
        if (node(id).op != Op::sub) continue;
        form->zero_point = bias;
        return form;
      }
      form->bias = bias;
      form->bias_is_subtracted = node(id).op == Op::sub;
      return form;
    }
    return std::nullopt;
  }

  // weight, weight * scale, or (weight - zero point) * scale.
  std::optional<ProductForm> scaled(NodeId id) const {
    if (const auto found = weight(id)) return ProductForm{*found, {}, {}, false, {}, 0};
    if (!is(id, Op::mul)) return std::nullopt;
    for (const std::size_t i : {0u, 1u}) {
      const NodeId scale = operand(id, 1 - i);
      if (!is_of_group(scale)) continue;
      const NodeId inner = plain(operand(id, i));
      std::optional<ProductForm> form;
      if (const auto found = weight(inner)) {
        form = ProductForm{*found, {}, {}, false, {}, 0};
      } else if (is(inner, Op::sub)) {
        const auto found_weight = weight(plain(operand(inner, 0)));
        const NodeId zero_point = operand(inner, 1);
        if (found_weight && is_of_group(zero_point)) {
          form = ProductForm{*found_weight, {}, {}, false, zero_point, 0};
        }
      }
      if (!form) continue;
      form->scale = scale;
      return form;
    }
    return std::nullopt;
  }

  const TypedGraph& graph_;
  const ScratchVector<Scope>& scopes_;
  bool small_floats_;
};

}  // namespace

std::optional<ProductForm> product_form(const TypedGraph& graph, NodeId sum,
                                        const ScratchVector<Scope>& scopes, bool small_floats) {
  const TypedNode& node = graph.nodes[sum];
  if (node.op != Op::sum && node.op != Op::mean) return std::nullopt;
  if (graph.rounding != Rounding::once || compute_dtype(node.dtype) != DType::f32)
    return std::nullopt;
  const auto form = Matcher(graph, scopes, small_floats).terms(node.operands[0]);
  // minus_zero_point() subtracts a whole number, for which 8-bit floats have no room.
  if (form && form->has_offset() && is_floating(graph.nodes[form->weight].dtype))
    return std::nullopt;
  return form;
}

}  // namespace kiln::fusion
