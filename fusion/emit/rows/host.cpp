// The parts of reductions that only the CPU has: passes over the vectors of a row, one after the
// other and the last one in parts, and where results are until they are stored.
#include <fmt/format.h>

#include <algorithm>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/rows/reduction_emitter.hpp"
#include "fusion/graph/dtype_lattice.hpp"

namespace kiln::fusion {

// The CPU takes short rows in groups, one after the other within each pass: while one row waits at
// the end of a pass, others are computed. One row at a time takes softmax of 64 bf16 1.5 times as
// long. Each pass locates its rows and reloads what earlier passes have left, so for many passes
// the text would grow with their square.
int ReductionEmitter::row_group_size() const {
  constexpr int kMost = 8;
  constexpr int kElements = 512;
  constexpr int kMostPasses = 8;
  const bool is_short = in_parts() && rows_.vectors == 1 && !rows_.split && last_pass_ > 0 &&
                        last_pass_ < kMostPasses;
  return is_short ? std::clamp(kElements / schedule_.width, 1, kMost) : 1;
}

// The pass after which a row-invariant value is known.
int ReductionEmitter::defined_in(std::size_t id) const {
  return is_reduction(graph_.nodes[id].op) ? pass_[id] - 1 : pass_[id];
}

// The row-invariant values that code after `pass` uses.
std::vector<bool> ReductionEmitter::wanted_after(int pass) {
  std::vector<bool> wanted(graph_.nodes.size(), false);
  for_each_result(true, [&](std::size_t, const OperandText& operand) {
    wanted[operand.value] = pass < last_pass_;
  });
  for (std::size_t id = graph_.nodes.size(); id-- > 0;) {
    bool later =
        row_invariant_[id] && (defined_in(id) > pass || (wanted[id] && values_[id] != names_[id]));
    for (int next = pass + 1; next <= last_pass_ && !row_invariant_[id]; ++next) {
      later = later || (is_needed(id, next) && !is_cached_for(id, next));
    }
    for (const NodeId operand : graph_.nodes[id].inputs()) {
      wanted[operand] = wanted[operand] || (later && row_invariant_[operand]);
    }
  }
  return wanted;
}

void ReductionEmitter::emit_row_groups() {
  out_.line(1, "KILN_FOR_EACH_ROW_GROUP({}, {}, group, group_size) {{", index_, row_group_size());
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (!is_cached(id)) continue;
    out_.line(2, "Lanes<f32, {}> {}_cached[{}];", schedule_.width, names_[id], row_group_size());
  }
  const std::size_t before = out_.here();
  std::string declarations;
  std::vector<std::size_t> saved;
  for (int pass = 0; pass <= last_pass_; ++pass) {
    out_.line(2, "for ({0} member = 0; member < group_size; ++member) {{", index_);
    out_.indent(1);
    out_.line(2, "const {} item = group + member;", index_);
    locate_rows();
    for (const std::size_t id : saved) {
      out_.line(2, "const {0} {1} = {1}_group[member];", compute_type(graph_.nodes[id].dtype),
                names_[id]);
    }
    row_values(pass);
    emit_pass(pass);
    if (pass == last_pass_) {
      row_values(last_pass_ + 1);
      store_row_values();
    }
    const std::vector<bool> wanted = wanted_after(pass);
    std::erase_if(saved, [&](std::size_t id) { return !wanted[id]; });
    for (std::size_t id = 0; id < graph_.nodes.size() && pass < last_pass_; ++id) {
      // What says places is there again in every pass, before its rows.
      const bool own = wanted[id] && defined_in(id) == pass && graph_.nodes[id].op != Op::input &&
                       !of_place_[id] && values_[id] == names_[id];
      if (!own) continue;
      out_.line(2, "{0}_group[member] = {0};", names_[id]);
      declarations += fmt::format("    {} {}_group[{}];\n", compute_type(graph_.nodes[id].dtype),
                                  names_[id], row_group_size());
      saved.push_back(id);
    }
    out_.indent(-1);
    out_.line(2, "}}");
  }
  out_.insert(before, declarations);
  out_.line(1, "}}");
}

std::vector<std::size_t> ReductionEmitter::trees_in(int pass) const {
  std::vector<std::size_t> trees;
  std::ranges::copy_if(reductions_in(pass), std::back_inserter(trees),
                       [&](std::size_t id) { return sums_in_tree(graph_.nodes[id]); });
  return trees;
}

// The loop over the vectors of a row, chunk by chunk if there are trees.
void ReductionEmitter::open_vectors(const std::vector<std::size_t>& trees) {
  if (in_parts() && rows_.vectors == 1) {
    out_.line(2, "{{");
    out_.line(3, "constexpr {} vector = 0;", index_);
    return;
  }
  if (trees.empty()) {
    out_.line(2, "for ({} vector = {}; vector < {}; ++vector) {{", index_,
              rows_.split ? "begin" : "0", last_vector());
    return;
  }
  out_.line(2, "{0}[&]({1} chunk, {1} count, int merges) KILN_INLINED {{", each_chunk(row_size()),
            index_);
  for (const std::size_t id : trees) out_.line(3, "{}_tree.begin(count);", names_[id]);
  out_.line(3, "for ({} own = 0; own < count; own += {}) {{", index_, schedule_.width);
  out_.indent(1);
  for (const std::size_t id : trees) {
    out_.line(3, "const auto {0}_lanes = {0}_tree.of(own);", names_[id]);
  }
  out_.line(3, "const {} vector = (chunk + own) / {};", index_, schedule_.width);
}

void ReductionEmitter::close_vectors(const std::vector<std::size_t>& trees) {
  if (!trees.empty()) {
    out_.indent(-1);
    out_.line(3, "}}");
    for (const std::size_t id : trees) out_.line(3, "{}_tree.end(merges);", names_[id]);
  }
  out_.line(2, "{}", trees.empty() ? "}" : "});");
}

// One text computes all parts of a vector, of which the last one of a row has fewer lanes.
void ReductionEmitter::emit_host_pass(int pass) {
  const std::vector<std::size_t> trees = trees_in(pass);
  if (!in_parts() && !trees.empty()) return emit_column_trees(pass, trees);
  open_vectors(trees);
  locate_vector(3);
  if (pass == last_pass_) prefetch_next_row();
  const auto for_each_streamed = [&](const auto& body) {
    if (pass != last_pass_) return;
    for_each_result(false, [&](std::size_t i, const OperandText& operand) {
      if (is_streamed(i)) body(operand.name, line_text(i));
    });
  };
  const bool ragged = in_parts() && rows_.ragged;
  if (ragged) {
    for_each_streamed([&](const std::string& name, const std::string& row) {
      out_.line(3, "auto {}_all = collect<{}>({});", name, schedule_.width, row);
    });
    const bool ends =
        std::ranges::find(schedule_.bounds, static_cast<int>(inner())) != schedule_.bounds.end();
    out_.line(3, "{}<{}>(first, {}, [&](auto part, {} first) KILN_INLINED {{",
              ends ? "for_each_bounded_part" : "for_each_part", schedule_.width, row_size(),
              index_);
  }
  const int depth = ragged ? 4 : 3;
  load_vector(pass, depth);
  emit_vector(pass, depth, row_group_size() > 1 ? "member" : "vector");
  if (ragged) {
    out_.line(3, "}});");
    for_each_streamed([&](const std::string& name, const std::string& row) {
      out_.line(3, "stream({}, first, lanes_from<{}>(first, {}), {}_all);", row, schedule_.width,
                row_size(), name);
    });
  }
  close_vectors(trees);
}

// Where lanes are that lie in several segments (preamble/host_segments.h).
std::string ReductionEmitter::own_lanes(std::size_t i) const {
  return in_segments() ? fmt::format(", {}_own", operands_[i].name) : "";
}
void ReductionEmitter::declare_own_lanes(std::size_t i, int depth) {
  if (!in_segments() || schedule_.operands[i].access == Access::runs) return;
  out_.line(depth, "Collected<{}, part.most> {}_own;", storage_type(operands_[i].dtype),
            operands_[i].name);
}

// What a pass reads of a vector.
void ReductionEmitter::load_vector(int pass, int depth) {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const OperandText& operand = operands_[i];
    if (operand.output || operand.row_invariant || !is_read(operand, pass)) continue;
    declare_own_lanes(i, depth);
    out_.line(depth, "const auto {}_lanes = {};", operand.name, load_text(i));
  }
}

bool ReductionEmitter::converts_in_blocks(std::size_t i) const {
  const OperandText& operand = operands_[i];
  const bool of_columns = is_host() && rows_.columns != 0 && !operand.output;
  if (!(in_parts() || of_columns) || operand.dtype != DType::f16 || operand.row_invariant ||
      schedule_.operands[i].access != Access::contiguous) {
    return false;
  }
  const auto is_plain = [&](std::size_t id) {
    return !node_text_.needs_storage(static_cast<NodeId>(id));
  };
  if (operand.output) {
    return !is_indexed(i) && is_plain(operand.value) && !(is_streamed(i) && rows_.ragged) &&
           compute_dtype(graph_.nodes[operand.value].dtype) == DType::f32;
  }
  const auto nodes = input_nodes_.find(operand.argument);
  return nodes == input_nodes_.end() || std::ranges::all_of(nodes->second, is_plain);
}

// The last pass over a row reads from the caches, while memory has time to fetch the next row.
void ReductionEmitter::prefetch_next_row() {
  if (last_pass_ == 0 || rows_.vectors == 0 || rows_.axes != 1 || first_reduced() == 0) return;
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const OperandText& operand = operands_[i];
    const std::uint32_t axis = first_reduced() - 1;
    if (operand.output || operand.row_invariant || !schedule_.has_stride(i, axis) ||
        !is_read(operand, 0) || schedule_.operands[i].access != Access::contiguous) {
      continue;
    }
    const std::string_view per_group = row_group_size() > 1 ? " * i64(group_size)" : "";
    out_.line(3, "prefetch<{}>({}_row, i64({}){} + i64(first));", schedule_.width, operand.name,
              operands_[i].stride_name(axis), per_group);
  }
}

// ---- Results ------------------------------------------------------------------------------------

void ReductionEmitter::open_result(int depth, std::size_t i, const std::string& row) {
  const bool contiguous = in_segments() || schedule_.operands[i].access == Access::contiguous;
  const std::string& name = operands_[i].name;
  if (is_streamed(i)) {
    if (in_parts() && rows_.ragged) {
      out_.line(depth, "auto {0}_lanes = results(part, {0}_all.lane, part.at - part.overlap);",
                name);
    } else {
      const std::string_view lane =
          converts_in_blocks(i) ? "f16_lane" : storage_type(operands_[i].dtype);
      out_.line(depth, "Collected<{}, {}> {}_lanes;", lane, width(), name);
    }
    return;
  }
  const std::string stride = contiguous ? "" : ", " + operands_[i].stride_name(inner());
  if (collects(i)) {
    out_.line(depth, "auto {}_lanes = part_results(part, {});", name, row);
  } else if (in_parts()) {
    declare_own_lanes(i, depth);
    out_.line(depth, "auto {}_lanes = {}(part, {}, first{}{});", name,
              converts_in_blocks(i) ? "half_results" : "results", row, stride, own_lanes(i));
  } else {
    out_.line(depth, "auto {}_lanes = {}<{}>({}, first{});", name,
              operands_[i].unrounded ? "unrounded_results" : "results", width(), row, stride);
  }
}

void ReductionEmitter::store_result(int depth, std::size_t i, const std::string& row) {
  std::string_view guard = is_guarded() ? "if (active) " : "";
  if (at_ends_) guard = is_guarded() ? "if (active && at_end) " : "if (at_end) ";
  const bool contiguous = in_segments() || schedule_.operands[i].access == Access::contiguous;
  const std::string& name = operands_[i].name;
  if (collects(i)) {
    out_.line(depth, "put_part_where({0}_there, part, {1}, first, {2}{0}_lanes);", name, row,
              contiguous ? "" : operands_[i].stride_name(inner()) + ", ");
    return;
  }
  const std::string there = is_indexed(i) ? fmt::format("if ({}_there) ", name) : "";
  if (is_streamed(i)) {
    if (in_parts() && rows_.ragged) {
      out_.line(depth, "store(part, {0}_all.lane, part.at - part.overlap, {0}_lanes);", name);
    } else {
      out_.line(depth, "stream({}, first, {}lanes, {}_lanes);", row, in_parts() ? "part." : "",
                name);
    }
  } else if (in_parts() && contiguous) {
    out_.line(depth, "{}(part, {}, first, {}_lanes{});",
              converts_in_blocks(i) ? "store_halves" : "store", row, name, own_lanes(i));
  } else if (in_parts()) {
    out_.line(depth, "scatter(part, {}, first, {}, {}_lanes);", row,
              operands_[i].stride_name(inner()), name);
  } else if (contiguous) {
    out_.line(depth, "{}{}store<{}, {}>({}, first, {}_lanes);", there, guard, width(), alignment(i),
              row, operands_[i].name);
  } else {
    out_.line(depth, "{}{}scatter<{}>({}, first, {}, {}_lanes);", there, guard, width(), row,
              operands_[i].stride_name(inner()), operands_[i].name);
  }
}

}  // namespace kiln::fusion
