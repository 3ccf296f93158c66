// The passes of reductions, and in each of them sums in the order of their tree: of a row, of
// chunks that are read one after the other, and of those that threads keep.
#include <fmt/format.h>

#include <algorithm>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/rows/reduction_emitter.hpp"

namespace kiln::fusion {

void ReductionEmitter::emit_pass(int pass) {
  prepare_divisors(pass);
  forget_converted(pass);
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

}  // namespace kiln::fusion
