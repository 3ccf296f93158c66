// The parts of reductions that only the CPU has: passes over the vectors of a row, one after the
// other and the last one in parts, and where results are until they are stored.
#include <fmt/format.h>

#include <algorithm>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/rows/reduction_emitter.hpp"
#include "fusion/graph/dtype_lattice.hpp"

namespace kiln::fusion {

// The pass after which a row-invariant value is known.
int ReductionEmitter::defined_in(std::size_t id) const {
  return is_reduction(graph_.nodes[id].op) ? passes_.before[id] - 1 : passes_.before[id];
}

// The row-invariant values that code after `pass` uses.
std::vector<bool> ReductionEmitter::wanted_after(int pass) {
  std::vector<bool> wanted(graph_.nodes.size(), false);
  for_each_result(true, [&](std::size_t, const OperandText& operand) {
    wanted[operand.value] = pass < passes_.last;
  });
  for (std::size_t id = graph_.nodes.size(); id-- > 0;) {
    bool later = passes_.row_invariant[id] &&
                 (defined_in(id) > pass || (wanted[id] && values_[id] != names_[id]));
    for (int next = pass + 1; next <= passes_.last && !passes_.row_invariant[id]; ++next) {
      later = later || (passes_.is_needed(id, next) && !passes_.is_cached_for(id, next));
    }
    for (const NodeId operand : graph_.nodes[id].inputs()) {
      wanted[operand] = wanted[operand] || (later && passes_.row_invariant[operand]);
    }
  }
  return wanted;
}

void ReductionEmitter::emit_row_groups() {
  out_.line(1, "KILN_FOR_EACH_ROW_GROUP({}, {}, group, group_size) {{", index_, passes_.row_group);
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (!passes_.is_cached(id)) continue;
    out_.line(2, "Lanes<f32, {}> {}_cached[{}];", schedule_.width, names_[id], passes_.row_group);
  }
  const std::size_t before = out_.here();
  std::string declarations;
  std::vector<std::size_t> saved;
  for (int pass = 0; pass <= passes_.last; ++pass) {
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
    if (pass == passes_.last) {
      row_values(passes_.last + 1);
      store_row_values();
    }
    const std::vector<bool> wanted = wanted_after(pass);
    std::erase_if(saved, [&](std::size_t id) { return !wanted[id]; });
    for (std::size_t id = 0; id < graph_.nodes.size() && pass < passes_.last; ++id) {
      // What says places is there again in every pass, before its rows.
      const bool own = wanted[id] && defined_in(id) == pass && graph_.nodes[id].op != Op::input &&
                       !of_place_[id] && values_[id] == names_[id];
      if (!own) continue;
      out_.line(2, "{0}_group[member] = {0};", names_[id]);
      declarations += fmt::format("    {} {}_group[{}];\n", compute_type(graph_.nodes[id].dtype),
                                  names_[id], passes_.row_group);
      saved.push_back(id);
    }
    out_.indent(-1);
    out_.line(2, "}}");
  }
  out_.insert(before, declarations);
  out_.line(1, "}}");
}

// Rows whose elements lie in memory in another order than that of their count.
void ReductionEmitter::declare_buffers() {
  bool known = false;
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!is_buffered(i)) continue;
    const bool ahead = rows_.buffered > kTreeChunk;
    if (ahead && !known) {
      out_.line(1, "const {} chunks_apart = splits.divisor * kTreeChunk;", index_);
    }
    known = ahead;
    out_.line(
        1, "Counted<{}> {}_buffer({}{});", storage_type(operands_[i].dtype), operands_[i].name,
        buffers_rows() ? "length" : fmt::format("least(length, {}({}))", index_, rows_.buffered),
        ahead ? ", (length - 1) / chunks_apart + 1" : "");
  }
}

void ReductionEmitter::fill_buffers(int pass, int depth, std::string_view first,
                                    std::string_view count) {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const OperandText& operand = operands_[i];
    if (!is_buffered(i)) continue;
    const std::string_view type = storage_type(operand.dtype);
    if (operand.output) {
      if (pass < 0 || pass == passes_.last) {
        out_.line(depth, "{0}* const {1}_counted = {1}_buffer.row({2});", type, operand.name,
                  first);
      }
    } else if (pass < 0 ? passes_.is_used(operand) : passes_.is_read(operand, pass)) {
      const bool ahead = rows_.buffered > kTreeChunk;
      out_.line(depth, "const {0}* const {1}_counted = {1}_buffer.read{4}({1}_lines, {2}, {3}{5});",
                type, operand.name, first, count, ahead ? "_ahead" : "",
                ahead ? ", length, chunks_apart" : "");
    }
  }
}

void ReductionEmitter::empty_buffers(int pass, int depth, std::string_view first,
                                     std::string_view count) {
  if (pass != passes_.last) return;
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!is_buffered(i) || !operands_[i].output) continue;
    out_.line(depth, "{0}_buffer.write({0}_lines, {1}, {2});", operands_[i].name, first, count);
  }
}

// The loop over the vectors of a row, chunk by chunk if there are trees.
void ReductionEmitter::open_vectors(int pass, const std::vector<std::size_t>& trees) {
  const bool buffers = schedule_.has_buffers() && !buffers_rows();
  if (in_parts() && rows_.vectors == 1) {
    out_.line(2, "{{");
    out_.line(3, "constexpr {} vector = 0;", index_);
    return;
  }
  if (trees.empty() && buffers) {
    out_.line(2, "for_each_stretch({}, {}({}), [&]({} chunk, {} count) KILN_INLINED {{", row_size(),
              index_, rows_.buffered, index_, index_);
    fill_buffers(pass, 3, "chunk", "count");
    out_.line(3, "for ({} own = 0; own < count; own += {}) {{", index_, schedule_.width);
    out_.indent(1);
    out_.line(3, "const {} vector = (chunk + own) / {};", index_, schedule_.width);
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
  if (buffers) fill_buffers(pass, 3, "chunk", "count");
  out_.line(3, "for ({} own = 0; own < count; own += {}) {{", index_, schedule_.width);
  out_.indent(1);
  for (const std::size_t id : trees) {
    out_.line(3, "const auto {0}_lanes = {0}_tree.of(own);", names_[id]);
  }
  out_.line(3, "const {} vector = (chunk + own) / {};", index_, schedule_.width);
}

void ReductionEmitter::close_vectors(int pass, const std::vector<std::size_t>& trees) {
  const bool buffers = schedule_.has_buffers() && !buffers_rows();
  if (!trees.empty() || buffers) {
    out_.indent(-1);
    out_.line(3, "}}");
    if (buffers) empty_buffers(pass, 3, "chunk", "count");
    for (const std::size_t id : trees) out_.line(3, "{}_tree.end(merges);", names_[id]);
  }
  out_.line(2, "{}", trees.empty() && !buffers ? "}" : "});");
}

// One text computes all parts of a vector, of which the last one of a row has fewer lanes.
void ReductionEmitter::emit_host_pass(int pass) {
  const std::vector<std::size_t> trees = trees_in(pass);
  if (!in_parts() && !trees.empty()) return emit_column_trees(pass, trees);
  open_vectors(pass, trees);
  locate_vector(3);
  if (pass == passes_.last && in_parts()) prefetch_next_row();
  const auto for_each_streamed = [&](const auto& body) {
    if (pass != passes_.last) return;
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
  emit_vector(pass, depth, passes_.row_group > 1 ? "member" : "vector");
  if (ragged) {
    out_.line(3, "}});");
    for_each_streamed([&](const std::string& name, const std::string& row) {
      out_.line(3, "stream({}, first, lanes_from<{}>(first, {}), {}_all);", row, schedule_.width,
                row_size(), name);
    });
  }
  close_vectors(pass, trees);
}

// Where lanes are that lie in several segments (preamble/host_segments.h).
std::string ReductionEmitter::own_lanes(std::size_t i) const {
  return is_segmented(i) ? fmt::format(", {}_own", operands_[i].name) : "";
}
void ReductionEmitter::declare_own_lanes(std::size_t i, int depth) {
  if (!is_segmented(i) || schedule_.operands[i].access == Access::runs) return;
  out_.line(depth, "Collected<{}, part.most> {}_own;", storage_type(operands_[i].dtype),
            operands_[i].name);
}

// What a pass reads of a vector.
void ReductionEmitter::load_vector(int pass, int depth) {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const OperandText& operand = operands_[i];
    if (operand.output || operand.row_invariant || !passes_.is_read(operand, pass)) continue;
    declare_own_lanes(i, depth);
    out_.line(depth, "const auto {}_lanes = {};", operand.name, load_text(i));
  }
}

// The last pass over a row reads from the caches, while memory has time to fetch the next row.
void ReductionEmitter::prefetch_next_row() {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const OperandText& operand = operands_[i];
    if (!operand.next_prefetched) continue;
    const std::string_view per_group = passes_.row_group > 1 ? " * i64(group_size)" : "";
    out_.line(3, "prefetch<{}>({}_row, i64({}){} + i64(first));", schedule_.width, operand.name,
              operand.stride_name(first_reduced() - 1), per_group);
  }
}

// ---- Results ------------------------------------------------------------------------------------

void ReductionEmitter::open_result(int depth, std::size_t i, const std::string& row) {
  const bool contiguous =
      in_segments() || is_staged(i) || schedule_.operands[i].access == Access::contiguous;
  const std::string& name = operands_[i].name;
  if (is_streamed(i)) {
    if (in_parts() && rows_.ragged) {
      out_.line(depth, "auto {0}_lanes = results(part, {0}_all.lane, part.at - part.overlap);",
                name);
    } else {
      const std::string_view lane =
          operands_[i].in_blocks ? "f16_lane" : storage_type(operands_[i].dtype);
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
              operands_[i].in_blocks ? "half_results" : "results", row, stride, own_lanes(i));
  } else {
    out_.line(depth, "auto {}_lanes = {}<{}>({}, first{});", name,
              operands_[i].unrounded   ? "unrounded_results"
              : operands_[i].in_blocks ? "half_results"
                                       : "results",
              width(), row, stride);
  }
}

void ReductionEmitter::store_result(int depth, std::size_t i, const std::string& row) {
  std::string guard = at_ends_ ? "at_end" : may_miss_ ? "exists" : "";
  if (is_guarded() && !is_staged(i)) guard = guard.empty() ? "active" : "active && " + guard;
  if (!guard.empty()) guard = fmt::format("if ({}) ", guard);
  const bool contiguous =
      in_segments() || is_staged(i) || schedule_.operands[i].access == Access::contiguous;
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
              operands_[i].in_blocks ? "store_halves" : "store", row, name, own_lanes(i));
  } else if (operands_[i].in_blocks) {
    out_.line(depth, "put({}, first, lanes, {}_lanes);", row, name);
  } else if (in_parts()) {
    out_.line(depth, "scatter(part, {}, first, {}, {}_lanes);", row,
              operands_[i].stride_name(inner()), name);
  } else {
    const std::string lanes = name + (is_packed(operands_[i].dtype) ? "_lanes, lanes" : "_lanes");
    if (contiguous) {
      out_.line(depth, "{}{}store<{}, {}>({}, first, {});", there, guard, width(), alignment(i),
                row, lanes);
    } else {
      out_.line(depth, "{}{}scatter<{}>({}, first, {}, {});", there, guard, width(), row,
                operands_[i].stride_name(inner()), lanes);
    }
  }
}

}  // namespace kiln::fusion
