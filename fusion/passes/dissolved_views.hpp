// The backward half of placing views (place_views.hpp): from the results towards the arguments,
// what stands between a concat, a put or an output and the values that are computed for it
// dissolves into strides.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "fusion/graph/shape_ops.hpp"
#include "fusion/infer/bounds.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/passes/put_parts.hpp"

namespace kiln::fusion {

/// A value of the graph, where it lies in what it is a part of, and operations of one operand that
/// were applied to the whole and are applied to each part now; the last one first.
struct StoredPart {
  NodeId value = 0;
  ArrayLayout layout;
  std::vector<NodeId> then;
};

struct DissolvedViews {
  std::vector<std::size_t> uses;                      ///< of each node of the graph
  std::vector<bool> dissolved;                        ///< the nodes that are gone
  std::vector<std::vector<StoredPart>> outputs;       ///< what each is made of
  std::map<NodeId, std::vector<StoredPart>> concats;  ///< of those that are left
  std::map<NodeId, std::vector<PutPart>> puts;        ///< of those that are put part by part
};

/// `arguments` and `outputs` say where those lie, `bounds` where each node ends: it is empty if
/// nothing is bounded.
DissolvedViews dissolve_views(const ShapedGraph& graph, std::span<const ArrayLayout> arguments,
                              std::span<const ArrayLayout> outputs, std::span<const Ends> bounds);

}  // namespace kiln::fusion
