// Emits scans. Every value is an array of the lanes that a thread has at a time; a running result
// goes over the lanes of all threads of a row, or over those of the thread's columns. An element
// depends only on those before it, so running results of running results take no second pass.
#include "fusion/emit/scan/scan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/kernel_names.hpp"
#include "fusion/emit/kernel_writer.hpp"
#include "fusion/emit/node_text.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

class ScanEmitter {
 public:
  ScanEmitter(const TypedGraph& graph, const Schedule& schedule, std::span<const ElementMove> moves,
              Accuracy accuracy)
      : graph_(graph),
        schedule_(schedule),
        moves_(moves),
        shares_(schedule.reduction),
        accuracy_(accuracy),
        node_text_(graph, accuracy, schedule.backend),
        index_(schedule.wide_index ? "u64" : "u32"),
        signed_index_(schedule.wide_index ? "i64" : "i32"),
        identifiers_(graph),
        operands_(identifiers_.operands()),
        values_(graph.nodes.size()),
        storage_(graph.nodes.size()),
        names_(value_names(graph)) {}

  KernelDescription run() {
    if (operands_.size() != schedule_.operands.size()) {
      throw Error(Code::internal,
                  "emit_scan: the schedule and the graph differ in their number of operands");
    }
    collect_parameters();
    out_.open(identifiers_.commented(), schedule_, graph_.rounding, accuracy_);
    out_.signature(threads());
    out_.pdl_trigger();
    out_.pdl_wait(1);
    out_.line(1, "constexpr Width<{}> width{{}};", schedule_.width);
    if (along()) {
      open_rows();
    } else {
      open_columns();
    }
    if (is_staged()) stage_operands();
    load_operands();
    compute();
    store_results();
    if (is_staged()) store_staged_results();
    if (loads_ahead()) {
      out_.line(3, "}}");
      out_.indent(-1);
    }
    out_.line(2, "}}");
    out_.line(1, "}}");
    out_.close();
    return out_.finish(static_cast<std::uint32_t>(threads()));
  }

 private:
  bool along() const { return schedule_.scan == ScanSchedule::along; }
  bool on_host() const { return schedule_.backend == Backend::host; }
  /// How many lanes a vector has: on the CPU the last one of a row may have fewer.
  std::string_view lane_count() const { return along() && on_host() ? "lanes" : "width.size"; }
  /// Whether rows are moved through shared memory. The last vector of a row has fewer lanes.
  bool is_staged() const { return shares_.ragged && !on_host(); }
  bool is_staged(std::size_t i) const { return fusion::is_staged(schedule_.operands[i].access); }
  bool is_backwards(std::size_t i) const {
    return schedule_.operands[i].access == Access::staged_backwards;
  }
  bool loads_ahead() const { return !along() && shares_.batch > 1; }
  int threads() const {
    return along() ? shares_.threads * shares_.rows : device_model(schedule_.backend).work.block;
  }
  std::uint32_t rank() const { return static_cast<std::uint32_t>(schedule_.rank); }
  std::uint32_t inner() const { return rank() - 1; }
  std::uint32_t scanned() const { return along() ? inner() : inner() - 1; }

  void collect_parameters() {
    using P = Parameter::Kind;
    identifiers_.add_pointers(out_);
    identifiers_.add_scalars(out_, node_text_);
    if (along()) {
      out_.add_count(P::vectors, "vectors");
      if (on_host() || is_staged()) out_.add_count(P::length, "length");
      if (shares_.rows > 1) out_.add_count(P::row_count, "row_count");
    } else {
      out_.add_divisor(P::columns, "columns");
      out_.add_divisor(P::extent, "length", scanned());
    }
    for (std::uint32_t k = 1; k < scanned(); ++k) {
      out_.add_divisor(P::extent, fmt::format("extent_{}", k), k);
    }
    out_.add_count(P::work_items, "work_items");
    for (std::uint32_t i = 0; i < operands_.size(); ++i) {
      for (std::uint32_t k = 0; k < rank(); ++k) {
        if (schedule_.has_stride(i, k))
          out_.add_offset(P::stride, operands_[i].stride_name(k), i, k);
      }
    }
  }

  // -- Which thread takes which elements

  void open_rows() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (!is_scan(graph_.nodes[id].op)) continue;
      out_.line(1, "KILN_SHARED ScanSlots<{}, {}> {}_slots;", compute_type(graph_.nodes[id].dtype),
                shares_.threads, names_[id]);
    }
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!is_staged(i)) continue;
      out_.line(1, "KILN_SHARED StagedRange<{}, {}> {}_staged;", storage_type(operands_[i].dtype),
                threads() * schedule_.width, operands_[i].name);
    }
    out_.line(1, "KILN_FOR_EACH_BLOCK({}, item, work_items) {{", index_);
    if (shares_.rows == 1) {
      out_.line(2, "const {} row = item;", index_);
    } else {
      out_.line(2, "const {} wanted = row_of<{}, {}>(item);", index_, shares_.threads,
                shares_.rows);
      out_.line(2, "const bool active = wanted < row_count;");
      out_.line(2, "const {} row = active ? wanted : row_count - 1;", index_);
    }
    out_.coordinates(2, index_, "row", 0, scanned());
    row_pointers(scanned());
    emit_ends();
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const TypedNode& node = graph_.nodes[id];
      if (!is_scan(node.op)) continue;
      out_.line(2, "{0} {1}_carried = {2}::identity<{0}>();", compute_type(node.dtype), names_[id],
                info(node.op).combiner);
    }
    // All threads of a block stay in the loop to its end. Those past the end of the row repeat its
    // last vector, which nothing before it depends on.
    const std::string thread =
        on_host() ? "0" : fmt::format("{}(threadIdx.x) % {}", index_, shares_.threads);
    // Of rows that share a block and end elsewhere the threads beyond read nothing.
    const std::string_view loop_end = bounded() && shares_.rows == 1 ? "row_vectors" : "vectors";
    out_.line(2, "for ({0} block = 0; block < {1}; block += {2}) {{", index_, loop_end,
              shares_.threads);
    out_.line(3, "const {} vector = block + {};", index_, thread);
    if (bounded()) {
      out_.line(3, "const bool inside = {}vector < row_vectors;",
                shares_.rows == 1 ? "" : "active && ");
      out_.line(3, "const {0} first = inside ? vector * {1} : 0;", index_, schedule_.width);
    } else {
      out_.line(3, "const {} first = row_or_last(vector, vectors) * {};", index_, schedule_.width);
    }
    if (on_host()) {
      out_.line(3, "const int lanes = int(least({} - first, {}({})));", length(), index_,
                schedule_.width);
    }
  }

  // The range of memory that a block has of each operand: some vectors of one row at a time, or all
  // of several rows.
  void stage_operands() {
    const int width = schedule_.width;
    const bool one = shares_.rows == 1;
    if (one) {
      out_.line(3, "const u32 count = u32(least(length - block * {}, {}({})));", width, index_,
                shares_.threads * width);
      out_.line(3, "const u32 at = u32(first - block * {});", width);
    } else {
      out_.line(3, "const u32 beside = u32(row - item * {});", shares_.rows);
      out_.line(3, "const u32 count = u32(least(row_count - item * {0}, {1}({0})) * length);",
                shares_.rows, index_);
      out_.line(3, "const u32 at = beside * u32(length) + u32(first);");
    }
    const bool backwards = std::ranges::any_of(
        schedule_.operands, [](const auto& o) { return o.access == Access::staged_backwards; });
    if (backwards && one) out_.line(3, "const u32 at_from_end = count - 1 - at;");
    if (backwards && !one) {
      out_.line(3, "const u32 at_from_end = (beside + 1) * u32(length) - 1 - u32(first);");
    }
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!is_staged(i)) continue;
      const NamedOperand& operand = operands_[i];
      std::string begin;
      if (one) {
        begin = fmt::format("{} {}(block * {}{})", is_backwards(i) ? "-" : "+", signed_index_,
                            width, is_backwards(i) ? " + count - 1" : "");
      } else {
        begin =
            fmt::format("- {}({} * length{})", signed_index_,
                        is_backwards(i) ? "(beside + 1)" : "beside", is_backwards(i) ? " - 1" : "");
      }
      out_.line(3, "{0}{1}* const {2}_range = {2}_row {3};", operand.output ? "" : "const ",
                storage_type(operand.dtype), operand.name, begin);
      if (is_loaded(i)) {
        out_.line(3, "const u32 {0}_begin = stage<{1}>({0}_staged, {0}_range, count);",
                  operand.name, threads());
      } else {
        out_.line(3, "const u32 {0}_begin = {0}_staged.begin({0}_range);", operand.name);
      }
    }
    out_.line(3, "finish_staging();");
    out_.line(3, "const int lanes = {} ? int(least(length - first, {}({}))) : 0;",
              one ? "vector < vectors" : "active && vector < vectors", index_, width);
  }

  void store_staged_results() {
    out_.line(3, "KILN_SYNCHRONIZE();");
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!operands_[i].output || !is_staged(i)) continue;
      out_.line(3, "store_staged<{1}>({0}_staged, {0}_range, count);", operands_[i].name,
                threads());
    }
  }

  /// The element of a range in shared memory that is a thread's first lane.
  std::string staged_at(std::size_t i) const {
    return fmt::format("{}_begin + {}", operands_[i].name, is_backwards(i) ? "at_from_end" : "at");
  }

  void open_columns() {
    out_.line(1, "KILN_FOR_EACH_WORK_ITEM({}, {}, item, work_items) {{", index_,
              device_model(schedule_.backend).work.block);
    if (scanned() > 0) {
      out_.line(2, "const {} row = divide(item, columns);", index_);
      out_.line(2, "const {} first = (item - row * columns.divisor) * {};", index_,
                schedule_.width);
    } else {
      out_.line(2, "const {} first = item * {};", index_, schedule_.width);
    }
    if (scanned() > 0) out_.coordinates(2, index_, "row", 0, scanned());
    row_pointers(scanned());
    emit_ends();
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const TypedNode& node = graph_.nodes[id];
      if (!is_scan(node.op)) continue;
      out_.line(2, "auto {}_carried = start_columns<{}, {}, {}>();", names_[id],
                info(node.op).combiner, compute_type(node.dtype), schedule_.width);
    }
    if (loads_ahead()) {
      open_batches();
    } else {
      out_.line(2, "for ({0} at_{1} = 0; at_{1} < {2}; ++at_{1}) {{", index_, scanned(), length());
    }
  }

  // What the next elements of the columns need is loaded before the first of them is computed. At
  // the end of the columns the last element is loaded more than once.
  void open_batches() {
    const int batch = shares_.batch;
    out_.line(2, "for ({0} batch = 0; batch < {1}; batch += {2}) {{", index_, length(), batch);
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (is_loaded(i)) {
        out_.line(3, "{} {}_batch[{}];", loaded_type(i), operands_[i].name, batch);
      }
    }
    out_.line(3, "KILN_UNROLL for (int step = 0; step < {}; ++step) {{", batch);
    out_.line(4, "const {0} at_{1} = least(batch + {0}(step), {2} - 1);", index_, scanned(),
              length());
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (is_loaded(i)) out_.line(4, "{}_batch[step] = {};", operands_[i].name, load_text(i));
    }
    out_.line(3, "}}");
    out_.line(3, "KILN_UNROLL for (int step = 0; step < {}; ++step) {{", batch);
    out_.indent(1);
    out_.line(3, "const {0} at_{1} = batch + {0}(step);", index_, scanned());
    out_.line(3, "if (at_{} >= {}) break;", scanned(), length());
  }

  void row_pointers(std::uint32_t to) {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const NamedOperand& operand = operands_[i];
      std::string pointer = operand.name + "_data";
      for (std::uint32_t k = 0; k < to; ++k) {
        if (schedule_.has_stride(i, k))
          pointer +=
              fmt::format(" + {}(at_{}) * {}", signed_index_, k, operands_[i].stride_name(k));
      }
      out_.line(2, "{}{}* const {}_row = {};", operand.output ? "" : "const ",
                storage_type(operand.dtype), operand.name, pointer);
    }
  }

  std::string pointer(std::size_t i) const {
    std::string text = operands_[i].name + "_row";
    if (!along() && schedule_.has_stride(i, scanned())) {
      text += fmt::format(" + {}(at_{}) * {}", signed_index_, scanned(),
                          operands_[i].stride_name(scanned()));
    }
    return text;
  }

  // -- Where axes end

  bool bounded() const { return !graph_.bounds.empty(); }
  /// How many elements a row, or a column, has.
  std::string_view length() const {
    return bounded() ? "row_length" : along() ? "length" : "length.divisor";
  }

  // Before anything else of a row is read: how many elements it has, none where it is beyond
  // another end itself.
  void emit_ends() {
    if (!bounded()) return;
    std::string elements = !along() ? "length.divisor" : on_host() ? "length" : "vectors";
    std::string there;
    for (std::size_t b = 0; b < graph_.bounds.size(); ++b) {
      const std::string end = end_text(graph_.bounds[b].end);
      const auto axis = static_cast<std::uint32_t>(schedule_.bounds[b]);
      if (axis == scanned()) {
        elements = fmt::format("end_within({}, {})", end, elements);
        continue;
      }
      const std::string at = axis == inner() ? "first" : fmt::format("at_{}", axis);
      there += fmt::format("{}{} < end_within({}, {}(-1))", there.empty() ? "" : " && ", at, end,
                           index_);
    }
    if (!there.empty()) elements = fmt::format("{} ? {} : 0", there, elements);
    const bool in_vectors = along() && !on_host();
    out_.line(2, "const {} {} = {};", index_, in_vectors ? "row_vectors" : "row_length", elements);
    if (along() && on_host()) {
      out_.line(2, "const {0} row_vectors = (row_length + {1}) / {2};", index_, schedule_.width - 1,
                schedule_.width);
    }
  }

  // An end is an argument: the same number for all of a row.
  std::string end_text(NodeId id) const {
    const TypedNode& node = graph_.nodes[id];
    if (node.op == Op::scalar) {
      return node_text_.scalar(node, identifiers_.scalar_parameter(node.payload));
    }
    const auto operand = std::ranges::find_if(operands_, [&](const NamedOperand& o) {
      return node.op == Op::input && !o.output && o.argument == node.payload;
    });
    if (operand == operands_.end()) {
      throw Error(Code::internal, "emit_scan: expected an end that is an argument");
    }
    const auto i = static_cast<std::size_t>(operand - operands_.begin());
    std::string at = operand->name + "_row";
    if (!along() && has_lanes(i)) {
      at += schedule_.operands[i].access == Access::contiguous
                ? " + first"
                : fmt::format(" + {}(first) * {}", signed_index_, operand->stride_name(inner()));
    }
    return fmt::format("to<{}>(*({}))", compute_type(node.dtype), at);
  }

  // -- Values, lane by lane

  bool is_used(const NamedOperand& operand) const {
    return std::ranges::any_of(graph_.nodes, [&](const TypedNode& node) {
      return node.op == Op::input && node.payload == operand.argument;
    });
  }

  bool is_loaded(std::size_t i) const { return !operands_[i].output && is_used(operands_[i]); }

  /// Whether the operand has a lane for each column.
  bool has_lanes(std::size_t i) const {
    const Access access = schedule_.operands[i].access;
    return access == Access::contiguous || access == Access::strided || is_staged(i);
  }

  std::string loaded_type(std::size_t i) const {
    const std::string element(storage_type(operands_[i].dtype));
    return has_lanes(i) ? fmt::format("Vec<{}, {}>", element, schedule_.width) : element;
  }

  std::string load_text(std::size_t i) const {
    switch (schedule_.operands[i].access) {
      case Access::contiguous:
        if (moves_[i].in_blocks) {
          return fmt::format("load_halves<{}>({}, first, {})", schedule_.width, pointer(i),
                             lane_count());
        }
        return fmt::format("load<{}, {}>({}, first)", schedule_.width,
                           schedule_.operands[i].alignment, pointer(i));
      case Access::staged:
      case Access::staged_backwards:
        return fmt::format("{}<{}>({}_staged, {})",
                           is_backwards(i) ? "staged_lanes_before" : "staged_lanes",
                           schedule_.width, operands_[i].name, staged_at(i));
      case Access::strided:
        if (is_staged()) {
          return fmt::format("gather_within<{}>({}, first, {}, length)", schedule_.width,
                             pointer(i), operands_[i].stride_name(inner()));
        }
        return fmt::format("gather<{}>({}, first, {})", schedule_.width, pointer(i),
                           operands_[i].stride_name(inner()));
      default: return fmt::format("*({})", pointer(i));
    }
  }

  void prefetch_rows() {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!schedule_.operands[i].prefetched || !(operands_[i].output || is_loaded(i))) continue;
      out_.line(3, "prefetch<{}>({}, {} * i64({}) + i64(first));", schedule_.width, pointer(i),
                schedule_.rows_ahead, operands_[i].stride_name(scanned()));
    }
  }

  void load_operands() {
    prefetch_rows();
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!is_loaded(i)) continue;
      const std::string& name = operands_[i].name;
      std::string text = loads_ahead() ? name + "_batch[step]" : load_text(i);
      if (bounded() && along() && !on_host())
        text = fmt::format("inside ? {} : {}{{}}", text, loaded_type(i));
      if (has_lanes(i)) {
        out_.line(3, "const auto {}_lanes = {};", name, text);
      } else {
        out_.line(3, "const {} {}_bits = {};", storage_type(operands_[i].dtype), name, text);
      }
    }
  }

  void compute() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const TypedNode& node = graph_.nodes[id];
      if (is_scan(node.op)) {
        running(id, node);
      } else {
        value(id, node);
      }
    }
  }

  void running(std::size_t id, const TypedNode& node) {
    const std::string& own = names_[id];
    define(id, values_[node.operands[0]]);
    if (along()) {
      out_.line(3, "scan<{0}, {1}>({2}, {2}_carried, {2}_slots{3});", info(node.op).combiner,
                shares_.threads, own, on_host() ? ", lanes" : "");
    } else {
      out_.line(3, "scan_row<{0}>({1}, {1}_carried, at_{2});", info(node.op).combiner, own,
                scanned());
    }
    values_[id] = node_text_.rounded(node, values_[id]);
  }

  void value(std::size_t id, const TypedNode& node) {
    if (node.op == Op::input) {
      const auto operand = std::ranges::find_if(operands_, [&](const NamedOperand& o) {
        return !o.output && o.argument == node.payload;
      });
      const auto i = static_cast<std::size_t>(operand - operands_.begin());
      const bool lanes = has_lanes(i);
      names_[id] = operand->name;
      std::string element = operand->name + "_bits";
      // Copied, since an output may overwrite it.
      if (lanes && node_text_.needs_storage(static_cast<NodeId>(id))) {
        out_.line(3, "KILN_LANES {} {}[{}];", storage_type(node.dtype), element, schedule_.width);
        out_.line(3, "KILN_FOR_EACH_LANE(lane, width, {}) {}[lane] = {}_lanes[lane];", lane_count(),
                  element, operand->name);
        element += "[lane]";
        storage_[id] = element;
      } else if (lanes) {
        element = operand->name + "_lanes[lane]";
      } else {
        storage_[id] = element;
      }
      define(id, fmt::format("to<{}>({})", compute_type(node.dtype), element));
      return;
    }
    if (node.op == Op::scalar) {
      out_.line(3, "const {} {} = {};", compute_type(node.dtype), names_[id],
                node_text_.scalar(node, identifiers_.scalar_parameter(node.payload)));
      values_[id] = names_[id];
      return;
    }
    if (node_text_.needs_storage(static_cast<NodeId>(id)))
      storage_[id] = node_text_.bits(node, values_, storage_);
    const NodeText::Expression expression =
        node_text_.of(static_cast<NodeId>(id), values_, storage_);
    if (expression.same) {
      values_[id] = expression.text;
    } else {
      define(id, expression.text);
    }
  }

  void define(std::size_t id, const std::string& text) {
    out_.line(3, "KILN_LANES {} {}[{}];", compute_type(graph_.nodes[id].dtype), names_[id],
              schedule_.width);
    out_.line(3, "KILN_FOR_EACH_LANE(lane, width, {}) {}[lane] = {};", lane_count(), names_[id],
              text);
    values_[id] = names_[id] + "[lane]";
  }

  void store_results() {
    const std::string guard = !along()            ? ""
                              : bounded()         ? "if (inside) "
                              : shares_.rows == 1 ? "if (vector < vectors) "
                                                  : "if (active && vector < vectors) ";
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const NamedOperand& operand = operands_[i];
      if (!operand.output) continue;
      const bool contiguous = schedule_.operands[i].access == Access::contiguous || is_staged(i);
      const bool in_blocks = moves_[i].in_blocks;
      out_.line(3, "auto {}_lanes = {}<{}>({}, first{});", operand.name,
                in_blocks ? "half_results" : "results", schedule_.width, pointer(i),
                contiguous ? "" : ", " + inner_stride(i));
      const std::string element =
          in_blocks ? fmt::format("to<f16_lane>({})", values_[node_text_.unrounded(operand.value)])
          : on_host() ? node_text_.store_on_host(operand.value, values_, storage_)
                      : node_text_.store(operand.value, values_, storage_);
      out_.line(3, "KILN_FOR_EACH_LANE(lane, width, {}) {}_lanes[lane] = {};", lane_count(),
                operand.name, element);
      if (is_staged(i)) {
        out_.line(3, "{}({}_staged, {}, {}_lanes, lanes);",
                  is_backwards(i) ? "leave_lanes_before" : "leave_lanes", operand.name,
                  staged_at(i), operand.name);
      } else if (is_staged()) {
        out_.line(3, "scatter_first({}, first, {}, {}_lanes, lanes);", pointer(i), inner_stride(i),
                  operand.name);
      } else if (in_blocks) {
        out_.line(3, "{}put({}, first, {}, {}_lanes);", guard, pointer(i), lane_count(),
                  operand.name);
      } else if (contiguous) {
        out_.line(3, "{}store<{}, {}>({}, first, {}_lanes);", guard, schedule_.width,
                  schedule_.operands[i].alignment, pointer(i), operand.name);
      } else {
        out_.line(3, "{}scatter<{}>({}, first, {}, {}_lanes);", guard, schedule_.width, pointer(i),
                  inner_stride(i), operand.name);
      }
    }
  }

  std::string inner_stride(std::size_t i) const {
    return schedule_.has_stride(i, inner()) ? operands_[i].stride_name(inner())
                                            : fmt::format("{}(0)", signed_index_);
  }

  const TypedGraph& graph_;
  const Schedule& schedule_;
  const std::span<const ElementMove> moves_;  ///< of each operand
  const RowSchedule& shares_;
  Accuracy accuracy_;
  NodeText node_text_;
  std::string_view index_;
  std::string_view signed_index_;
  KernelNames identifiers_;
  const std::vector<NamedOperand>& operands_;
  std::vector<std::string> values_;
  std::vector<std::string> storage_;  ///< of narrow numbers: the text of the storage type
  std::vector<std::string> names_;
  KernelWriter out_{schedule_};
};

}  // namespace

KernelDescription emit_scan(const TypedGraph& graph, const Schedule& schedule,
                            std::span<const ElementMove> moves, Accuracy accuracy) {
  return ScanEmitter(graph, schedule, moves, accuracy).run();
}

}  // namespace kiln::fusion
