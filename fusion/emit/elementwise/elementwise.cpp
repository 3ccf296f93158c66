// The frame of an elementwise kernel, and the indices of its work items.
#include <fmt/format.h>

#include <algorithm>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/elementwise/emitter.hpp"
#include "fusion/emit/emit.hpp"

namespace kiln::fusion {

KernelDescription ElementEmitter::run() {
  operands_.add_parameters(writer_, node_text_);
  open();
  writer_.signature(block(), schedule_.min_blocks);
  writer_.pdl_trigger();
  writer_.pdl_wait(1);
  if (operands_.tiled()) {
    emit_tiles();
  } else {
    if (schedule_.row_axes > 1) emit_offsets();
    line(1, "KILN_FOR_EACH_WORK_ITEM({}, {}, item, work_items) {{", index_, block());
    emit_coordinates();
    emit_ends();
    emit_broadcast_loads(2);
    emit_row_places();
    if (schedule_.table) emit_table();
    const bool host = schedule_.backend == Backend::host;
    line(2, "{}(start, {}, [&](auto width, {} first, {} lanes) KILN_INLINED {{",
         is_multi_vector() ? fmt::format("for_each_vectors<{}, {}, {}>", schedule_.width,
                                         schedule_.vectors, schedule_.width * schedule_.threads)
                           : fmt::format("for_each_vector<{}>", schedule_.width),
         ends_in_row() || schedule_.row_axes > 1 ? "row_end" : "size", index_,
         host ? "auto" : "int");
  }
  if (!schedule_.table) {
    emit_vector_loads();
    emit_results();
    emit_iota_rows(3);
    emit_random_words();
    line(3, "KILN_FOR_EACH_LANE(lane, width, lanes) {{");
    emit_lane(4);
    line(3, "}}");
  }
  emit_stores();
  line(2, "}});");
  line(1, "}}");
  writer_.close(schedule_.streamed ? "finish_streams();" : "");
  return writer_.finish(static_cast<std::uint32_t>(block()));
}

// Whether a value says where rows end.
bool ElementEmitter::ends_in_row() const {
  return std::ranges::find(schedule_.bounds, schedule_.rank - 1) != schedule_.bounds.end();
}

int ElementEmitter::block() const {
  const DeviceModel& model = device_model(schedule_.backend);
  return operands_.tiled() ? model.work.tile_block : model.work.block;
}

void ElementEmitter::open() {
  std::vector<CommentedOperand> operands;
  for (const ElementOperand& operand : operands_) {
    operands.push_back({operand.iota ? operand.label : operand.name, operand.dtype, operand.output,
                        !operand.iota});
  }
  writer_.open(operands, schedule_, graph_.rounding, accuracy_);
}

void ElementEmitter::emit_coordinates() {
  const bool rows = operands_.has_outer_axes() && !operands_.flat();
  if (rows) line(2, "const {} row = divide(item, columns);", index_);
  const std::string_view in_row = rows ? "item - row * columns.divisor" : "item";
  if (schedule_.row_axes > 1) {
    line(2, "const {} at_{} = {} * row_part;", index_, operands_.row_axis(),
         rows ? fmt::format("({})", in_row) : in_row);
    line(2, "const {} start = at_{} * beside;", index_, operands_.row_axis());
    line(2, "const {} row_end = least(start + row_part * beside, size);", index_);
  } else if (is_multi_vector()) {
    line(2, "const {} start = first_of<{}, {}, {}>({});", index_, schedule_.threads,
         schedule_.vectors, schedule_.width, in_row);
  } else if (schedule_.width == 1) {
    line(2, "const {} start = {};", index_, in_row);
  } else {
    line(2, "const {} start = {} * {};", index_, rows ? fmt::format("({})", in_row) : in_row,
         schedule_.width);
  }
  if (rows) emit_outer_coordinates(2, "row");
  if (schedule_.rows_ahead != 0) emit_prefetches();
  emit_addresses();
}

// Where the elements of a part of a row are from its first one, of operands in which rows of
// several axes are no range of memory.
void ElementEmitter::emit_offsets() {
  const std::uint32_t first = operands_.row_axis();
  std::string extents = "row_part";
  std::string beside;
  for (std::uint32_t k = first + 1; k < operands_.rank(); ++k) {
    const std::string extent = fmt::format("{}(extent_{}.divisor)", index_, k);
    extents += ", " + extent;
    beside += (beside.empty() ? "" : " * ") + extent;
  }
  line(1, "const {} beside = {};", index_, beside);
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const bool moves = operands_[i].output || operands_.is_read(i);
    if (schedule_.operands[i].access != Access::offsets || !moves) continue;
    std::string strides;
    for (std::uint32_t k = first; k < operands_.rank(); ++k) {
      strides += (strides.empty() ? "" : ", ") + operands_.stride_along(i, k);
    }
    line(1, "{} {}_offsets[{}];", signed_index_, operands_[i].name, schedule_.width);
    line(1, "fill_offsets({}_offsets, {{{}}}, {{{}}});", operands_[i].name, extents, strides);
  }
}

// Of a row that comes later. After the last one there is none, and a prefetch may have any address.
void ElementEmitter::emit_prefetches() {
  line(2, "{{");
  line(3, "const {} ahead = row + {};", index_, schedule_.rows_ahead);
  emit_outer_coordinates(3, "ahead");
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!schedule_.operands[i].prefetched || !(operands_[i].output || operands_.is_read(i))) {
      continue;
    }
    line(3, "prefetch<{}>({}, start);", schedule_.width, operands_.row_pointer(i));
  }
  line(2, "}}");
}

// Splits a number into coordinates from the innermost of the outer axes to the outermost.
void ElementEmitter::emit_outer_coordinates(int depth, std::string rest) {
  const std::vector<std::uint32_t> outer = operands_.outer_axes();
  for (std::size_t n = outer.size() - 1; n > 0; --n) {
    const std::uint32_t k = outer[n];
    const std::string next = fmt::format("row_{}", k);
    line(depth, "const {} {} = divide({}, extent_{});", index_, next, rest, k);
    line(depth, "const {} at_{} = {} - {} * extent_{}.divisor;", index_, k, rest, next, k);
    rest = next;
  }
  line(depth, "const {} at_{} = {};", index_, outer[0], rest);
}

// The address of an operand's element, from its number in the whole space.
void ElementEmitter::emit_address(std::size_t i) {
  line(2, "const auto {}_address = [&]({} n) KILN_INLINED {{", operands_[i].name, index_);
  if (operands_.tile_runs()) {
    const std::uint32_t inner = operands_.rank() - 1;
    line(3, "const {} at_{} = divide(n, extent_{});", index_, schedule_.tile_axis, inner);
    line(3, "const {0} at_{1} = n - at_{2} * extent_{1}.divisor;", index_, inner,
         schedule_.tile_axis);
  } else {
    emit_outer_coordinates(3, "n");
  }
  line(3, "return {};", operands_.element_pointer(i));
  line(2, "}};");
}

void ElementEmitter::emit_addresses() {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (operands_.is_addressed(i) && (operands_.is_read(i) || operands_[i].output)) {
      emit_address(i);
    }
  }
}

// A block fills one tile per transposed operand, then computes the same tile of the outputs.
void ElementEmitter::emit_tiles() {
  const int tile_rows = schedule_.tile_rows;
  const int tile_columns = schedule_.tile;
  const int threads = block();
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!through_tile(i)) continue;
    line(1, "KILN_SHARED Tile<{}, {}, {}, {}> {}_tile;",
         moves_[i].in_blocks ? "f16_lane" : storage_type(operands_[i].dtype), tile_rows,
         tile_columns, tile_lanes(operands_[i].dtype, schedule_.operands[i].alignment),
         operands_[i].name);
  }
  line(1, "KILN_FOR_EACH_BLOCK({}, item, work_items) {{", index_);
  line(2, "const {} strip = divide(item, columns);", index_);
  line(2, "const {} left = (item - strip * columns.divisor) * {};", index_, tile_columns);
  if (operands_.outer_axes().empty()) {
    line(2, "const {} top = strip * {};", index_, tile_rows);
  } else {
    line(2, "const {} row = divide(strip, strips);", index_);
    line(2, "const {} top = (strip - row * strips.divisor) * {};", index_, tile_rows);
    emit_outer_coordinates(2, "row");
  }
  if (schedule_.wide_index) line(2, "KILN_SYNCHRONIZE();");
  if (operands_.tile_runs()) {
    line(2, "const {} begin = top * size;", index_);
    line(2, "const {0} end = (top + {1} < rows ? top + {1} : rows) * size;", index_, tile_rows);
    emit_addresses();
  }
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!is_preloaded(i)) continue;
    if (operands_.tile_runs()) {
      line(2, "const auto {0}_preloaded = preload_run<{1}, {2}, {3}, {4}>({5}, begin, end);",
           operands_[i].name, threads, tile_rows * tile_columns, schedule_.width,
           schedule_.operands[i].alignment, operands_.row_pointer(i));
      continue;
    }
    line(2,
         "const auto {0}_preloaded = preload<{1}, {2}, {3}, {4}, {5}>({6}, top, left, rows, size, "
         "{7});",
         operands_[i].name, threads, tile_rows, tile_columns, schedule_.width,
         schedule_.operands[i].alignment, operands_.row_pointer(i, schedule_.tile_axis),
         operands_.stride_along(i, tile_axis()));
  }
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!through_tile(i)) continue;
    line(2, "{}<{}, {}{}>({}_tile, {}, top, left, rows, size, {});",
         moves_[i].in_blocks ? "fill_halves" : "fill", threads, schedule_.operands[i].alignment,
         operands_.tile_runs() ? ", true" : "", operands_[i].name, operands_.row_pointer(i),
         operands_.inner_stride(i));
  }
  line(2, "KILN_SYNCHRONIZE();");
  if (operands_.tile_runs()) {
    line(2,
         "for_each_tile_run<{}, {}, {}>(begin, end, [&](auto width, {} first, int lanes, int slot) "
         "KILN_INLINED {{",
         threads, tile_rows * tile_columns, schedule_.width, index_);
  } else {
    line(2,
         "for_each_tile_vector<{}, {}, {}, {}>(top, left, rows, size, "
         "[&](auto width, {} at_{}, {} first, int lanes, int slot) KILN_INLINED {{",
         threads, tile_rows, tile_columns, schedule_.width, index_, schedule_.tile_axis, index_);
  }
  emit_broadcast_loads(3);
}

KernelDescription emit(const TypedGraph& graph, const Schedule& schedule,
                       std::span<const ElementMove> moves, Accuracy accuracy) {
  return ElementEmitter(graph, schedule, moves, accuracy).run();
}

std::string with_entry(std::string_view source, std::string_view entry) {
  std::string result;
  result.reserve(source.size() + 4 * entry.size());
  std::size_t from = 0;
  for (std::size_t at = source.find(kEntryMarker); at != std::string_view::npos;
       at = source.find(kEntryMarker, from)) {
    result.append(source, from, at - from).append(entry);
    from = at + kEntryMarker.size();
  }
  return result.append(source, from, std::string_view::npos);
}

}  // namespace kiln::fusion
