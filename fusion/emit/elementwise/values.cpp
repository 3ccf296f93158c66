// The values of an elementwise kernel: for each lane, and random numbers for whole vectors.
#include <fmt/format.h>

#include <algorithm>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/elementwise/emitter.hpp"
#include "fusion/schedule/iota_operands.hpp"

namespace kiln::fusion {

void ElementEmitter::emit_iota_rows(int depth) {
  const bool known = std::ranges::find(of_row_, true) != of_row_.end();
  for (std::size_t i = 0; i < operands_.size() && !known; ++i) {
    const std::string row = operands_[i].iota ? operands_.row_place(i) : "";
    if (!row.empty()) line(depth, "const {} {}_row = {};", signed_index_, operands_[i].name, row);
  }
}

// Writes the values of each lane, or of each code of a lookup table.
void ElementEmitter::emit_lane(int depth) {
  depth_ = depth;
  const std::vector<bool> needed = find_needed();
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (needed[id] && !of_row_[id]) emit_node(id);
  }
  std::size_t output = 0;
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!operands_[i].output) continue;
    const NodeId id = graph_.outputs[output++];
    if (is_indexed_by(i, Indexing::lane)) {
      emit_lane_store(depth, i, id);
      continue;
    }
    line(depth, "{} = {};", operands_.lane_of(i), element_text(i, id));
  }
}

std::string ElementEmitter::element_text(std::size_t i, NodeId id) const {
  if (moves_[i].in_blocks)
    return fmt::format("to<f16_lane>({})", values_[node_text_.unrounded(id)]);
  if (moves_[i].unrounded) return values_[node_text_.unrounded(id)];
  if (schedule_.backend == Backend::host) return node_text_.store_on_host(id, values_, storage_);
  return node_text_.store(id, values_, storage_);
}

// Writes the lookup table: results for all values of the one operand that differs within a row.
void ElementEmitter::emit_table() {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const ElementOperand& operand = operands_[i];
    if (operand.output) {
      line(2, "{} {}_lanes[kCodes];", storage_type(operand.dtype), operand.name);
    } else if (operands_.per_lane(i)) {
      line(2, "const Codes<{}> {}_lanes;", storage_type(operand.dtype), operand.name);
    }
  }
  line(2, "KILN_FOR_EACH_CODE(lane) {{");
  emit_lane(3);
  line(2, "}}");
}

// On GPUs: the random words of a whole vector at once, where four neighbours come from one
// computation.
void ElementEmitter::emit_random_words() {
  if (schedule_.backend == Backend::host) return;
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    if (info(node.op).rule != Rule::random) continue;
    const std::optional<std::size_t> iota = iota_behind(node.operands[2]);
    const std::string seed = invariant_text(node.operands[0]);
    const std::string offset = invariant_text(node.operands[1]);
    if (!iota || schedule_.operands[*iota].alignment == 0 || seed.empty() || offset.empty())
      continue;
    const std::string row =
        operands_.row_place(*iota).empty() ? "" : operands_[*iota].name + "_row + ";
    words_[id] = fmt::format("v{}_words", id);
    line(3, "const auto {} = random_words<width.size>({}, {}, to<u64>({}{}(first)));", words_[id],
         seed, offset, row, signed_index_);
  }
}

// The iota behind a node, through conversions that preserve its value.
std::optional<std::size_t> ElementEmitter::iota_behind(NodeId id) const {
  const TypedNode* node = &graph_.nodes[id];
  while ((node->op == Op::promote || node->op == Op::cast) &&
         (node->dtype == DType::u64 || node->dtype == DType::i64)) {
    node = &graph_.nodes[node->operands[0]];
  }
  if (node->op != Op::iota || bits(node->dtype) < 64) return std::nullopt;
  const auto operand = std::ranges::find_if(operands_, [&](const ElementOperand& o) {
    return o.iota && o.axis == static_cast<std::int64_t>(node->payload);
  });
  return static_cast<std::size_t>(operand - operands_.begin());
}

// The expression of a value that is the same for all lanes; empty if it is not known to be.
std::string ElementEmitter::invariant_text(NodeId id) const {
  const TypedNode& node = graph_.nodes[id];
  if (node.op == Op::scalar)
    return node_text_.scalar(node, identifiers_.scalar_parameter(node.payload));
  std::vector<std::string> values(id + 1);
  if (node.op == Op::promote || node.op == Op::cast) {
    values[node.operands[0]] = invariant_text(node.operands[0]);
    if (values[node.operands[0]].empty()) return {};
  } else if (node.op != Op::constant) {
    return {};
  }
  return node_text_.of(id, values).text;
}

// The nodes that the outputs depend on, without the indices of random numbers whose words are
// already there.
std::vector<bool> ElementEmitter::find_needed() const {
  std::vector<bool> needed(graph_.nodes.size(), false);
  for (const NodeId root : graph_.roots()) needed[root] = true;
  for (std::size_t id = graph_.nodes.size(); id-- > 0;) {
    if (!needed[id] || !words_[id].empty()) continue;
    for (const NodeId operand : graph_.nodes[id].inputs()) needed[operand] = true;
  }
  return needed;
}

void ElementEmitter::emit_node(std::size_t id) {
  const TypedNode& node = graph_.nodes[id];
  if (!words_[id].empty()) {
    const std::string text = fmt::format("{}({}.word[lane])", info(node.op).name, words_[id]);
    return define(id, node_text_.rounded(node, text));
  }
  switch (node.op) {
    case Op::input: return emit_input(id, node);
    case Op::scalar:
      return define(id, node_text_.scalar(node, identifiers_.scalar_parameter(node.payload)));
    case Op::iota: return define(id, node_text_.rounded(node, iota_text(node)));
    default: break;
  }
  if (node_text_.needs_storage(static_cast<NodeId>(id)))
    storage_[id] = node_text_.bits(node, values_, storage_);
  if (node_text_.rounds(node) && std::ranges::count(graph_.outputs, static_cast<NodeId>(id))) {
    storage_[id] = node_text_.narrowed(node, values_);
    if (!is_operand(static_cast<NodeId>(id))) return;
  }
  if (!node_text_.needs_value(static_cast<NodeId>(id))) return;
  const NodeText::Expression expression = node_text_.of(static_cast<NodeId>(id), values_, storage_);
  if (!expression.same) return define(id, expression.text);
  values_[id] = expression.text;
}

bool ElementEmitter::is_operand(NodeId id) const {
  const bool says_place =
      std::ranges::find(graph_.indexed, id, &IndexedOperand::place) != graph_.indexed.end();
  return says_place || std::ranges::any_of(graph_.nodes, [&](const TypedNode& node) {
           return std::ranges::count(node.inputs(), id) != 0;
         });
}

void ElementEmitter::define(std::size_t id, const std::string& expression) {
  const std::string value = fmt::format("v{}", id);
  line(depth_, "const {} {} = {};", compute_type(graph_.nodes[id].dtype), value, expression);
  values_[id] = value;
}

void ElementEmitter::emit_input(std::size_t id, const TypedNode& node) {
  const auto operand = std::ranges::find_if(
      operands_, [&](const ElementOperand& o) { return !o.output && o.argument == node.payload; });
  values_[id] = operand->name;
  const auto i = static_cast<std::size_t>(operand - operands_.begin());
  if (!operands_.per_lane(i)) return;
  if (!is_indexed_by(i, Indexing::lane))
    return define_input(depth_, *operand, operands_.lane_of(i));
  emit_place(depth_, i);
  define_input(depth_, *operand, element_at_place(i));
}

std::string ElementEmitter::iota_text(const TypedNode& node) const {
  const auto operand = std::ranges::find_if(operands_, [&](const ElementOperand& o) {
    return o.iota && o.axis == static_cast<std::int64_t>(node.payload);
  });
  const auto i = static_cast<std::size_t>(operand - operands_.begin());
  std::string value = operands_.row_place(i).empty() ? "" : operand->name + "_row";
  if (operands_.per_lane(i)) {
    const bool steps = schedule_.operands[i].access == Access::strided;
    if (!value.empty()) value += " + ";
    value += fmt::format("{}(first + lane)", signed_index_);
    if (steps) value += " * " + operands_.inner_stride(i);
  }
  if (value.empty()) value = fmt::format("{}(0)", signed_index_);
  return fmt::format("to<{}>({})", compute_type(node.dtype), value);
}

}  // namespace kiln::fusion
