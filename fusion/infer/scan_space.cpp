#include "fusion/infer/scan_space.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fusion/graph/broadcast.hpp"
#include "fusion/infer/shapes.hpp"

namespace kiln::fusion {

bool has_scans(const TypedGraph& graph) {
  return std::ranges::any_of(graph.nodes, [](const TypedNode& node) { return is_scan(node.op); });
}

std::size_t scan_axis(const TypedNode& node, const Dims& shape) {
  const int axis = axes_of(node.payload).front();
  return axis < 0 ? static_cast<std::size_t>(-axis) : shape.size() - static_cast<std::size_t>(axis);
}

TypedGraph drop_trivial_scans(const TypedGraph& graph, std::span<const Dims> shapes) {
  TypedGraph result = graph;
  for (std::size_t id = 0; id < result.nodes.size(); ++id) {
    TypedNode& node = result.nodes[id];
    if (!is_scan(node.op)) continue;
    const Dims& shape = shapes[id];
    if (shape[shape.size() - scan_axis(node, shape)] > 1) continue;
    node.op = Op::promote;
    node.payload = 0;
  }
  return result;
}

ScanSpace scan_space(const TypedGraph& graph, std::span<const Dims> shapes) {
  ScanSpace space;
  std::size_t from_end = 0;
  for (const Dims& shape : shapes) {
    const auto wider = broadcast(space.shape, shape);
    if (!wider) {
      space.conflict = "its values have different shapes";
      return space;
    }
    space.shape = *wider;
  }
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    const TypedNode& node = graph.nodes[id];
    if (is_reduction(node.op)) {
      space.conflict = fmt::format("{} reduces beside a running result", info(node.op).name);
      return space;
    }
    if (!is_scan(node.op)) continue;
    const std::size_t own = scan_axis(node, shapes[id]);
    if (from_end != 0 && own != from_end) {
      space.conflict = "there are running results along different axes";
      return space;
    }
    from_end = own;
  }
  space.axis = space.shape.size() - from_end;
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    if (same_but_for_ones_in_front(shapes[graph.outputs[i]], space.shape)) continue;
    space.conflict = fmt::format("output {} has shape {}, others have {}", i,
                                 to_string(shapes[graph.outputs[i]]), to_string(space.shape));
  }
  return space;
}

}  // namespace kiln::fusion
