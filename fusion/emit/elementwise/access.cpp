// The loads and stores of elementwise kernels.
#include <fmt/format.h>

#include <algorithm>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/elementwise/emitter.hpp"
#include "fusion/graph/dtype_lattice.hpp"

namespace kiln::fusion {

// One element for the whole row, the same for every lane.
void ElementEmitter::emit_broadcast_loads(int depth) {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const bool done = i < loaded_.size() && loaded_[i];
    if (is_indexed_by(i, Indexing::none) && !done) emit_broadcast_load(depth, i);
  }
}

void ElementEmitter::emit_broadcast_load(int depth, std::size_t i) {
  const ElementOperand& operand = operands_[i];
  if (!operands_.is_read(i) || operands_.per_lane(i)) return;
  const std::string pointer = operands_.row_pointer(i);
  const bool plain = pointer.find(' ') == std::string::npos;
  define_input(depth, operand,
               is_packed(operand.dtype) ? fmt::format("element({})", pointer)
               : plain                  ? "*" + pointer
                                        : "*(" + pointer + ")");
}

// ---- Places that data says ----------------------------------------------------------------------

NodeId ElementEmitter::place_node(std::size_t i) const {
  const ElementOperand& operand = operands_[i];
  if (!operand.output) return *graph_.place_of(false, operand.argument);
  const auto first = std::ranges::find_if(operands_, &ElementOperand::output);
  return *graph_.place_of(true, i - static_cast<std::size_t>(first - operands_.begin()));
}

std::size_t ElementEmitter::operand_of_input(NodeId id) const {
  const auto operand = std::ranges::find_if(operands_, [&](const ElementOperand& o) {
    return !o.output && !o.iota && o.argument == graph_.nodes[id].payload;
  });
  return static_cast<std::size_t>(operand - operands_.begin());
}

// Where an operand's elements are: NAME_there, and from its first row NAME_at.
void ElementEmitter::emit_place(int depth, std::size_t i) {
  const std::string& name = operands_[i].name;
  const std::string& place = values_[place_node(i)];
  line(depth, "const bool {0}_there = is_place({1}, {0}_places);", name, place);
  line(depth, "const {0} {1}_at = place_offset({1}_there, {2}, {1}_place_stride);", signed_index_,
       name, place);
}

// Where axes end, and that there is nothing to do beyond, before anything else is read.
void ElementEmitter::emit_ends() {
  if (graph_.bounds.empty()) return;
  std::vector<NodeId> ends;
  for (const BoundedAxis& bound : graph_.bounds) ends.push_back(bound.end);
  emit_iota_rows(2);
  of_row_ = live_nodes(graph_.nodes, ends);
  loaded_.assign(operands_.size(), false);
  depth_ = 2;
  for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
    if (!of_row_[id]) continue;
    if (graph_.nodes[id].op == Op::input) {
      const std::size_t i = operand_of_input(id);
      emit_broadcast_load(2, i);
      loaded_[i] = true;
    }
    emit_node(id);
  }
  std::string row_end = "size";
  for (std::size_t b = 0; b < graph_.bounds.size(); ++b) {
    const std::string& end = values_[graph_.bounds[b].end];
    if (schedule_.bounds[b] + 1 == schedule_.rank) {
      row_end = fmt::format("end_within({}, {})", end, row_end);
    } else {
      line(2, "if (at_{0} >= end_within({1}, {2}(-1))) continue;", schedule_.bounds[b], end,
           index_);
    }
  }
  if (!ends_in_row()) return;
  line(2, "const {} row_end = {};", index_, row_end);
  line(2, "if (start >= row_end) continue;");
}

// The places that are the same for a whole row, with what they are computed from, and what is read
// there for the whole row.
void ElementEmitter::emit_row_places() {
  std::vector<NodeId> places;
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (is_indexed_by(i, Indexing::row)) places.push_back(place_node(i));
  }
  if (places.empty()) return;
  emit_iota_rows(2);
  const std::vector<bool> before = std::move(of_row_);
  of_row_ = live_nodes(graph_.nodes, places);
  depth_ = 2;
  std::vector<bool> emitted(operands_.size(), false);
  for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
    if (before[id]) of_row_[id] = true;
    if (!of_row_[id] || before[id]) continue;
    const TypedNode& node = graph_.nodes[id];
    if (node.op == Op::input && is_indexed_by(operand_of_input(id), Indexing::row)) {
      const std::size_t i = operand_of_input(id);
      emit_place(2, i);
      emit_broadcast_load(2, i);
      emitted[i] = true;
    }
    emit_node(id);
  }
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!is_indexed_by(i, Indexing::row) || emitted[i]) continue;
    emit_place(2, i);
    emit_broadcast_load(2, i);
  }
}

// Whether an output's lanes are collected on the CPU, where else they are its memory: what is not
// there must not be written.
bool ElementEmitter::collects(std::size_t i) const {
  return schedule_.backend == Backend::host && is_indexed_by(i, Indexing::row) &&
         !is_packed(operands_[i].dtype);
}

// An element whose place is one of its own.
std::string ElementEmitter::element_at_place(std::size_t i) const {
  const std::string place = operands_.lane_place(i);
  if (!is_packed(operands_[i].dtype)) {
    return fmt::format("({})[{}]", operands_.row_pointer(i), place);
  }
  const std::string row = operands_.row_place(i);
  return fmt::format("element(packed({}_data, {}{}{}))", operands_[i].name, row,
                     row.empty() ? "" : " + ", place);
}

void ElementEmitter::emit_lane_store(int depth, std::size_t i, NodeId id) {
  emit_place(depth, i);
  line(depth, "if ({}_there) ({})[{}] = {};", operands_[i].name, operands_.row_pointer(i),
       operands_.lane_place(i), element_text(i, id));
}

// Defines a loaded element as the value that is computed with and, if needed, in its storage type.
void ElementEmitter::define_input(int depth, const ElementOperand& operand, std::string element) {
  const auto i = static_cast<std::size_t>(&operand - &operands_[0]);
  const auto id = input_of(i);
  if (!is_indexed_by(i, Indexing::none)) {
    element = fmt::format("value_or_zero({}_there, {})", operand.name, element);
  }
  if (node_text_.needs_storage(id)) {
    storage_[id] = operand.name + "_bits";
    line(depth, "const {} {} = {};", storage_type(operand.dtype), storage_[id], element);
    element = storage_[id];
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
    if (!operands_.is_read(i) || operands_.is_within(i) || is_indexed_by(i, Indexing::lane)) {
      continue;
    }
    if (moves_[i].rows_prefetched) {
      line(3, "prefetch_row<{}, {}>({}, {}, at_{}, top, first);", schedule_.tile_rows,
           schedule_.tile, operands_.row_pointer(i, schedule_.tile_axis),
           operands_[i].stride_name(tile_axis()), schedule_.tile_axis);
    }
    if (operands_.is_addressed(i)) {
      const std::string type(storage_type(operand.dtype));
      const std::string lanes_text =
          operands_.is_one_flat_vector() ? straddling_text(i)
          : schedule.access == Access::contiguous
              ? fmt::format("load_addressed<{}, {}>(width, first, {}_address)", type,
                            schedule.alignment, operand.name)
              : fmt::format("gather_addressed<{}>(width, first, {}_address, {})", type,
                            operand.name, operands_.inner_stride(i));
      line(3, "const auto {}_lanes = {};", operand.name, lanes_text);
    } else if (is_preloaded(i)) {
      line(3, "const auto {0}_lanes = from_preloaded<{1}>(width, {0}_preloaded, slot, {2}, first);",
           operand.name, schedule.alignment, operands_.row_pointer(i));
    } else if (moves_[i].in_blocks && schedule.access == Access::contiguous) {
      line(3, "const auto {}_lanes = load_halves<width.size>({}, first, lanes);", operand.name,
           operands_.row_pointer(i));
    } else if (operands_.moves_in_vectors(i) && is_multi_vector()) {
      line(3, "const auto {}_lanes = load_vectors<{}, {}>(width, {}, first);", operand.name,
           schedule.ways, schedule.alignment, operands_.row_pointer(i));
    } else if (schedule.access == Access::strided && is_multi_vector()) {
      line(3, "const auto {}_lanes = gather_vectors(width, {}, first, {});", operand.name,
           operands_.row_pointer(i), operands_[i].stride_name(operands_.rank() - 1));
    } else if (operands_.moves_in_vectors(i)) {
      line(3, "const auto {}_lanes = load<{}, {}>({}, {}{});", operand.name,
           operands_.vector_size(i), schedule.alignment, operands_.row_pointer(i),
           operands_.vector_start(i), lanes);
    } else if (schedule.access == Access::offsets) {
      line(3, "const auto {0}_lanes = gather_at<width.size>({1}, {0}_offsets, lanes);",
           operand.name, operands_.row_pointer(i));
    } else if (schedule.access == Access::strided) {
      line(3, "const auto {}_lanes = gather<width.size>({}, first, {}{});", operand.name,
           operands_.row_pointer(i), operands_[i].stride_name(operands_.rank() - 1),
           schedule_.backend == Backend::host ? ", lanes" : lanes);
    } else if (schedule.access == Access::transposed && operands_.tile_runs()) {
      line(3, "const auto {0}_lanes = from_tile_run<width.size>({0}_tile, first - begin);",
           operand.name);
    } else if (schedule.access == Access::transposed) {
      line(3, "const auto {}_lanes = from_tile<width.size>({}_tile, at_{} - top, first - left);",
           operand.name, operand.name, schedule_.tile_axis);
    }
  }
}

// A vector of an operand that has an address for each row, of which there may be two.
std::string ElementEmitter::straddling_text(std::size_t i) const {
  std::string step;
  switch (schedule_.operands[i].access) {
    case Access::contiguous: step = fmt::format(", {}(1)", operands_.signed_index()); break;
    case Access::strided: step = ", " + operands_.inner_stride(i); break;
    default: break;
  }
  return fmt::format("load_straddling<{0}>(width, first, extent_{1}, {2}_address{3})",
                     storage_type(operands_[i].dtype), operands_.rank() - 1, operands_[i].name,
                     step);
}

// Whether a thread loads its vectors of an operand while the tile is being filled (preload() in
// preamble/tile.h).
bool ElementEmitter::is_preloaded(std::size_t i) const {
  return schedule_.operands[i].preloaded && operands_.is_read(i);
}

void ElementEmitter::emit_results() {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const std::string& name = operands_[i].name;
    if (!operands_[i].output || operands_.is_within(i) || is_indexed_by(i, Indexing::lane)) {
      continue;
    }
    const bool in_rows = operands_.moves_in_vectors(i);
    if (collects(i) || schedule_.operands[i].access == Access::offsets) {
      line(3, "auto {0}_lanes = collect<width.size>({0}_data);", name);
    } else if (moves_[i].in_blocks && schedule_.streamed) {
      line(3, "Collected<f16_lane, width.size> {}_lanes;", name);
    } else if (moves_[i].in_blocks) {
      line(3, "auto {}_lanes = half_results<width.size>({}, first);", name,
           operands_.row_pointer(i));
    } else if (schedule_.streamed) {
      line(3, "auto {}_lanes = collect<width.size>({}_data);", name, name);
    } else if (moves_[i].unrounded) {
      line(3, "auto {}_lanes = unrounded_results<{}>({}, first);", name, operands_.vector_size(i),
           operands_.row_pointer(i));
    } else if (operands_.is_addressed(i)) {
      line(3, "auto {0}_lanes = results<width.size>({0}_data, first);", name);
    } else {
      line(3, "auto {}_lanes = results<{}>({}, {}{});", name, operands_.vector_size(i),
           operands_.row_pointer(i), operands_.vector_start(i),
           in_rows ? std::string() : ", " + operands_.inner_stride(i));
    }
  }
}

// The expression of results from the lookup table.
std::string ElementEmitter::looked_up(std::size_t i) const {
  std::size_t code = 0;
  while (operands_[code].output || !operands_.per_lane(code)) ++code;
  return fmt::format("look_up<width.size>({}_lanes, {}, first, lanes)", operands_[i].name,
                     operands_.row_pointer(code));
}

NodeId ElementEmitter::input_of(std::size_t i) const {
  const auto node = std::ranges::find_if(graph_.nodes, [&](const TypedNode& n) {
    return n.op == Op::input && n.payload == operands_[i].argument;
  });
  return static_cast<NodeId>(node - graph_.nodes.begin());
}

void ElementEmitter::emit_stores() {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const ElementOperand& operand = operands_[i];
    if (!operand.output || operands_.is_within(i) || is_indexed_by(i, Indexing::lane)) continue;
    const std::string_view lanes = is_packed(operand.dtype) ? ", lanes" : "";
    if (collects(i)) {
      line(3, "put_where({0}_there, {1}, first, {2}lanes, {0}_lanes);", operand.name,
           operands_.row_pointer(i),
           operands_.moves_in_vectors(i) ? "" : operands_.inner_stride(i) + ", ");
      continue;
    }
    if (is_indexed_by(i, Indexing::row)) line(3, "if ({}_there)", operand.name);
    if (operands_.is_addressed(i)) {
      line(3, "{};",
           schedule_.operands[i].access == Access::contiguous
               ? fmt::format("store_addressed<{0}>(width, first, {1}_address, {1}_lanes)",
                             schedule_.operands[i].alignment, operand.name)
               : fmt::format("scatter_addressed(width, first, {0}_address, {1}, {0}_lanes)",
                             operand.name, operands_.inner_stride(i)));
    } else if (schedule_.operands[i].access == Access::offsets) {
      line(3, "scatter_at({0}, {1}_offsets, lanes, {1}_lanes);", operands_.row_pointer(i),
           operand.name);
    } else if (schedule_.table) {
      line(3, "{}({}, first, lanes, {});", schedule_.streamed ? "stream" : "put",
           operands_.row_pointer(i), looked_up(i));
    } else if (schedule_.streamed) {
      line(3, "stream({}, first, lanes, {}_lanes);", operands_.row_pointer(i), operand.name);
    } else if (moves_[i].in_blocks) {
      line(3, "put({}, first, lanes, {}_lanes);", operands_.row_pointer(i), operand.name);
    } else if (operands_.moves_in_vectors(i) && is_multi_vector()) {
      line(3, "store_vectors<{}, {}>(width, {}, first, {}_lanes);", schedule_.operands[i].ways,
           schedule_.operands[i].alignment, operands_.row_pointer(i), operand.name);
    } else if (is_multi_vector()) {
      line(3, "scatter_vectors(width, {}, first, {}, {}_lanes);", operands_.row_pointer(i),
           operands_.inner_stride(i), operand.name);
    } else if (operands_.moves_in_vectors(i)) {
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
