#include "fusion/emit/rows/reduction_emitter.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fusion/emit/device_text.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/schedule/iota_operands.hpp"
#include "fusion/schedule/rows/row_layout.hpp"

namespace kiln::fusion {

ReductionEmitter::ReductionEmitter(const TypedGraph& graph, const Schedule& schedule,
                                   const PassSchedule& passes, Accuracy accuracy)
    : graph_(graph),
      schedule_(schedule),
      rows_(schedule.reduction),
      passes_(passes),
      node_text_(graph, accuracy, schedule.backend),
      index_(schedule.wide_index ? "u64" : "u32"),
      signed_index_(schedule.wide_index ? "i64" : "i32"),
      identifiers_(graph),
      names_(value_names(graph)),
      values_(graph.nodes.size()),
      storage_(graph.nodes.size()),
      kept_to_(schedule.reduction.vectors),
      accuracy_(accuracy) {
  for (std::size_t i = 0; i < passes.operands.size(); ++i) {
    const RowOperand& operand = passes.operands[i];
    operands_.push_back(
        {operand, operand.iota ? iota_name(operand.axis) : identifiers_.operands()[i].name});
  }
  std::vector<NodeId> places;
  for (const IndexedOperand& operand : graph.indexed) places.push_back(operand.place);
  for (const BoundedAxis& bound : graph.bounds) places.push_back(bound.end);
  of_place_ = live_nodes(graph.nodes, places);
}

KernelDescription ReductionEmitter::run() {
  collect_parameters();
  out_.open(identifiers_.commented(), schedule_, graph_.rounding, accuracy_);
  out_.signature(rows_.block(), passes_.min_blocks, rows_.cluster_blocks);
  out_.pdl_trigger();
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (operands_[i].output || operands_[i].iota || !is_prefetched(schedule_, i)) continue;
    out_.line(1, "prefetch_into_l2({}_data, u64(size) * {});", operands_[i].name,
              bits(operands_[i].dtype) / 8);
  }
  out_.pdl_wait(1);
  if (!in_parts()) {
    out_.line(1, "constexpr Width<{}> width{{}};", schedule_.width);
  } else if (!rows_.ragged) {
    out_.line(1, "constexpr AllLanes<{}> part{{}};", schedule_.width);
  }
  if (rows_.is_shifted()) out_.line(1, "constexpr Width<1> one{{}};");
  shared_memory();
  declare_buffers();
  if (passes_.row_group > 1) {
    emit_row_groups();
  } else {
    out_.line(1, "KILN_FOR_EACH_BLOCK({}, item, work_items) {{", index_);
    locate_rows();
    load_inputs();
    const std::string_view row = row_size();
    if (buffers_rows()) fill_buffers(-1, 2, fmt::format("{}(0)", index_), row);
    for (int pass = 0; pass <= passes_.last; ++pass) {
      row_values(pass);
      emit_pass(pass);
    }
    if (buffers_rows()) empty_buffers(passes_.last, 2, fmt::format("{}(0)", index_), row);
    row_values(passes_.last + 1);
    store_row_values();
    out_.line(1, "}}");
  }
  out_.close(schedule_.streamed ? "finish_streams();" : "");
  KernelDescription kernel = out_.finish(static_cast<std::uint32_t>(rows_.block()));
  kernel.shared_bytes = static_cast<std::uint32_t>(passes_.shared_bytes);
  return kernel;
}

bool ReductionEmitter::has_staged() const {
  return std::ranges::any_of(schedule_.operands,
                             [](const auto& operand) { return fusion::is_staged(operand.access); });
}

// The type of a reduction's partial results.
std::string ReductionEmitter::partial_type(const TypedNode& node) const {
  if (!is_arg_reduction(node.op)) return std::string(compute_type(node.dtype));
  return fmt::format("Found<{}, {}>", compute_type(graph_.nodes[node.operands[0]].dtype), index_);
}

// The number in the row of a vector that a thread keeps. Of a short chunk fewer threads have any.
std::string ReductionEmitter::slot_vector(std::string_view slot) const {
  if (rows_.keeps_chunks() && !rows_.is_full()) {
    if (kept_part_ < 0) return fmt::format("kept.vector({})", slot);
    if (kept_part_ == 0) return fmt::format("kept.vector<0>({})", slot);
    return fmt::format("kept.vector<{}>({} - {})", kept_part_, slot, kept_from_);
  }
  return fmt::format("{}({}) * {} + thread", index_, slot, slot_step());
}

// The start of a call for each chunk of a row or column of `length` elements, or of its part.
std::string ReductionEmitter::each_chunk(std::string_view length) const {
  if (rows_.parts > 1) return fmt::format("for_each_chunk_apart<{}>({}, ", rows_.parts, length);
  if (!rows_.split) return fmt::format("for_each_chunk({}, ", length);
  if (rows_.columns != 0) {
    return fmt::format("for_each_chunk_of<{}>({}, part.chunk, part.chunks, ", index_, length);
  }
  return fmt::format("for_each_chunk_of<{}>({}, split, splits.divisor, ", index_, length);
}

void ReductionEmitter::collect_parameters() {
  using P = Parameter::Kind;
  identifiers_.add_pointers(out_);
  identifiers_.add_scalars(out_, node_text_);
  out_.add_count(P::size, "size");
  if (!rows_.is_shifted()) out_.add_count(P::vectors, "vectors");
  out_.add_count(P::length, "length");
  add_counts();
  for (std::uint32_t k = 1; k < inner(); ++k) {
    if (k != first_reduced()) out_.add_divisor(P::extent, fmt::format("extent_{}", k), k);
  }
  if (rows_.split) {
    out_.add_divisor(P::splits, "splits");
    out_.add_count(P::split_vectors, "split_vectors");
  }
  if (rows_.rows > 1) out_.add_count(P::row_count, "row_count");
  out_.add_count(P::work_items, "work_items");
  for (std::uint32_t i = 0; i < operands_.size(); ++i) {
    for (std::uint32_t k = 0; k < rank(); ++k) {
      if (schedule_.has_stride(i, k)) out_.add_offset(P::stride, operands_[i].stride_name(k), i, k);
    }
    if (schedule_.operands[i].access == Access::runs) {
      out_.add_divisor(P::run, operands_[i].name + "_run", 0, i);
      out_.add_offset(P::run_stride, operands_[i].name + "_run_stride", i);
    }
    if (schedule_.operands[i].start) {
      out_.add_offset(P::start, operands_[i].name + "_start", i);
    }
    if (is_indexed(i)) {
      out_.add_offset(P::place_stride, operands_[i].name + "_place_stride", i);
      out_.add_offset(P::place_count, operands_[i].name + "_places", i);
    }
    if (rows_.split && operands_[i].output && operands_[i].row_invariant) {
      out_.add_offset(P::split_stride, operands_[i].name + "_stride_split", i);
    }
  }
}

std::string ReductionEmitter::last_vector() const {
  if (rows_.split && !in_row_chunk_) return "end";
  return rows_.is_full() ? fmt::format("{}", rows_.threads * rows_.vectors) : "vectors";
}

// The number of a vector of a batch.
std::string ReductionEmitter::batch_vector() const {
  if (rows_.vectors != 0) return slot_vector("base + step");
  return fmt::format("batch + {}(step) * {}", index_, vector_step());
}

// From a vector of a thread to its next one, where it keeps none.
std::string ReductionEmitter::vector_step() const {
  return in_row_tree_ && rows_.vectors == 0 ? "threads" : fmt::format("{}", rows_.threads);
}

}  // namespace kiln::fusion
