#include "fusion/schedule/products/product_form.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/number.hpp"
#include "kiln/dtype.hpp"

namespace kiln::fusion {
namespace {

constexpr double kLeastWhole = -128;
constexpr double kMostWhole = 255;

// Whether an integer dtype holds every number of another.
bool holds(DType to, DType from) {
  const bool from_signed = kind(from) == Kind::signed_integer;
  if (kind(to) == Kind::signed_integer) return bits(to) >= bits(from) + (from_signed ? 0 : 1);
  return is_integer(to) && !from_signed && bits(to) >= bits(from);
}

class Matcher {
 public:
  Matcher(const TypedGraph& graph, const ScratchVector<Scope>& scopes, bool tiles)
      : graph_(graph), scopes_(scopes), tiles_(tiles) {}

  std::optional<ProductForm> terms(NodeId id) const {
    const NodeId product = plain(id);
    if (!is(product, Op::mul)) return std::nullopt;
    std::optional<ProductForm> found;
    for (const std::size_t i : {0u, 1u}) {
      const NodeId activation = operand(product, i);
      if (!is_element(activation) || !is_f32(activation)) continue;
      if (tiles_ && scopes_[activation].rows) continue;
      std::optional<ProductForm> form = dequantised(plain(operand(product, 1 - i)));
      if (!form || (found && is_preferred(*found, *form))) continue;
      found = form;
      found->activation = activation;
    }
    return found;
  }

  // Small weights less a zero point, times an argument of i8, in an integer dtype that holds the
  // products.
  std::optional<ProductForm> integer_terms(NodeId id) const {
    constexpr int kProductBits = 16;
    constexpr int kCenteredBits = 32;  // of products of centered weights
    while (is_conversion(id) && is_signed(node(id).dtype) && bits(node(id).dtype) >= kCenteredBits)
      id = operand(id, 0);
    const DType dtype = node(id).dtype;
    if (node(id).op != Op::mul || !is_signed(dtype) || bits(dtype) < kProductBits)
      return std::nullopt;
    for (const std::size_t i : {0u, 1u}) {
      const std::optional<NodeId> activation = small_argument(operand(id, i));
      if (!activation || !is_activation(*activation)) continue;
      // Of two like operands the one with rows is the weights; their products are the same.
      const std::optional<NodeId> other = small_argument(operand(id, 1 - i));
      if (i == 0 && other && is_activation(*other) && scopes_[*activation].rows) continue;
      ProductForm form;
      form.integers = true;
      form.activation = *activation;
      NodeId weights = operand(id, 1 - i);
      if (node(weights).op == Op::sub && bits(dtype) >= kCenteredBits) {
        form.zero_point = operand(weights, 1);
        form.zero_point_is_whole = is_whole(*form.zero_point);
        weights = operand(weights, 0);
        if (!form.zero_point_is_whole || !is_shared(*form.zero_point)) continue;
      }
      const std::optional<NodeId> weight = small_argument(weights);
      if (!weight || !is_weight(*weight)) continue;
      form.weight = *weight;
      return form;
    }
    return std::nullopt;
  }

  // The factors of an f32 product: weights and activations, each dequantised or not, or an integer
  // product; and numbers of groups.
  std::optional<ProductForm> scaled_integer_terms(NodeId id) const {
    std::optional<ProductForm> form;
    std::optional<NodeId> activation;
    std::optional<NodeId> like_activation;
    std::array<std::optional<NodeId>, 2> scales;
    std::vector<NodeId> factors = {plain(id)};
    while (!factors.empty()) {
      const NodeId factor = factors.back();
      factors.pop_back();
      if (!is_element(factor)) {
        const auto unset = std::ranges::find_if(scales, [](const auto& scale) { return !scale; });
        if (!is_f32(factor) || unset == scales.end()) return std::nullopt;
        *unset = factor;
      } else if (is(factor, Op::mul)) {
        for (const NodeId operand : node(factor).inputs()) factors.push_back(plain(operand));
      } else if (const auto found = activation_argument(factor); found && !activation) {
        activation = found;
      } else if (found && !like_activation) {
        like_activation = found;
      } else if (!form) {
        form = dequantised(factor);
        if (!form && is_conversion(factor) && node(factor).dtype == DType::f32) {
          form = integer_terms(operand(factor, 0));
          if (form) activation = std::exchange(form->activation, 0);
        }
        if (!form) return std::nullopt;
      } else {
        return std::nullopt;
      }
    }
    if (form.has_value() == like_activation.has_value() || !activation) return std::nullopt;
    if (!form) {
      // Of two like factors the one with rows is the weights; their products are the same.
      if (scopes_[*activation].rows) std::swap(*activation, *like_activation);
      form = of_weight(*like_activation);
    }
    form->integers = true;
    form->activation = *activation;
    // A bias is multiplied by what scales the whole term, not by the scale of its weights.
    for (const std::optional<NodeId>& scale : scales) {
      if (!scale) continue;
      std::optional<NodeId>& place = form->scale ? form->activation_scale : form->scale;
      if (place) return std::nullopt;
      place = scale;
    }
    return form;
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

  bool is_conversion(NodeId id) const {
    return node(id).op == Op::promote || node(id).op == Op::cast;
  }
  static bool is_signed(DType dtype) { return kind(dtype) == Kind::signed_integer; }
  bool is_shared(NodeId id) const { return !is_element(id) && !(tiles_ && scopes_[id].columns); }
  bool is_of_group(NodeId id) const { return is_shared(id) && is_f32(id); }
  bool is_activation(NodeId id) const { return node(id).dtype == DType::i8 && is_element(id); }

  // Where either factor could be the weights: those with a scale or a zero point, else the narrower
  // ones, else the first to be found.
  bool is_preferred(const ProductForm& form, const ProductForm& other) const {
    const auto rank = [&](const ProductForm& of) {
      return std::pair(of.scale || of.zero_point, -bits(node(of.weight).dtype));
    };
    return rank(form) >= rank(other);
  }

  // An argument of small integers, converted to dtypes that hold them all.
  std::optional<NodeId> small_argument(NodeId id) const {
    std::vector<DType> through;
    for (; is_conversion(id); id = operand(id, 0)) through.push_back(node(id).dtype);
    const DType from = node(id).dtype;
    if (node(id).op != Op::input || !is_integer(from) || bits(from) > 8) return std::nullopt;
    const auto is_kept = [&](DType to) {
      return is_floating(to) ? bits(to) >= 16 : holds(to, from);
    };
    return std::ranges::all_of(through, is_kept) ? std::optional(id) : std::nullopt;
  }

  std::optional<NodeId> activation_argument(NodeId id) const {
    if (!is_f32(id)) return std::nullopt;
    const auto found = small_argument(id);
    return found && is_activation(*found) ? found : std::nullopt;
  }

  // Whether a value is a whole number between the least and the most that 8 bits hold.
  bool is_whole(NodeId id) const {
    if (small_argument(id)) return true;
    while (is_conversion(id)) id = operand(id, 0);
    if (node(id).op != Op::constant) return false;
    const DType dtype = is_narrow_float(node(id).dtype) ? DType::f32 : node(id).dtype;
    const double value = decode(node(id).payload, dtype);
    return value == std::floor(value) && value >= kLeastWhole && value <= kMostWhole;
  }

  bool is_weight(NodeId id) const {
    return node(id).op == Op::input && is_element(id) && (!tiles_ || !scopes_[id].columns);
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
    if (tiles_) {
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
        form->zero_point_is_whole = is_whole(bias);
        return form;
      }
      form->bias = bias;
      form->bias_is_subtracted = node(id).op == Op::sub;
      return form;
    }
    return std::nullopt;
  }

  static ProductForm of_weight(NodeId weight) {
    ProductForm form;
    form.weight = weight;
    return form;
  }

  // weight, weight * scale, or (weight - zero point) * scale.
  std::optional<ProductForm> scaled(NodeId id) const {
    if (const auto found = weight(id)) return of_weight(*found);
    if (!is(id, Op::mul)) return std::nullopt;
    for (const std::size_t i : {0u, 1u}) {
      const NodeId scale = operand(id, 1 - i);
      if (!is_of_group(scale)) continue;
      const NodeId inner = plain(operand(id, i));
      std::optional<ProductForm> form;
      if (const auto found = weight(inner)) {
        form = of_weight(*found);
      } else if (is(inner, Op::sub)) {
        const auto found_weight = weight(plain(operand(inner, 0)));
        const NodeId zero_point = operand(inner, 1);
        if (found_weight && is_of_group(zero_point)) {
          form = of_weight(*found_weight);
          form->zero_point = zero_point;
          form->zero_point_is_whole = is_whole(zero_point);
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
  bool tiles_;
};

}  // namespace

std::optional<ProductForm> product_form(const TypedGraph& graph, NodeId sum,
                                        const ScratchVector<Scope>& scopes, bool tiles) {
  const TypedNode& node = graph.nodes[sum];
  if (node.op != Op::sum && node.op != Op::mean) return std::nullopt;
  if (graph.rounding != Rounding::once || compute_dtype(node.dtype) != DType::f32)
    return std::nullopt;
  const auto form = Matcher(graph, scopes, tiles).terms(node.operands[0]);
  // minus_zero_point() subtracts a whole number, for which 8-bit floats have no room.
  if (form && form->is_centered() && is_floating(graph.nodes[form->weight].dtype))
    return std::nullopt;
  return form;
}

std::optional<ProductForm> integer_product_form(const TypedGraph& graph, NodeId sum,
                                                const ScratchVector<Scope>& scopes) {
  const TypedNode& node = graph.nodes[sum];
  const Matcher matcher(graph, scopes, false);
  if (node.op == Op::sum && node.dtype == DType::i64)
    return matcher.integer_terms(node.operands[0]);
  const bool is_float_sum = (node.op == Op::sum || node.op == Op::mean) &&
                            graph.rounding == Rounding::once &&
                            compute_dtype(node.dtype) == DType::f32;
  return is_float_sum ? matcher.scaled_integer_terms(node.operands[0]) : std::nullopt;
}

}  // namespace kiln::fusion
