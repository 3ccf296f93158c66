// What put stores, where that is concatenated of values that kernels compute, or a reshape or a
// slice of one: each of them can then be stored by the kernel that computes it. Part of placing
// views (place_views.hpp).
#pragma once

#include <optional>
#include <vector>

#include "fusion/graph/shape_ops.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/passes/parts.hpp"

namespace kiln::fusion {

struct PutPart {
  NodeId value = 0;
  Dims places;  ///< the shape of the places that are the value's, which broadcasts to its own
  ArrayLayout layout;  ///< of the value in the array that is updated, at the first place
  std::vector<NodeId>
      then;  ///< operations of one operand to apply to the value, the last one first
  std::optional<Window> window{};  ///< what of the value is put: `layout` is of the whole then,
                                   ///< and places that differ along its axis are of the window
};

struct PutParts {
  std::vector<PutPart> parts;
  std::vector<NodeId> above;  ///< the parts: concatenations, reshapes, operations of one operand
};

/// The values that the value of node `put` is concatenated of, or the one that it is a reshape or a
/// slice of. `layout` is that of all it stores. Nothing if it is neither, if one of them is
/// computed by no kernel, or if a part has no places or layout of its own.
std::optional<PutParts> put_parts(const ShapedGraph& graph, NodeId put, const ArrayLayout& layout);

}  // namespace kiln::fusion
