// The passes of reductions: what a thread loads, computes, combines and stores of its vectors, and
// the elements at the ends of unaligned rows.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/rows/reduction_emitter.hpp"
#include "fusion/infer/reduce_space.hpp"

namespace kiln::fusion {

// ---- Passes -------------------------------------------------------------------------------------

void ReductionEmitter::load_inputs() {
  std::vector<std::size_t> loaded;
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!operands_[i].in_registers) continue;
    const std::string_view type = storage_type(operands_[i].dtype);
    const int registers = operands_[i].in_smem ? rows_.register_vectors() : rows_.vectors;
    if (registers != 0) {
      out_.line(2, "Vec<{}, {}> {}_registers[{}];", type, schedule_.width, operands_[i].name,
                registers);
    }
    if (rows_.is_shifted()) out_.line(2, "Vec<{}, 1> {};", type, end_of(operands_[i].name));
    loaded.push_back(i);
  }
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (passes_.cached_in[id] < 0) continue;
    if (rows_.register_vectors() != 0) {
      out_.line(2, "{}<f32, {}> {}_cached[{}];", is_host() ? "Lanes" : "Vec", schedule_.width,
                names_[id], rows_.register_vectors());
    }
    if (rows_.is_shifted()) out_.line(2, "Vec<f32, 1> {};", end_of(names_[id]));
  }
  if (loaded.empty()) return stage_weights();
  if (passes_.uses_smem()) declare_smem();
  out_.line(2, "KILN_UNROLL for (int slot = 0; slot < {}; ++slot) {{", rows_.vectors);
  if (passes_.clamps_loads) {
    out_.line(3, "const {} vector = least({}, vectors - 1);", index_, slot_vector("slot"));
  } else {
    out_.line(3, "const {} vector = {};", index_, slot_vector("slot"));
    skip_missing(3, "slot");
  }
  locate_vector(3);
  slot_ = "slot";
  for (const std::size_t i : loaded) {
    const std::string in_register =
        fmt::format("{}_registers[slot] = {};", operands_[i].name, load_text(i));
    const std::string in_memory =
        operands_[i].copied
            ? fmt::format("copy_async<{}>({}_smem, {}, {}, first);", schedule_.width,
                          operands_[i].name, smem_offset(), line_text(i))
            : fmt::format("store<{}, {}>({}_smem, {}, {});", schedule_.width, smem_alignment(i),
                          operands_[i].name, smem_offset(), load_text(i));
    if (!operands_[i].in_smem) {
      out_.line(3, "{}", in_register);
    } else if (rows_.register_vectors() == 0) {
      out_.line(3, "{}", in_memory);
    } else {
      out_.line(3, "if (slot < {}) {}", rows_.register_vectors(), in_register);
      out_.line(3, "else {}", in_memory);
    }
  }
  if (passes_.copies_async) out_.line(3, "end_copies();");
  out_.line(2, "}}");
  slot_.clear();
  copies_pending_ = passes_.copies_async;
  begin_prefetch();
  if (!rows_.is_shifted()) return;
  for_ends([&] {
    for (const std::size_t i : loaded) {
      out_.line(3, "{} = {};", end_of(operands_[i].name), load_text(i));
    }
  });
  stage_weights();
}

// Declares pointers to each operand's part of shared memory for a thread. Its vectors are as many
// vectors apart as there are threads.
void ReductionEmitter::declare_smem() {
  out_.line(2, "KILN_DYNAMIC_SHARED(16, memory);");
  int before = 0;
  for (const OperandText& operand : operands_) {
    if (!operand.in_smem) continue;
    const std::string_view type = storage_type(operand.dtype);
    out_.line(2, "{0}* const {1}_smem = reinterpret_cast<{0}*>(memory + {2}) + {4} * {3};", type,
              operand.name, before / 16, schedule_.width,
              rows_.copied         ? "threadIdx.x"
              : rows_.in_cluster() ? "thread_in_block"
                                   : "thread");
    before += rows_.in_smem * rows_.block_threads() * passes_.vector_bytes(operand);
  }
}

std::string ReductionEmitter::smem_offset() const {
  return fmt::format("(slot - {}) * {}", rows_.register_vectors(),
                     rows_.block_threads() * schedule_.width);
}

int ReductionEmitter::smem_alignment(std::size_t operand) const {
  return std::min(16, passes_.vector_bytes(operands_[operand]));
}

// A thread's last vectors may be past the end of its row.
void ReductionEmitter::skip_missing(int depth, std::string_view slot) {
  if (rows_.is_full()) return;
  std::string missing = fmt::format("vector >= {}", last_vector());
  if (rows_.full_vectors != 0)
    missing = fmt::format("{} >= {} && {}", slot, rows_.full_vectors, missing);
  out_.line(depth, "if ({}) continue;", missing);
}

// Writes `body` for the elements before a row's first aligned vector and after its last one, of
// which each of the first threads has one. The other threads use the row's first element and ignore
// the result: without a branch, this is computed beside the vectors.
void ReductionEmitter::for_ends(const std::function<void()>& body) {
  if (rows_.keeps_chunks()) {
    if (in_row_chunk_) {
      out_.line(2, "{{");
    } else {
      out_.line(2, "KILN_UNROLL for (int part = 0; part < {}; ++part) {{", passes_.chunks_kept);
      out_.line(3, "const auto ends = kept.ends(part);");
      out_.line(3, "const bool at_end = ends.has_element();");
    }
    out_.line(3, "const {} first = at_end ? kept.start(part) + ends.element() : 0;", index_);
  } else if (rows_.has_row_trees()) {
    out_.line(2, "{{");
    out_.line(
        3, "const {} first = {};", index_,
        in_row_chunk_ ? "at_end ? chunk + ends.element() : 0" : "at_end ? ends.element() : 0");
  } else {
    out_.line(2, "{{");
    out_.line(3, "const {} first = at_end ? thread < head ? thread : thread + vectors * {} : 0;",
              index_, schedule_.width);
  }
  at_ends_ = true;
  body();
  at_ends_ = false;
  out_.line(2, "}}");
}

void ReductionEmitter::emit_pass(int pass) {
  prepare_divisors(pass);
  for (const std::size_t id : reductions_in(pass)) {
    const TypedNode& node = graph_.nodes[id];
    if (passes_.sums_in_tree(node) && !is_host()) {
      if (rows_.columns != 0) declare_column_tree(id);
      continue;
    }
    if (passes_.sums_in_tree(node)) {
      out_.line(2, "{}<{}, {}, {}> {}_tree;", in_parts() ? "TreeRows" : "TreeColumns",
                info(node.op).combiner, partial_type(node), schedule_.width, names_[id]);
      continue;
    }
    out_.line(2, "auto {}_lanes = {}<{}, {}, {}>();", names_[id],
              is_host() ? "start_accumulators" : "identity_lanes", info(node.op).combiner,
              partial_type(node), schedule_.width);
  }
  if (is_host()) {
    emit_host_pass(pass);
  } else if (const Ids trees = trees_in(pass); trees.empty()) {
    for_each_part(pass, [&](int) { emit_batches(pass); });
    if (rows_.is_shifted()) for_ends([&] { emit_vector(pass, 3, ""); });
  } else if (rows_.columns != 0) {
    emit_threads_columns(pass, trees);
  } else if (rows_.keeps_chunks()) {
    emit_kept_chunks(pass, trees);
  } else if (rows_.has_row_chunks()) {
    emit_row_chunks(pass, trees);
  } else {
    emit_row_trees(pass, trees);
  }
  for (const std::size_t id : reductions_in(pass)) emit_result(id);
}

void ReductionEmitter::declare_row_tree(std::size_t id) {
  const TypedNode& node = graph_.nodes[id];
  out_.line(2, "RowTree<{}, {}, {}, {}, {}{}> {}_tree;", info(node.op).combiner, partial_type(node),
            rows_.chunk_threads(), schedule_.width, rows_.sets, of_blocks(), names_[id]);
}

// A pass with sums in the order of their tree. Elements before a row's first aligned vector are the
// first of their residues, those after its last one the last.
void ReductionEmitter::emit_row_trees(int pass, const Ids& trees) {
  for (const std::size_t id : trees) declare_row_tree(id);
  if (rows_.is_shifted()) {
    for_ends([&] { emit_vector(pass, 3, ""); });
    out_.line(2, "KILN_SYNCHRONIZE_WAVE();");
    for (const std::size_t id : trees) {
      out_.line(2, "{0}_tree.begin(ends, {0}_ends);", names_[id]);
    }
  }
  in_row_tree_ = true;
  emit_batches(pass);
  in_row_tree_ = false;
  if (!rows_.is_shifted()) return;
  const bool kept = rows_.vectors != 0 && !rows_.keeps_chunks();
  for (const std::size_t id : trees) {
    out_.line(2, "{0}_tree.end<{1}, {2}>(ends, {0}_ends);", names_[id],
              kept && rows_.sets > 1 ? rows_.full_vectors : 0,
              kept && rows_.sets > 1 ? rows_.vectors : rows_.sets - 1);
  }
}

// The same of several chunks, each of which is a row that begins as many elements before an aligned
// vector as all of it does. Threads synchronise after as many of them as shared memory has room
// for.
void ReductionEmitter::emit_row_chunks(int pass, const Ids& trees) {
  for (const std::size_t id : trees) out_.line(2, "{}_chunks.begin();", names_[id]);
  out_.line(2, "{{");
  out_.indent(1);
  out_.line(2, "u32 number = 0;");
  out_.line(2, "const auto join = [&]() KILN_INLINED {{");
  out_.indent(1);
  combine_chunks(trees, "number");
  for (const std::size_t id : trees) out_.line(2, "{}_chunks.push(number);", names_[id]);
  out_.line(2, "number = 0;");
  out_.indent(-1);
  out_.line(2, "}};");
  out_.line(2, "{0}[&]({1} chunk, {1} count, int merges) KILN_INLINED {{", each_chunk(row_size()),
            index_);
  in_row_chunk_ = true;
  out_.indent(1);
  if (rows_.is_shifted()) {
    out_.line(2, "const {} vectors = count < head ? 0 : (count - head) / {};", index_,
              schedule_.width);
  } else {
    out_.line(2, "const {} vectors = count / {};", index_, schedule_.width);
  }
  out_.line(2, "const u32 threads = threads_with_residues<{}, {}, {}>(count);", rows_.threads,
            schedule_.width, rows_.sets);
  if (rows_.is_shifted()) {
    out_.line(2, "const TreeEnds<{}, {}, {}> ends{{head, vectors, count, threads}};", rows_.threads,
              schedule_.width, index_);
    out_.line(2, "const bool at_end = ends.has_element();");
  }
  emit_row_trees(pass, trees);
  for (std::size_t k = 0; k < trees.size(); ++k) {
    out_.line(2, "{0}_chunks.merge_after(number, merges);", names_[trees[k]]);
    out_.line(2, "{0}_chunks.leave({0}_tree, chunk_columns[{1}], number);", names_[trees[k]], k);
  }
  if (rows_.is_shifted()) out_.line(2, "KILN_SYNCHRONIZE_WAVE();");
  out_.line(2, "if (++number == {}) join();", passes_.chunks_together);
  out_.indent(-1);
  in_row_chunk_ = false;
  out_.line(2, "}});");
  out_.line(2, "if (number != 0) join();");
  out_.indent(-1);
  out_.line(2, "}}");
  out_.line(2, "KILN_SYNCHRONIZE();");
}

// Writes `body` for the vectors of each chunk that threads keep, or for all vectors where they need
// not know which one it is.
void ReductionEmitter::for_each_part(int pass, const std::function<void(int)>& body) {
  const bool known = !rows_.is_full() || !trees_in(pass).empty();
  if (!rows_.keeps_chunks() || !known || (pass == passes_.last && !passes_.prefetched.empty()))
    return body(0);
  for (kept_part_ = 0; kept_part_ < passes_.chunks_kept; ++kept_part_) {
    kept_from_ = kept_part_ * passes_.chunk_slots();
    kept_to_ = std::min(kept_from_ + passes_.chunk_slots(), rows_.vectors);
    body(kept_part_);
  }
  kept_part_ = -1;
  kept_from_ = 0;
  kept_to_ = rows_.vectors;
}

// The same of chunks that threads keep on chip, one after the other.
void ReductionEmitter::emit_kept_chunks(int pass, const Ids& trees) {
  const int parts = passes_.chunks_kept;
  if (rows_.chunk_blocks > 1) begin_cluster();
  for_each_part(pass, [&](int part) {
    out_.line(2, "{{");
    out_.indent(1);
    if (rows_.is_shifted()) {
      out_.line(2, "constexpr int part = {};", part);
      out_.line(2, "const auto ends = kept.ends(part);");
      out_.line(2, "const bool at_end = ends.has_element();");
    }
    in_row_chunk_ = true;
    emit_row_trees(pass, trees);
    in_row_chunk_ = false;
    for (std::size_t k = 0; k < trees.size(); ++k) {
      out_.line(2, "{0}_chunks.leave({0}_tree, chunk_columns[{1}], {2});", names_[trees[k]], k,
                part);
    }
    if (rows_.is_shifted() && part + 1 < parts) out_.line(2, "KILN_SYNCHRONIZE_WAVE();");
    out_.indent(-1);
    out_.line(2, "}}");
  });
  combine_chunks(trees, fmt::format("{}", parts));
}

// What a thread has of an operand, or of a cached value, at an end of a row or of a chunk.
std::string ReductionEmitter::end_of(const std::string& name) const {
  if (!rows_.keeps_chunks()) return name + "_end";
  return fmt::format("{}_end[{}]", name, at_ends_ ? "part" : std::to_string(passes_.chunks_kept));
}

// The vectors of a thread on a GPU. Those that are not on chip are loaded in batches, whose loads
// are all in flight before the first is used; a store among them would delay those after it.
void ReductionEmitter::emit_batches(int pass) {
  std::vector<std::size_t> fetched;
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const OperandText& operand = operands_[i];
    if (operand.output || operand.row_invariant || operand.in_registers ||
        !passes_.is_read(operand, pass))
      continue;
    fetched.push_back(i);
  }
  if (pass == passes_.last && !passes_.prefetched.empty()) return emit_prefetched(pass);
  if (rows_.vectors != 0 && (fetched.empty() || passes_.uses_smem())) {
    if (rows_.register_vectors() != 0 || !passes_.uses_smem()) {
      emit_slots(pass, kept_from_,
                 passes_.uses_smem() ? std::min(kept_to_, rows_.register_vectors()) : kept_to_,
                 "KILN_UNROLL");
    }
    if (passes_.uses_smem()) {
      from_smem_ = true;
      if (copies_pending_) {
        emit_arriving(pass);
      } else {
        emit_slots(pass, std::max(kept_from_, rows_.register_vectors()), kept_to_,
                   passes_.unrolls_smem ? "KILN_UNROLL" : "KILN_UNROLL_TWICE");
      }
      from_smem_ = false;
    }
    return;
  }
  const std::string step = fmt::format("{} * {}", vector_step(), rows_.batch);
  if (rows_.vectors != 0) {
    out_.line(2, "KILN_UNROLL for (int base = {}; base < {}; base += {}) {{", kept_from_, kept_to_,
              rows_.batch);
  } else if (passes_.is_backwards(pass)) {
    const int all = rows_.threads * rows_.batch;
    out_.line(2, "for ({0} left = (vectors + {1}) / {2}; left-- > 0;) {{", index_, all - 1, all);
    out_.line(3, "const {} batch = left * {} + thread;", index_, all);
  } else if (in_row_tree_) {
    out_.line(2, "for ({} batch = thread;", index_);
    out_.line(4, "thread < threads && batch < {}; batch += {}) {{", last_vector(), step);
  } else {
    out_.line(2, "for ({} batch = {}thread; batch < {}; batch += {}) {{", index_,
              rows_.split ? "begin + " : "", last_vector(), step);
  }
  fetch(fetched, 3);
  out_.line(3, "KILN_UNROLL for (int step = 0; step < {}; ++step) {{", rows_.batch);
  out_.line(4, "const {} vector = {};", index_, batch_vector());
  if ((kept_to_ - kept_from_) % rows_.batch != 0) {
    out_.line(4, "if (base + step >= {}) continue;", kept_to_);
  }
  skip_missing(4, "base + step");
  locate_vector(4);
  emit_vector(pass, 4, rows_.vectors != 0 ? "base + step" : "step");
  out_.line(3, "}}");
  out_.line(2, "}}");
}

// A pass over the vectors from `from` to `to` of those that a thread keeps.
void ReductionEmitter::emit_slots(int pass, int from, int to, std::string_view unroll) {
  if (from >= to) return;
  out_.line(2, "{} for (int slot = {}; slot < {}; ++slot) {{", unroll, from, to);
  out_.line(3, "const {} vector = {};", index_, slot_vector("slot"));
  if (to > rows_.full_vectors) skip_missing(3, "slot");
  locate_vector(3);
  slot_ = "slot";
  emit_vector(pass, 3, "slot");
  slot_.clear();
  out_.line(2, "}}");
}

// Loads a batch. Indices past the end are clamped to the last vector, so that no load waits for a
// branch.
void ReductionEmitter::fetch(const std::vector<std::size_t>& operands, int depth) {
  if (operands.empty()) return;
  for (const std::size_t i : operands) {
    out_.line(depth, "Vec<{}, {}> {}_batch[{}];", storage_type(operands_[i].dtype), schedule_.width,
              operands_[i].name, rows_.batch);
  }
  out_.line(depth, "KILN_UNROLL for (int step = 0; step < {}; ++step) {{", rows_.batch);
  const std::string vector = batch_vector();
  if (rows_.vectors != 0) {
    if ((kept_to_ - kept_from_) % rows_.batch != 0) {
      out_.line(depth + 1, "if (base + step >= {}) continue;", kept_to_);
    }
    out_.line(depth + 1, "const {} vector = {};", index_, vector);
    skip_missing(depth + 1, "base + step");
  } else {
    out_.line(depth + 1, "const {} vector = least({}, {} - 1);", index_, vector, last_vector());
  }
  locate_vector(depth + 1);
  if (rows_.vectors != 0) slot_ = "base + step";
  for (const std::size_t i : operands) {
    out_.line(depth + 1, "{}_batch[step] = {};", operands_[i].name, load_text(i));
  }
  slot_.clear();
  out_.line(depth, "}}");
}

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
    return;
  }
  if (fast_quotients_ && std::ranges::binary_search(passes_.quotients, id)) {
    return emit_fast_quotient(id, depth);
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
  out_.line(depth, "{3}{0}_lanes[lane] = {1}::{4}({0}_lanes[lane], {2});", names_[id],
            info(node.op).combiner, value, at_ends_ ? "if (at_end) " : "",
            in_order ? "append" : "combine");
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
