// One vector's part of a pass: its lanes where a thread has them, what is computed for each of
// them, combined and stored.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/rows/reduction_emitter.hpp"
#include "fusion/infer/reduce_space.hpp"

namespace kiln::fusion {

// One vector's part of a pass.
void ReductionEmitter::emit_vector(int pass, int depth, std::string_view slot_index) {
  for (const OperandText& operand : operands_) {
    if (is_host() || operand.output || operand.row_invariant || !passes_.is_read(operand, pass))
      continue;
    const auto i = static_cast<std::size_t>(&operand - operands_.data());
    if (at_ends_) {
      out_.line(depth, "const auto {}_lanes = {};", operand.name,
                operand.in_registers ? end_of(operand.name) : load_text(i));
    } else if (operand.in_smem && from_prefetch_ && rows_.register_vectors() != 0) {
      out_.line(depth, "const auto {0}_lanes =", operand.name);
      out_.line(depth + 2, "slot < {0} ? {1}_registers[slot < {0} ? slot : 0]",
                rows_.register_vectors(), operand.name);
      out_.line(depth + 2, "{:{}} : {}<{}, {}>({}_smem, {});", "",
                std::to_string(rows_.register_vectors()).size() + 5, load_name(), schedule_.width,
                smem_alignment(i), operand.name, smem_offset());
    } else if (operand.in_smem && (from_smem_ || from_prefetch_)) {
      out_.line(depth, "const auto {0}_lanes = {4}<{1}, {2}>({0}_smem, {3});", operand.name,
                schedule_.width, smem_alignment(i), smem_offset(), load_name());
    } else if (!operand.in_registers &&
               (loads_directly_ || (passes_.uses_smem() && !from_prefetch_))) {
      out_.line(depth, "const auto {}_lanes = {};", operand.name, load_text(i));
    } else {
      out_.line(depth, "const auto& {0}_lanes = {0}_{1}[{2}];", operand.name,
                operand.in_registers ? "registers" : "batch",
                operand.in_registers ? slot_index : "step");
    }
  }
  if (pass == passes_.last) {
    for_each_result(
        false, [&](std::size_t i, const OperandText&) { open_result(depth, i, line_text(i)); });
  }
  if (!in_parts() && rows_.columns == 0) {
    out_.line(depth, "const int lanes = lanes_from<{}>(first, size);", width());
  }
  if (in_row_tree_) {
    for (const std::size_t id : trees_in(pass)) {
      out_.line(depth, "auto& {0}_lanes = {0}_tree.of({1});", names_[id], slot_index);
    }
  }
  open_cached(pass, depth);
  emit_lanes(pass, depth, slot_index);
  close_cached(pass, depth);
  if (pass == passes_.last) {
    for_each_result(
        false, [&](std::size_t i, const OperandText&) { store_result(depth, i, line_text(i)); });
  }
}

// What is computed for each lane of a vector.
void ReductionEmitter::emit_each_lane(int pass, int depth, std::string_view slot_index) {
  if (in_parts()) {
    out_.line(depth, "KILN_FOR_EACH_LANE_OF(lane, part) {{");
  } else {
    out_.line(depth, "KILN_FOR_EACH_LANE(lane, {}, lanes) {{", at_ends_ ? "one" : "width");
  }
  Ids values;
  std::ranges::merge(needed_in(pass), reductions_in(pass), std::back_inserter(values));
  for (const std::size_t id : values) {
    if (is_reduction(graph_.nodes[id].op)) {
      emit_combine(id, depth + 1);
    } else {
      emit_element(id, pass, depth + 1, slot_index);
    }
  }
  if (pass == passes_.last) {
    for_each_result(false, [&](std::size_t i, const OperandText& operand) {
      out_.line(depth + 1, "{}_lanes[lane] = {};", operand.name,
                operand.unrounded        ? values_[operand.value]
                : operands_[i].in_blocks ? fmt::format("to<f16_lane>({})", values_[operand.value])
                : is_host() ? node_text_.store_on_host(operand.value, values_, storage_)
                            : node_text_.store(operand.value, values_, storage_));
    });
  }
  out_.line(depth, "}}");
}

// The value of a lane: computed, or cached by an earlier pass.
void ReductionEmitter::emit_element(std::size_t id, int pass, int depth, std::string_view slot) {
  if (passes_.is_cached_for(id, pass)) {
    out_.line(depth, "const f32 {} = {};", names_[id], cached_text(id, slot));
    values_[id] = names_[id];
    // What it was computed of has names in an earlier pass.
    for (const NodeId operand : graph_.nodes[id].inputs()) {
      if (!passes_.row_invariant[operand] && !passes_.is_needed(operand, pass)) {
        values_[operand].clear();
      }
    }
    return;
  }
  if (quotients_ != Quotients::plain && std::ranges::binary_search(passes_.quotients, id)) {
    return emit_quotient(id, depth);
  }
  emit_value(id, depth);
  if (passes_.cached_in[id] == pass) {
    out_.line(depth, "{} = {};", cached_text(id, slot), values_[id]);
  }
}

std::string ReductionEmitter::cached_text(std::size_t id, std::string_view slot) {
  const std::string& name = names_[id];
  if (in_parts()) return fmt::format("{}_cached[{}].lane[part.at + lane]", name, slot);
  if (passes_.has_place(id) && is_in_smem()) return name + "_kept.lane[lane]";
  return at_ends_ ? end_of(name) + ".lane[lane]"
                  : fmt::format("{}_cached[{}].lane[lane]", name, slot);
}

void ReductionEmitter::emit_combine(std::size_t id, int depth) {
  const TypedNode& node = graph_.nodes[id];
  std::string value = values_[node.operands[0]];
  if (is_arg_reduction(node.op)) {
    value = fmt::format("{}{{{}, {}}}", partial_type(node), value, position_text());
  }
  if (in_parts()) {
    out_.line(depth, "{}<{}>(part, {}_lanes, lane, {});",
              rows_.vectors == 1 && sums_floats(node) ? "place_lane" : "combine_lane",
              info(node.op).combiner, names_[id], value);
    return;
  }
  if (is_host() && passes_.sums_in_tree(node)) {
    out_.line(depth, "{0}_lanes[lane] = {0}_tree.combine(step, {0}_lanes[lane], {1}, {1});",
              names_[id], value);
    return;
  }
  if (is_host() && is_arg_reduction(node.op)) {
    out_.line(depth, "{}_lanes.combine<{}>(lane, {});", names_[id], info(node.op).combiner, value);
    return;
  }
  if (at_ends_ && passes_.sums_in_tree(node)) {
    out_.line(depth, "{}_ends.put(ends, at_end, {});", names_[id], value);
    return;
  }
  // A thread meets the elements of a lane in order, but for chunks and for those at ends, which may
  // come first.
  const bool in_order = is_arg_reduction(node.op) && rows_.columns == 0 && !at_ends_ &&
                        !rows_.has_row_chunks() && !(rows_.is_shifted() && in_row_tree_);
  const std::string lanes = names_[id] + "_lanes[lane]";
  const std::string combined = fmt::format("{}::{}({}, {})", info(node.op).combiner,
                                           in_order ? "append" : "combine", lanes, value);
  if (may_miss_ && !at_ends_) {
    out_.line(depth, "{0} = exists ? {1} : {0};", lanes, combined);
  } else {
    out_.line(depth, "{}{} = {};", at_ends_ ? "if (at_end) " : "", lanes, combined);
  }
}

// The result of a reduction, from the combined partial results.
std::string ReductionEmitter::result_text(const TypedNode& node, std::string lane) {
  const std::string_view type = compute_type(node.dtype);
  if (is_arg_reduction(node.op)) lane = fmt::format("to<{}>({}.index)", type, lane);
  // One division for each row: an approximation would save nothing.
  if (node.op == Op::mean) lane = fmt::format("div({}, to<{}>(length))", lane, type);
  return node_text_.rounded(node, lane);
}

// Defines a loaded element as the value that is computed with and, if needed, in its storage type.
void ReductionEmitter::define_input(std::size_t id, int depth, const std::string& name,
                                    std::string element) {
  const DType dtype = graph_.nodes[id].dtype;
  if (graph_.place_of(false, graph_.nodes[id].payload) != nullptr) {
    element = fmt::format("value_or_zero({}_there, {})", name, element);
  }
  if (node_text_.needs_storage(static_cast<NodeId>(id))) {
    storage_[id] = name + "_bits";
    out_.line(depth, "const {} {} = {};", storage_type(dtype), storage_[id], element);
    element = storage_[id];
  }
  out_.line(depth, "const {} {} = to<{}>({});", compute_type(dtype), name, compute_type(dtype),
            element);
}

void ReductionEmitter::emit_value(std::size_t id, int depth) {
  const TypedNode& node = graph_.nodes[id];
  if (node.op == Op::input) {
    const auto operand = std::ranges::find_if(
        operands_, [&](const OperandText& o) { return !o.output && o.argument == node.payload; });
    values_[id] = operand->name;
    if (operand->row_invariant) return;
    define_input(id, depth, operand->name, operand->name + "_lanes[lane]");
    return;
  }
  if (node_text_.needs_storage(static_cast<NodeId>(id)))
    storage_[id] = node_text_.bits(node, values_, storage_);
  // Of columns what there is one of for each is kept in lanes, as a value.
  const bool of_lanes = rows_.columns != 0 && passes_.row_invariant[id];
  if (!of_lanes && node_text_.rounds(node) &&
      std::ranges::any_of(operands_, [&](const OperandText& operand) {
        return operand.output && operand.value == id;
      })) {
    storage_[id] = node_text_.narrowed(node, values_);
    if (is_stored_alone(id)) return;
  }
  NodeText::Expression expression;
  if (node.op == Op::iota) {
    expression.text = index_text(node);
  } else if (node.op == Op::scalar) {
    expression.text = node_text_.scalar(node, identifiers_.scalar_parameter(node.payload));
  } else {
    expression = node_text_.of(static_cast<NodeId>(id), values_, storage_);
  }
  if (expression.same) {
    values_[id] = expression.text;
    return;
  }
  out_.line(depth, "const {} {} = {};", compute_type(node.dtype), names_[id], expression.text);
  values_[id] = names_[id];
}

// Of a value that is stored: whether nothing is computed of it.
bool ReductionEmitter::is_stored_alone(std::size_t id) const {
  return std::ranges::none_of(graph_.nodes, [&](const TypedNode& node) {
    return std::ranges::count(node.inputs(), static_cast<NodeId>(id)) != 0;
  });
}

int ReductionEmitter::alignment(std::size_t operand) const {
  return at_ends_ ? std::max(1, bits(operands_[operand].dtype) / 8)
                  : schedule_.operands[operand].alignment;
}

}  // namespace kiln::fusion
