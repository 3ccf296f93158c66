// What is computed of attention's results, and stored: in vectors of the values' elements, and
// numbers that each query has one of.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fusion/emit/attention/emitter.hpp"
#include "fusion/emit/device_text.hpp"

namespace kiln::fusion {

void AttentionEmitter::emit_results() {
  const AttentionNodes& nodes = space_.nodes;
  out_.line(2, "const auto store_results = [&](int q, int first, const f32* sum, f32 largest,");
  out_.line(2, "                               f32 total) KILN_INLINED {{");
  out_.line(3, "constexpr Width<Values::width> width{{}};");
  known_.values[nodes.largest] = "largest";
  known_.values[nodes.total] = "total";
  std::string result = "sum[lane]";
  if (nodes.normalised) {
    const std::string_view accuracy = accuracy_ == Accuracy::strict ? "strict::"
                                      : accuracy_ == Accuracy::fast ? "fast::"
                                                                    : "";
    // The sum of no products is 0.
    const std::string_view none = graph_.bounds.empty() ? "" : "key_end == 0 ? 0.0f : ";
    out_.line(3, "const f32 inverse = {}{}reciprocal(total);", none, accuracy);
    result += " * inverse";
  }
  known_.values[nodes.result] = names_[nodes.result];
  const std::vector<NodeId> ids = missing(graph_.outputs);
  for (const NodeId id : ids) {
    if ((moves_[id] & kLane) == 0) define(3, id);
  }
  emit_result_lanes(ids, result);
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!operands_[i].output || (moves_[operands_[i].value] & kLane) != 0) continue;
    out_.line(3, "if (first == 0) *({}) = {};", place(i), stored(operands_[i].value));
  }
  out_.line(2, "}};");
  out_.line(2, "finish_attention<Form>(slots, sums, store_results);");
}

std::string AttentionEmitter::stored(NodeId id) const {
  return is_host() ? node_text_.store_on_host(id, known_.values, {})
                   : node_text_.store(id, known_.values, {});
}

void AttentionEmitter::emit_result_lanes(std::span<const NodeId> ids, const std::string& result) {
  const auto has_row = [&](const NamedOperand& operand) {
    return operand.output && (moves_[operand.value] & kLane) != 0;
  };
  if (std::ranges::none_of(operands_, has_row)) return;
  for (const NodeId id : ids) {
    if (graph_.nodes[id].op != Op::input || (moves_[id] & kLane) == 0) continue;
    const std::size_t i = operand_of(graph_.nodes[id]);
    if (schedule_.operands[i].access == Access::contiguous) {
      out_.line(3, "const auto {}_lanes = load<width.size, {}>({}, first);", name_of(i),
                schedule_.operands[i].alignment, place(i));
    } else {
      out_.line(3, "const auto {}_lanes = gather<width.size>({}, first, {});", name_of(i), place(i),
                stride_of(i, value_axis()));
    }
  }
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!has_row(operands_[i])) continue;
    out_.line(3, "auto {}_lanes = results<width.size>({}, first{});", name_of(i), place(i),
              schedule_.operands[i].access == Access::contiguous
                  ? std::string()
                  : ", " + stride_of(i, value_axis()));
  }
  out_.line(3, "KILN_FOR_EACH_LANE(lane, width, width.size) {{");
  out_.line(4, "const f32 {} = {};", names_[space_.nodes.result], result);
  for (const NodeId id : ids) {
    if ((moves_[id] & kLane) == 0) continue;
    const TypedNode& node = graph_.nodes[id];
    if (node.op == Op::input) {
      const std::string name = name_of(operand_of(node));
      name_value(4, id, loaded_element(node, fmt::format("{}_lanes[lane]", name)));
    } else if (node.op == Op::iota) {
      const std::size_t i = iota_of(node);
      name_value(
          4, id,
          node_text_.rounded(
              node, element(node, fmt::format("{} + {}(first + lane) * {}", place(i), signed_index_,
                                              iota_stride(i, value_axis())))));
    } else {
      define(4, id);
    }
  }
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!has_row(operands_[i])) continue;
    out_.line(4, "{}_lanes[lane] = {};", name_of(i), stored(operands_[i].value));
  }
  out_.line(3, "}}");
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!has_row(operands_[i])) continue;
    if (schedule_.operands[i].access == Access::contiguous) {
      out_.line(3, "store<width.size, {}>({}, first, {}_lanes);", schedule_.operands[i].alignment,
                place(i), name_of(i));
    } else {
      out_.line(3, "scatter<width.size>({}, first, {}, {}_lanes);", place(i),
                stride_of(i, value_axis()), name_of(i));
    }
  }
}

}  // namespace kiln::fusion
