// The loads and stores of a kernel that works element by element.
#include <fmt/format.h>

#include <algorithm>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/elementwise/emitter.hpp"
#include "fusion/graph/dtype_lattice.hpp"

namespace kiln::fusion {

// One element for the whole row: the same for every lane.
void ElementEmitter::emit_broadcast_loads(int depth) {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const ElementOperand& operand = operands_[i];
    if (!operands_.is_read(i) || operands_.per_lane(i)) continue;
    const std::string pointer = operands_.row_pointer(i);
    const bool plain = pointer.find(' ') == std::string::npos;
    define_input(depth, operand,
                 is_packed(operand.dtype) ? fmt::format("element({})", pointer)
                 : plain                  ? "*" + pointer
                                          : "*(" + pointer + ")");
  }
}

// An element that was loaded: the number that is computed with, and where that is wanted the
// element as it lies in memory.
void ElementEmitter::define_input(int depth, const ElementOperand& operand, std::string element) {
  const auto id = input_of(static_cast<std::size_t>(&operand - &operands_[0]));
  if (node_text_.needs_stored(id)) {
    stored_[id] = operand.name + "_bits";
    line(depth, "const {} {} = {};", storage_type(operand.dtype), stored_[id], element);
    element = stored_[id];
  }
  if (!node_text_.needs_value(id)) return;
  line(depth, "const {} {} = to<{}>({});", compute_type(operand.dtype), operand.name,
       compute_type(operand.dtype), element);
}

void ElementEmitter::emit_vector_loads() {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const ElementOperand& operand = operands_[i];
    const OperandSchedule& schedule = schedule_.operands[i];
    const std::string_view lanes = is_packed(operand.dtype) ? ", lanes" : "";
    if (!operands_.is_read(i) || operands_.is_within(i)) continue;
    if (asks_ahead(i)) {
      line(3, "ask_for_row<{}>({}, {}, at_{}, top, first);", schedule_.tile,
           operands_.row_pointer(i, schedule_.tile_axis), operands_.stride_name(i, tile_axis()),
           schedule_.tile_axis);
    }
    if (schedule.gaps) {
      constexpr int kAheadBits = 2048 * 8;
      line(3, "ask_for<1>({}, i64(first) + {});", operands_.row_pointer(i),
           kAheadBits / bits(operand.dtype));
    }
    if (is_held(i)) {
      line(3, "const auto {0}_lanes = from_held<{1}>(width, {0}_held, turn, {2}, first);",
           operand.name, schedule.alignment, operands_.row_pointer(i));
    } else if (is_staged(i)) {
      line(3, "const auto {}_lanes = load_halves<width.size>({}, first, lanes);", operand.name,
           operands_.row_pointer(i));
    } else if (operands_.lies_in_rows(i) && apart()) {
      line(3, "const auto {}_lanes = load_apart<{}, {}>(width, {}, first);", operand.name,
           schedule.ways, schedule.alignment, operands_.row_pointer(i));
    } else if (schedule.access == Access::strided && apart()) {
      line(3, "const auto {}_lanes = gather_apart(width, {}, first, {});", operand.name,
           operands_.row_pointer(i), operands_.stride_name(i, operands_.rank() - 1));
    } else if (operands_.lies_in_rows(i)) {
      line(3, "const auto {}_lanes = load<{}, {}>({}, {}{});", operand.name,
           operands_.vector_size(i), schedule.alignment, operands_.row_pointer(i),
           operands_.vector_start(i), lanes);
    } else if (schedule.access == Access::strided) {
      line(3, "const auto {}_lanes = gather<width.size>({}, first, {}{});", operand.name,
           operands_.row_pointer(i), operands_.stride_name(i, operands_.rank() - 1), lanes);
    } else if (schedule.access == Access::transposed) {
      line(3, "const auto {}_lanes = from_tile<width.size>({}_tile, at_{} - top, first - left);",
           operand.name, operand.name, schedule_.tile_axis);
    }
  }
}

// What lies beside a tile on a GPU: a thread reads its share while the tile is being filled, as
// long as that fits its registers. Packed elements have bytes of their own to begin with.
bool ElementEmitter::is_held(std::size_t i) const {
  constexpr int kMostHeld = 128;  // bytes per thread
  if (!operands_.tiled() || schedule_.backend == Backend::host) return false;
  int bytes = 0;
  for (std::size_t k = 0; k <= i; ++k) {
    if (!lies_beside_tile(k)) continue;
    bytes += schedule_.tile * schedule_.tile / block() * bits(operands_[k].dtype) / 8;
  }
  return lies_beside_tile(i) && bytes <= kMostHeld;
}

bool ElementEmitter::lies_beside_tile(std::size_t i) const {
  return operands_.is_read(i) && !is_packed(operands_[i].dtype) &&
         schedule_.operands[i].access == Access::contiguous;
}

// Rows of a tile that lie far apart.
bool ElementEmitter::asks_ahead(std::size_t i) const {
  return operands_.tiled() && schedule_.backend == Backend::host &&
         !is_packed(operands_[i].dtype) && schedule_.operands[i].access == Access::contiguous &&
         operands_.has_stride(i, tile_axis());
}

void ElementEmitter::emit_results() {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const std::string& name = operands_[i].name;
    if (!operands_[i].output || operands_.is_within(i)) continue;
    const bool in_rows = operands_.lies_in_rows(i);
    if (is_staged(i) && schedule_.streamed) {
      line(3, "Collected<f16_lane, width.size> {}_lanes;", name);
    } else if (is_staged(i)) {
      line(3, "auto {}_lanes = half_results<width.size>({}, first);", name,
           operands_.row_pointer(i));
    } else if (schedule_.streamed) {
      line(3, "auto {}_lanes = collect<width.size>({}_data);", name, name);
    } else if (is_unrounded(i)) {
      line(3, "auto {}_lanes = unrounded_results<{}>({}, first);", name, operands_.vector_size(i),
           operands_.row_pointer(i));
    } else {
      line(3, "auto {}_lanes = results<{}>({}, {}{});", name, operands_.vector_size(i),
           operands_.row_pointer(i), operands_.vector_start(i),
           in_rows ? std::string() : ", " + operands_.inner_stride(i));
    }
  }
}

// What a store takes of the table.
std::string ElementEmitter::looked_up(std::size_t i) const {
  std::size_t code = 0;
  while (operands_[code].output || !operands_.per_lane(code)) ++code;
  return fmt::format("look_up<width.size>({}_lanes, {}, first, lanes)", operands_[i].name,
                     operands_.row_pointer(code));
}

// f16 whose conversion is left to its block (preamble/halves.h): not where the bits in memory are
// wanted, nor where they come from anything but an f32.
bool ElementEmitter::is_staged(std::size_t i) const {
  const OperandSchedule& schedule = schedule_.operands[i];
  if (schedule_.backend != Backend::host || operands_[i].dtype != DType::f16 || schedule_.table ||
      operands_.tiled() || schedule.access != Access::contiguous)
    return false;
  if (!operands_[i].output) return !node_text_.needs_stored(input_of(i));
  const NodeId id = output_node(i);
  return !node_text_.needs_stored(id) &&
         compute_dtype(graph_.nodes[unrounded(id)].dtype) == DType::f32;
}

// 8-bit floats that NVIDIA's GPUs convert vector by vector (preamble/small_floats.h).
bool ElementEmitter::is_unrounded(std::size_t i) const {
  if (schedule_.backend != Backend::nvidia || operands_[i].dtype != DType::f8e4m3 ||
      !operands_[i].output || !operands_.lies_in_rows(i) || apart() || operands_.tiled() ||
      schedule_.table || schedule_.operands[i].ways != 1)
    return false;
  const NodeId id = output_node(i);
  return !node_text_.needs_stored(id) &&
         compute_dtype(graph_.nodes[unrounded(id)].dtype) == DType::f32;
}

NodeId ElementEmitter::output_node(std::size_t i) const {
  const auto first = std::ranges::find_if(operands_, &ElementOperand::output);
  return graph_.outputs[i - static_cast<std::size_t>(first - operands_.begin())];
}

NodeId ElementEmitter::input_of(std::size_t i) const {
  const auto node = std::ranges::find_if(graph_.nodes, [&](const TypedNode& n) {
    return n.op == Op::input && n.payload == operands_[i].argument;
  });
  return static_cast<NodeId>(node - graph_.nodes.begin());
}

// What a cast rounds, which storing it does as well.
NodeId ElementEmitter::unrounded(NodeId id) const {
  const TypedNode& node = graph_.nodes[id];
  return node_text_.rounds(node) ? node.operands[0] : id;
}

void ElementEmitter::emit_stores() {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const ElementOperand& operand = operands_[i];
    if (!operand.output || operands_.is_within(i)) continue;
    const std::string_view lanes = is_packed(operand.dtype) ? ", lanes" : "";
    if (schedule_.table) {
      line(3, "{}({}, first, lanes, {});", schedule_.streamed ? "stream" : "put",
           operands_.row_pointer(i), looked_up(i));
    } else if (schedule_.streamed) {
      line(3, "stream({}, first, lanes, {}_lanes);", operands_.row_pointer(i), operand.name);
    } else if (is_staged(i)) {
      line(3, "put({}, first, lanes, {}_lanes);", operands_.row_pointer(i), operand.name);
    } else if (operands_.lies_in_rows(i) && apart()) {
      line(3, "store_apart<{}, {}>(width, {}, first, {}_lanes);", schedule_.operands[i].ways,
           schedule_.operands[i].alignment, operands_.row_pointer(i), operand.name);
    } else if (apart()) {
      line(3, "scatter_apart(width, {}, first, {}, {}_lanes);", operands_.row_pointer(i),
           operands_.inner_stride(i), operand.name);
    } else if (operands_.lies_in_rows(i)) {
      line(3, "store<{}, {}>({}, {}, {}_lanes{});", operands_.vector_size(i),
           schedule_.operands[i].alignment, operands_.row_pointer(i), operands_.vector_start(i),
           operand.name, lanes);
    } else {
      line(3, "scatter<width.size>({}, first, {}, {}_lanes{});", operands_.row_pointer(i),
           operands_.inner_stride(i), operand.name, lanes);
    }
  }
}

}  // namespace kiln::fusion
