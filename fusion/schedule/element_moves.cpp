#include "fusion/schedule/element_moves.hpp"

#include <algorithm>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/schedule/node_methods.hpp"

namespace kiln::fusion {
namespace {

struct MovedOperand {
  DType dtype;
  NodeId node;  ///< that loads it, or that it is stored of
  bool output;
};

// Arrays that nothing reads have no node.
std::vector<MovedOperand> moved_operands(const TypedGraph& graph) {
  std::vector<MovedOperand> operands;
  for (std::size_t i = 0; i < graph.arguments.size(); ++i) {
    if (graph.arguments[i].scalar) continue;
    const auto node = std::ranges::find_if(
        graph.nodes, [&](const TypedNode& own) { return own.op == Op::input && own.payload == i; });
    operands.push_back(
        {graph.arguments[i].dtype, static_cast<NodeId>(node - graph.nodes.begin()), false});
  }
  for (const NodeId output : graph.outputs) {
    operands.push_back({graph.nodes[output].dtype, output, true});
  }
  return operands;
}

}  // namespace

std::vector<ElementMove> element_moves(const TypedGraph& graph, const Schedule& schedule,
                                       Accuracy accuracy) {
  const NodeMethods methods(graph, accuracy, schedule.backend);
  const bool host = schedule.backend == Backend::host;
  const bool tiled = schedule.tile != 0;
  const std::vector<MovedOperand> operands = moved_operands(graph);
  std::vector<ElementMove> moves(schedule.operands.size());
  for (std::size_t i = 0; i < std::min(operands.size(), moves.size()); ++i) {
    const auto& [dtype, node, output] = operands[i];
    const OperandSchedule& own = schedule.operands[i];
    if (node >= graph.nodes.size()) continue;
    ElementMove& move = moves[i];
    // Not where its storage type is needed, or where it comes from anything but an f32.
    const bool from_f32 = !methods.needs_storage(node) &&
                          compute_dtype(graph.nodes[methods.unrounded(node)].dtype) == DType::f32;
    const bool plain = output ? from_f32 && own.indexing == Indexing::none
                              : !methods.needs_storage(node) && own.indexing != Indexing::lane;
    const bool in_lines =
        own.access == Access::contiguous || (own.access == Access::transposed && !output && tiled);
    move.in_blocks = host && dtype == DType::f16 && !schedule.table && in_lines && plain;
    move.unrounded = schedule.backend == Backend::nvidia && schedule.scan == ScanSchedule::none &&
                     (dtype == DType::f8e4m3 || dtype == DType::f8e5m2) && output &&
                     own.moves_in_vectors() && schedule.vectors == 1 && !tiled && !schedule.table &&
                     own.ways == 1 && from_f32;
    move.rows_prefetched = !output && host && tiled && !is_packed(dtype) &&
                           own.access == Access::contiguous &&
                           schedule.has_stride(i, static_cast<std::uint32_t>(schedule.tile_axis));
  }
  return moves;
}

std::vector<std::string> explain_moves(std::span<const std::string> names,
                                       std::span<const ElementMove> moves) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < std::min(names.size(), moves.size()); ++i) {
    const ElementMove& move = moves[i];
    if (move.in_blocks) lines.push_back(names[i] + " is converted in blocks");
    if (move.unrounded)
      lines.push_back(names[i] + " is rounded in whole vectors when it is stored");
    if (move.rows_prefetched)
      lines.push_back(names[i] + " is prefetched, rows of a tile at a time");
  }
  return lines;
}

}  // namespace kiln::fusion
