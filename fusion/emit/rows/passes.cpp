// The text of the passes of kernels that reduce: what a thread loads, computes, joins and stores of
// its vectors, and the elements at the ends of rows that begin within one.
#include <fmt/format.h>

#include <algorithm>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/rows/reduction_emitter.hpp"

namespace kiln::fusion {

// ---- Passes -------------------------------------------------------------------------------------

void ReductionEmitter::hold_inputs() {
  std::vector<std::size_t> held;
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!operands_[i].in_registers) continue;
    const std::string_view type = storage_type(operands_[i].dtype);
    const int registers = operands_[i].in_smem ? in_registers() : rows_.vectors;
    if (registers != 0) {
      out_.line(2, "Vec<{}, {}> {}_held[{}];", type, schedule_.width, operands_[i].name, registers);
    }
    if (is_shifted()) out_.line(2, "Vec<{}, 1> {}_end;", type, operands_[i].name);
    held.push_back(i);
  }
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (kept_[id] < 0) continue;
    out_.line(2, "{}<f32, {}> {}_kept[{}];", is_host() ? "Lanes" : "Vec", schedule_.width,
              name_of(id), rows_.vectors);
    if (is_shifted()) out_.line(2, "Vec<f32, 1> {}_end;", name_of(id));
  }
  if (held.empty()) return place_weights();
  if (has_stored()) share_memory();
  out_.line(2, "KILN_UNROLL for (int slot = 0; slot < {}; ++slot) {{", rows_.vectors);
  // A row that every thread has something of has a last vector, which is read in place of one past
  // the end: no load waits for a branch.
  if (!is_full() && rows_.full_vectors > 0) {
    out_.line(3, "const {0} vector = least({0}(slot) * {1} + thread, vectors - 1);", index_,
              rows_.threads);
  } else {
    out_.line(3, "const {0} vector = {0}(slot) * {1} + thread;", index_, rows_.threads);
    skip_missing(3, "slot");
  }
  place_vector(3);
  slot_ = "slot";
  for (const std::size_t i : held) {
    const std::string in_register =
        fmt::format("{}_held[slot] = {};", operands_[i].name, load_text(i));
    const std::string in_memory =
        fmt::format("store<{}, {}>({}_stored, {}, {});", schedule_.width, stored_alignment(i),
                    operands_[i].name, stored_place(), load_text(i));
    if (!operands_[i].in_smem) {
      out_.line(3, "{}", in_register);
    } else if (copies_rows()) {
      out_.line(3, "copy_ahead<{}>({}_stored, {}, {}, first);", schedule_.width, operands_[i].name,
                stored_place(), line_text(i));
    } else if (in_registers() == 0) {
      out_.line(3, "{}", in_memory);
    } else {
      out_.line(3, "if (slot < {}) {}", in_registers(), in_register);
      out_.line(3, "else {}", in_memory);
    }
  }
  out_.line(2, "}}");
  slot_.clear();
  copying_ = copies_rows();
  begin_ahead();
  if (!is_shifted()) return;
  for_ends([&] {
    for (const std::size_t i : held) {
      out_.line(3, "{}_end = {};", operands_[i].name, load_text(i));
    }
  });
  place_weights();
}

// Where each operand's part of the memory that the block shares begins for a thread, whose vectors
// stand as far apart as there are threads.
void ReductionEmitter::share_memory() {
  out_.line(2, "KILN_SHARED_BY_LAUNCH(16, memory);");
  int before = 0;
  for (const OperandText& operand : operands_) {
    if (!operand.in_smem) continue;
    const std::string_view type = storage_type(operand.dtype);
    out_.line(2, "{0}* const {1}_stored = reinterpret_cast<{0}*>(memory + {2}) + {4} * {3};", type,
              operand.name, before / 16, schedule_.width,
              in_cluster() ? "thread_in_block" : "thread");
    before += rows_.in_smem * threads_of_block() * vector_bytes(operand);
  }
}

std::string ReductionEmitter::stored_place() const {
  return fmt::format("(slot - {}) * {}", in_registers(), threads_of_block() * schedule_.width);
}

int ReductionEmitter::stored_alignment(std::size_t operand) const {
  return std::min(16, vector_bytes(operands_[operand]));
}

// A thread's last vectors may be past the end of its row.
void ReductionEmitter::skip_missing(int depth, std::string_view slot) {
  if (is_full()) return;
  std::string missing = fmt::format("vector >= {}", last_vector());
  if (rows_.full_vectors != 0)
    missing = fmt::format("{} >= {} && {}", slot, rows_.full_vectors, missing);
  out_.line(depth, "if ({}) continue;", missing);
}

// What is done with the elements before a row's first vector and after its last one, of which each
// of the first threads has one. The others go along with the row's first element and keep nothing
// of it: without a branch, this is computed beside the vectors.
void ReductionEmitter::for_ends(const std::function<void()>& body) {
  out_.line(2, "{{");
  out_.line(3, "const {} first = at_end ? thread < head ? thread : thread + vectors * {} : 0;",
            index_, schedule_.width);
  at_ends_ = true;
  body();
  at_ends_ = false;
  out_.line(2, "}}");
}

void ReductionEmitter::emit_pass(int pass) {
  prepare_divisors(pass);
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    if (!reduces_in(id, pass)) continue;
    out_.line(2, "auto {}_lanes = {}<{}, {}, {}>();", name_of(id),
              is_host() ? "start_held" : "start", info(node.op).joiner, partial_type(node),
              schedule_.width);
    if (in_stretches(node)) out_.line(2, "auto {0}_all = {0}_lanes;", name_of(id));
    if (is_off_centre(id)) {
      out_.line(2, "auto {0}_off = {0}_lanes;", name_of(id));
    }
  }
  if (is_host()) {
    emit_host_pass(pass);
  } else {
    emit_batches(pass);
    if (is_shifted() && !finds_centres(pass)) for_ends([&] { emit_vector(pass, 3, ""); });
  }
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (reduces_in(id, pass)) emit_result(id);
  }
}

// A thread's vectors on a GPU. What is not in registers is loaded in batches, whose loads are all
// under way before the first is used; a store among them would hold up those after it.
void ReductionEmitter::emit_batches(int pass) {
  std::vector<std::size_t> fetched;
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const OperandText& operand = operands_[i];
    if (operand.output || operand.row_invariant || operand.in_registers || !is_read(operand, pass))
      continue;
    fetched.push_back(i);
  }
  if (finds_centres(pass)) {
    from_memory_ = has_stored() && in_registers() == 0;
    if (copying_) out_.line(2, "await_copies<{}>();", rows_.vectors - 1);
    emit_slots(pass, 0, 1, "KILN_UNROLL");
    from_memory_ = false;
    return;
  }
  if (pass == last_pass_ && !ahead_.empty()) return emit_ahead(pass);
  if (rows_.vectors != 0 && (fetched.empty() || has_stored())) {
    if (in_registers() != 0 || !has_stored()) {
      emit_slots(pass, 0, has_stored() ? in_registers() : rows_.vectors, "KILN_UNROLL");
    }
    if (has_stored()) {
      from_memory_ = true;
      if (copying_) {
        emit_arriving(pass);
      } else {
        emit_slots(pass, in_registers(), rows_.vectors, "KILN_UNROLL_TWICE");
      }
      from_memory_ = false;
    }
    return;
  }
  const int step = rows_.threads * rows_.batch;
  if (rows_.vectors != 0) {
    out_.line(2, "KILN_UNROLL for (int held = 0; held < {}; held += {}) {{", rows_.vectors,
              rows_.batch);
    out_.line(3, "const {0} batch = {0}(held) * {1} + thread;", index_, rows_.threads);
  } else if (is_backwards(pass)) {
    out_.line(2, "for ({0} left = (vectors + {1}) / {2}; left-- > 0;) {{", index_, step - 1, step);
    out_.line(3, "const {} batch = left * {} + thread;", index_, step);
  } else {
    out_.line(2, "for ({} batch = {}thread; batch < {}; batch += {}) {{", index_,
              rows_.split ? "begin + " : "", last_vector(), step);
  }
  fetch(fetched, 3);
  out_.line(3, "KILN_UNROLL for (int step = 0; step < {}; ++step) {{", rows_.batch);
  out_.line(4, "const {0} vector = batch + {0}(step) * {1};", index_, rows_.threads);
  if (rows_.vectors % rows_.batch != 0) {
    out_.line(4, "if (held + step >= {}) continue;", rows_.vectors);
  }
  skip_missing(4, "held + step");
  place_vector(4);
  emit_vector(pass, 4, "held + step");
  out_.line(3, "}}");
  if (rows_.vectors == 0) {
    carry_stretches(pass, 3, rows_.split ? "batch - begin" : "batch");
  }
  out_.line(2, "}}");
}

// Whether all that a pass over shared memory is for are centres of squares, for which a thread then
// takes the mean of its first vector: what the others have beside it, the next pass finds.
// Layer_norm of 32,768 f16 goes from 0.945 of a copy to 0.95.
bool ReductionEmitter::finds_centres(int pass) const {
  constexpr int kFewThreads = 512;
  if (!has_stored() || rows_.full_vectors == 0 || rows_.block() > kFewThreads) return false;
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (!reduces_in(id, pass)) continue;
    const JoinedReductions* const pair = joined_by(id);
    if (pair == nullptr || !pair->squares || pair->centre != id) return false;
  }
  return pass != last_pass_;
}

// Whether squares are around such a centre.
bool ReductionEmitter::is_off_centre(std::size_t id) const {
  const JoinedReductions* const pair = joined_by(id);
  return pair != nullptr && pair->squares && pair->around == id &&
         finds_centres(pass_[pair->centre] - 1);
}

// What only stores a row that was read before begins where that ended, with what the caches have.
bool ReductionEmitter::is_backwards(int pass) const {
  if (rows_.columns != 0 || rows_.split || pass == 0) return false;
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (reduces_in(id, pass)) return false;
  }
  return true;
}

// A pass over the vectors `from` to `to` of those that a thread keeps.
void ReductionEmitter::emit_slots(int pass, int from, int to, std::string_view unroll) {
  out_.line(2, "{} for (int slot = {}; slot < {}; ++slot) {{", unroll, from, to);
  out_.line(3, "const {0} vector = {0}(slot) * {1} + thread;", index_, rows_.threads);
  if (to > rows_.full_vectors) skip_missing(3, "slot");
  place_vector(3);
  slot_ = "slot";
  emit_vector(pass, 3, "slot");
  slot_.clear();
  out_.line(2, "}}");
}

// Loads a batch. Lanes past the end read the last vector again, so that no load waits for a branch.
void ReductionEmitter::fetch(const std::vector<std::size_t>& operands, int depth) {
  if (operands.empty()) return;
  for (const std::size_t i : operands) {
    out_.line(depth, "Vec<{}, {}> {}_batch[{}];", storage_type(operands_[i].dtype), schedule_.width,
              operands_[i].name, rows_.batch);
  }
  out_.line(depth, "KILN_UNROLL for (int step = 0; step < {}; ++step) {{", rows_.batch);
  const std::string vector = fmt::format("batch + {}(step) * {}", index_, rows_.threads);
  if (rows_.vectors != 0) {
    if (rows_.vectors % rows_.batch != 0) {
      out_.line(depth + 1, "if (held + step >= {}) continue;", rows_.vectors);
    }
    out_.line(depth + 1, "const {} vector = {};", index_, vector);
    skip_missing(depth + 1, "held + step");
  } else {
    out_.line(depth + 1, "const {} vector = least({}, {} - 1);", index_, vector, last_vector());
  }
  place_vector(depth + 1);
  if (rows_.vectors != 0) slot_ = "held + step";
  for (const std::size_t i : operands) {
    out_.line(depth + 1, "{}_batch[step] = {};", operands_[i].name, load_text(i));
  }
  slot_.clear();
  out_.line(depth, "}}");
}

// One vector's part of a pass.
void ReductionEmitter::emit_vector(int pass, int depth, std::string_view held_slot) {
  for (const OperandText& operand : operands_) {
    if (is_host() || operand.output || operand.row_invariant || !is_read(operand, pass)) continue;
    const auto i = static_cast<std::size_t>(&operand - operands_.data());
    if (at_ends_) {
      out_.line(depth, "const auto {}_lanes = {};", operand.name,
                operand.in_registers ? operand.name + "_end" : load_text(i));
    } else if (operand.in_smem && taken_ahead_ && in_registers() != 0) {
      out_.line(depth, "const auto {0}_lanes =", operand.name);
      out_.line(depth + 2, "slot < {0} ? {1}_held[slot < {0} ? slot : 0]", in_registers(),
                operand.name);
      out_.line(depth + 2, "{:{}} : {}<{}, {}>({}_stored, {});", "",
                std::to_string(in_registers()).size() + 5, load_name(), schedule_.width,
                stored_alignment(i), operand.name, stored_place());
    } else if (operand.in_smem && (from_memory_ || taken_ahead_)) {
      out_.line(depth, "const auto {0}_lanes = {4}<{1}, {2}>({0}_stored, {3});", operand.name,
                schedule_.width, stored_alignment(i), stored_place(), load_name());
    } else if (!operand.in_registers && has_stored() && !taken_ahead_) {
      out_.line(depth, "const auto {}_lanes = {};", operand.name, load_text(i));
    } else {
      out_.line(depth, "const auto& {0}_lanes = {0}_{1}[{2}];", operand.name,
                operand.in_registers ? "held" : "batch", operand.in_registers ? held_slot : "step");
    }
  }
  if (pass == last_pass_) {
    for_each_result(
        false, [&](std::size_t i, const OperandText&) { open_result(depth, i, line_text(i)); });
  }
  if (!in_parts() && rows_.columns == 0) {
    out_.line(depth, "const int lanes = lanes_from<{}>(first, size);", width());
  }
  emit_lanes(pass, depth, held_slot);
  if (pass == last_pass_) {
    for_each_result(
        false, [&](std::size_t i, const OperandText&) { store_result(depth, i, line_text(i)); });
  }
}

// What is computed for each lane of a vector.
void ReductionEmitter::emit_each_lane(int pass, int depth, std::string_view held_slot) {
  if (in_parts()) {
    out_.line(depth, "KILN_FOR_EACH_LANE_OF(lane, part) {{");
  } else {
    out_.line(depth, "KILN_FOR_EACH_LANE(lane, {}, lanes) {{", at_ends_ ? "one" : "width");
  }
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (needed_[static_cast<std::size_t>(pass)][id]) emit_element(id, pass, depth + 1, held_slot);
    if (reduces_in(id, pass)) emit_join(id, depth + 1);
  }
  if (pass == last_pass_) {
    for_each_result(false, [&](std::size_t i, const OperandText& operand) {
      out_.line(depth + 1, "{}_lanes[lane] = {};", operand.name,
                is_staged(i) ? fmt::format("to<f16_lane>({})", values_[operand.value])
                : is_host()  ? node_text_.store_on_host(operand.value, values_, stored_)
                             : node_text_.store(operand.value, values_, stored_));
    });
  }
  out_.line(depth, "}}");
}

// A value of a lane: computed, or kept by the pass that did.
void ReductionEmitter::emit_element(std::size_t id, int pass, int depth, std::string_view slot) {
  if (is_kept_for(id, pass)) {
    const bool moved = std::ranges::any_of(joined_, [&](const JoinedReductions& pair) {
      return !pair.squares && pair.exponential == id;
    });
    out_.line(depth, "const f32 {0} = {1}{2};", name_of(id), kept_text(id, slot),
              moved ? fmt::format(" * {}_moved", name_of(id)) : "");
    values_[id] = name_of(id);
    return;
  }
  if (usual_ && is_shared_quotient(id, pass)) return emit_usual_quotient(id, depth);
  emit_value(id, depth);
  if (kept_[id] == pass) {
    out_.line(depth, "{} = {};", kept_text(id, slot), values_[id]);
  }
}

std::string ReductionEmitter::kept_text(std::size_t id, std::string_view slot) {
  const std::string& name = name_of(id);
  if (in_parts()) return fmt::format("{}_kept[{}].lane[part.at + lane]", name, slot);
  return at_ends_ ? name + "_end.lane[lane]" : fmt::format("{}_kept[{}].lane[lane]", name, slot);
}

void ReductionEmitter::carry_stretches(int pass, int depth, std::string_view done) {
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (!reduces_in(id, pass) || !in_stretches(graph_.nodes[id])) continue;
    out_.line(depth, "if (ends_stretch<{0}, {1}>({2})) carry<{3}>({4}_all, {4}_lanes);",
              rows_.threads, rows_.batch, done, info(graph_.nodes[id].op).joiner, name_of(id));
  }
}

void ReductionEmitter::emit_join(std::size_t id, int depth) {
  const TypedNode& node = graph_.nodes[id];
  std::string value = values_[node.operands[0]];
  if (is_place(node.op)) {
    value = fmt::format("{}{{{}, {}}}", partial_type(node), value, position_text());
  }
  if (in_parts()) {
    out_.line(depth, "join_lane<{}>(part, {}_lanes, lane, {});", info(node.op).joiner, name_of(id),
              value);
    return;
  }
  out_.line(depth, "{3}{0}_lanes[lane] = {1}::join({0}_lanes[lane], {2});", name_of(id),
            info(node.op).joiner, value, at_ends_ ? "if (at_end) " : "");
  if (!is_off_centre(id)) return;
  const NodeId difference = graph_.nodes[node.operands[0]].operands[0];
  out_.line(depth, "{2}{0}_off[lane] = Sum::join({0}_off[lane], {1});", name_of(id),
            values_[difference], at_ends_ ? "if (at_end) " : "");
}

// The result of a reduction, from the partial result that everything has been joined to.
std::string ReductionEmitter::result_text(const TypedNode& node, std::string lane) {
  const std::string_view type = compute_type(node.dtype);
  if (is_place(node.op)) lane = fmt::format("to<{}>({}.index)", type, lane);
  // One division for each row: an approximation, where the accuracy allows one, would save nothing.
  if (node.op == Op::mean) lane = fmt::format("div({}, to<{}>(length))", lane, type);
  return node_text_.rounded(node, lane);
}

// An element that was loaded: the number that is computed with, and where that is wanted the
// element as it lies in memory.
void ReductionEmitter::define_input(std::size_t id, int depth, const std::string& name,
                                    std::string element) {
  const DType dtype = graph_.nodes[id].dtype;
  if (node_text_.needs_stored(static_cast<NodeId>(id))) {
    stored_[id] = name + "_bits";
    out_.line(depth, "const {} {} = {};", storage_type(dtype), stored_[id], element);
    element = stored_[id];
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
  if (node_text_.needs_stored(static_cast<NodeId>(id)))
    stored_[id] = node_text_.bits(node, values_, stored_);
  NodeText::Expression expression;
  if (node.op == Op::scalar) {
    expression.text = node_text_.scalar(node, identifiers_.scalar_parameter(node.payload));
  } else {
    expression = node_text_.of(static_cast<NodeId>(id), values_, stored_);
  }
  if (expression.same) {
    values_[id] = expression.text;
    return;
  }
  out_.line(depth, "const {} {} = {};", compute_type(node.dtype), name_of(id), expression.text);
  values_[id] = name_of(id);
}

int ReductionEmitter::alignment(std::size_t operand) const {
  return at_ends_ ? std::max(1, bits(operands_[operand].dtype) / 8)
                  : schedule_.operands[operand].alignment;
}

}  // namespace kiln::fusion
