// What the terms of a sum are where they are made of small integers: integers with a scale and a
// bias or a point, times what all rows share. Their sum is then one of integers times what is
// shared, scaled once for each group.
#pragma once

#include <optional>
#include <vector>

#include "fusion/graph/typed_graph.hpp"

namespace kiln::fusion {

/// Where a value stands in a kernel of products.
struct ValuePlace {
  bool element = false;  ///< one for each element, not for a group or row of them
  bool rows = false;     ///< another for each row
  bool columns = false;  ///< another for each column
};

/// (lane * scale + bias) * shared, or (lane - point) * scale * shared; what is not there is 1 or 0.
struct ProductForm {
  NodeId lane = 0;  ///< an argument of u4, i4, u8 or i8; in tiles also of f8e4m3 or f8e5m2
  std::optional<NodeId> scale;
  std::optional<NodeId> bias;
  bool bias_is_subtracted = false;
  std::optional<NodeId> point;
  NodeId shared = 0;
  bool has_rest() const { return bias || point; }
};

/// The form of the terms of `sum`; nothing if they have another. Without rounding between the
/// operations only: each would be another one. With `small_floats` they are lanes too.
std::optional<ProductForm> product_form(const TypedGraph& graph, NodeId sum,
                                        const std::vector<ValuePlace>& places, bool small_floats);

}  // namespace kiln::fusion
