// Names, offsets and values of a matrix-vector product. A value is computed in the outermost loop
// that it depends on: once for a thread, for each of its rows, each column or both; before the loop
// over the reduced elements, for each group of them, or for each element. sums.cpp has the loops.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/products/emitter.hpp"

namespace kiln::fusion {

std::string ProductEmitter::loops(const Scope& scope) const {
  std::string text;
  if (by_rows(scope) && !in_row_) text += fmt::format("{}(r, {}) ", each(), loops_.rows);
  if (by_columns(scope)) text += fmt::format("{}(c, {}) ", each(), products_.columns);
  return text;
}

std::string ProductEmitter::extents(const Scope& scope) const {
  std::string text;
  if (by_rows(scope)) text += fmt::format("[{}]", loops_.rows);
  if (by_columns(scope)) text += fmt::format("[{}]", products_.columns);
  return text;
}

std::string ProductEmitter::indices(const Scope& scope) const {
  return fmt::format("{}{}", by_rows(scope) ? "[r]" : "", by_columns(scope) ? "[c]" : "");
}

std::string ProductEmitter::result_index() const {
  if (results() == 1) return "0";
  if (!has_columns()) return "r";
  return loops_.rows == 1 ? "c" : fmt::format("r * {} + c", products_.columns);
}

std::string ProductEmitter::at(std::uint32_t axis) const {
  if (axis == row_axis()) {
    if (in_tiles()) return "row";
    if (takes_lines()) return row_of_lines();
    if (goes_across()) {
      return fmt::format("rows_or_last<{}>(row, row_count){}", loops_.rows,
                         loops_.rows == 1 ? "" : fmt::format(" + {}(r)", index_));
    }
    return loops_.rows == 1 ? "row_or_last(row, row_count)"
                            : fmt::format("row_or_last(row + {}(r), row_count)", index_);
  }
  if (has_columns() && axis + 1 == row_axis()) return "c";
  return fmt::format("at_{}", axis);
}

// The last work item has rows of the one before it too, which it does not store.
std::string ProductEmitter::row_of_lines() const {
  return fmt::format("least(row, row_count - {}){}", loops_.rows,
                     loops_.rows == 1 ? "" : fmt::format(" + {}(r)", index_));
}

bool ProductEmitter::is_used(const OperandText& operand) const {
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    if (node.op == Op::input && node.payload == operand.argument &&
        (wanted_.empty() ? nodes_.is_in_main(id) : wanted_[id]))
      return true;
  }
  return false;
}

// The offset of an operand's row, in elements; empty for 0.
std::string ProductEmitter::row_text(std::size_t i) const {
  bool moves = schedule_.operands[i].start;
  for (std::uint32_t k = 0; k < first_reduced(); ++k) moves = moves || has_stride(i, k);
  return moves ? operands_[i].name + "_row" + indices(operands_[i].scope) : "";
}

// The offset of `element` of the current group from the beginning of an operand's row; empty for 0.
std::string ProductEmitter::in_group(std::size_t i, const std::string& element) const {
  std::string text;
  for (std::uint32_t k = first_reduced(); k < inner(); ++k) {
    if (!has_stride(i, k)) continue;
    text += fmt::format("{}{}(at_{}) * {}", text.empty() ? "" : " + ", signed_index_, k,
                        operands_[i].stride_name(k));
  }
  if (element.empty()) return text;
  return fmt::format("{}{}{}({})", text, text.empty() ? "" : " + ", signed_index_, element);
}

// Where the elements that vectors go along lie, from the first one of a group on.
void ProductEmitter::find_gathered(int depth) {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!is_gathered(i)) continue;
    std::string place;
    for (std::uint32_t k = inner(); k < rank(); ++k) {
      if (!has_stride(i, k)) continue;
      place += fmt::format("{}{}(at_{}) * {}", place.empty() ? "" : " + ", signed_index_, k,
                           operands_[i].stride_name(k));
    }
    out_.line(depth, "const auto {}_place = [&]({} element) KILN_INLINED {{", operands_[i].name,
              index_);
    out_.coordinates(depth + 1, index_, "element", inner(), rank());
    out_.line(depth + 1, "return {};", place);
    out_.line(depth, "}};");
  }
}

// How many neighbours are loaded at once.
int ProductEmitter::gathered_run(std::size_t i, int width) const {
  if (is_packed(operands_[i].dtype) || is_in_lines(i)) return 1;
  return std::min(width, schedule_.operands[i].alignment * 8 / bits(operands_[i].dtype));
}

// The text that gathers a vector of the current group from `first` on.
std::string ProductEmitter::gathered(std::size_t i, int width, const std::string& first) const {
  return fmt::format("gathered<{}, {}>({}, {}({}), {}_place)", width, gathered_run(i, width),
                     gathered_from(i, row_text(i)), index_, first, operands_[i].name);
}

// Where the current group of an operand's row begins.
std::string ProductEmitter::gathered_from(std::size_t i, const std::string& row) const {
  const OperandText& operand = operands_[i];
  const std::string group = in_group(i, "");
  std::string offset = row + (row.empty() || group.empty() ? "" : " + ") + group;
  if (!is_packed(operand.dtype)) {
    return fmt::format("{}_data{}{}", operand.name, offset.empty() ? "" : " + ", offset);
  }
  if (offset.empty()) offset = fmt::format("{}(0)", signed_index_);
  return fmt::format("packed({}_data, {})", operand.name, offset);
}

// The statements that gather vectors for rows and columns of a scope.
std::vector<std::string> ProductEmitter::gather(std::size_t i, int width, const std::string& first,
                                                const Scope& scope) const {
  const OperandText& operand = operands_[i];
  const std::string type =
      fmt::format("Gathered<{}, {}> {}_near", storage_type(operand.dtype), width, operand.name);
  if (is_across(i) && host()) {
    const std::string stride = operand.stride_name(inner());
    return {fmt::format("{}{};", type, extents(scope)),
            fmt::format("transpose_vectors<{}>({}_near, {} + {}({}) * {}, i64({}));", width,
                        operand.name, gathered_from(i, operand.name + "_row[0]"), signed_index_,
                        first, stride, stride)};
  }
  if (is_across(i)) {
    return {fmt::format("{}{};", type, extents(scope)),
            fmt::format("gather_rows<{}>({}_near, {}, {}({}), {}_place);",
                        schedule_.operands[i].alignment, operand.name,
                        gathered_from(i, operand.name + "_row[0]"), index_, first, operand.name)};
  }
  const std::string text = gathered(i, width, first);
  if (extents(scope).empty()) return {fmt::format("const {} = {};", type, text)};
  return {fmt::format("{}{};", type, extents(scope)),
          fmt::format("{}{}_near{} = {};", loops(scope), operand.name, indices(scope), text)};
}

// What has been gathered, as functions that load take it.
std::string ProductEmitter::gathered_row(std::size_t i, const Scope& scope) const {
  const Scope& of_near = is_across(i) ? operands_[i].scope : scope;
  const std::string row = fmt::format("{}_near{}.row()", operands_[i].name, indices(of_near));
  return is_packed(operands_[i].dtype)
             ? fmt::format("packed({0}, {1}(0)), {1}(0)", row, signed_index_)
             : fmt::format("{}, {}(0)", row, signed_index_);
}

// An element that is not there is read as the first one, and taken for 0.
std::string ProductEmitter::one_element(std::size_t i) const {
  const std::string& name = operands_[i].name;
  std::string row = row_text(i);
  const std::string in_row = in_group(i, "");
  if (const NodeId* place = place_of(i)) {
    const std::string there = fmt::format("is_place({}, {}_places)", values_[*place], name);
    row += fmt::format("{}place_offset({}, {}, {}_place_stride)", row.empty() ? "" : " + ", there,
                       values_[*place], name);
    return fmt::format("value_or_zero({}, ({}_data + {})[{}])", there, name, row,
                       in_row.empty() ? fmt::format("{}(0)", signed_index_) : in_row);
  }
  if (!is_packed(operands_[i].dtype)) {
    const std::string at = in_row.empty() ? fmt::format("{}(0)", signed_index_) : in_row;
    return row.empty() ? fmt::format("{}_data[{}]", name, at)
                       : fmt::format("({}_data + {})[{}]", name, row, at);
  }
  const std::string offset = row.empty() && in_row.empty() ? fmt::format("{}(0)", signed_index_)
                             : row.empty()                 ? in_row
                             : in_row.empty()              ? row
                                                           : fmt::format("{} + ({})", row, in_row);
  return fmt::format("element(packed({}_data, {}))", name, offset);
}

std::string_view ProductEmitter::element_type(std::size_t id) const {
  return loops_.in_vectors ? "Floats" : compute_type(graph_.nodes[id].dtype);
}

std::string ProductEmitter::lanes() const {
  return loops_.in_vectors ? "kVectors" : fmt::format("{}", products_.lanes);
}

// Writes the values of a level, for rows and columns as each depends on them.
void ProductEmitter::emit_values(Level level, int depth) {
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (nodes_.scope(id).level != level || is_reduction(graph_.nodes[id].op)) continue;
    if (wanted_.empty() ? nodes_.is_in_main(id) : wanted_[id]) emit_row_value(id, depth);
  }
}

// Writes a value of a row or group.
void ProductEmitter::emit_row_value(std::size_t id, int depth) {
  const std::string text = value_text(id);
  if (text.empty()) return;
  const Scope& scope = nodes_.scope(id);
  const std::string& name = names_[id];
  const std::string_view type = compute_type(graph_.nodes[id].dtype);
  if (extents(scope).empty()) {
    out_.line(depth, "const {} {} = {};", type, name, text);
  } else {
    out_.line(depth, "{} {}{};", type, name, extents(scope));
    out_.line(depth, "{}{}{} = {};", loops(scope), name, indices(scope), text);
  }
  values_[id] = name + indices(scope);
}

// The expression of a node that must be computed; else sets its value and returns nothing.
std::string ProductEmitter::value_text(std::size_t id) {
  const TypedNode& node = graph_.nodes[id];
  if (nodes_.staged() == static_cast<NodeId>(id)) return {};  // load_staged()
  if (node.op == Op::input) {
    const std::size_t i = nodes_.operand_of(node);
    const OperandText& operand = operands_[i];
    names_[id] = operand.name;
    if (operand.scope.level != Level::element) {
      if (node_text_.needs_storage(static_cast<NodeId>(id))) storage_[id] = one_element(i);
      return fmt::format("to<{}>({})", compute_type(node.dtype), one_element(i));
    }
    lane_of(id, i);
    return {};
  }
  if (node.op == Op::iota) return row_number(node);
  if (node.op == Op::scalar)
    return node_text_.scalar(node, identifiers_.scalar_parameter(node.payload));
  if (node_text_.needs_storage(static_cast<NodeId>(id)))
    storage_[id] = node_text_.bits(node, values_, storage_);
  if (loops_.added[id]) return {};
  for (const std::size_t i : {0u, 1u}) {
    if (node.op != Op::add || !loops_.added[node.operands[i]]) continue;
    const TypedNode& product = graph_.nodes[node.operands[i]];
    return fmt::format("add_product({}, {}, {})", values_[node.operands[1 - i]],
                       values_[product.operands[0]], values_[product.operands[1]]);
  }
  if (std::string text = from_lane(node); !text.empty()) {
    lanes_[id] = lanes_[node.operands[0]];
    return text;
  }
  if (std::string text = scaled_lane(node); !text.empty()) return text;
  const NodeText::Expression expression = node_text_.of(static_cast<NodeId>(id), values_, storage_);
  if (!expression.same) return expression.text;
  values_[id] = expression.text;
  if (node.op == Op::promote) lanes_[id] = lanes_[node.operands[0]];
  return {};
}

// Sets a node's value to a lane of a loaded vector.
void ProductEmitter::lane_of(std::size_t id, std::size_t i) {
  const OperandText& operand = operands_[i];
  const bool whole = !loops_.by_part[i] && products_.lanes < schedule_.width;
  const std::string loaded = fmt::format("{}_lanes{}", operand.name, indices(loaded_scope(i)));
  const std::string at = whole ? fmt::format("part * {} + lane", lanes()) : "lane";
  const std::string lane =
      in_pairs() ? fmt::format("pair_of({}, {})", loaded, at) : fmt::format("{}[{}]", loaded, at);
  if (node_text_.needs_storage(static_cast<NodeId>(id)))
    storage_[id] = fmt::format("as_stored({})", lane);
  values_[id] =
      loops_.in_vectors ? lane : fmt::format("to<{}>({})", compute_type(operand.dtype), lane);
  if (is_integer(operand.dtype) && bits(operand.dtype) <= 8) {
    const int width = whole ? schedule_.width : products_.lanes;
    const bool liftable = (operand.dtype == DType::u4 || operand.dtype == DType::u8) &&
                          width * bits(operand.dtype) % 32 == 0;
    lanes_[id] = {lane, liftable};
  }
}

// Small integers become floats without being computed as integers first; f16 and bf16 hold all of
// them exactly too.
std::string ProductEmitter::from_lane(const TypedNode& node) const {
  if (node.op != Op::promote && node.op != Op::cast) return {};
  const std::string& lane = lanes_[node.operands[0]].text;
  const bool exact =
      node.dtype == DType::f32 || node.dtype == DType::f16 || node.dtype == DType::bf16;
  if (lane.empty() || !exact) return {};
  return loops_.in_vectors ? lane : fmt::format("to<f32>({})", lane);
}

// A small integer times a value that is the same for all lanes.
std::string ProductEmitter::scaled_lane(const TypedNode& node) const {
  if (!nodes_.has_fast_path() || node.op != Op::mul) return {};
  for (const std::size_t i : {0u, 1u}) {
    const Lane& lane = lanes_[node.operands[i]];
    const NodeId scale = node.operands[1 - i];
    if (!lane.liftable || nodes_.scope(scale).level == Level::element) continue;
    return node_text_.rounded(node, fmt::format("scaled({}, {})", lane.text, values_[scale]));
  }
  return {};
}
}  // namespace kiln::fusion
