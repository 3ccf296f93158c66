// The vectors of a thread on a GPU: which they are, how they get on chip before the first pass, and
// the loops over them; the elements at the ends of unaligned rows.
#include <fmt/format.h>

#include <algorithm>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/rows/reduction_emitter.hpp"

namespace kiln::fusion {

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
  if (has_staged() && rows_.full_vectors != 0) {
    out_.line(3, "const {} asked = {};", index_, slot_vector("slot"));
    out_.line(3, "const {} vector = slot < {} ? asked : least(asked, vectors - 1);", index_,
              rows_.full_vectors);
  } else if (has_staged() || passes_.clamps_loads) {
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
    before += rows_.in_smem * rows_.block() * passes_.vector_bytes(operand);
  }
}

std::string ReductionEmitter::smem_offset() const {
  return fmt::format("(slot - {}) * {}", rows_.register_vectors(), rows_.block() * schedule_.width);
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

// Defines `vector`, one of a thread's. Where it is past the end of the row, threads skip it, or
// compute the row's last one and count nothing of it: then no code waits for a branch.
void ReductionEmitter::find_vector(int depth, const std::string& text, std::string_view slot) {
  may_miss_ = passes_.computes_missing;
  if (!may_miss_) {
    out_.line(depth, "const {} vector = {};", index_, text);
    return skip_missing(depth, slot);
  }
  out_.line(depth, "const {} asked = {};", index_, text);
  const std::string within = fmt::format("asked < {}", last_vector());
  if (rows_.full_vectors == 0) {
    out_.line(depth, "const bool exists = {};", within);
  } else {
    out_.line(depth, "const bool exists = {} < {} || {};", slot, rows_.full_vectors, within);
  }
  out_.line(depth, "const {} vector = exists ? asked : {} - 1;", index_, last_vector());
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
  if (rows_.vectors != 0 && (kept_to_ - kept_from_) % rows_.batch != 0) {
    out_.line(4, "if (base + step >= {}) continue;", kept_to_);
  }
  find_vector(4, batch_vector(), "base + step");
  locate_vector(4);
  emit_vector(pass, 4, rows_.vectors != 0 ? "base + step" : "step");
  may_miss_ = false;
  out_.line(3, "}}");
  out_.line(2, "}}");
}

// A pass over the vectors from `from` to `to` of those that a thread keeps.
void ReductionEmitter::emit_slots(int pass, int from, int to, std::string_view unroll) {
  if (from >= to) return;
  out_.line(2, "{} for (int slot = {}; slot < {}; ++slot) {{", unroll, from, to);
  if (to > rows_.full_vectors) {
    find_vector(3, slot_vector("slot"), "slot");
  } else {
    out_.line(3, "const {} vector = {};", index_, slot_vector("slot"));
  }
  locate_vector(3);
  slot_ = "slot";
  emit_vector(pass, 3, "slot");
  slot_.clear();
  may_miss_ = false;
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
  }
  if (rows_.vectors != 0 && !passes_.computes_missing) {
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

}  // namespace kiln::fusion
