// Reductions along an axis that is not the innermost one: neighbouring threads take vectors of
// neighbouring columns, so that they read whole cache lines together, and the threads that share a
// column take its elements in turn. Row-invariant values are lanes of a vector here.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/rows/reduction_emitter.hpp"
#include "fusion/graph/dtype_lattice.hpp"

namespace kiln::fusion {
namespace {

class ColumnEmitter : public ReductionEmitter {
 public:
  using ReductionEmitter::ReductionEmitter;

 private:
  bool is_guarded() const override { return !is_host(); }

  bool ends_columns() const {
    return std::ranges::find(schedule_.bounds, static_cast<int>(inner())) != schedule_.bounds.end();
  }

  void add_counts() override { out_.add_divisor(Parameter::Kind::column_strips, "strips"); }

  // Slots that all reductions use in turn.
  void shared_memory() override {
    if (is_host()) return;
    int bytes = 1;
    for (const TypedNode& node : graph_.nodes) {
      if (!is_reduction(node.op)) continue;
      const DType combined =
          is_arg_reduction(node.op) ? graph_.nodes[node.operands[0]].dtype : node.dtype;
      const int own = std::max(1, bits(compute_dtype(combined)) / 8);
      const int index = schedule_.wide_index ? 8 : 4;
      bytes = std::max(bytes, is_arg_reduction(node.op) ? 2 * std::max(own, index) : own);
    }
    if (rows_.in_cluster()) {
      out_.line(1, "KILN_SHARED ClusterColumnSlots<{}, {}, {}, {}, {}> slots;", bytes,
                rows_.columns, rows_.block_threads(), schedule_.width, rows_.cluster_blocks);
    } else {
      out_.line(1, "KILN_SHARED ColumnSlots<{}, {}, {}, {}, {}> slots;", bytes, rows_.columns,
                rows_.threads, rows_.rows, schedule_.width);
    }
  }

  void locate_rows() override {
    const int threads = rows_.columns * rows_.block_threads();
    std::string unit =
        rows_.in_cluster() ? fmt::format("(item / {})", rows_.cluster_blocks) : "item";
    if (rows_.rows > 1) {
      out_.line(2, "const {} wanted = row_of<{}, {}>(item);", index_, threads, rows_.rows);
      out_.line(2, "const {} unit = least(wanted, row_count - 1);", index_);
      unit = "unit";
    }
    out_.line(2, "const {} rest = divide({}, strips);", index_, unit);
    out_.line(2, "const {} strip = {} - rest * strips.divisor;", index_, unit);
    locate_split("rest", "row");
    split_bounds();
    if (is_host()) {
      out_.coordinates(2, index_, "row", 0, first_reduced());
      row_ends();
      out_.line(2, "const {} first = strip * {};", index_, schedule_.width);
      if (ends_columns()) out_.line(2, "if (first >= size) continue;");
    } else {
      if (rows_.in_cluster()) {
        out_.line(2, "arrive_in_cluster();");
        out_.line(2, "const {} thread = column_thread_in_cluster<{}, {}, {}>();", index_,
                  rows_.columns, rows_.block_threads(), rows_.cluster_blocks);
      } else {
        out_.line(2, "const {} thread = column_thread<{}, {}>();", index_, rows_.columns,
                  rows_.threads);
      }
      out_.line(2, "const {} column = (strip * {} + thread_of<1, {}>()) * {};", index_,
                rows_.columns, rows_.columns, schedule_.width);
      if (change_rows()) {
        out_.line(2, "bool active = {};", rows_.rows > 1 ? "wanted < row_count" : "true");
      }
      out_.coordinates(2, index_, "row", 0, first_reduced(), change_rows());
      row_ends();
      if (change_rows()) {
        out_.line(2, "active = active && column < size;");
      } else {
        out_.line(2, "const bool active = {}column < size;",
                  rows_.rows > 1 ? "wanted < row_count && " : "");
      }
      out_.line(2, "const {} first = active ? column : 0;", index_);
    }
    out_.line(2, "const int lanes = lanes_from<{}>(first, size);", schedule_.width);
    row_pointers();
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const OperandText& operand = operands_[i];
      if (operand.output || !operand.row_invariant || !passes_.is_used(operand)) continue;
      out_.line(2, "const auto {}_lanes = {};", operand.name, load_text(i));
    }
  }

  void locate_vector(int depth) override {
    out_.coordinates(depth, index_, "vector", first_reduced(), inner());
  }

  std::string load_text(std::size_t i) const override {
    // A row-invariant value does not depend on the reduced axes.
    if (operands_[i].row_invariant && rows_.joined > 1) {
      return fmt::format("repeat<{}>({})", schedule_.width, row_place(i));
    }
    const std::string line = operands_[i].row_invariant ? operands_[i].name + "_row" : line_text(i);
    switch (schedule_.operands[i].access) {
      case Access::contiguous:
        if (operands_[i].in_blocks) {
          return fmt::format("load_halves<{}>({}, first, lanes)", schedule_.width, line);
        }
        return fmt::format("load<{}, {}>({}, first)", schedule_.width,
                           schedule_.operands[i].alignment, line);
      case Access::strided:
        return fmt::format("gather<{}>({}, first, {})", schedule_.width, line,
                           operands_[i].stride_name(inner()));
      default: return fmt::format("repeat<{}>({})", schedule_.width, line);
    }
  }

  std::string position_text() const override { return "vector"; }

  // Where a row-invariant operand is of the row that all lanes of a vector are in: if it has a
  // stride along the innermost axis, that is from row to row.
  std::string row_place(std::size_t i) const {
    const std::string row = operands_[i].name + "_row";
    if (!schedule_.has_stride(i, inner())) return row;
    return fmt::format("{} + {}(first / {}) * {}", row, signed_index_, schedule_.width,
                       operands_[i].stride_name(inner()));
  }

  // Row-invariant values have one value for each lane.
  void row_values(int pass) override {
    std::vector<std::size_t> computed;
    std::vector<std::size_t> passed_on;
    for (const std::size_t id : row_values_before(pass)) {
      const TypedNode& node = graph_.nodes[id];
      if (node.op == Op::input) {
        emit_value(id, 2);
        const std::string lane = values_[id] + "_lanes[lane]";
        if (node_text_.needs_storage(static_cast<NodeId>(id))) storage_[id] = lane;
        values_[id] = fmt::format("to<{}>({})", compute_type(node.dtype), lane);
      } else if (node.op == Op::iota && !known_[id]) {
        values_[id] = index_text(node);
      } else if (node.arity == 0) {
        if (!known_[id]) emit_value(id, 2);
      } else if (node_text_.of(static_cast<NodeId>(id), values_, storage_).same) {
        passed_on.push_back(id);
      } else {
        out_.line(2, "Lanes<{}, {}> {}_lanes;", compute_type(node.dtype), schedule_.width,
                  names_[id]);
        computed.push_back(id);
      }
    }
    if (!computed.empty()) out_.line(2, "KILN_FOR_EACH_LANE(lane, width, lanes) {{");
    std::size_t next = 0;
    std::vector<std::size_t> both = passed_on;
    both.insert(both.end(), computed.begin(), computed.end());
    std::ranges::sort(both);
    for (const std::size_t id : both) {
      emit_value(id, 3);
      if (next == computed.size() || computed[next] != id) continue;
      out_.line(3, "{0}_lanes[lane] = {0};", names_[id]);
      ++next;
    }
    if (!computed.empty()) out_.line(2, "}}");
    for (const std::size_t id : both) {
      values_[id] = std::ranges::binary_search(computed, id)
                        ? names_[id] + "_lanes[lane]"
                        : node_text_.of(static_cast<NodeId>(id), values_, storage_).text;
    }
  }

  void emit_result(std::size_t id) override {
    const TypedNode& node = graph_.nodes[id];
    const bool in_tree = passes_.sums_in_tree(node);
    const std::string lanes = names_[id] + (in_tree ? "_total" : "_lanes");
    if (in_tree && is_host()) {
      out_.line(2, "const auto& {0}_total = {0}_tree.result();", names_[id]);
    }
    values_[id] = lanes + "[lane]";
    if (!is_host() && !(in_tree && rows_.chunks != ColumnChunks::one)) {
      // What follows for each column is computed once, and not by each of its threads.
      if (rows_.joined == 1 && !is_arg_reduction(node.op)) {
        return combine_threads(id, 2, lanes, result_text(node, "result"));
      }
      combine_threads(id, 2, lanes);
      if (!(in_tree && rows_.folded != 0)) join_columns(id, 2, lanes);
    }
    std::string combined = values_[id];
    if (is_host()) combined = fmt::format("result_of<{}>({})", info(node.op).combiner, combined);
    const std::string result = result_text(node, combined);
    if (result == values_[id]) return;
    const std::string& own = names_[id];
    out_.line(2, "Lanes<{}, {}> {};", compute_type(node.dtype), schedule_.width, own);
    out_.line(2, "KILN_FOR_EACH_LANE(lane, width, lanes) {{");
    out_.line(3, "{}[lane] = {};", own, result);
    out_.line(2, "}}");
    values_[id] = own + "[lane]";
  }

  void store_row_values() override {
    if (rows_.in_cluster()) out_.line(2, "await_cluster();");
    bool any = false;
    for_each_result(true, [&](std::size_t, const OperandText&) { any = true; });
    if (!any) return;
    if (rows_.joined > 1) {
      out_.line(2, "if (active && thread == 0) {{");
      out_.line(3, "constexpr int lane = 0;");
      for_each_result(true, [&](std::size_t i, const OperandText& operand) {
        out_.line(3, "*({}) = {};", row_place(i),
                  node_text_.store(operand.value, values_, storage_));
      });
      out_.line(2, "}}");
      return;
    }
    const int depth = is_host() ? 2 : 3;
    if (!is_host()) out_.line(2, "if (thread == 0) {{");
    const auto row = [&](std::size_t i) { return operands_[i].name + "_row"; };
    for_each_result(true,
                    [&](std::size_t i, const OperandText&) { open_result(depth, i, row(i)); });
    out_.line(depth, "KILN_FOR_EACH_LANE(lane, width, lanes) {{");
    for_each_result(true, [&](std::size_t, const OperandText& operand) {
      out_.line(depth + 1, "{}_lanes[lane] = {};", operand.name,
                node_text_.store(operand.value, values_, storage_));
    });
    out_.line(depth, "}}");
    for_each_result(true,
                    [&](std::size_t i, const OperandText&) { store_result(depth, i, row(i)); });
    if (!is_host()) out_.line(2, "}}");
  }
};

}  // namespace

KernelDescription emit_columns(const TypedGraph& graph, const Schedule& schedule,
                               const PassSchedule& passes, Accuracy accuracy) {
  return ColumnEmitter(graph, schedule, passes, accuracy).run();
}

}  // namespace kiln::fusion
