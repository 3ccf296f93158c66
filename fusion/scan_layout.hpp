// The layout of kernels with running results along an axis (cumsum, cumprod, cummax): which axis
// that is, whether one kernel can compute a graph, and who takes which elements in which order.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fusion/layout.hpp"
#include "fusion/typed_graph.hpp"
#include "kiln/dims.hpp"

namespace kiln::fusion {

/// What such a kernel runs over. Values have that shape or broadcast to it; outputs have it, but
/// for axes of size one in front.
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

/// Operands as in plan_layout(), with strides over the space's shape. Rows along the axis go
/// through a block of threads; where neighbours lie along another axis, each thread takes columns.
Layout plan_scan(const ScanSpace& space, std::span<const Operand> operands, Family family);

}  // namespace kiln::fusion
