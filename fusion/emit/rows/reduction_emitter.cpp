#include "fusion/emit/rows/reduction_emitter.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fusion/emit/device_text.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/infer/iota.hpp"
#include "fusion/schedule/iota_operands.hpp"
#include "fusion/schedule/rows/row_layout.hpp"

namespace kiln::fusion {

ReductionEmitter::ReductionEmitter(const TypedGraph& graph, const Schedule& schedule,
                                   const PassSchedule& passes, Accuracy accuracy)
    : graph_(graph),
      schedule_(schedule),
      rows_(schedule.reduction),
      passes_(passes),
      node_text_(graph, accuracy, schedule.backend),
      index_(schedule.wide_index ? "u64" : "u32"),
      signed_index_(schedule.wide_index ? "i64" : "i32"),
      identifiers_(graph),
      names_(value_names(graph)),
      values_(graph.nodes.size()),
      storage_(graph.nodes.size()),
      kept_to_(schedule.reduction.vectors),
      accuracy_(accuracy) {
  for (std::size_t i = 0; i < passes.operands.size(); ++i) {
    const RowOperand& operand = passes.operands[i];
    operands_.push_back(
        {operand, operand.iota ? iota_name(operand.axis) : identifiers_.operands()[i].name});
  }
  std::vector<NodeId> places;
  for (const IndexedOperand& operand : graph.indexed) places.push_back(operand.place);
  for (const BoundedAxis& bound : graph.bounds) places.push_back(bound.end);
  of_place_ = live_nodes(graph.nodes, places);
}

KernelDescription ReductionEmitter::run() {
  collect_parameters();
  out_.open(identifiers_.commented(), schedule_, graph_.rounding, accuracy_);
  out_.signature(rows_.block(), passes_.min_blocks, rows_.cluster_blocks);
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (operands_[i].output || operands_[i].iota || !is_prefetched(schedule_, i)) continue;
    out_.line(1, "prefetch_into_l2({}_data, u64(size) * {});", operands_[i].name,
              bits(operands_[i].dtype) / 8);
  }
  out_.pdl_wait(1);
  if (!in_parts()) {
    out_.line(1, "constexpr Width<{}> width{{}};", schedule_.width);
  } else if (!rows_.ragged) {
    out_.line(1, "constexpr AllLanes<{}> part{{}};", schedule_.width);
  }
  if (rows_.is_shifted()) out_.line(1, "constexpr Width<1> one{{}};");
  shared_memory();
  if (passes_.row_group > 1) {
    emit_row_groups();
  } else {
    out_.line(1, "KILN_FOR_EACH_BLOCK({}, item, work_items) {{", index_);
    locate_rows();
    load_inputs();
    for (int pass = 0; pass <= passes_.last; ++pass) {
      row_values(pass);
      emit_pass(pass);
    }
    row_values(passes_.last + 1);
    store_row_values();
    out_.line(1, "}}");
  }
  out_.close(schedule_.streamed ? "finish_streams();" : "");
  KernelDescription kernel = out_.finish(static_cast<std::uint32_t>(rows_.block()));
  kernel.shared_bytes = static_cast<std::uint32_t>(passes_.shared_bytes);
  return kernel;
}

// The type of a reduction's partial results.
std::string ReductionEmitter::partial_type(const TypedNode& node) const {
  if (!is_arg_reduction(node.op)) return std::string(compute_type(node.dtype));
  return fmt::format("Found<{}, {}>", compute_type(graph_.nodes[node.operands[0]].dtype), index_);
}

// The number in the row of a vector that a thread keeps. Of a short chunk fewer threads have any.
std::string ReductionEmitter::slot_vector(std::string_view slot) const {
  if (rows_.keeps_chunks() && !rows_.is_full()) {
    if (kept_part_ < 0) return fmt::format("kept.vector({})", slot);
    if (kept_part_ == 0) return fmt::format("kept.vector<0>({})", slot);
    return fmt::format("kept.vector<{}>({} - {})", kept_part_, slot, kept_from_);
  }
  return fmt::format("{}({}) * {} + thread", index_, slot, slot_step());
}

// The start of a call for each chunk of a row or column of `length` elements, or of its part.
std::string ReductionEmitter::each_chunk(std::string_view length) const {
  if (!rows_.split) return fmt::format("for_each_chunk({}, ", length);
  if (rows_.columns != 0) {
    return fmt::format("for_each_chunk_of<{}>({}, part.chunk, part.chunks, ", index_, length);
  }
  return fmt::format("for_each_chunk_of<{}>({}, split, splits.divisor, ", index_, length);
}

// ---- Parameters ---------------------------------------------------------------------------------

void ReductionEmitter::collect_parameters() {
  using P = Parameter::Kind;
  identifiers_.add_pointers(out_);
  identifiers_.add_scalars(out_, node_text_);
  out_.add_count(P::size, "size");
  if (!rows_.is_shifted()) out_.add_count(P::vectors, "vectors");
  out_.add_count(P::length, "length");
  add_counts();
  for (std::uint32_t k = 1; k < inner(); ++k) {
    if (k != first_reduced()) out_.add_divisor(P::extent, fmt::format("extent_{}", k), k);
  }
  if (rows_.split) {
    out_.add_divisor(P::splits, "splits");
    out_.add_count(P::split_vectors, "split_vectors");
  }
  if (rows_.rows > 1) out_.add_count(P::row_count, "row_count");
  out_.add_count(P::work_items, "work_items");
  for (std::uint32_t i = 0; i < operands_.size(); ++i) {
    for (std::uint32_t k = 0; k < rank(); ++k) {
      if (schedule_.has_stride(i, k)) out_.add_offset(P::stride, operands_[i].stride_name(k), i, k);
    }
    if (schedule_.operands[i].access == Access::runs) {
      out_.add_divisor(P::run, operands_[i].name + "_run", 0, i);
      out_.add_offset(P::run_stride, operands_[i].name + "_run_stride", i);
    }
    if (is_indexed(i)) {
      out_.add_offset(P::place_stride, operands_[i].name + "_place_stride", i);
      out_.add_offset(P::place_count, operands_[i].name + "_places", i);
    }
    if (rows_.split && operands_[i].output && operands_[i].row_invariant) {
      out_.add_offset(P::split_stride, operands_[i].name + "_stride_split", i);
    }
  }
}

// ---- Text, in the order in which the kernel reads -----------------------------------------------

// `unit` is the number of a split of a row, or of the row if the reduction is not split.
void ReductionEmitter::locate_split(std::string_view unit, std::string_view row) {
  if (!rows_.split) {
    out_.line(2, "const {} {} = {};", index_, row, unit);
    return;
  }
  out_.line(2, "const {} {} = divide({}, splits);", index_, row, unit);
  out_.line(2, "const {} split = {} - {} * splits.divisor;", index_, unit, row);
}

void ReductionEmitter::split_bounds() {
  if (!rows_.split || !trees_in(0).empty()) return;
  out_.line(2, "const {} begin = split * split_vectors;", index_);
  out_.line(2, "const {} end = least(begin + split_vectors, vectors);", index_);
}

void ReductionEmitter::row_pointers() {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!is_indexed(i) && !located_[i] && !operands_[i].iota) row_pointer(i, "");
  }
}

void ReductionEmitter::row_pointer(std::size_t i, std::string_view place) {
  const OperandText& operand = operands_[i];
  std::string at = offset(i, 0, first_reduced());
  if (rows_.split && operand.output && operand.row_invariant) {
    at += fmt::format(" + {}(split) * {}_stride_split", signed_index_, operand.name);
  }
  located_[i] = true;
  out_.line(2, "{}{}* const {}_row = {}_data{}{};", operand.output ? "" : "const ",
            storage_type(operand.dtype), operand.name, operand.name, at, place);
}

// Where the segments of a row are.
void ReductionEmitter::row_segments() {
  if (!in_segments()) return;
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const OperandText& operand = operands_[i];
    const std::string& name = operand.name;
    if (operand.iota && !operand.row_invariant) {
      out_.line(2, "const auto {}_in_row = [&]({} place) KILN_INLINED {{", name, index_);
      out_.line(3, "const {} segment = divide(place, extent_{});", index_, inner());
      out_.line(3, "const {0} first = place - segment * extent_{1}.divisor;", index_, inner());
      out_.coordinates(3, index_, "segment", first_reduced(), inner());
      out_.line(3, "return {}(0){}{};", signed_index_, offset(i, first_reduced(), inner()),
                lane_offset(i, "first"));
      out_.line(2, "}};");
    }
    if (operand.row_invariant || operand.iota || !(operand.output || passes_.is_used(operand)))
      continue;
    out_.line(2, "const auto {}_start = [&]({} segment) KILN_INLINED {{", name, index_);
    out_.coordinates(3, index_, "segment", first_reduced(), inner());
    out_.line(3, "return {}(0){};", signed_index_, offset(i, first_reduced(), inner()));
    out_.line(2, "}};");
    const bool contiguous = schedule_.operands[i].access == Access::contiguous;
    const std::string stride = contiguous ? "" : ", " + operand.stride_name(inner());
    out_.line(2, "const auto {0}_segments = {1}_segments({0}_row, extent_{2}, {0}_start{3});", name,
              contiguous ? "contiguous" : "strided", inner(), stride);
  }
}

const NodeId& ReductionEmitter::place_node(std::size_t i) const {
  const OperandText& operand = operands_[i];
  if (!operand.output) return *graph_.place_of(false, operand.argument);
  const auto first = std::ranges::find_if(operands_, &OperandText::output);
  return *graph_.place_of(true, i - static_cast<std::size_t>(first - operands_.begin()));
}

// An element that is not there is read as the first one, and taken for 0.
void ReductionEmitter::locate_indexed(std::size_t i) {
  const std::string& name = operands_[i].name;
  const std::string& place = values_[place_node(i)];
  out_.line(2, "const bool {0}_there = is_place({1}, {0}_places);", name, place);
  row_pointer(i, fmt::format(" + place_offset({0}_there, {1}, {0}_place_stride)", name, place));
}

// What values say of rows, with what they are computed from: one element for each row. Of operands
// at places those first that say the places of others.
void ReductionEmitter::row_cone(const std::vector<NodeId>& roots) {
  const std::vector<bool> cone = live_nodes(graph_.nodes, roots);
  for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
    if (!cone[id] || known_[id]) continue;
    known_[id] = true;
    const TypedNode& node = graph_.nodes[id];
    if (node.op == Op::input) {
      const auto operand = std::ranges::find_if(
          operands_, [&](const OperandText& o) { return !o.output && o.argument == node.payload; });
      const auto i = static_cast<std::size_t>(operand - operands_.begin());
      if (is_indexed(i)) {
        locate_indexed(i);
      } else if (!located_[i]) {
        row_pointer(i, "");
      }
      define_input(id, 2, operand->name, fmt::format("*{}_row", operand->name));
    }
    emit_value(id, 2);
  }
}

void ReductionEmitter::row_places() {
  std::vector<NodeId> places;
  for (const IndexedOperand& operand : graph_.indexed) places.push_back(operand.place);
  row_cone(places);
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (is_indexed(i) && !located_[i]) locate_indexed(i);
  }
}

bool ReductionEmitter::ends_rows() const {
  return std::ranges::any_of(schedule_.bounds, [&](int axis) {
    return static_cast<std::uint32_t>(axis) < first_reduced();
  });
}

// A row beyond an end is left out: by all threads of a block that has one row, else it is computed
// as another one and not stored. Where the reduced axis ends, or the columns do, numbers of the
// whole row are those of this one.
void ReductionEmitter::row_ends() {
  located_.assign(operands_.size(), false);
  known_.assign(graph_.nodes.size(), false);
  if (graph_.bounds.empty()) return;
  std::vector<NodeId> ends;
  for (const BoundedAxis& bound : graph_.bounds) ends.push_back(bound.end);
  row_cone(ends);
  std::string length;
  std::string columns;
  for (std::size_t b = 0; b < graph_.bounds.size(); ++b) {
    const std::string& end = values_[graph_.bounds[b].end];
    const auto axis = static_cast<std::uint32_t>(schedule_.bounds[b]);
    if (axis < first_reduced()) {
      const std::string within = fmt::format("at_{} < end_within({}, {}(-1))", axis, end, index_);
      if (!change_rows()) {
        out_.line(2, "if (!({})) continue;", within);
      } else {
        out_.line(2, "active = active && {};", within);
        out_.line(2, "at_{0} = {1} ? at_{0} : 0;", axis, within);
      }
    } else if (rows_.columns != 0 && axis == inner()) {
      columns = fmt::format("end_within({}, {})", end, columns.empty() ? "size" : columns);
    } else {
      length = fmt::format("end_within({}, {})", end, length.empty() ? "length" : length);
    }
  }
  if (!length.empty()) {
    out_.line(2, "const {} row_end = {};", index_, length);
    out_.line(2, "const {} length = row_end;", index_);
    if (rows_.columns != 0) {
      out_.line(2, "const {} vectors = row_end;", index_);
    } else {
      out_.line(2, "const {} size = row_end;", index_);
      out_.line(2, "const {0} vectors = (row_end + {1}) / {2};", index_, schedule_.width - 1,
                schedule_.width);
    }
  }
  if (columns.empty()) return;
  out_.line(2, "const {} column_end = {};", index_, columns);
  out_.line(2, "const {} size = column_end;", index_);
}

std::string ReductionEmitter::offset(std::size_t operand, std::uint32_t from,
                                     std::uint32_t to) const {
  std::string text;
  for (std::uint32_t k = from; k < to; ++k) {
    if (schedule_.has_stride(operand, k)) {
      text += fmt::format(" + {}(at_{}) * {}", signed_index_, k, operands_[operand].stride_name(k));
    }
  }
  return text;
}

std::string ReductionEmitter::index_text(const TypedNode& iota) const {
  const auto operand = std::ranges::find_if(
      operands_, [&](const OperandText& o) { return o.iota && o.axis == iota_axis(iota); });
  const auto i = static_cast<std::size_t>(operand - operands_.begin());
  const std::string place = fmt::format("first + {}(lane)", index_);
  std::string text = offset(i, 0, first_reduced());
  if (!operand->row_invariant && in_segments()) {
    text += fmt::format(" + {}_in_row({})", operand->name, place);
  } else {
    if (!operand->row_invariant) text += offset(i, first_reduced(), inner());
    if (rows_.columns != 0 || !operand->row_invariant) text += lane_offset(i, place);
  }
  return node_text_.rounded(
      iota, fmt::format("to<{}>({}(0){})", compute_type(iota.dtype), signed_index_, text));
}

std::string ReductionEmitter::lane_offset(std::size_t operand, std::string_view place) const {
  switch (schedule_.operands[operand].access) {
    case Access::contiguous: return fmt::format(" + {}({})", signed_index_, place);
    case Access::strided:
      return fmt::format(" + {}({}) * {}", signed_index_, place,
                         operands_[operand].stride_name(inner()));
    default: return "";
  }
}

std::string ReductionEmitter::line_text(std::size_t operand) const {
  if (in_segments()) return operands_[operand].name + "_segments";
  return operands_[operand].name + "_row" + offset(operand, first_reduced(), inner());
}

std::string ReductionEmitter::last_vector() const {
  if (rows_.split && !in_row_chunk_) return "end";
  return rows_.is_full() ? fmt::format("{}", rows_.threads * rows_.vectors) : "vectors";
}

// The number of a vector of a batch.
std::string ReductionEmitter::batch_vector() const {
  if (rows_.vectors != 0) return slot_vector("base + step");
  return fmt::format("batch + {}(step) * {}", index_, vector_step());
}

// From a vector of a thread to its next one, where it keeps none.
std::string ReductionEmitter::vector_step() const {
  return in_row_tree_ && rows_.vectors == 0 ? "threads" : fmt::format("{}", rows_.threads);
}

}  // namespace kiln::fusion
