// What a value is made of that widens another: numbers of quantised ones and their scales.
#pragma once

#include <optional>
#include <span>

#include "fusion/graph/typed_graph.hpp"

namespace kiln::fusion {

/// A cheap operation that works element by element on a value of its own shape, alone or with what
/// is the same along the innermost axis.
struct RowOperation {
  NodeId elements = 0;
  std::optional<NodeId> of_row;
};

/// Nothing if a node is another operation. `shapes` are those of the graph's nodes.
std::optional<RowOperation> row_operation(const TypedNode& node, const Dims& shape,
                                          std::span<const Dims> shapes);

}  // namespace kiln::fusion
