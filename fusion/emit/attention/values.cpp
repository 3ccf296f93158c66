// Values of attention: numbers of a whole work item, arrays of queries and lanes, what is loaded of
// a key's row or a value's, and functions of a query, a key and a lane.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fusion/emit/attention/emitter.hpp"
#include "fusion/emit/device_text.hpp"

namespace kiln::fusion {

std::vector<NodeId> AttentionEmitter::missing(std::vector<NodeId> wanted) const {
  std::vector<bool> needed(graph_.nodes.size(), false);
  for (const NodeId id : wanted) needed[id] = true;
  std::vector<NodeId> found;
  for (NodeId id = static_cast<NodeId>(graph_.nodes.size()); id-- > 0;) {
    if (!needed[id] || !known_.values[id].empty()) continue;
    found.push_back(id);
    for (const NodeId operand : graph_.nodes[id].inputs()) needed[operand] = true;
    if (graph_.nodes[id].op != Op::input || is_row_of_key(id)) continue;
    const std::size_t i = operand_of(graph_.nodes[id]);
    if (is_indexed(i)) needed[place_node(i)] = true;
  }
  std::ranges::reverse(found);
  return found;
}

std::string AttentionEmitter::element(const TypedNode& node, const std::string& text) const {
  return fmt::format("to<{}>({})", compute_type(node.dtype), text);
}

std::string AttentionEmitter::loaded_element(const TypedNode& node, const std::string& text) const {
  const std::size_t i = operand_of(node);
  if (!is_indexed(i)) return element(node, text);
  const std::string_view rows = known_.located[i] ? "" : "rows.";
  return element(node, fmt::format("value_or_zero({}{}_there, {})", rows, name_of(i), text));
}

void AttentionEmitter::locate(int depth, std::size_t i) {
  if (known_.located[i]) return;
  const std::string name = name_of(i);
  const std::string& place = known_.values[place_node(i)];
  out_.line(depth, "const bool {0}_there = is_place({1}, {0}_places);", name, place);
  out_.line(depth, "const {0} {1}_at = place_offset({1}_there, {2}, {1}_place_stride);",
            signed_index_, name, place);
  known_.located[i] = true;
}

void AttentionEmitter::define(int depth, NodeId id) {
  const TypedNode& node = graph_.nodes[id];
  if (node.op == Op::input) {
    const std::size_t i = operand_of(node);
    if (is_indexed(i)) locate(depth, i);
    return name_value(depth, id, loaded_element(node, fmt::format("*({})", place(i))));
  }
  if (node.op == Op::iota) {
    return name_value(depth, id, node_text_.rounded(node, element(node, place(iota_of(node)))));
  }
  if (node.op == Op::scalar) {
    return name_value(depth, id,
                      node_text_.scalar(node, identifiers_.scalar_parameter(node.payload)));
  }
  const NodeText::Expression expression = node_text_.of(id, known_.values);
  if (!expression.same) return name_value(depth, id, expression.text);
  known_.values[id] = expression.text;
}

void AttentionEmitter::name_value(int depth, NodeId id, const std::string& text) {
  out_.line(depth, "const {} {} = {};", compute_type(graph_.nodes[id].dtype), names_[id], text);
  known_.values[id] = names_[id];
}

// Values of the whole work item.
void AttentionEmitter::emit_invariants() {
  for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
    if (space_.sides[id] == 0 || after_[id] || moves_[id] != 0 || !known_.values[id].empty())
      continue;
    if (std::ranges::find(space_.nodes.inside, id) != space_.nodes.inside.end() &&
        has_axes(graph_.nodes[id].op)) {
      continue;
    }
    define(2, id);
  }
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (is_indexed(i) && moves_[place_node(i)] == 0) locate(2, i);
  }
}

std::string AttentionEmitter::loaded_row(std::size_t i, std::string_view lanes,
                                         std::uint32_t axis) const {
  if (schedule_.operands[i].access == Access::contiguous) {
    return fmt::format("load_row<{}, {}>({})", lanes, schedule_.operands[i].alignment, place(i));
  }
  return fmt::format("gather_row<{}>({}, {})", lanes, place(i), stride_of(i, axis));
}

std::string AttentionEmitter::row_type(std::size_t i, std::string_view lanes) const {
  const std::string_view type = storage_type(operands_[i].dtype);
  if (!is_host()) return fmt::format("Vec<{}, {}::lanes>", type, lanes);
  if (schedule_.operands[i].access == Access::contiguous) {
    return fmt::format("Row<const {}>", type);
  }
  return fmt::format("StridedRow<const {}, {}>", type, signed_index_);
}

void AttentionEmitter::define_array(int depth, NodeId id, const Side& side) {
  const TypedNode& node = graph_.nodes[id];
  const bool queries = (moves_[id] & kQuery) != 0;
  const bool lanes = (moves_[id] & kLane) != 0;
  const std::string_view type = compute_type(node.dtype);
  const std::string own = names_[id] + (queries ? "[q]" : "") + (lanes ? "[lane]" : "");
  if (is_free(node)) {
    known_.values[id] = node_text_.of(id, known_.values).text;
    return;
  }
  out_.line(depth, "{}{} {}{}{};", lanes ? "KILN_LANES " : "", type, names_[id],
            queries ? fmt::format("[{}]", own_.queries()) : "",
            lanes ? fmt::format("[{}::lanes]", side.lanes) : "");
  const int inner = depth + (queries ? 1 : 0);
  if (queries) out_.line(depth, "KILN_FOR_EACH_QUERY(q, {}) {{", own_.queries());
  std::string text;
  if (node.op == Op::input && lanes && moves_[id] == (kKey | kLane)) {
    text = loaded_element(node, fmt::format("rows.{}[lane]", name_of(operand_of(node))));
  } else if (node.op == Op::input && lanes) {
    const std::size_t i = operand_of(node);
    out_.line(inner, "const auto {}_lanes = {};", name_of(i), loaded_row(i, side.lanes, side.axis));
    text = loaded_element(node, fmt::format("{}_lanes[lane]", name_of(i)));
  } else {
    text = lane_text(id, side);
  }
  if (lanes) {
    out_.line(inner, "KILN_FOR_EACH_ELEMENT(lane, {}::lanes) {} = {};", side.lanes, own, text);
  } else {
    out_.line(inner, "{} = {};", own, text);
  }
  if (queries) out_.line(depth, "}}");
  known_.values[id] = own;
}

bool AttentionEmitter::is_free(const TypedNode& node) const {
  if (node.arity == 0) return node.op == Op::constant;
  return node_text_.of(static_cast<NodeId>(&node - graph_.nodes.data()), known_.values).same;
}

// The expression of one lane of a value that is no row.
std::string AttentionEmitter::lane_text(NodeId id, const Side& side) const {
  const TypedNode& node = graph_.nodes[id];
  if (node.op == Op::input) {
    return loaded_element(node, fmt::format("*({})", place(operand_of(node))));
  }
  if (node.op == Op::iota) {
    std::string text = place(iota_of(node));
    if (moves_along(iota_of(node), side.axis)) {
      text += fmt::format(" + {}(place_of<{}>(lane)) * {}", signed_index_, side.lanes,
                          iota_stride(iota_of(node), side.axis));
    }
    return node_text_.rounded(node, element(node, text));
  }
  return node_text_.of(id, known_.values).text;
}

std::string AttentionEmitter::iota_stride(std::size_t i, std::uint32_t axis) const {
  return has_stride(i, axis) ? stride_of(i, axis) : fmt::format("{}(1)", signed_index_);
}

void AttentionEmitter::emit_rows(std::span<const NodeId> ids, const Side& side) {
  for (const NodeId id : ids) {
    if ((moves_[id] & kKey) == 0) define_array(2, id, side);
  }
}

// What is loaded of a key's row or a value's: the rows of operands that all queries share.
std::vector<std::size_t> AttentionEmitter::shared_rows(std::span<const NodeId> ids) const {
  std::vector<std::size_t> rows;
  for (const NodeId id : ids) {
    if (is_row_of_key(id)) rows.push_back(operand_of(graph_.nodes[id]));
  }
  return rows;
}

void AttentionEmitter::emit_load(std::string_view what, std::span<const std::size_t> rows,
                                 const Side& side) {
  const Known outside = known_;
  std::vector<NodeId> places;
  std::string all;
  out_.line(2, "struct {}Rows {{", what);
  for (const std::size_t i : rows) {
    out_.line(3, "{} {};", row_type(i, side.lanes), name_of(i));
    all += (all.empty() ? "" : ", ") + loaded_row(i, side.lanes, side.axis);
    if (!is_indexed(i) || known_.located[i]) continue;
    out_.line(3, "bool {}_there;", name_of(i));
    all += fmt::format(", {}_there", name_of(i));
    places.push_back(place_node(i));
  }
  out_.line(2, "}};");
  out_.line(2, "const auto load_{} = [&]({} key) KILN_INLINED {{", what == "Key" ? "key" : "value",
            index_);
  for (const NodeId id : missing(places)) define(3, id);
  for (const std::size_t i : rows) {
    if (is_indexed(i)) locate(3, i);
  }
  out_.line(3, "return {}Rows{{{}}};", what, all);
  out_.line(2, "}};");
  known_ = outside;
}

void AttentionEmitter::emit_of_key(std::span<const NodeId> ids, const Side& side) {
  for (const NodeId id : ids) {
    if (!known_.values[id].empty()) continue;
    const TypedNode& node = graph_.nodes[id];
    const bool indexed = node.op == Op::input && is_indexed(operand_of(node));
    if (indexed && !is_row_of_key(id)) locate(3, operand_of(node));
    if ((moves_[id] & kQuery) != 0) continue;
    if ((moves_[id] & kLane) == 0) {
      define(3, id);
    } else {
      define_array(3, id, side);
    }
  }
}

std::string AttentionEmitter::function_text(NodeId id, std::span<const NodeId> ids,
                                            const Side& side) {
  std::string body;
  const std::vector<std::string> outside = known_.values;
  for (const NodeId each : ids) {
    if (!known_.values[each].empty()) continue;
    const TypedNode& node = graph_.nodes[each];
    if (node.arity != 0 && node_text_.of(each, known_.values).same) {
      known_.values[each] = node_text_.of(each, known_.values).text;
      continue;
    }
    std::string text = lane_text(each, side);
    if (node.op == Op::input && (moves_[each] & kLane) != 0) {
      const std::size_t i = operand_of(node);
      const std::string step =
          has_stride(i, side.axis) ? " * " + stride_of(i, side.axis) : std::string();
      text = loaded_element(node, fmt::format("*({} + {}(place_of<{}>(lane)){})", place(i),
                                              signed_index_, side.lanes, step));
    }
    body += fmt::format("const {} {} = {}; ", compute_type(node.dtype), names_[each], text);
    known_.values[each] = names_[each];
  }
  const std::string result =
      fmt::format("[&](int lane) KILN_INLINED {{ {}return {}; }}", body, known_.values[id]);
  known_.values = outside;
  return result;
}

}  // namespace kiln::fusion
