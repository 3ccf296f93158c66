// Recognises sums of dequantised weights times activations: small weights with a scale and a bias
// or a zero point for each group, times what all rows share. Such a sum is one of weights times
// activations, scaled once for each group.
#pragma once

#include <cstdint>
#include <optional>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/schedule/scratch.hpp"

namespace kiln::fusion {

/// How often a value is computed in a kernel of products: once for each row, for each group (of
/// contiguous reduced elements, which share a scale), for each element, or after the reductions.
enum class Level : std::uint8_t { row, group, element, result };

/// Where a value is computed, and for which rows and columns of a thread.
struct Scope {
  Level level = Level::row;
  bool rows = false;     ///< another value for each row
  bool columns = false;  ///< another value for each column
};

/// (weight * scale + bias) * activation, or (weight - zero_point) * scale * activation; what is not
/// there is 1 or 0. Of integer products the activation is an argument of i8 times
/// activation_scale.
struct ProductForm {
  NodeId weight = 0;  ///< an argument of u4, i4, u8 or i8; in tiles also of f8e4m3 or f8e5m2
  std::optional<NodeId> scale;
  std::optional<NodeId> bias;
  bool bias_is_subtracted = false;
  std::optional<NodeId> zero_point;
  bool zero_point_is_whole = false;  ///< an integer from -128 to 255, whatever the arguments are
  NodeId activation = 0;
  std::optional<NodeId> activation_scale;
  bool integers = false;  ///< weights and activations are integers, whose products are exact
  /// Whether a multiple of the sum of the activations is added for each group.
  bool has_offset() const { return bias || (zero_point && !zero_point_is_whole); }
  bool is_centered() const { return bias || zero_point; }
};

/// The form of the terms of `sum`, or nothing if they have another one. There is none where each
/// operation rounds, since the form computes in another order. `scopes` are those of the graph's
/// nodes; a form follows from their levels alone, not from how many rows and columns there are.
/// With `tiles`, 8-bit floats are weights too, rows share activations, and nothing else but these
/// differs from column to column.
std::optional<ProductForm> product_form(const TypedGraph& graph, NodeId sum,
                                        const ScratchVector<Scope>& scopes, bool tiles);

/// The form of the terms of `sum` where they are integer products: of an i64 sum, small weights
/// less an integer zero point times an argument of i8; of a sum in f32, such products with scales
/// and a bias for each group, which may be factors of either operand or of their product.
std::optional<ProductForm> integer_product_form(const TypedGraph& graph, NodeId sum,
                                                const ScratchVector<Scope>& scopes);

}  // namespace kiln::fusion
