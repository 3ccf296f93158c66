// Reductions along the innermost axis: the threads of a row are neighbours along it, and several
// short rows share a block.
#include "fusion/emit/rows/rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/rows/reduction_emitter.hpp"
#include "fusion/graph/dtype_lattice.hpp"

namespace kiln::fusion {
namespace {

class RowEmitter : public ReductionEmitter {
 public:
  using ReductionEmitter::ReductionEmitter;

 private:
  bool stages(std::size_t i) const {
    return rows_.row_step != 0 && schedule_.operands[i].can_stage() &&
           passes_.is_used(operands_[i]);
  }
  bool is_guarded() const override { return rows_.rows > 1; }

  void add_counts() override {
    if (!has_segments()) return;
    if (in_segments()) {
      out_.add_divisor(Parameter::Kind::extent, fmt::format("extent_{}", inner()), inner());
    } else {
      out_.add_divisor(Parameter::Kind::columns, "columns");
    }
  }

  void shared_memory() override {
    if (rows_.has_row_chunks()) {
      declare_chunk_columns();
    } else {
      declare_tree_slots();
    }
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const TypedNode& node = graph_.nodes[id];
      if (!is_reduction(node.op)) continue;
      const std::string type = partial_type(node);
      if (rows_.has_row_trees() && passes_.sums_in_tree(node)) {
        if (rows_.has_row_chunks()) declare_chunks(id);
        if (!rows_.is_shifted()) continue;
        out_.line(1, "KILN_SHARED TreeEndSlots<{}, {}, {}, {}, {}{}> {}_ends;",
                  info(node.op).combiner, type, rows_.chunk_threads(), schedule_.width, rows_.rows,
                  of_blocks(), names_[id]);
        continue;
      }
      if (rows_.in_cluster()) {
        out_.line(1, "KILN_SHARED ClusterSlots<{}, {}, {}> {}_slots;", type, rows_.block_threads(),
                  rows_.cluster_blocks, names_[id]);
      } else {
        out_.line(1, "KILN_SHARED Slots<{}, {}> {}_slots;", type, rows_.threads, names_[id]);
      }
    }
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!stages(i)) continue;
      out_.line(1, "KILN_SHARED Vec<{}, {}> {}_staged[{}];", storage_type(operands_[i].dtype),
                schedule_.width, operands_[i].name, rows_.threads * rows_.vectors);
    }
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!is_staged(i)) continue;
      out_.line(1, "KILN_SHARED StagedRange<{}, {}> {}_staged;", storage_type(operands_[i].dtype),
                rows_.block() * rows_.vectors * schedule_.width, operands_[i].name);
    }
  }

  void declare_tree_slots() {
    if (passes_.tree_buffers == 0) return;
    out_.line(1, "KILN_SHARED TreeSlots<{}, {}, {}> tree_slots[{}];", passes_.partial_bytes,
              rows_.threads, schedule_.width, passes_.tree_buffers);
  }

  // Passes use the same ones: where all have passed the barrier after what one of them combined,
  // they have read it.
  void declare_chunk_columns() {
    if (passes_.most_trees == 0) return;
    out_.line(1, "KILN_SHARED ChunkColumns<{}, {}, {}, {}{}> chunk_columns[{}];",
              passes_.partial_bytes, rows_.chunk_threads(), schedule_.width,
              rows_.keeps_chunks() ? passes_.chunks_kept : passes_.chunks_together, of_blocks(),
              passes_.most_trees);
  }

  void declare_chunks(std::size_t id) {
    const TypedNode& node = graph_.nodes[id];
    const std::string kept =
        fmt::format("{}, {}, {}, {}", info(node.op).combiner, partial_type(node),
                    rows_.chunk_threads(), schedule_.width);
    if (rows_.in_cluster()) {
      out_.line(1, "KILN_SHARED ClusterChunks<{}, {}, {}{}> {}_chunks;", kept, passes_.chunks_kept,
                rows_.cluster_blocks, of_blocks(), names_[id]);
    } else if (rows_.keeps_chunks()) {
      out_.line(1, "KILN_SHARED ChunkResults<{}, {}> {}_chunks;", kept, passes_.chunks_kept,
                names_[id]);
    } else {
      out_.line(1, "KILN_SHARED ChunkStack<{}, {}> {}_chunks;", kept, passes_.chunks_together,
                names_[id]);
    }
  }

  void combine_chunks(const std::vector<std::size_t>& trees, const std::string& count) override {
    begin_cluster();
    if (rows_.chunk_blocks > 1) {
      meet_in_cluster();
    } else {
      out_.line(2, "KILN_SYNCHRONIZE();");
    }
    for (std::size_t k = 0; k < trees.size(); ++k) {
      out_.line(2, "{}_chunks.combine(chunk_columns[{}], {});", names_[trees[k]], k, count);
    }
    if (rows_.in_cluster()) {
      meet_in_cluster();
    } else {
      out_.line(2, "KILN_SYNCHRONIZE();");
    }
  }

  void meet_in_cluster() {
    out_.line(2, "arrive_in_cluster();");
    out_.line(2, "await_cluster();");
  }

  void begin_cluster() override {
    if (!rows_.in_cluster() || cluster_begun_) return;
    cluster_begun_ = true;
    out_.line(2, "await_cluster();  // all blocks have begun and read the slots of the row before");
  }

  // The number of this block in its cluster, or of those that share its chunks.
  std::string chunk_group() const {
    return rows_.chunk_blocks == 1 ? "block_of_cluster()"
                                   : fmt::format("(block_of_cluster() / {})", rows_.chunk_blocks);
  }

  std::string tree_result(std::size_t id) {
    if (is_host()) return names_[id] + "_tree.result()";
    if (rows_.has_row_chunks()) return names_[id] + "_chunks.result()";
    if (passes_.tree_buffers == 1 && trees_begun_ != 0) out_.line(2, "KILN_SYNCHRONIZE();");
    return fmt::format("{}_tree.result(tree_slots[{}])", names_[id],
                       trees_begun_++ % passes_.tree_buffers);
  }

  void locate_rows() override {
    // Threads may still read what they have at the ends of the rows before.
    if (schedule_.wide_index && rows_.rows > 1 && rows_.is_shifted() && rows_.has_row_trees()) {
      out_.line(2, "KILN_SYNCHRONIZE_WAVE();");
    }
    std::string unit = rows_.in_cluster() ? fmt::format("item / {}", rows_.cluster_blocks) : "item";
    if (rows_.rows > 1) {
      unit = "least(wanted, row_count - 1)";
      if (rows_.row_step != 0) {
        out_.line(2, "const {0} first_row = item / {1} * {2} + item % {1};", index_, rows_.row_step,
                  rows_.row_step * rows_.rows);
        out_.line(2, "if (first_row >= row_count) continue;");
        out_.line(2, "const {0} wanted = first_row + {0}(threadIdx.x) / {1} * {2};", index_,
                  rows_.threads, rows_.row_step);
        unit = "wanted < row_count ? wanted : first_row";
      } else {
        out_.line(2, "const {} wanted = row_of<{}, {}>(item);", index_, rows_.threads, rows_.rows);
      }
      out_.line(2, "{}bool active = wanted < row_count;", change_rows() ? "" : "const ");
      if (rows_.split) {
        out_.line(2, "const {} unit = {};", index_, unit);
        unit = "unit";
      }
    } else if (schedule_.wide_index) {
      out_.line(2, "KILN_SYNCHRONIZE();");  // threads may still read the slots of the row before
    }
    locate_split(unit, "row");
    if (rows_.in_cluster()) {
      out_.line(2, "arrive_in_cluster();");
      out_.line(2, "const {} thread_in_block = {};", index_,
                rows_.has_row_trees()
                    ? fmt::format("TreeThreads<{}, {}{}>::thread()", rows_.chunk_threads(),
                                  schedule_.width, of_blocks())
                    : fmt::format("thread_of<1, {}>()", rows_.block_threads()));
      out_.line(2, "const {} thread = {} * {} + thread_in_block;", index_, chunk_group(),
                rows_.chunk_threads() * (rows_.has_row_trees() ? rows_.vectors : 1));
    } else if (rows_.has_row_trees()) {
      out_.line(2, "const {} thread = TreeThreads<{}, {}>::thread();", index_, rows_.threads,
                schedule_.width);
    } else if (!is_host()) {
      out_.line(2, "const {} thread = thread_of<1, {}>();", index_, rows_.threads);
    }
    out_.coordinates(2, index_, "row", 0, first_reduced(), change_rows());
    row_ends();
    row_pointers();
    row_places();
    row_segments();
    if (rows_.is_shifted()) {
      out_.line(2, "const {} head = head_of<{}>({}_row);", index_, schedule_.width,
                operands_[static_cast<std::size_t>(rows_.phase)].name);
      out_.line(2, "const {} vectors = (size - head) / {};", index_, schedule_.width);
      if (rows_.keeps_chunks()) {
        // Each chunk has ends of its own.
      } else if (rows_.has_row_trees()) {
        out_.line(2, "const TreeEnds<{0}, {1}, {2}> ends{{head, vectors, size, {0}}};",
                  rows_.threads, schedule_.width, index_);
        out_.line(2, "const bool at_end = ends.has_element();");
      } else {
        out_.line(2, "const bool at_end = {}thread < size - vectors * {};",
                  rows_.split ? "split == 0 && " : "", schedule_.width);
      }
    }
    if (rows_.keeps_chunks() && !rows_.is_full()) {
      out_.line(
          2, "const RowChunks<{}, {}, {}, {}, {}, {}{}> kept({}, {}, {});", rows_.chunk_threads(),
          schedule_.width, rows_.sets, passes_.chunks_kept, !rows_.in_cluster(), index_,
          of_blocks(), row_size(), rows_.is_shifted() ? "head" : "0",
          rows_.in_cluster() ? fmt::format("{} * {}", chunk_group(), passes_.chunks_kept) : "0");
    }
    if (rows_.has_row_trees() && rows_.vectors == 0 && !rows_.has_row_chunks()) {
      out_.line(2, "const u32 threads = threads_with_residues<{}, {}, {}>({});", rows_.threads,
                schedule_.width, rows_.sets, row_size());
    }
    split_bounds();
    if (has_staged()) stage_rows();
    for (const OperandText& operand : operands_) {
      if (operand.output || !operand.row_invariant || !passes_.is_used(operand)) continue;
      const std::size_t id = passes_.input_nodes.at(operand.argument).front();
      if (of_place_[id]) continue;  // row_places() has defined it
      define_input(id, 2, operand.name, fmt::format("*{}_row", operand.name));
    }
  }

  // The rows of the block, all of which are one range of memory, in shared memory.
  void stage_rows() {
    if (schedule_.wide_index) out_.line(2, "KILN_SYNCHRONIZE();");
    // Threads without a row compute another one, and leave what it gives behind those of the block.
    out_.line(2, "const u32 beside = u32(row - item * {}) * u32(size);", rows_.rows);
    out_.line(2, "const u32 own = threadIdx.x / {} * u32(size);", rows_.threads);
    out_.line(2, "const u32 count = u32(least(row_count - item * {0}, {1}({0})) * size);",
              rows_.rows, index_);
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const OperandText& operand = operands_[i];
      if (!is_staged(i)) continue;
      const std::string type =
          (operand.output ? "" : "const ") + std::string(storage_type(operand.dtype));
      out_.line(2, "{0}* const {1}_range = {1}_row - {2}(beside);", type, operand.name,
                signed_index_);
      const std::string begin = operand.output
                                    ? fmt::format("{0}_staged.begin({0}_range)", operand.name)
                                    : fmt::format("stage<{1}>({0}_staged, {0}_range, count)",
                                                  operand.name, rows_.block());
      out_.line(2, "{0}* const {1}_staged_row = {1}_staged.elements() + ({2} + {3});", type,
                operand.name, begin, operand.output ? "own" : "beside");
    }
    out_.line(2, "finish_staging();");
  }

  void store_staged_rows() {
    out_.line(2, "KILN_SYNCHRONIZE();");
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!is_staged(i) || !operands_[i].output) continue;
      out_.line(2, "store_staged<{1}>({0}_staged, {0}_range, count);", operands_[i].name,
                rows_.block());
    }
  }

  void locate_vector(int depth) override {
    const std::string scale = schedule_.width == 1 ? "" : fmt::format(" * {}", schedule_.width);
    const bool in_chunk = in_row_chunk_ && !rows_.keeps_chunks();
    if (in_segments() || !has_segments()) {
      out_.line(depth, "const {} first = {}vector{}{};", index_, in_chunk ? "chunk + " : "", scale,
                rows_.is_shifted() ? " + head" : "");
      return;
    }
    const std::string_view at = in_chunk ? "of_row" : "vector";
    if (in_chunk)
      out_.line(depth, "const {} of_row = chunk / {} + vector;", index_, schedule_.width);
    out_.line(depth, "const {} segment = divide({}, columns);", index_, at);
    out_.line(depth, "const {} first = ({} - segment * columns.divisor){};", index_, at, scale);
    out_.coordinates(depth, index_, "segment", first_reduced(), inner());
  }

  std::string load_text(std::size_t i) const override {
    if (stages(i) && width() > 1) return operands_[i].name + "_staged[vector]";
    if (schedule_.operands[i].access == Access::runs) {
      const std::string lanes =
          in_parts() ? "(part, "
                     : fmt::format("<{}, {}>(", width(), schedule_.operands[i].whole_runs);
      return fmt::format("load_runs{0}{1}, first, {2}_run, {2}_run_stride)", lanes, line_text(i),
                         operands_[i].name);
    }
    if (in_parts() && (in_segments() || schedule_.operands[i].access == Access::contiguous)) {
      return fmt::format("{}(part, {}, first{})", operands_[i].in_blocks ? "load_halves" : "load",
                         line_text(i), own_lanes(i));
    }
    if (in_parts()) {
      return fmt::format("gather(part, {}, first, {})", line_text(i),
                         operands_[i].stride_name(inner()));
    }
    if (schedule_.operands[i].unaligned && width() > 1) {
      const std::string inner =
          slot_.empty() ? "false" : fmt::format("{} < {}", slot_, rows_.full_vectors - 1);
      return fmt::format("load_unaligned<{}>({}, first, size, {})", width(), line_text(i), inner);
    }
    if (is_staged(i) || schedule_.operands[i].access == Access::contiguous) {
      return fmt::format("{}<{}, {}>({}, first)", load_name(), width(), alignment(i), line_text(i));
    }
    return fmt::format("gather<{}>({}, first, {})", width(), line_text(i),
                       operands_[i].stride_name(inner()));
  }

  // All threads of a block stage weights in shared memory, shifted as its rows are misaligned,
  // which is alike for all of them.
  void stage_weights() override {
    if (rows_.row_step == 0) return;
    out_.line(2, "for ({0} vector = threadIdx.x; vector < vectors; vector += {1}) {{", index_,
              rows_.block());
    locate_vector(3);
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!stages(i)) continue;
      out_.line(3, "{}_staged[vector] = load_unaligned<{}>({}, first, size, false);",
                operands_[i].name, schedule_.width, line_text(i));
    }
    out_.line(2, "}}");
    out_.line(2, "KILN_SYNCHRONIZE();");
  }

  std::string position_text() const override {
    return fmt::format("{}first + {}(lane)",
                       has_segments() && !in_segments() ? "segment * size + " : "", index_);
  }

  void row_values(int pass) override {
    for (const std::size_t id : row_values_before(pass)) {
      if (!of_place_[id]) emit_value(id, 2);
    }
  }

  void emit_result(std::size_t id) override {
    const TypedNode& node = graph_.nodes[id];
    begin_cluster();
    const std::string combined =
        passes_.sums_in_tree(node)
            ? tree_result(id)
            : fmt::format("reduce<{0}>({1}_lanes, {1}_slots)", info(node.op).combiner, names_[id]);
    out_.line(2, "const {} {} = {};", compute_type(node.dtype), names_[id],
              result_text(node, combined));
    values_[id] = names_[id];
  }

  void store_row_values() override {
    if (std::ranges::any_of(operands_, [&](const OperandText& o) {
          return o.output && is_staged(static_cast<std::size_t>(&o - operands_.data()));
        })) {
      store_staged_rows();
    }
    std::string guard = is_host() ? "" : "if (thread == 0) ";
    if (is_guarded()) guard = "if (active && thread == 0) ";
    for_each_result(true, [&](std::size_t i, const OperandText& operand) {
      const std::string there = is_indexed(i) ? fmt::format("if ({}_there) ", operand.name) : "";
      out_.line(2, "{}{}*{}_row = {};", there, guard, operand.name,
                node_text_.store(operand.value, values_, storage_));
    });
  }

  int trees_begun_ = 0;
  bool cluster_begun_ =
      false;  ///< the code so far has waited for all blocks of the cluster to begin
};

}  // namespace

KernelDescription emit_rows(const TypedGraph& graph, const Schedule& schedule,
                            const PassSchedule& passes, Accuracy accuracy) {
  if (schedule.reduction.columns != 0) {
    return emit_columns(graph, schedule, passes, accuracy);
  }
  return RowEmitter(graph, schedule, passes, accuracy).run();
}

}  // namespace kiln::fusion
