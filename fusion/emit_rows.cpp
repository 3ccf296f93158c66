// A kernel that reduces is a sequence of passes over each row: a pass computes the reductions whose
// operands are known by then, and the last one stores what has an element for each of the row's. In
// between stand the values that there is one of for each row.
#include "fusion/emit_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "fusion/device_text.hpp"
#include "fusion/kernel_writer.hpp"
#include "fusion/node_text.hpp"
#include "fusion/reduce_layout.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

struct OperandText {
  std::string name;
  std::size_t argument = 0;  ///< of inputs
  NodeId value = 0;          ///< of outputs
  DType dtype = DType::f32;
  bool output = false;
  bool uniform = false;  ///< one element for each row
  bool held = false;     ///< in registers from the first pass on
};

bool is_place(Op op) { return op == Op::argmax || op == Op::argmin; }

std::string_view device_name(Op op) {
  switch (op) {
    case Op::prod: return "Prod";
    case Op::reduce_max: return "Max";
    case Op::reduce_min: return "Min";
    case Op::reduce_any: return "Any";
    case Op::reduce_all: return "All";
    case Op::argmax: return "ArgMax";
    case Op::argmin: return "ArgMin";
    default: return "Sum";
  }
}

class RowEmitter {
 public:
  RowEmitter(const TypedGraph& graph, const Variant& variant, Accuracy accuracy)
      : graph_(graph),
        variant_(variant),
        rows_(variant.reduction),
        accuracy_(accuracy),
        node_text_(graph, accuracy),
        index_(variant.wide_index ? "u64" : "u32"),
        signed_index_(variant.wide_index ? "i64" : "i32") {}

  KernelDescription run(std::string_view function, std::string_view expression) {
    name_operands();
    order_passes();
    collect_parameters();
    comment(function, expression);
    out_.line(0, "namespace kiln {{");
    out_.line(0, "");
    out_.signature(rows_.threads * rows_.rows);
    shared_memory();
    out_.line(1, "KILN_FOR_EACH_BLOCK({}, item, work_items) {{", index_);
    place_row();
    hold_inputs();
    for (int pass = 0; pass <= last_pass_; ++pass) {
      row_values(pass);
      emit_pass(pass);
    }
    row_values(last_pass_ + 1);
    store_row_values();
    out_.line(1, "}}");
    out_.line(0, "}}");
    out_.line(0, "");
    out_.line(0, "}}  // namespace kiln");
    out_.host_entry();
    return out_.finish(static_cast<std::uint32_t>(rows_.threads * rows_.rows));
  }

 private:
  // -- Operands and parameters

  void name_operands() {
    argument_names_.resize(graph_.arguments.size());
    for (std::size_t i = 0; i < graph_.arguments.size(); ++i) {
      argument_names_[i] = identifier(graph_.argument_names[i], fmt::format("in{}", i), taken_);
      if (graph_.arguments[i].scalar) continue;
      operands_.push_back({argument_names_[i], i, 0, graph_.arguments[i].dtype});
    }
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const std::string& wanted = graph_.output_names[i];
      const std::string fallback = graph_.outputs.size() == 1 ? "out" : fmt::format("out{}", i);
      const NodeId value = graph_.outputs[i];
      operands_.push_back({identifier(wanted.empty() ? fallback : wanted, fallback, taken_), 0,
                           value, graph_.nodes[value].dtype, true});
    }
    if (operands_.size() != variant_.operands.size()) {
      throw Error(Code::internal,
                  "emit_rows: the variant has another number of operands than the graph");
    }
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const Access access = variant_.operands[i].access;
      operands_[i].uniform = access == Access::scalar || access == Access::broadcast;
    }
  }

  // The pass of a value is how many passes stand before it can be computed.
  void order_passes() {
    std::vector<bool> uniform(graph_.arguments.size(), true);
    for (const OperandText& operand : operands_) {
      if (!operand.output) uniform[operand.argument] = operand.uniform;
    }
    uniform_ = uniform_nodes(graph_, uniform);
    pass_.assign(graph_.nodes.size(), 0);
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const TypedNode& node = graph_.nodes[id];
      for (const NodeId operand : node.inputs()) pass_[id] = std::max(pass_[id], pass_[operand]);
      if (!is_reduction(node.op)) continue;
      last_pass_ = std::max(last_pass_, pass_[id]);
      ++pass_[id];
    }
    for (const OperandText& operand : operands_) {
      if (operand.output && !operand.uniform)
        last_pass_ = std::max(last_pass_, pass_[operand.value]);
    }
    for (int pass = 0; pass <= last_pass_; ++pass) needed_.push_back(needed_in(pass));
    for (OperandText& operand : operands_) {
      if (operand.output || operand.uniform || rows_.vectors == 0) continue;
      int uses = 0;
      for (int pass = 0; pass <= last_pass_; ++pass) uses += is_read(operand, pass) ? 1 : 0;
      operand.held = uses > 1 || is_read(operand, 0);
    }
    values_.resize(graph_.nodes.size());
    names_.resize(graph_.nodes.size());
  }

  // The values with an element for each of the row's that a pass computes.
  std::vector<bool> needed_in(int pass) const {
    std::vector<bool> needed(graph_.nodes.size(), false);
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (reduces_in(id, pass)) needed[graph_.nodes[id].operands[0]] = true;
    }
    for (const OperandText& operand : operands_) {
      if (operand.output && !operand.uniform && pass == last_pass_) needed[operand.value] = true;
    }
    for (std::size_t id = graph_.nodes.size(); id-- > 0;) {
      if (!needed[id] || uniform_[id]) continue;
      for (const NodeId operand : graph_.nodes[id].inputs()) needed[operand] = true;
    }
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (uniform_[id]) needed[id] = false;
    }
    return needed;
  }

  bool reduces_in(std::size_t id, int pass) const {
    return is_reduction(graph_.nodes[id].op) && pass_[id] == pass + 1;
  }

  bool is_read(const OperandText& operand, int pass) const {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const TypedNode& node = graph_.nodes[id];
      if (node.op == Op::input && node.payload == operand.argument &&
          needed_[static_cast<std::size_t>(pass)][id]) {
        return true;
      }
    }
    return false;
  }

  std::uint32_t rank() const { return static_cast<std::uint32_t>(variant_.rank); }
  std::uint32_t inner() const { return rank() - 1; }
  std::uint32_t first_reduced() const { return rank() - static_cast<std::uint32_t>(rows_.axes); }
  bool has_lines() const { return rows_.axes > 1; }

  bool has_stride(std::size_t operand, std::uint32_t axis) const {
    const OperandVariant& variant = variant_.operands[operand];
    if (axis == inner()) return variant.access == Access::strided;
    return (variant.outer_axes >> axis & 1) != 0;
  }

  std::string stride_name(std::size_t operand, std::uint32_t axis) const {
    return fmt::format("{}_stride_{}", operands_[operand].name, axis);
  }

  std::string scalar_parameter(std::size_t argument) const {
    return argument_names_[argument] + "_value";
  }

  void collect_parameters() {
    using P = Parameter::Kind;
    const std::uint32_t bytes = variant_.wide_index ? 8 : 4;
    const std::uint32_t divisor_bytes = variant_.wide_index ? 8 : 12;
    const std::string_view divisor = variant_.wide_index ? "Divisor64" : "Divisor32";
    for (std::uint32_t i = 0; i < operands_.size(); ++i) {
      const OperandText& operand = operands_[i];
      out_.add_parameter({P::pointer, i, 0, operand.dtype, 8},
                         fmt::format("{}{}* {}_data", operand.output ? "" : "const ",
                                     storage_type(operand.dtype), operand.name));
    }
    for (std::uint32_t i = 0; i < graph_.arguments.size(); ++i) {
      if (!graph_.arguments[i].scalar) continue;
      const DType dtype = compute_dtype(node_text_.scalar_dtype(i));
      out_.add_parameter({P::scalar, i, 0, dtype, static_cast<std::uint32_t>(bits(dtype) / 8)},
                         fmt::format("{} {}", storage_type(dtype), scalar_parameter(i)));
    }
    const auto number = [&](P kind, std::string_view name) {
      out_.add_parameter({kind, 0, 0, DType::f32, bytes}, fmt::format("{} {}", index_, name));
    };
    const auto division = [&](P kind, std::uint32_t axis, const std::string& name) {
      out_.add_parameter({kind, 0, axis, DType::f32, divisor_bytes},
                         fmt::format("{} {}", divisor, name));
    };
    number(P::size, "size");
    number(P::vectors, "vectors");
    number(P::length, "length");
    if (has_lines()) division(P::columns, 0, "columns");
    for (std::uint32_t k = 1; k < inner(); ++k) {
      if (k != first_reduced()) division(P::extent, k, fmt::format("extent_{}", k));
    }
    if (rows_.rows > 1) number(P::row_count, "row_count");
    number(P::work_items, "work_items");
    for (std::uint32_t i = 0; i < operands_.size(); ++i) {
      for (std::uint32_t k = 0; k < rank(); ++k) {
        if (!has_stride(i, k)) continue;
        out_.add_parameter({P::stride, i, k, DType::f32, bytes},
                           fmt::format("{} {}", signed_index_, stride_name(i, k)));
      }
    }
  }

  // -- Text, in the order in which the kernel reads

  void comment(std::string_view function, std::string_view expression) {
    out_.line(0, "// {}: {}", comment_text(function), comment_text(expression));
    std::vector<std::string> names;
    std::string types;
    bool arrow = false;
    for (const OperandText& operand : operands_) {
      names.push_back(operand.name);
      const bool first_output = operand.output && !arrow;
      types += fmt::format("{}{} {}",
                           types.empty()  ? ""
                           : first_output ? " -> "
                                          : ", ",
                           name(operand.dtype), operand.name);
      arrow = arrow || operand.output;
    }
    out_.line(0, "// {}", comment_text(types));
    out_.line(0, "// {}", comment_text(describe(variant_, names)));
    static constexpr std::string_view kAccuracy[] = {"storage", "fast", "strict"};
    out_.line(0, "// rounded {}; accuracy {}",
              graph_.rounding == Rounding::once ? "once, where a value is stored or cast"
                                                : "after each operation",
              kAccuracy[static_cast<std::size_t>(accuracy_)]);
  }

  // What a reduction's partial results are.
  std::string partial_type(const TypedNode& node) const {
    if (!is_place(node.op)) return std::string(compute_type(node.dtype));
    return fmt::format("Found<{}, {}>", compute_type(graph_.nodes[node.operands[0]].dtype), index_);
  }

  // Where rounding errors would add up over a long row.
  bool in_stretches(const TypedNode& node) const {
    const bool adds = node.op == Op::sum || node.op == Op::mean || node.op == Op::prod;
    return rows_.vectors == 0 && adds && !is_integer(node.dtype);
  }

  const std::string& name_of(std::size_t id) {
    if (names_[id].empty()) names_[id] = identifier(fmt::format("v{}", id), "v", taken_);
    return names_[id];
  }

  void shared_memory() {
    out_.line(1, "constexpr Width<{}> width{{}};", variant_.width);
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const TypedNode& node = graph_.nodes[id];
      if (!is_reduction(node.op)) continue;
      out_.line(1, "KILN_SHARED Slots<{}, {}> {}_slots;", partial_type(node), rows_.threads,
                name_of(id));
    }
  }

  void place_row() {
    if (rows_.rows == 1) {
      out_.line(2, "const {} row = item;", index_);
      // The slots of the row before may still be read.
      if (variant_.wide_index) out_.line(2, "KILN_SYNCHRONIZE();");
    } else {
      out_.line(2, "const {} wanted = row_of<{}, {}>(item);", index_, rows_.threads, rows_.rows);
      out_.line(2, "const bool active = wanted < row_count;");
      out_.line(2, "const {} row = active ? wanted : row_count - 1;", index_);
    }
    coordinates(2, "row", 0, first_reduced());
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const OperandText& operand = operands_[i];
      out_.line(2, "{}{}* const {}_row = {}_data{};", operand.output ? "" : "const ",
                storage_type(operand.dtype), operand.name, operand.name,
                offset(i, 0, first_reduced()));
    }
    for (const OperandText& operand : operands_) {
      if (operand.output || !operand.uniform || !is_used(operand)) continue;
      out_.line(2, "const {} {} = to<{}>(*{}_row);", compute_type(operand.dtype), operand.name,
                compute_type(operand.dtype), operand.name);
    }
  }

  bool is_used(const OperandText& operand) const {
    return std::ranges::any_of(graph_.nodes, [&](const TypedNode& node) {
      return node.op == Op::input && node.payload == operand.argument;
    });
  }

  // Takes the number `of` apart into the coordinates along the axes [from, to), the last the
  // fastest.
  void coordinates(int depth, std::string of, std::uint32_t from, std::uint32_t to) {
    for (std::uint32_t k = to - 1; k > from; --k) {
      const std::string rest = fmt::format("rest_{}", k);
      out_.line(depth, "const {} {} = divide({}, extent_{});", index_, rest, of, k);
      out_.line(depth, "const {} at_{} = {} - {} * extent_{}.divisor;", index_, k, of, rest, k);
      of = rest;
    }
    out_.line(depth, "const {} at_{} = {};", index_, from, of);
  }

  std::string offset(std::size_t operand, std::uint32_t from, std::uint32_t to) const {
    std::string text;
    for (std::uint32_t k = from; k < to; ++k) {
      if (has_stride(operand, k)) {
        text += fmt::format(" + {}(at_{}) * {}", signed_index_, k, stride_name(operand, k));
      }
    }
    return text;
  }

  void open_vectors() {
    out_.line(2, "KILN_FOR_EACH_VECTOR({}, {}, {}, slot, vector, {}) {{", index_, rows_.threads,
              rows_.vectors,
              rows_.full ? fmt::format("{}", rows_.threads * rows_.vectors) : "vectors");
    const std::string scale = variant_.width == 1 ? "" : fmt::format(" * {}", variant_.width);
    if (!has_lines()) {
      out_.line(3, "const {} first = vector{};", index_, scale);
      return;
    }
    out_.line(3, "const {} line = divide(vector, columns);", index_);
    out_.line(3, "const {} first = (vector - line * columns.divisor){};", index_, scale);
    coordinates(3, "line", first_reduced(), inner());
  }

  std::string load_text(std::size_t i) const {
    const OperandText& operand = operands_[i];
    const std::string row = operand.name + "_row" + offset(i, first_reduced(), inner());
    if (variant_.operands[i].access == Access::contiguous) {
      return fmt::format("load<{}, {}>({}, first)", variant_.width, variant_.operands[i].alignment,
                         row);
    }
    return fmt::format("gather<{}>({}, first, {})", variant_.width, row, stride_name(i, inner()));
  }

  void hold_inputs() {
    bool any = false;
    for (const OperandText& operand : operands_) {
      if (!operand.held) continue;
      out_.line(2, "Vec<{}, {}> {}_held[{}];", storage_type(operand.dtype), variant_.width,
                operand.name, rows_.vectors);
      any = true;
    }
    if (!any) return;
    open_vectors();
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (operands_[i].held) out_.line(3, "{}_held[slot] = {};", operands_[i].name, load_text(i));
    }
    out_.line(2, "}}");
  }

  // The values that there is one of for each row, and that are known before `pass`.
  void row_values(int pass) {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (!uniform_[id] || pass_[id] != pass || is_reduction(graph_.nodes[id].op)) continue;
      emit_value(id, 2);
    }
  }

  void emit_pass(int pass) {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const TypedNode& node = graph_.nodes[id];
      if (!reduces_in(id, pass)) continue;
      out_.line(2, "auto {}_lanes = start<{}, {}, {}>();", name_of(id), device_name(node.op),
                partial_type(node), variant_.width);
      if (in_stretches(node)) out_.line(2, "auto {0}_all = {0}_lanes;", name_of(id));
    }
    open_vectors();
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const OperandText& operand = operands_[i];
      if (operand.output || operand.uniform || !is_read(operand, pass)) continue;
      out_.line(3, "const auto{} {}_lanes = {};", operand.held ? "&" : "", operand.name,
                operand.held ? operand.name + "_held[slot]" : load_text(i));
    }
    if (pass == last_pass_) open_results();
    out_.line(3, "const int lanes = lanes_from<{}>(first, size);", variant_.width);
    out_.line(3, "KILN_FOR_EACH_LANE(lane, width, lanes) {{");
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (needed_[static_cast<std::size_t>(pass)][id]) emit_value(id, 4);
      if (reduces_in(id, pass)) emit_join(id);
    }
    if (pass == last_pass_) set_results();
    out_.line(3, "}}");
    if (pass == last_pass_) store_results();
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (!reduces_in(id, pass) || !in_stretches(graph_.nodes[id])) continue;
      out_.line(3, "if (ends_stretch<{0}>(vector)) carry<{1}>({2}_all, {2}_lanes);", rows_.threads,
                device_name(graph_.nodes[id].op), name_of(id));
    }
    out_.line(2, "}}");
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (reduces_in(id, pass)) emit_result(id);
    }
  }

  void emit_join(std::size_t id) {
    const TypedNode& node = graph_.nodes[id];
    std::string value = values_[node.operands[0]];
    if (is_place(node.op)) {
      value = fmt::format("{}{{{}, {}first + {}(lane)}}", partial_type(node), value,
                          has_lines() ? "line * size + " : "", index_);
    }
    out_.line(4, "{0}_lanes[lane] = {1}::join({0}_lanes[lane], {2});", name_of(id),
              device_name(node.op), value);
  }

  void emit_result(std::size_t id) {
    const TypedNode& node = graph_.nodes[id];
    const std::string_view type = compute_type(node.dtype);
    const bool stretches = in_stretches(node);
    if (stretches) {
      out_.line(2, "carry<{0}>({1}_all, {1}_lanes);", device_name(node.op), name_of(id));
    }
    std::string text = fmt::format("reduce<{0}>({1}_{2}, {1}_slots)", device_name(node.op),
                                   name_of(id), stretches ? "all" : "lanes");
    if (is_place(node.op)) text = fmt::format("to<{}>({}.index)", type, text);
    if (node.op == Op::mean) text = fmt::format("div({}, to<{}>(length))", text, type);
    out_.line(2, "const {} {} = {};", type, name_of(id), node_text_.rounded(node, text));
    values_[id] = name_of(id);
  }

  void emit_value(std::size_t id, int depth) {
    const TypedNode& node = graph_.nodes[id];
    if (node.op == Op::input) {
      const auto operand = std::ranges::find_if(
          operands_, [&](const OperandText& o) { return !o.output && o.argument == node.payload; });
      values_[id] = operand->name;
      if (operand->uniform) return;
      out_.line(depth, "const {} {} = to<{}>({}_lanes[lane]);", compute_type(node.dtype),
                operand->name, compute_type(node.dtype), operand->name);
      return;
    }
    NodeText::Expression expression;
    if (node.op == Op::scalar) {
      expression.text = node_text_.scalar(node, scalar_parameter(node.payload));
    } else {
      expression = node_text_.of(static_cast<NodeId>(id), values_);
    }
    if (expression.same) {
      values_[id] = expression.text;
      return;
    }
    out_.line(depth, "const {} {} = {};", compute_type(node.dtype), name_of(id), expression.text);
    values_[id] = name_of(id);
  }

  // -- Results

  template <class Body>
  void for_each_result(bool uniform, const Body& body) {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (operands_[i].output && operands_[i].uniform == uniform) body(i, operands_[i]);
    }
  }

  std::string result_row(std::size_t i) const {
    return operands_[i].name + "_row" + offset(i, first_reduced(), inner());
  }

  void open_results() {
    for_each_result(false, [&](std::size_t i, const OperandText& operand) {
      const bool contiguous = variant_.operands[i].access == Access::contiguous;
      out_.line(3, "auto {}_lanes = results<{}>({}, first{});", operand.name, variant_.width,
                result_row(i), contiguous ? "" : ", " + stride_name(i, inner()));
    });
  }

  void set_results() {
    for_each_result(false, [&](std::size_t, const OperandText& operand) {
      out_.line(4, "{}_lanes[lane] = to<{}>({});", operand.name, storage_type(operand.dtype),
                values_[operand.value]);
    });
  }

  void store_results() {
    const std::string_view guard = rows_.rows > 1 ? "if (active) " : "";
    for_each_result(false, [&](std::size_t i, const OperandText& operand) {
      if (variant_.operands[i].access == Access::contiguous) {
        out_.line(3, "{}store<{}, {}>({}, first, {}_lanes);", guard, variant_.width,
                  variant_.operands[i].alignment, result_row(i), operand.name);
      } else {
        out_.line(3, "{}scatter<{}>({}, first, {}, {}_lanes);", guard, variant_.width,
                  result_row(i), stride_name(i, inner()), operand.name);
      }
    });
  }

  void store_row_values() {
    const std::string_view guard = rows_.rows > 1 ? "active && " : "";
    for_each_result(true, [&](std::size_t, const OperandText& operand) {
      out_.line(2, "if ({}is_first<{}>()) *{}_row = to<{}>({});", guard, rows_.threads,
                operand.name, storage_type(operand.dtype), values_[operand.value]);
    });
  }

  const TypedGraph& graph_;
  const Variant& variant_;
  const RowVariant& rows_;
  Accuracy accuracy_;
  NodeText node_text_;
  std::string_view index_;
  std::string_view signed_index_;
  std::set<std::string> taken_;
  std::vector<std::string> argument_names_;
  std::vector<OperandText> operands_;
  std::vector<bool> uniform_;
  std::vector<int> pass_;
  int last_pass_ = 0;
  std::vector<std::vector<bool>> needed_;  ///< by pass and node
  std::vector<std::string> values_;
  std::vector<std::string> names_;
  KernelWriter out_;
};

}  // namespace

KernelDescription emit_rows(const TypedGraph& graph, const Variant& variant, Accuracy accuracy,
                            std::string_view function, std::string_view expression) {
  return RowEmitter(graph, variant, accuracy).run(function, expression);
}

}  // namespace kiln::fusion
