// A value is computed where the loops stand that it depends on: once for a thread, for each of its
// rows, each column or both; before the loop over the reduced elements, for each line of them (a
// group of weights that share a scale), or for each element. What elements share across rows is
// computed first and kept for all rows.
#include "fusion/emit_products.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "fusion/device_text.hpp"
#include "fusion/kernel_writer.hpp"
#include "fusion/node_text.hpp"
#include "fusion/product_values.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

/// A small integer as it was loaded; empty for other values.
struct Lane {
  std::string text;
  bool liftable = false;  ///< scaled() takes it (preamble/products.h)
};

struct OperandText {
  std::string name;
  std::size_t argument = 0;  ///< of inputs
  NodeId value = 0;          ///< of outputs
  DType dtype = DType::f32;
  bool output = false;
  Place place;
};

class ProductEmitter : private ProductAxes {
 public:
  ProductEmitter(const TypedGraph& graph, const Variant& variant, Accuracy accuracy)
      : ProductAxes(variant),
        graph_(graph),
        nodes_(graph, variant),
        shares_(variant.reduction),
        products_(variant.products),
        accuracy_(accuracy),
        node_text_(graph, accuracy),
        index_(variant.wide_index ? "u64" : "u32"),
        signed_index_(variant.wide_index ? "i64" : "i32") {
    for (const char* word : {"r", "c", "part", "block", "batch", "vector", "line"})
      taken_.insert(word);
    lanes_per_sum_ =
        std::max(1, std::min(4 / (products_.rows * products_.columns), products_.lanes));
    if (host()) lanes_per_sum_ = products_.lanes;
  }

  KernelDescription run(std::string_view function, std::string_view expression) {
    name_operands();
    collect_parameters();
    comment(function, expression);
    out_.line(0, "namespace kiln {{");
    out_.line(0, "");
    out_.signature(shares_.threads * shares_.rows);
    shared_memory();
    out_.line(1, "KILN_FOR_EACH_BLOCK({}, item, work_items) {{", index_);
    find_rows();
    emit_values(Level::row, 2);
    declare_results();
    sum_up();
    if (nodes_.is_quick() || nodes_.has_forms()) sum_up_carefully();
    store_results();
    out_.line(1, "}}");
    out_.line(0, "}}");
    out_.line(0, "");
    out_.line(0, "}}  // namespace kiln");
    out_.host_entry();
    return out_.finish(static_cast<std::uint32_t>(shares_.threads * shares_.rows));
  }

 private:
  bool host() const { return variant_.family == Family::host; }
  std::string stride_name(std::size_t operand, std::uint32_t axis) const {
    return fmt::format("{}_stride_{}", operands_[operand].name, axis);
  }

  // -- Operands, and where values belong

  void name_operands() {
    argument_names_.resize(graph_.arguments.size());
    for (std::size_t i = 0; i < graph_.arguments.size(); ++i) {
      argument_names_[i] = identifier(graph_.argument_names[i], fmt::format("in{}", i), taken_);
      if (graph_.arguments[i].scalar) continue;
      operands_.push_back({argument_names_[i], i, 0, graph_.arguments[i].dtype, false, {}});
    }
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const std::string& wanted = graph_.output_names[i];
      const std::string fallback = graph_.outputs.size() == 1 ? "out" : fmt::format("out{}", i);
      const NodeId value = graph_.outputs[i];
      operands_.push_back({identifier(wanted.empty() ? fallback : wanted, fallback, taken_),
                           0,
                           value,
                           graph_.nodes[value].dtype,
                           true,
                           {}});
    }
    if (operands_.size() != variant_.operands.size()) {
      throw Error(Code::internal,
                  "emit_products: the variant has another number of operands than the graph");
    }
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      operands_[i].place = nodes_.operand_place(i);
    }
    values_.resize(graph_.nodes.size());
    stored_.resize(graph_.nodes.size());
    names_.resize(graph_.nodes.size());
    lanes_.resize(graph_.nodes.size());
  }

  // -- Parameters

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
    number(P::vectors, "vectors");
    number(P::length, "length");
    number(P::row_count, "row_count");
    if (batch_axes() > 0) division(P::row_blocks, 0, "row_blocks");
    if (has_lines()) division(P::columns, 0, "columns");
    for (std::uint32_t k = 1; k < inner(); ++k) {
      if (k < batch_axes() || k > first_reduced())
        division(P::extent, k, fmt::format("extent_{}", k));
    }
    number(P::work_items, "work_items");
    for (std::uint32_t i = 0; i < operands_.size(); ++i) {
      if (variant_.operands[i].start) {
        out_.add_parameter({P::start, i, 0, DType::f32, bytes},
                           fmt::format("{} {}_start", signed_index_, operands_[i].name));
      }
      for (std::uint32_t k = 0; k < rank(); ++k) {
        if (!has_stride(i, k)) continue;
        out_.add_parameter({P::stride, i, k, DType::f32, bytes},
                           fmt::format("{} {}", signed_index_, stride_name(i, k)));
      }
    }
  }

  // -- Loops over rows and columns, and the names within them

  bool by_rows(const Place& place) const { return place.rows && products_.rows > 1; }

  std::string loops(const Place& place) const {
    std::string text;
    if (by_rows(place)) text += fmt::format("KILN_EACH(r, {}) ", products_.rows);
    if (place.columns) text += fmt::format("KILN_EACH(c, {}) ", products_.columns);
    return text;
  }
  std::string extents(const Place& place) const {
    std::string text;
    if (by_rows(place)) text += fmt::format("[{}]", products_.rows);
    if (place.columns) text += fmt::format("[{}]", products_.columns);
    return text;
  }
  std::string indices(const Place& place) const {
    return fmt::format("{}{}", by_rows(place) ? "[r]" : "", place.columns ? "[c]" : "");
  }
  // The results of a thread, one after the other.
  int results() const { return products_.rows * products_.columns; }
  std::string result_index() const {
    if (results() == 1) return "0";
    if (!has_columns()) return "r";
    return products_.rows == 1 ? "c" : fmt::format("r * {} + c", products_.columns);
  }
  Place every_result() const { return {Level::result, true, has_columns()}; }

  const std::string& name_of(std::size_t id) {
    if (names_[id].empty()) names_[id] = identifier(fmt::format("v{}", id), "v", taken_);
    return names_[id];
  }

  // -- Text, in the order in which the kernel reads

  void comment(std::string_view function, std::string_view expression) {
    std::vector<CommentedOperand> operands;
    for (const OperandText& operand : operands_) {
      operands.push_back({operand.name, operand.dtype, operand.output});
    }
    out_.comment(function, expression, operands, variant_, graph_.rounding, accuracy_);
  }

  void shared_memory() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (!is_reduction(graph_.nodes[id].op)) continue;
      out_.line(1, "KILN_SHARED ManySlots<{}, {}, {}> {}_slots;",
                compute_type(graph_.nodes[id].dtype), shares_.threads, results(), name_of(id));
    }
  }

  void find_rows() {
    if (variant_.wide_index) out_.line(2, "KILN_SYNCHRONIZE();");  // slots may still be read
    if (batch_axes() > 0) {
      out_.line(2, "const {} batch = divide(item, row_blocks);", index_);
      out_.line(2, "const {} block = item - batch * row_blocks.divisor;", index_);
      out_.coordinates(2, index_, "batch", 0, batch_axes());
    }
    out_.line(2, "const {} row = row_of<{}, {}>({}){};", index_, shares_.threads, shares_.rows,
              batch_axes() > 0 ? "block" : "item",
              products_.rows == 1 ? "" : fmt::format(" * {}", products_.rows));
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const OperandText& operand = operands_[i];
      if (operand.output || !is_used(operand)) continue;
      std::string text = variant_.operands[i].start ? operand.name + "_start" : "";
      for (std::uint32_t k = 0; k < first_reduced(); ++k) {
        if (!has_stride(i, k)) continue;
        text += fmt::format("{}{}({}) * {}", text.empty() ? "" : " + ", signed_index_, at(k),
                            stride_name(i, k));
      }
      if (text.empty()) continue;
      out_.line(2, "{} {}_row{};", signed_index_, operand.name, extents(operand.place));
      out_.line(2, "{}{}_row{} = {};", loops(operand.place), operand.name, indices(operand.place),
                text);
    }
  }

  // Where the row of an operand begins, in elements; empty for 0.
  std::string row_text(std::size_t i) const {
    bool moves = variant_.operands[i].start;
    for (std::uint32_t k = 0; k < first_reduced(); ++k) moves = moves || has_stride(i, k);
    return moves ? operands_[i].name + "_row" + indices(operands_[i].place) : "";
  }

  std::string at(std::uint32_t axis) const {
    if (axis == row_axis()) {
      return products_.rows == 1 ? "row_or_last(row, row_count)"
                                 : fmt::format("row_or_last(row + {}(r), row_count)", index_);
    }
    if (has_columns() && axis + 1 == row_axis()) return "c";
    return fmt::format("at_{}", axis);
  }

  bool is_used(const OperandText& operand) const {
    return std::ranges::any_of(graph_.nodes, [&](const TypedNode& node) {
      return node.op == Op::input && node.payload == operand.argument;
    });
  }

  // Where from the beginning of an operand's row the line lies that the loop is at, and `element`
  // of it; empty for 0.
  std::string in_line(std::size_t i, const std::string& element) const {
    std::string text;
    for (std::uint32_t k = first_reduced(); k < inner(); ++k) {
      if (!has_stride(i, k)) continue;
      text += fmt::format("{}{}(at_{}) * {}", text.empty() ? "" : " + ", signed_index_, k,
                          stride_name(i, k));
    }
    if (element.empty()) return text;
    return fmt::format("{}{}{}({})", text, text.empty() ? "" : " + ", signed_index_, element);
  }

  std::string place_text(std::size_t i, const std::string& element) const {
    const std::string row = row_text(i);
    const std::string line = in_line(i, element);
    if (row.empty() && line.empty()) return fmt::format("{}(0)", signed_index_);
    // What rows have in common is computed once.
    return row.empty() ? line : line.empty() ? row : fmt::format("{} + ({})", row, line);
  }

  std::string one_element(std::size_t i) const {
    const std::string& name = operands_[i].name;
    const std::string place = place_text(i, "");
    return is_packed(operands_[i].dtype) ? fmt::format("element(packed({}_data, {}))", name, place)
                                         : fmt::format("{}_data[{}]", name, place);
  }

  // -- Values

  // What is there once for each row or line, of rows and columns as it depends on them.
  void emit_values(Level level, int depth) {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const Place& place = nodes_.place(id);
      if (place.level != level || is_reduction(graph_.nodes[id].op)) continue;
      const std::string text = value_text(id);
      if (text.empty()) continue;
      const std::string& name = name_of(id);
      const std::string_view type = compute_type(graph_.nodes[id].dtype);
      if (extents(place).empty()) {
        out_.line(depth, "const {} {} = {};", type, name, text);
      } else {
        out_.line(depth, "{} {}{};", type, name, extents(place));
        out_.line(depth, "{}{}{} = {};", loops(place), name, indices(place), text);
      }
      values_[id] = name + indices(place);
    }
  }

  // The expression of a node that has to be computed; otherwise sets its value and returns nothing.
  std::string value_text(std::size_t id) {
    const TypedNode& node = graph_.nodes[id];
    if (node.op == Op::input) {
      const std::size_t i = nodes_.operand_of(node);
      const OperandText& operand = operands_[i];
      names_[id] = operand.name;
      if (operand.place.level != Level::element) {
        if (node_text_.needs_stored(static_cast<NodeId>(id))) stored_[id] = one_element(i);
        return fmt::format("to<{}>({})", compute_type(node.dtype), one_element(i));
      }
      lane_of(id, i);
      return {};
    }
    if (node.op == Op::scalar) return node_text_.scalar(node, scalar_parameter(node.payload));
    if (std::string text = from_lane(node); !text.empty()) {
      lanes_[id] = lanes_[node.operands[0]];
      return text;
    }
    if (std::string text = scaled_lane(node); !text.empty()) return text;
    const NodeText::Expression expression =
        node_text_.of(static_cast<NodeId>(id), values_, stored_);
    if (!expression.same) return expression.text;
    values_[id] = expression.text;
    if (node.op == Op::promote) lanes_[id] = lanes_[node.operands[0]];
    return {};
  }

  // The lane of a loaded vector.
  void lane_of(std::size_t id, std::size_t i) {
    const OperandText& operand = operands_[i];
    const bool whole = !in_parts(i) && products_.lanes < variant_.width;
    const std::string lane =
        fmt::format("{}_lanes{}[{}]", operand.name, indices(held(i)),
                    whole ? fmt::format("part * {} + lane", products_.lanes) : "lane");
    if (node_text_.needs_stored(static_cast<NodeId>(id)))
      stored_[id] = fmt::format("plain({})", lane);
    values_[id] = fmt::format("to<{}>({})", compute_type(operand.dtype), lane);
    if (is_integer(operand.dtype) && bits(operand.dtype) <= 8) {
      const int width = whole ? variant_.width : products_.lanes;
      const bool liftable = (operand.dtype == DType::u4 || operand.dtype == DType::u8) &&
                            width * bits(operand.dtype) % 32 == 0;
      lanes_[id] = {lane, liftable};
    }
  }

  // Small integers become floats without being computed as integers first; all are exact in f16 and
  // bf16 too.
  std::string from_lane(const TypedNode& node) const {
    if (node.op != Op::promote && node.op != Op::cast) return {};
    const std::string& lane = lanes_[node.operands[0]].text;
    const bool exact =
        node.dtype == DType::f32 || node.dtype == DType::f16 || node.dtype == DType::bf16;
    return lane.empty() || !exact ? std::string() : fmt::format("to<f32>({})", lane);
  }

  // A small integer times what does not change from lane to lane.
  std::string scaled_lane(const TypedNode& node) const {
    if (!nodes_.is_quick() || node.op != Op::mul) return {};
    for (const std::size_t i : {0u, 1u}) {
      const Lane& lane = lanes_[node.operands[i]];
      const NodeId scale = node.operands[1 - i];
      if (!lane.liftable || nodes_.place(scale).level == Level::element) continue;
      return node_text_.rounded(node, fmt::format("scaled({}, {})", lane.text, values_[scale]));
    }
    return {};
  }

  // -- The loop over the elements of the rows

  bool in_stretches(const TypedNode& node) const {
    return (adds(node) || node.op == Op::prod) && !is_integer(node.dtype);
  }

  void declare_results() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (is_reduction(graph_.nodes[id].op)) {
        out_.line(2, "{} {}_of[{}];", compute_type(graph_.nodes[id].dtype), name_of(id), results());
      }
    }
  }

  void sum_up() {
    begin_sums();
    for_each_vector();
    end_sums();
  }

  // Again, where numbers were too large for the quick way.
  void sum_up_carefully() {
    std::string finite;
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (!is_reduction(graph_.nodes[id].op) || !(nodes_.is_quick() || nodes_.form(id))) continue;
      finite += fmt::format("{}all_finite({}_of)", finite.empty() ? "" : " && ", name_of(id));
    }
    nodes_.go_carefully();
    out_.line(2, "if (!({})) {{", finite);
    out_.indent(1);
    if (shares_.rows == 1) out_.line(2, "KILN_SYNCHRONIZE();");
    sum_up();
    out_.indent(-1);
    out_.line(2, "}}");
  }

  void begin_sums() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const TypedNode& node = graph_.nodes[id];
      if (!is_reduction(node.op)) continue;
      const std::string type =
          fmt::format("Lanes<{}, {}>", compute_type(node.dtype), lanes_per_sum_);
      const auto declare = [&](std::string_view suffix) {
        out_.line(2, "{} {}_{}{};", type, name_of(id), suffix, extents(every_result()));
        out_.line(2, "{}{}_{}{} = start<{}, {}, {}>();", loops(every_result()), name_of(id), suffix,
                  indices(every_result()), device_name(node.op), compute_type(node.dtype),
                  lanes_per_sum_);
      };
      declare("lanes");
      if (in_stretches(node)) declare("all");
    }
  }

  bool in_parts(std::size_t i) const {
    const OperandText& operand = operands_[i];
    return host() || !operand.place.rows || operand.place.columns ||
           variant_.width * bits(operand.dtype) > 256;
  }

  void for_each_vector() {
    out_.line(2, "KILN_FOR_EACH_VECTOR({}, {}, 0, slot, vector, vectors) {{", index_,
              shares_.threads);
    const std::string scale = variant_.width == 1 ? "" : fmt::format(" * {}", variant_.width);
    if (has_lines()) {
      out_.line(3, "const {} line = divide(vector, columns);", index_);
      out_.line(3, "const {} first = (vector - line * columns.divisor){};", index_, scale);
      out_.coordinates(3, index_, "line", first_reduced(), inner());
    } else {
      out_.line(3, "const {} first = vector{};", index_, scale);
    }
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (is_loaded(i) && !in_parts(i)) load(i, 3, variant_.width, "first");
    }
    emit_values(Level::line, 3);
    begin_groups();
    const bool parts = products_.lanes < variant_.width;
    if (parts) {
      out_.line(3, "KILN_EACH(part, {}) {{", variant_.width / products_.lanes);
    } else {
      out_.line(3, "{{");
    }
    first_ = parts ? fmt::format("first + {}(part * {})", index_, products_.lanes) : "first";
    shared_elements();
    add_shared();
    rows_elements();
    out_.line(3, "}}");
    end_groups();
    carry_over(3, host() ? fmt::format("if (ends_stretch<{}, 1>(vector)) ", shares_.threads) : "");
    out_.line(2, "}}");
    if (host()) carry_over(2, "");
  }

  bool is_loaded(std::size_t i) const {
    const OperandText& operand = operands_[i];
    return !operand.output && operand.place.level == Level::element && is_used(operand);
  }

  // What the loaded lanes are kept for: parts of a row's are loaded within the loop over the rows.
  Place held(std::size_t i) const {
    Place place = operands_[i].place;
    place.rows = place.rows && !in_parts(i);
    return place;
  }

  void load(std::size_t i, int depth, int width, const std::string& first) {
    const OperandText& operand = operands_[i];
    const std::string type = fmt::format("LanesOf<{}, {}>", storage_type(operand.dtype), width);
    const Place place = held(i);
    std::string from;
    if (is_packed(operand.dtype)) {
      const std::string row = row_text(i);
      from =
          fmt::format("packed({}_data, {}), {}", operand.name,
                      row.empty() ? fmt::format("{}(0)", signed_index_) : row, in_line(i, first));
    } else {
      from = fmt::format("{}_data, {}", operand.name, place_text(i, first));
    }
    const std::string text =
        fmt::format("lanes_of<{}, {}>({})", width, variant_.operands[i].alignment, from);
    if (extents(place).empty()) {
      out_.line(depth, "const {} {}_lanes = {};", type, operand.name, text);
      return;
    }
    out_.line(depth, "{} {}_lanes{};", type, operand.name, extents(place));
    out_.line(depth, "{}{}_lanes{} = {};", loops(place), operand.name, indices(place), text);
  }

  // What all rows share of a part of a vector: computed and kept.
  void shared_elements() {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (is_loaded(i) && in_parts(i) && !operands_[i].place.rows)
        load(i, 4, products_.lanes, first_);
    }
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const Place& place = nodes_.place(id);
      if (place.level != Level::element || place.rows || !nodes_.is_wanted(id)) continue;
      std::string text = value_text(id);
      if (text.empty()) {
        if (graph_.nodes[id].op != Op::input) continue;
        text = values_[id];
      }
      // A name of its own, beside that of the lanes.
      out_.line(4, "{} {}{}[{}];", compute_type(graph_.nodes[id].dtype), name_of(id),
                extents(place), products_.lanes);
      out_.line(4, "{}KILN_EACH_LANE(lane, {}) {}{}[lane] = {};", loops(place), products_.lanes,
                name_of(id), indices(place), text);
      values_[id] = fmt::format("{}{}[lane]", name_of(id), indices(place));
    }
  }

  void rows_elements() {
    if (products_.rows > 1) {
      out_.line(4, "KILN_EACH(r, {}) {{", products_.rows);
    } else {
      out_.line(4, "{{");
    }
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (is_loaded(i) && in_parts(i) && operands_[i].place.rows)
        load(i, 5, products_.lanes, first_);
    }
    if (has_columns()) {
      rows_values();
      out_.line(5, "KILN_EACH(c, {}) KILN_EACH_LANE(lane, {}) {{", products_.columns,
                products_.lanes);
    } else {
      out_.line(5, "KILN_EACH_LANE(lane, {}) {{", products_.lanes);
    }
    lane_values();
    joins(6);
    out_.line(5, "}}");
    out_.line(4, "}}");
  }

  // What the columns share of a row's part: kept for all of them.
  void rows_values() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const Place& place = nodes_.place(id);
      if (place.level != Level::element || !place.rows || place.columns || !nodes_.is_wanted(id))
        continue;
      const std::string text = value_text(id);
      if (text.empty()) continue;
      out_.line(5, "{} {}[{}];", compute_type(graph_.nodes[id].dtype), name_of(id),
                products_.lanes);
      out_.line(5, "KILN_EACH_LANE(lane, {}) {}[lane] = {};", products_.lanes, name_of(id), text);
      values_[id] = name_of(id) + "[lane]";
    }
  }

  void lane_values() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const Place& place = nodes_.place(id);
      if (place.level != Level::element || !place.rows || place.columns != has_columns() ||
          !nodes_.is_wanted(id))
        continue;
      const std::string text = value_text(id);
      if (text.empty()) continue;
      out_.line(6, "const {} {} = {};", compute_type(graph_.nodes[id].dtype), name_of(id), text);
      values_[id] = name_of(id);
    }
  }

  // -- Groups of small integers (ProductForm)

  Place by_row() const { return {Level::line, true, false}; }
  Place of_shared(const ProductForm& form) const {
    return {Level::line, false, nodes_.place(form.shared).columns};
  }

  void begin_groups() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (!nodes_.form(id)) continue;
      const ProductForm& form = *nodes_.form(id);
      value_text(form.lane);  // what the lanes are called
      if (!form.has_rest()) continue;
      const std::string scale = form.scale ? values_[*form.scale] : "1.0f";
      const std::string& own = name_of(id);
      out_.line(3, "f32 {0}_point{1}, {0}_rest{1};", own, extents(by_row()));
      out_.line(3, "{}{{", loops(by_row()));
      const std::string at = indices(by_row());
      if (form.point) {
        const std::string& point = values_[*form.point];
        out_.line(4, "{}_point{} = nearest_point({}, 1.0f);", own, at, point);
        out_.line(4, "{0}_rest{1} = ({0}_point{1} - {2}) * {3};", own, at, point, scale);
      } else {
        const std::string& bias = values_[*form.bias];
        const bool minus = form.bias_is_subtracted;
        out_.line(4, "{}_point{} = nearest_point({}{}, {});", own, at, minus ? "" : "-", bias,
                  scale);
        out_.line(4, "{0}_rest{1} = fma({0}_point{1}, {2}, {3}{4});", own, at, scale,
                  minus ? "-" : "", bias);
      }
      out_.line(3, "}}");
      out_.line(3, "f32 {}_shared{} = {{}};", own, extents(of_shared(form)));
    }
  }

  void add_shared() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (!nodes_.form(id) || !nodes_.form(id)->has_rest()) continue;
      const Place place = of_shared(*nodes_.form(id));
      out_.line(4, "{}KILN_EACH(lane, {}) {}_shared{} += {};", loops(place), products_.lanes,
                name_of(id), indices(place), values_[nodes_.form(id)->shared]);
    }
  }

  void end_groups() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (!nodes_.form(id)) continue;
      const ProductForm& form = *nodes_.form(id);
      const std::string at = indices(every_result());
      const std::string& own = name_of(id);
      out_.line(3, "{}{{", loops(every_result()));
      out_.line(4, "carry_scaled({0}_all{1}, {0}_lanes{1}, {2});", own, at,
                form.scale ? values_[*form.scale] : "1.0f");
      if (form.has_rest()) {
        out_.line(4, "{0}_all{1}[0] = add_product({0}_all{1}[0], {0}_rest{2}, {0}_shared{3});", own,
                  at, indices(by_row()), indices(of_shared(form)));
      }
      out_.line(3, "}}");
    }
  }

  void joins(int depth) {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const TypedNode& node = graph_.nodes[id];
      if (!is_reduction(node.op)) continue;
      const std::string lane = lanes_per_sum_ == products_.lanes ? "lane"
                               : lanes_per_sum_ == 1             ? "0"
                                                     : fmt::format("lane % {}", lanes_per_sum_);
      const std::string sum =
          fmt::format("{}_lanes{}[{}]", name_of(id), indices(every_result()), lane);
      const NodeId operand = node.operands[0];
      if (nodes_.form(id)) {
        const std::string& text = lanes_[nodes_.form(id)->lane].text;
        const std::string number =
            nodes_.form(id)->has_rest()
                ? fmt::format("from_point({}, {}_point{})", text, name_of(id), indices(by_row()))
                : fmt::format("to<f32>({})", text);
        out_.line(depth, "{0} = add_product({0}, {1}, {2});", sum, number,
                  values_[nodes_.form(id)->shared]);
      } else if (nodes_.is_in_sum(operand)) {
        const TypedNode& product = graph_.nodes[operand];
        out_.line(depth, "{0} = add_product({0}, {1}, {2});", sum, values_[product.operands[0]],
                  values_[product.operands[1]]);
      } else {
        out_.line(depth, "{0} = {1}::join({0}, {2});", sum, device_name(node.op), values_[operand]);
      }
    }
  }

  void carry_over(int depth, const std::string& guard) {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const TypedNode& node = graph_.nodes[id];
      if (!is_reduction(node.op) || !in_stretches(node) || nodes_.form(id)) continue;
      out_.line(depth, "{0}{1}carry<{2}>({3}_all{4}, {3}_lanes{4});", guard, loops(every_result()),
                device_name(node.op), name_of(id), indices(every_result()));
    }
  }

  void end_sums() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const TypedNode& node = graph_.nodes[id];
      if (!is_reduction(node.op)) continue;
      const std::string_view op = device_name(node.op);
      out_.line(2, "{}{}_of[{}] = fold<{}, {}>({}_{}{});", loops(every_result()), name_of(id),
                result_index(), op, lanes_per_sum_, name_of(id),
                in_stretches(node) ? "all" : "lanes", indices(every_result()));
      out_.line(2, "reduce_all<{0}, {1}>({2}_of, {2}_slots);", op, shares_.threads, name_of(id));
    }
  }

  void store_results() {
    out_.line(2, "{}{{", loops(every_result()));
    const std::string row = products_.rows == 1 ? "row" : fmt::format("row + {}(r)", index_);
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const TypedNode& node = graph_.nodes[id];
      if (nodes_.place(id).level != Level::result) continue;
      const std::string_view type = compute_type(node.dtype);
      std::string text;
      if (is_reduction(node.op)) {
        text = fmt::format("{}_of[{}]", name_of(id), result_index());
        if (node.op == Op::mean) text = fmt::format("div({}, to<{}>(length))", text, type);
        text = node_text_.rounded(node, text);
      } else {
        text = value_text(id);
        if (text.empty()) continue;
      }
      out_.line(3, "const {} {} = {};", type, name_of(id), text);
      values_[id] = name_of(id);
    }
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (operands_[i].output) store(i, row);
    }
    out_.line(2, "}}");
  }

  void store(std::size_t i, const std::string& row) {
    const OperandText& operand = operands_[i];
    std::string pointer = operand.name + "_data";
    for (std::uint32_t k = 0; k < first_reduced(); ++k) {
      if (!has_stride(i, k)) continue;
      const bool column = has_columns() && k + 1 == row_axis();
      pointer += fmt::format(" + {}({}) * {}", signed_index_,
                             k == row_axis() ? row
                             : column        ? "c"
                                             : fmt::format("at_{}", k),
                             stride_name(i, k));
    }
    out_.line(3, "if (is_first<{}>() && {} < row_count) *({}) = to<{}>({});", shares_.threads, row,
              pointer, storage_type(operand.dtype), values_[operand.value]);
  }

  const TypedGraph& graph_;
  ProductValues nodes_;
  const RowVariant& shares_;
  const ProductVariant& products_;
  Accuracy accuracy_;
  NodeText node_text_;
  std::string_view index_;
  std::string_view signed_index_;
  int lanes_per_sum_ = 1;
  std::set<std::string> taken_;
  std::vector<std::string> argument_names_;
  std::vector<OperandText> operands_;
  std::vector<std::string> values_;
  std::vector<std::string> stored_;  ///< of narrow numbers, as they lie in memory
  std::vector<std::string> names_;
  std::vector<Lane> lanes_;
  std::string first_;  ///< element of the part
  KernelWriter out_;
};

}  // namespace

KernelDescription emit_products(const TypedGraph& graph, const Variant& variant, Accuracy accuracy,
                                std::string_view function, std::string_view expression) {
  return ProductEmitter(graph, variant, accuracy).run(function, expression);
}

}  // namespace kiln::fusion
