// Where rows and columns are: their pointers, at places that data says too, their segments, and
// where they end.
#include <fmt/format.h>

#include <algorithm>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/rows/reduction_emitter.hpp"
#include "fusion/infer/iota.hpp"

namespace kiln::fusion {

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
  if (is_packed(operand.dtype)) {
    const bool start = schedule_.operands[i].start;  // in the middle of a byte
    out_.line(2, "const auto {0}_row = packed({0}_data, {1}{2});", operand.name,
              start ? operand.name + "_start" : fmt::format("{}(0)", signed_index_), at);
    return;
  }
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
    is_buffered(i) ? row_lines(i) : row_segment(i);
  }
}

void ReductionEmitter::row_segment(std::size_t i) {
  const std::string& name = operands_[i].name;
  out_.line(2, "const auto {}_start = [&]({} segment) KILN_INLINED {{", name, index_);
  out_.coordinates(3, index_, "segment", first_reduced(), inner());
  out_.line(3, "return {}(0){};", signed_index_, offset(i, first_reduced(), inner()));
  out_.line(2, "}};");
  const bool contiguous = schedule_.operands[i].access == Access::contiguous;
  const std::string stride = contiguous ? "" : ", " + operands_[i].stride_name(inner());
  out_.line(2, "const auto {0}_segments = {1}_segments({0}_row, extent_{2}, {0}_start{3});", name,
            contiguous ? "contiguous" : "strided", inner(), stride);
}

// Where the lines of a row are that is moved through a buffer.
void ReductionEmitter::row_lines(std::size_t i) {
  const OperandText& operand = operands_[i];
  const auto along = static_cast<std::uint32_t>(schedule_.operands[i].along);
  const auto define = [&](std::string_view what, std::string_view number, std::uint32_t from,
                          std::uint32_t to) {
    out_.line(2, "const auto {}_{} = [&]({} {}) KILN_INLINED {{", operand.name, what, index_,
              number);
    out_.coordinates(3, index_, std::string(number), from, to);
    out_.line(3, "return {}(0){};", signed_index_, offset(i, from, to));
    out_.line(2, "}};");
  };
  define("outer", "outer", first_reduced(), along);
  define("segment", "segment", along + 1, inner());
  std::string size = fmt::format("extent_{}.divisor", inner());
  for (std::uint32_t k = inner() - 1; k > along; --k) {
    size = fmt::format("extent_{}.divisor * {}", k, size);
  }
  const std::string lines = along == first_reduced() ? fmt::format("length / ({})", size)
                                                     : fmt::format("extent_{}.divisor", along);
  out_.line(2, "const auto {0}_lines = counted_lines<{1}>({0}_row, {2}, {3}, extent_{4}.divisor,",
            operand.name, index_, lines, size, inner());
  out_.line(4, "{0}, {1}, {2}_outer, {2}_segment);", operand.stride_name(along),
            operand.stride_name(inner()), operand.name);
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
  if (is_buffered(operand)) return operands_[operand].name + "_counted";
  if (in_segments()) return operands_[operand].name + "_segments";
  if (is_staged(operand)) return operands_[operand].name + "_staged_row";
  return operands_[operand].name + "_row" + offset(operand, first_reduced(), inner());
}

}  // namespace kiln::fusion
