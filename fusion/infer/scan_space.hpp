// The iteration space of a graph with running results (cumsum, cumprod, cummax): along which axis
// they run, and whether one kernel can compute them all.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "fusion/graph/typed_graph.hpp"
#include "kiln/dims.hpp"

namespace kiln::fusion {

/// What a kernel with running results runs over. Values have that shape or broadcast to it; outputs
/// have it, but for axes of size one in front.
struct ScanSpace {
  Dims shape;
  std::size_t axis = 0;
  std::string conflict;  ///< why one kernel cannot compute the graph; else empty
};

bool has_scans(const TypedGraph& graph);

/// The axis of a running result, counted from the end of its operand's axes, from 1.
std::size_t scan_axis(const TypedNode& node, const Dims& shape);

/// Running results along axes of size one become conversions.
TypedGraph drop_trivial_scans(const TypedGraph& graph, std::span<const Dims> shapes);

ScanSpace scan_space(const TypedGraph& graph, std::span<const Dims> shapes);

}  // namespace kiln::fusion
