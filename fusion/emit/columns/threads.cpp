// Reductions of columns on GPUs: which elements a thread visits, so that sums and products are
// combined in the order of their tree (preamble/columns.h). Vectors that are kept on chip are
// visited residue by residue too, in an order that is known when the kernel is compiled.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/rows/reduction_emitter.hpp"
#include "fusion/infer/sum_tree.hpp"
#include "fusion/schedule/columns/column_mapping.hpp"

namespace kiln::fusion {
namespace {

int log2_of(int power) { return std::countr_zero(static_cast<unsigned>(std::max(1, power))); }

}  // namespace

// Defines which chunks and residues of a column are those of a split.
void ReductionEmitter::locate_part() {
  out_.line(2, "const auto part = part_of_column<{}>(vectors, split, splits.divisor);", index_);
}

void ReductionEmitter::declare_column_tree(std::size_t id) {
  const bool kept = rows_.vectors != 0;
  const int beside = kept ? 1 : rows_.batch;
  const int groups = kept ? kept_residues(rows_) : rows_.groups;
  const std::string_view combiner = info(graph_.nodes[id].op).combiner;
  const std::string type = partial_type(graph_.nodes[id]);
  out_.line(2, "ColumnTree<{}, {}, {}, {}, {}> {}_tree;", combiner, type, schedule_.width, beside,
            log2_of(groups), names_[id]);
  out_.line(2, "Lanes<{}, {}> {}_total;", type, schedule_.width, names_[id]);
  if (rows_.folded != 0) {
    out_.line(2, "Lanes<{}, {}> {}_terms[{}];", type, schedule_.width, names_[id], rows_.folded);
  }
  if (rows_.chunks == ColumnChunks::many) {
    out_.line(2, "TreeColumns<{}, {}, {}> {}_chunks;", combiner, type, schedule_.width, names_[id]);
  } else if (rows_.chunks == ColumnChunks::one_per_thread) {
    out_.line(2, "auto {}_chunks = identity_lanes<{}, {}, {}>();", names_[id], combiner, type,
              schedule_.width);
  }
}

// A pass over columns of which some are added up.
void ReductionEmitter::emit_threads_columns(int pass, const Ids& trees) {
  if (rows_.vectors != 0) return emit_kept_columns(pass, trees);
  const bool in_chunks = rows_.chunks != ColumnChunks::one;
  // Lanes of vectors that have elements of one chunk.
  const int joined = rows_.joined_chunks != 0 ? 1 : rows_.joined;
  if (rows_.split) locate_part();
  if (rows_.chunks == ColumnChunks::many) {
    const std::string divisor = joined > 1 ? fmt::format(" / {}", joined) : "";
    const std::string length =
        joined > 1 ? fmt::format("{}(vectors * {})", index_, joined) : "vectors";
    out_.line(2, "{}[&]({} at, {} elements, int merges) KILN_INLINED {{", each_chunk(length),
              index_, index_);
    out_.line(3, "const {} chunk = at{};", index_, divisor);
    out_.line(3, "const {} count = elements{};", index_, divisor);
  } else if (in_chunks) {
    out_.line(2, "for ({0} chunk = 0, number = 0; chunk < vectors; chunk += {1}, ++number) {{",
              index_, kTreeChunk / rows_.joined);
    out_.line(3, "const {0} count = least(vectors - chunk, {0}({1}));", index_,
              kTreeChunk / rows_.joined);
  }
  const int depth = in_chunks ? 3 : 2;
  const std::string_view count = in_chunks ? "count" : "vectors";
  const std::string before = in_chunks ? "chunk + " : "";
  const std::string own = rows_.split ? "u32(thread * part.sharing + part.own)" : "thread";
  const std::string sharing = rows_.split ? fmt::format("u32({} * part.sharing)", rows_.threads)
                                          : fmt::format("{}u", rows_.threads);
  const int folded = std::max(1, rows_.folded);
  // Where vectors are folded, elements are residues, of as many vectors each.
  std::string end(count);
  if (rows_.folded != 0) {
    end = fmt::format("residues_{}", pass);
    out_.line(depth, "const {} {} = {} / {};", index_, end, count, folded);
    out_.line(depth, "walk_column_residues<{0}>({1}, u32({1}), {2}, {3},", rows_.batch, end, own,
              sharing);
  } else {
    out_.line(depth, "walk_column<{}, {}>({}, {}, {},", rows_.batch, joined, count, own, sharing);
  }
  out_.line(depth + 2, "[&]({0} element, {0} apart, int beside) KILN_INLINED {{", index_);
  std::vector<std::size_t> fetched;
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const OperandText& operand = operands_[i];
    if (operand.output || operand.row_invariant || !passes_.is_read(operand, pass)) continue;
    fetched.push_back(i);
    out_.line(depth + 3, "Vec<{}, {}> {}_batch[{}];", storage_type(operand.dtype), schedule_.width,
              operand.name, rows_.batch * folded);
  }
  const std::string place = folded == 1 ? "step" : fmt::format("step / {}", folded);
  const std::string next =
      folded == 1 ? "" : fmt::format(" + {}(step % {}) * {}", index_, folded, end);
  // Indices past the end are clamped to the last element, so that no load waits for a branch.
  if (!fetched.empty()) {
    out_.line(depth + 3, "KILN_UNROLL for (int step = 0; step < {}; ++step) {{",
              rows_.batch * folded);
    out_.line(depth + 4,
              "const {0} vector = {1}least({0}(element + {0}({3}) * apart), {2} - 1){4};", index_,
              before, end, place, next);
    locate_vector(depth + 4);
    for (const std::size_t i : fetched) {
      out_.line(depth + 4, "{}_batch[step] = {};", operands_[i].name, load_text(i));
    }
    out_.line(depth + 3, "}}");
  }
  out_.line(depth + 3, "KILN_UNROLL for (int step = 0; step < {}; ++step) {{",
            rows_.batch * folded);
  out_.line(depth + 4, "const {0} in_chunk = element + {0}({1}) * apart;", index_, place);
  out_.line(depth + 4, "if ({} >= beside || in_chunk >= {}) continue;", place, end);
  out_.line(depth + 4, "const {} vector = {}in_chunk{};", index_, before, next);
  locate_vector(depth + 4);
  begin_terms(trees, depth + 4, "step");
  emit_vector(pass, depth + 4, "");
  if (rows_.folded != 0) fold_terms(trees, depth + 4, "step", place);
  out_.line(depth + 3, "}}");
  out_.line(depth + 2, "}},");
  out_.line(depth + 2, "[&](u32 turn) KILN_INLINED {{");
  for (const std::size_t id : trees) {
    out_.line(depth + 3, "{0}_total = {0}_tree.end(turn);", names_[id]);
  }
  out_.line(depth + 2, "}});");
  for (const std::size_t id : trees) {
    out_.line(depth, "{0}_total = finish_sums<{1}>({0}_total);", names_[id],
              info(graph_.nodes[id].op).combiner);
  }
  if (!in_chunks) return;
  for (const std::size_t id : trees) {
    combine_threads(id, 3, names_[id] + "_total");
    if (rows_.joined_chunks != 0) {
      // Chunks of vectors that are side by side come first, then those of their lanes.
      const int levels = log2_of(rows_.joined_chunks);
      out_.line(3, "{0}_chunks.residue() = {0}_total;", names_[id]);
      out_.line(3, "{}_chunks.end(least(merges, {}));", names_[id], levels);
      out_.line(3, "if (merges >= {}) {{", levels);
      join_columns(id, 4, names_[id] + "_chunks.last()");
      out_.line(4, "{}_chunks.merge(merges - {});", names_[id], levels);
      out_.line(3, "}}");
      continue;
    }
    if (rows_.folded == 0) join_columns(id, 3, names_[id] + "_total");
    if (rows_.chunks == ColumnChunks::many) {
      out_.line(3, "{0}_chunks.residue() = {0}_total;", names_[id]);
      out_.line(3, "{0}_chunks.end(merges);", names_[id]);
    } else {
      out_.line(3, "if (thread == number) {0}_chunks = {0}_total;", names_[id]);
    }
  }
  out_.line(2, "{}", rows_.chunks == ColumnChunks::many ? "});" : "}");
  for (const std::size_t id : trees) {
    out_.line(2, "{0}_total = {0}_chunks{1};", names_[id],
              rows_.chunks == ColumnChunks::many ? ".result()" : "");
    if (rows_.chunks != ColumnChunks::many) combine_threads(id, 2, names_[id] + "_total");
  }
}

// Defines where a vector's terms are added up: its residue, or its place among those that are
// folded.
void ReductionEmitter::begin_terms(const Ids& trees, int depth, std::string_view step) {
  for (const std::size_t id : trees) {
    if (rows_.folded == 0) {
      out_.line(depth, "auto& {0}_lanes = {0}_tree.residue({1});", names_[id], step);
      continue;
    }
    const TypedNode& node = graph_.nodes[id];
    out_.line(depth, "auto& {}_lanes = {}_terms[{} % {}];", names_[id], names_[id], step,
              rows_.folded);
    out_.line(depth, "{}_lanes = identity_lanes<{}, {}, {}>();", names_[id], info(node.op).combiner,
              partial_type(node), schedule_.width);
  }
}

// After the last of the vectors that are folded, what they come to is a residue's.
void ReductionEmitter::fold_terms(const Ids& trees, int depth, std::string_view step,
                                  std::string_view residue) {
  out_.line(depth, "if ({} % {} != {}) continue;", step, rows_.folded, rows_.folded - 1);
  for (const std::size_t id : trees) {
    out_.line(depth, "{0}_tree.residue({1}) = fold_vectors<{2}, {3}, {4}>({0}_terms);", names_[id],
              residue, info(graph_.nodes[id].op).combiner, rows_.fold_steps, rows_.fold_residues);
  }
}

// Compilers would keep what an earlier pass has converted of columns of 16 bits, which takes twice
// the registers.
void ReductionEmitter::forget_converted(int pass) {
  if (pass == 0 || rows_.columns == 0 || rows_.register_vectors() == 0) return;
  for (const OperandText& operand : operands_) {
    if (!operand.in_registers || bits(operand.dtype) >= 32 || !passes_.is_read(operand, pass)) {
      continue;
    }
    out_.line(2, "forget_converted({}_registers);", operand.name);
  }
}

void ReductionEmitter::emit_kept_columns(int pass, const Ids& trees) {
  const auto slots = static_cast<int>(std::bit_ceil(static_cast<unsigned>(rows_.vectors)));
  const int residues = kept_residues(rows_);
  const int terms = slots / residues;
  if (copies_pending_) out_.line(2, "wait_copies<0>();");
  copies_pending_ = false;
  out_.line(2, "KILN_UNROLL for (int turn = 0; turn < {}; ++turn) {{", slots);
  out_.line(3, "const int slot = slot_in_tree<{}, {}>(turn);", residues, slots);
  out_.line(3, "const {0} vector = {0}(slot) * {1} + thread;", index_, rows_.threads);
  std::string exists = slots == rows_.vectors ? "" : fmt::format("slot < {}", rows_.vectors);
  if (!rows_.is_full()) {
    std::string within = "vector < vectors";
    if (rows_.full_vectors != 0) {
      within = fmt::format("slot < {} || {}", rows_.full_vectors, within);
      if (!exists.empty()) within = "(" + within + ")";
    }
    exists += (exists.empty() ? "" : " && ") + within;
  }
  out_.line(3, "{}{{", exists.empty() ? "" : fmt::format("if ({}) ", exists));
  locate_vector(4);
  begin_terms(trees, 4, rows_.folded == 0 ? "0" : "turn");
  slot_ = "slot";
  loads_directly_ = true;
  if (const int registers = rows_.register_vectors(); registers != 0 && passes_.uses_smem()) {
    out_.line(4, "if (slot < {}) {{", registers);
    out_.line(5, "const int place = slot < {} ? slot : 0;", registers);
    emit_vector(pass, 5, "place");
    out_.line(4, "}} else {{");
    from_smem_ = true;
    emit_vector(pass, 5, "slot");
    out_.line(4, "}}");
  } else {
    from_smem_ = passes_.uses_smem();
    emit_vector(pass, 4, "slot");
  }
  from_smem_ = false;
  loads_directly_ = false;
  slot_.clear();
  if (rows_.folded != 0) fold_terms(trees, 4, "turn", "0");
  out_.line(3, "}}");
  if (terms > 1) out_.line(3, "if (turn % {} != {}) continue;", terms, terms - 1);
  for (const std::size_t id : trees) {
    out_.line(3, "{0}_total = {0}_tree.end(turn{1});", names_[id],
              terms > 1 ? fmt::format(" / {}", terms) : "");
  }
  out_.line(2, "}}");
  for (const std::size_t id : trees) {
    out_.line(2, "{0}_total = finish_sums<{1}>({0}_total);", names_[id],
              info(graph_.nodes[id].op).combiner);
  }
}

// Combines what the threads of a column have, of which `finished` is made: a text of "result".
void ReductionEmitter::combine_threads(std::size_t id, int depth, const std::string& lanes,
                                       std::string_view finished) {
  const TypedNode& node = graph_.nodes[id];
  const std::string name = rows_.in_cluster() ? "reduce_columns_in_cluster" : "reduce_columns";
  const std::string blocks =
      rows_.in_cluster() ? fmt::format(", {}", rows_.cluster_blocks) : std::string();
  std::string finish;
  if (finished != "result") {
    finish = fmt::format(", [&]({} result) KILN_INLINED {{ return {}; }}", compute_type(node.dtype),
                         finished);
  }
  out_.line(depth, "{}<{}, {}, {}{}>({}, slots{});", name, info(node.op).combiner, rows_.columns,
            rows_.block_threads(), blocks, lanes, finish);
}

// Combines neighbouring columns that are one row.
void ReductionEmitter::join_columns(std::size_t id, int depth, const std::string& lanes) {
  if (rows_.joined == 1) return;
  out_.line(depth, "join_columns<{}, {}>({});", info(graph_.nodes[id].op).combiner, rows_.joined,
            lanes);
}

}  // namespace kiln::fusion
