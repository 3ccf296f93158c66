// Emits attention. The kernel's text has what differs from one to another as functions of a query
// of the group and a key: what is loaded of a key, its product, its score, what is loaded of a
// value, what its weight multiplies, and what is stored. How they are called is in attend()
// (preamble/attention.h). A value of the graph is computed as far out as what it depends on allows.
#include "fusion/emit/attention/attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/kernel_names.hpp"
#include "fusion/emit/kernel_writer.hpp"
#include "fusion/emit/node_text.hpp"
#include "fusion/infer/iota.hpp"
#include "fusion/schedule/iota_operands.hpp"

namespace kiln::fusion {
namespace {

// What a value differs by within a work item, as bits.
enum Along : std::uint8_t { kQuery = 1, kKey = 2, kLane = 4 };

class AttentionEmitter {
 public:
  AttentionEmitter(const TypedGraph& graph, const AttentionSpace& space, const Schedule& schedule,
                   Accuracy accuracy)
      : graph_(graph),
        space_(space),
        schedule_(schedule),
        own_(schedule.attention),
        accuracy_(accuracy),
        node_text_(graph, accuracy),
        index_(schedule.wide_index ? "u64" : "u32"),
        signed_index_(schedule.wide_index ? "i64" : "i32"),
        identifiers_(graph),
        operands_(identifiers_.operands()),
        iotas_(iota_axes(graph)),
        names_(value_names(graph)),
        values_(graph.nodes.size()),
        moves_(graph.nodes.size(), 0),
        after_(graph.nodes.size(), false) {
    find_moves();
  }

  KernelDescription run() {
    collect_parameters();
    out_.comment(identifiers_.commented(), schedule_, graph_.rounding, accuracy_);
    out_.line(0, "namespace kiln {{");
    out_.line(0, "");
    out_.signature(own_.threads);
    out_.pdl_wait(1);
    declare_form();
    out_.line(1, "KILN_FOR_EACH_BLOCK({}, item, work_items) {{", index_);
    begin_item();
    emit_keys();
    emit_invariants();
    const std::vector<std::string> outside = values_;
    emit_products();
    values_ = outside;
    emit_score();
    values_ = outside;
    emit_values();
    values_ = outside;
    emit_call();
    emit_results();
    out_.line(1, "}}");
    out_.line(0, "}}");
    out_.line(0, "");
    out_.line(0, "}}  // namespace kiln");
    out_.host_entry();
    return out_.finish(static_cast<std::uint32_t>(own_.threads));
  }

 private:
  // -- Axes

  std::uint32_t rank() const { return static_cast<std::uint32_t>(schedule_.rank); }
  std::uint32_t key_axis() const { return rank() - 3; }
  std::uint32_t depth_axis() const { return rank() - 2; }
  std::uint32_t value_axis() const { return rank() - 1; }
  std::uint32_t first_query_axis() const {
    return key_axis() - static_cast<std::uint32_t>(own_.group_axes);
  }
  bool is_host() const { return schedule_.backend == Backend::host; }

  bool moves_along(std::size_t i, std::uint32_t axis) const {
    return (schedule_.operands[i].outer_axes >> axis & 1) != 0;
  }
  bool has_lanes(std::size_t i, std::uint32_t lanes) const { return moves_along(i, lanes); }

  // An operand's stride along the depth or the values' elements is 1 where it is contiguous.
  bool has_stride(std::size_t i, std::uint32_t axis) const {
    const bool unit = axis >= depth_axis() && schedule_.operands[i].access == Access::contiguous;
    return moves_along(i, axis) && !unit;
  }

  std::size_t iota_of(const TypedNode& node) const {
    const auto found = std::ranges::find(iotas_, iota_axis(node));
    return operands_.size() + static_cast<std::size_t>(found - iotas_.begin());
  }
  std::size_t operand_of(const TypedNode& node) const {
    if (node.op == Op::iota) return iota_of(node);
    const auto found = std::ranges::find_if(operands_, [&](const NamedOperand& operand) {
      return !operand.output && operand.argument == node.payload;
    });
    return static_cast<std::size_t>(found - operands_.begin());
  }
  std::string name_of(std::size_t i) const {
    return i < operands_.size() ? operands_[i].name : iota_name(iotas_[i - operands_.size()]);
  }
  std::string stride_of(std::size_t i, std::uint32_t axis) const {
    return fmt::format("{}_stride_{}", name_of(i), axis);
  }

  // What each value differs by, where `lanes` is the axis of the lanes of what it is needed for.
  void find_moves() {
    const AttentionNodes& nodes = space_.nodes;
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const TypedNode& node = graph_.nodes[id];
      if (node.op == Op::input || node.op == Op::iota) {
        const std::size_t i = operand_of(node);
        const bool lanes = moves_along(i, depth_axis()) || moves_along(i, value_axis());
        moves_[id] = static_cast<std::uint8_t>(lanes ? kLane : 0);
        for (std::uint32_t k = first_query_axis(); k < key_axis(); ++k) {
          if (moves_along(i, k)) moves_[id] |= kQuery;
        }
        if (moves_along(i, key_axis())) moves_[id] |= kKey;
      }
      after_[id] = id == nodes.largest || id == nodes.total || id == nodes.result;
      for (const NodeId operand : node.inputs()) {
        moves_[id] |= moves_[operand];
        after_[id] = after_[id] || after_[operand];
      }
      if (id == nodes.product) moves_[id] = kQuery | kKey;
      if (id == nodes.largest || id == nodes.total) moves_[id] = kQuery;
      if (id == nodes.result) moves_[id] = kQuery | kLane;
    }
  }

  void collect_parameters() {
    using P = Parameter::Kind;
    identifiers_.add_pointers(out_);
    identifiers_.add_scalars(out_, node_text_);
    out_.add_count(P::length, "keys");
    if (own_.split) {
      out_.add_divisor(P::splits, "splits");
      out_.add_count(P::split_vectors, "split_tiles");
    }
    for (std::uint32_t k = 1; k < first_query_axis(); ++k) {
      out_.add_divisor(P::extent, fmt::format("extent_{}", k), k);
    }
    out_.add_count(P::work_items, "work_items");
    for (std::uint32_t i = 0; i < operands_.size() + iotas_.size(); ++i) {
      for (std::uint32_t k = 0; k < rank(); ++k) {
        if (has_stride(i, k)) out_.add_offset(P::stride, stride_of(i, k), i, k);
      }
      if (own_.split && i < operands_.size() && operands_[i].output) {
        out_.add_offset(P::split_stride, fmt::format("{}_split_stride", name_of(i)), i);
      }
    }
  }

  // -- The frame

  static std::string lanes_text(const AttentionLanes& lanes) {
    return fmt::format("RowLanes<{}, {}, {}, {}, {}>", lanes.extent, lanes.width, lanes.vectors,
                       lanes.threads, lanes.together);
  }

  void declare_form() {
    out_.line(1, "using Keys = {};", lanes_text(own_.keys));
    out_.line(1, "using Values = {};", lanes_text(own_.values));
    out_.line(1, "using Form = AttentionForm<{}, {}, {}, {}, Keys, Values>;", own_.threads,
              own_.tile, own_.queries(), own_.prefetch);
    out_.line(1, "KILN_SHARED AttentionSlots<Form> slots;");
  }

  void begin_item() {
    if (own_.split) {
      out_.line(2, "const {} unit = divide(item, splits);", index_);
      out_.line(2, "const {} split = item - unit * splits.divisor;", index_);
    } else {
      out_.line(2, "const {} unit = item;", index_);
    }
    out_.coordinates(2, index_, "unit", 0, first_query_axis());
    for (std::size_t i = 0; i < operands_.size() + iotas_.size(); ++i) {
      const bool array = i < operands_.size();
      std::string place = array ? name_of(i) + "_data" : fmt::format("{}(0)", signed_index_);
      for (std::uint32_t k = 0; k < first_query_axis(); ++k) {
        if (has_stride(i, k)) {
          place += fmt::format(" + {}(at_{}) * {}", signed_index_, k, stride_of(i, k));
        }
      }
      if (array && operands_[i].output && own_.split) {
        place += fmt::format(" + {}(split) * {}_split_stride", signed_index_, name_of(i));
      }
      if (array) {
        out_.line(2, "{}{}* const {}_rows = {};", operands_[i].output ? "" : "const ",
                  storage_type(operands_[i].dtype), name_of(i), place);
      } else {
        out_.line(2, "const {} {}_rows = {};", signed_index_, name_of(i), place);
      }
    }
  }

  // The keys of the work item: none where its part begins beyond the end.
  void emit_keys() {
    std::vector<NodeId> ends;
    for (const BoundedAxis& bound : graph_.bounds) ends.push_back(bound.end);
    for (const NodeId id : missing(ends)) define(2, id);
    std::string end = "keys";
    for (const NodeId id : ends) end = fmt::format("end_within({}, {})", values_[id], end);
    if (!ends.empty()) out_.line(2, "const {} key_end = {};", index_, end);
    const std::string_view last = ends.empty() ? "keys" : "key_end";
    if (own_.split) {
      out_.line(2, "const {} first_key = split * split_tiles * {};", index_, own_.tile);
      out_.line(2, "const {0} last_key = least(first_key + split_tiles * {1}, {2});", index_,
                own_.tile, last);
    } else {
      out_.line(2, "const {} first_key = 0;", index_);
      out_.line(2, "const {} last_key = {};", index_, last);
    }
  }

  // Where an operand's element is for query `q` and a key.
  std::string place(std::size_t i) const {
    std::string text = name_of(i) + "_rows";
    for (std::uint32_t k = first_query_axis(); k < key_axis(); ++k) {
      if (!has_stride(i, k)) continue;
      const bool inner = k + 1 == key_axis();
      const std::string at = own_.group_axes == 1 ? "q"
                             : inner              ? fmt::format("q % {}", own_.group[1])
                                                  : fmt::format("q / {}", own_.group[1]);
      text += fmt::format(" + {}({}) * {}", signed_index_, at, stride_of(i, k));
    }
    if (has_stride(i, key_axis())) {
      text += fmt::format(" + {}(key) * {}", signed_index_, stride_of(i, key_axis()));
    }
    return text;
  }

  // -- Values

  // What a value needs that has not been computed yet, operands first, itself included.
  std::vector<NodeId> missing(std::vector<NodeId> wanted) const {
    std::vector<bool> needed(graph_.nodes.size(), false);
    for (const NodeId id : wanted) needed[id] = true;
    std::vector<NodeId> found;
    for (NodeId id = static_cast<NodeId>(graph_.nodes.size()); id-- > 0;) {
      if (!needed[id] || !values_[id].empty()) continue;
      found.push_back(id);
      for (const NodeId operand : graph_.nodes[id].inputs()) needed[operand] = true;
    }
    std::ranges::reverse(found);
    return found;
  }

  std::string element(const TypedNode& node, const std::string& text) const {
    return fmt::format("to<{}>({})", compute_type(node.dtype), text);
  }

  // One number, in a statement of its own unless it is another one's name.
  void define(int depth, NodeId id) {
    const TypedNode& node = graph_.nodes[id];
    if (node.op == Op::input) {
      return name_value(depth, id, element(node, fmt::format("*({})", place(operand_of(node)))));
    }
    if (node.op == Op::iota) {
      return name_value(depth, id, node_text_.rounded(node, element(node, place(iota_of(node)))));
    }
    if (node.op == Op::scalar) {
      return name_value(depth, id,
                        node_text_.scalar(node, identifiers_.scalar_parameter(node.payload)));
    }
    const NodeText::Expression expression = node_text_.of(id, values_);
    if (!expression.same) return name_value(depth, id, expression.text);
    values_[id] = expression.text;
  }

  void name_value(int depth, NodeId id, const std::string& text) {
    out_.line(depth, "const {} {} = {};", compute_type(graph_.nodes[id].dtype), names_[id], text);
    values_[id] = names_[id];
  }

  // Values of the whole work item.
  void emit_invariants() {
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      if (space_.sides[id] == 0 || after_[id] || moves_[id] != 0 || !values_[id].empty()) continue;
      if (std::ranges::find(space_.nodes.inside, id) != space_.nodes.inside.end() &&
          has_axes(graph_.nodes[id].op)) {
        continue;
      }
      define(2, id);
    }
  }

  // The lanes of an operand's row, as a vector of a GPU or part of the row on the CPU.
  std::string loaded_row(std::size_t i, std::string_view lanes, std::uint32_t axis) const {
    if (schedule_.operands[i].access == Access::contiguous) {
      return fmt::format("load_row<{}, {}>({})", lanes, schedule_.operands[i].alignment, place(i));
    }
    return fmt::format("gather_row<{}>({}, {})", lanes, place(i), stride_of(i, axis));
  }
  std::string row_type(std::size_t i, std::string_view lanes) const {
    const std::string_view type = storage_type(operands_[i].dtype);
    if (!is_host()) return fmt::format("Vec<{}, {}::lanes>", type, lanes);
    if (schedule_.operands[i].access == Access::contiguous) {
      return fmt::format("Row<const {}>", type);
    }
    return fmt::format("StridedRow<const {}, {}>", type, signed_index_);
  }

  struct Side {
    std::string_view lanes;  ///< the type RowLanes
    std::uint32_t axis = 0;
  };
  Side key_side() const { return {"Keys", depth_axis()}; }
  Side value_side() const { return {"Values", value_axis()}; }

  // A value that differs from lane to lane, or from query to query, as an array; `q` goes outside.
  void define_array(int depth, NodeId id, const Side& side) {
    const TypedNode& node = graph_.nodes[id];
    const bool queries = (moves_[id] & kQuery) != 0;
    const bool lanes = (moves_[id] & kLane) != 0;
    const std::string_view type = compute_type(node.dtype);
    const std::string own = names_[id] + (queries ? "[q]" : "") + (lanes ? "[lane]" : "");
    if (is_free(node)) {
      values_[id] = node_text_.of(id, values_).text;
      return;
    }
    out_.line(depth, "{} {}{}{};", type, names_[id],
              queries ? fmt::format("[{}]", own_.queries()) : "",
              lanes ? fmt::format("[{}::lanes]", side.lanes) : "");
    const int inner = depth + (queries ? 1 : 0);
    if (queries) out_.line(depth, "KILN_FOR_EACH_QUERY(q, {}) {{", own_.queries());
    std::string text;
    if (node.op == Op::input && lanes && moves_[id] == (kKey | kLane)) {
      text = element(node, fmt::format("rows.{}[lane]", name_of(operand_of(node))));
    } else if (node.op == Op::input && lanes) {
      const std::size_t i = operand_of(node);
      out_.line(inner, "const auto {}_lanes = {};", name_of(i),
                loaded_row(i, side.lanes, side.axis));
      text = element(node, fmt::format("{}_lanes[lane]", name_of(i)));
    } else {
      text = lane_text(id, side);
    }
    if (lanes) {
      out_.line(inner, "KILN_FOR_EACH_ELEMENT(lane, {}::lanes) {} = {};", side.lanes, own, text);
    } else {
      out_.line(inner, "{} = {};", own, text);
    }
    if (queries) out_.line(depth, "}}");
    values_[id] = own;
  }

  bool is_free(const TypedNode& node) const {
    if (node.arity == 0) return node.op == Op::constant;
    return node_text_.of(static_cast<NodeId>(&node - graph_.nodes.data()), values_).same;
  }

  // The expression of one lane of a value that is no row.
  std::string lane_text(NodeId id, const Side& side) const {
    const TypedNode& node = graph_.nodes[id];
    if (node.op == Op::input) return element(node, fmt::format("*({})", place(operand_of(node))));
    if (node.op == Op::iota) {
      std::string text = place(iota_of(node));
      if (moves_along(iota_of(node), side.axis)) {
        text += fmt::format(" + {}(place_of<{}>(lane)) * {}", signed_index_, side.lanes,
                            iota_stride(iota_of(node), side.axis));
      }
      return node_text_.rounded(node, element(node, text));
    }
    return node_text_.of(id, values_).text;
  }
  std::string iota_stride(std::size_t i, std::uint32_t axis) const {
    return has_stride(i, axis) ? stride_of(i, axis) : fmt::format("{}(1)", signed_index_);
  }

  // Arrays of what does not differ from key to key.
  void emit_rows(std::span<const NodeId> ids, const Side& side) {
    for (const NodeId id : ids) {
      if ((moves_[id] & kKey) == 0) define_array(2, id, side);
    }
  }

  // What is loaded of a key's row or a value's: the rows of operands that all queries share.
  std::vector<std::size_t> shared_rows(std::span<const NodeId> ids) const {
    std::vector<std::size_t> rows;
    for (const NodeId id : ids) {
      if (graph_.nodes[id].op == Op::input && moves_[id] == (kKey | kLane)) {
        rows.push_back(operand_of(graph_.nodes[id]));
      }
    }
    return rows;
  }

  void emit_load(std::string_view what, std::span<const std::size_t> rows, const Side& side) {
    out_.line(2, "struct {}Rows {{", what);
    for (const std::size_t i : rows) {
      out_.line(3, "{} {};", row_type(i, side.lanes), name_of(i));
    }
    out_.line(2, "}};");
    std::string all;
    for (const std::size_t i : rows) {
      all += (all.empty() ? "" : ", ") + loaded_row(i, side.lanes, side.axis);
    }
    out_.line(2, "const auto load_{} = [&]({} key) KILN_INLINED {{",
              what == "Key" ? "key" : "value", index_);
    out_.line(3, "return {}Rows{{{}}};", what, all);
    out_.line(2, "}};");
  }

  // Values of one key, as far as they are the same for all queries.
  void emit_of_key(std::span<const NodeId> ids, const Side& side) {
    for (const NodeId id : ids) {
      if (!values_[id].empty() || (moves_[id] & kQuery) != 0) continue;
      if ((moves_[id] & kLane) == 0) {
        define(3, id);
      } else {
        define_array(3, id, side);
      }
    }
  }

  // What is left of a value: an expression of `q` and `lane`, and the statements before it.
  std::string function_text(NodeId id, std::span<const NodeId> ids, const Side& side) {
    std::string body;
    const std::vector<std::string> outside = values_;
    for (const NodeId each : ids) {
      if (!values_[each].empty()) continue;
      const TypedNode& node = graph_.nodes[each];
      if (node.arity != 0 && node_text_.of(each, values_).same) {
        values_[each] = node_text_.of(each, values_).text;
        continue;
      }
      std::string text = lane_text(each, side);
      if (node.op == Op::input && (moves_[each] & kLane) != 0) {
        const std::size_t i = operand_of(node);
        const std::string step =
            has_stride(i, side.axis) ? " * " + stride_of(i, side.axis) : std::string();
        text = element(node, fmt::format("*({} + {}(place_of<{}>(lane)){})", place(i),
                                         signed_index_, side.lanes, step));
      }
      body += fmt::format("const {} {} = {}; ", compute_type(node.dtype), names_[each], text);
      values_[each] = names_[each];
    }
    const std::string result =
        fmt::format("[&](int lane) KILN_INLINED {{ {}return {}; }}", body, values_[id]);
    values_ = outside;
    return result;
  }

  // -- The parts

  void emit_products() {
    const Side side = key_side();
    const NodeId reduced = graph_.nodes[space_.nodes.product].operands[0];
    const TypedNode& root = graph_.nodes[reduced];
    const bool product = root.op == Op::mul;
    const std::vector<NodeId> factors =
        product ? std::vector<NodeId>{root.operands[0], root.operands[1]}
                : std::vector<NodeId>{reduced};
    const std::vector<NodeId> ids = missing(factors);
    emit_rows(ids, side);
    emit_load("Key", shared_rows(ids), side);
    out_.line(2,
              "const auto product = [&]({} key, const KeyRows& rows, f32 (&products)[{}]) "
              "KILN_INLINED {{",
              index_, own_.queries());
    emit_of_key(ids, side);
    out_.line(3, "KILN_FOR_EACH_QUERY(q, {}) {{", own_.queries());
    out_.line(4, "products[q] = dot<Keys>({},", function_text(factors[0], ids, side));
    out_.line(
        4, "                        {});",
        product ? function_text(factors[1], ids, side) : "[](int) KILN_INLINED { return 1.0f; }");
    out_.line(3, "}}");
    out_.line(2, "}};");
  }

  void emit_score() {
    const AttentionNodes& nodes = space_.nodes;
    values_[nodes.product] = names_[nodes.product];
    const std::vector<NodeId> ids = missing({nodes.scores});
    out_.line(2, "const auto score = [&](int q, {} key, f32 {}) KILN_INLINED {{", index_,
              names_[nodes.product]);
    for (const NodeId id : ids) define(3, id);
    out_.line(3, "return {};", values_[nodes.scores]);
    out_.line(2, "}};");
  }

  void emit_values() {
    const Side side = value_side();
    const NodeId value = space_.nodes.values;
    const std::vector<NodeId> ids = missing({value});
    emit_rows(ids, side);
    emit_load("Value", shared_rows(ids), side);
    out_.line(2,
              "const auto weigh = [&]({0} key, const ValueRows& rows, const f32 "
              "(&weights)[{1}],",
              index_, own_.queries());
    out_.line(2, "                       f32 (&sums)[{}][Values::lanes]) KILN_INLINED {{",
              own_.queries());
    emit_of_key(ids, side);
    out_.line(3, "KILN_FOR_EACH_QUERY(q, {}) {{", own_.queries());
    out_.line(4, "const auto value = {};", function_text(value, ids, side));
    out_.line(4, "KILN_FOR_EACH_ELEMENT(lane, Values::lanes) {{");
    out_.line(5, "sums[q][lane] = add_weighted(sums[q][lane], weights[q], value(lane));");
    out_.line(4, "}}");
    out_.line(3, "}}");
    out_.line(2, "}};");
  }

  void emit_call() {
    const std::string_view exponential = accuracy_ == Accuracy::strict ? "strict::exp"
                                         : accuracy_ == Accuracy::fast ? "fast::exp"
                                                                       : "exp_not_positive";
    out_.line(2, "const auto exponential = [](f32 x) KILN_INLINED {{ return {}(x); }};",
              exponential);
    out_.line(2, "f32 sums[{}][Values::lanes];", own_.queries());
    out_.line(2, "attend<Form>(slots, first_key, last_key, sums, load_key, product, score,");
    out_.line(2, "             load_value, weigh, exponential);");
  }

  // -- Results

  void emit_results() {
    const AttentionNodes& nodes = space_.nodes;
    out_.line(2, "const auto store_results = [&](int q, int first, const f32* sum, f32 largest,");
    out_.line(2, "                               f32 total) KILN_INLINED {{");
    out_.line(3, "constexpr Width<Values::width> width{{}};");
    values_[nodes.largest] = "largest";
    values_[nodes.total] = "total";
    std::string result = "sum[lane]";
    if (nodes.normalised) {
      const std::string_view accuracy = accuracy_ == Accuracy::strict ? "strict::"
                                        : accuracy_ == Accuracy::fast ? "fast::"
                                                                      : "";
      // The sum of no products is 0.
      const std::string_view none = graph_.bounds.empty() ? "" : "key_end == 0 ? 0.0f : ";
      out_.line(3, "const f32 inverse = {}{}reciprocal(total);", none, accuracy);
      result += " * inverse";
    }
    values_[nodes.result] = names_[nodes.result];
    const std::vector<NodeId> ids = missing(graph_.outputs);
    for (const NodeId id : ids) {
      if ((moves_[id] & kLane) == 0) define(3, id);
    }
    emit_result_lanes(ids, result);
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!operands_[i].output || (moves_[operands_[i].value] & kLane) != 0) continue;
      out_.line(3, "if (first == 0) *({}) = {};", place(i), stored(operands_[i].value));
    }
    out_.line(2, "}};");
    out_.line(2, "finish_attention<Form>(slots, sums, store_results);");
  }

  std::string stored(NodeId id) const {
    return is_host() ? node_text_.store_on_host(id, values_, {})
                     : node_text_.store(id, values_, {});
  }

  void emit_result_lanes(std::span<const NodeId> ids, const std::string& result) {
    const auto has_row = [&](const NamedOperand& operand) {
      return operand.output && (moves_[operand.value] & kLane) != 0;
    };
    if (std::ranges::none_of(operands_, has_row)) return;
    for (const NodeId id : ids) {
      if (graph_.nodes[id].op != Op::input || (moves_[id] & kLane) == 0) continue;
      const std::size_t i = operand_of(graph_.nodes[id]);
      if (schedule_.operands[i].access == Access::contiguous) {
        out_.line(3, "const auto {}_lanes = load<width.size, {}>({}, first);", name_of(i),
                  schedule_.operands[i].alignment, place(i));
      } else {
        out_.line(3, "const auto {}_lanes = gather<width.size>({}, first, {});", name_of(i),
                  place(i), stride_of(i, value_axis()));
      }
    }
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!has_row(operands_[i])) continue;
      out_.line(3, "auto {}_lanes = results<width.size>({}, first{});", name_of(i), place(i),
                schedule_.operands[i].access == Access::contiguous
                    ? std::string()
                    : ", " + stride_of(i, value_axis()));
    }
    out_.line(3, "KILN_FOR_EACH_LANE(lane, width, width.size) {{");
    out_.line(4, "const f32 {} = {};", names_[space_.nodes.result], result);
    for (const NodeId id : ids) {
      if ((moves_[id] & kLane) == 0) continue;
      const TypedNode& node = graph_.nodes[id];
      if (node.op == Op::input) {
        name_value(4, id, element(node, fmt::format("{}_lanes[lane]", name_of(operand_of(node)))));
      } else if (node.op == Op::iota) {
        const std::size_t i = iota_of(node);
        name_value(
            4, id,
            node_text_.rounded(
                node, element(node, fmt::format("{} + {}(first + lane) * {}", place(i),
                                                signed_index_, iota_stride(i, value_axis())))));
      } else {
        define(4, id);
      }
    }
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!has_row(operands_[i])) continue;
      out_.line(4, "{}_lanes[lane] = {};", name_of(i), stored(operands_[i].value));
    }
    out_.line(3, "}}");
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!has_row(operands_[i])) continue;
      if (schedule_.operands[i].access == Access::contiguous) {
        out_.line(3, "store<width.size, {}>({}, first, {}_lanes);", schedule_.operands[i].alignment,
                  place(i), name_of(i));
      } else {
        out_.line(3, "scatter<width.size>({}, first, {}, {}_lanes);", place(i),
                  stride_of(i, value_axis()), name_of(i));
      }
    }
  }

  const TypedGraph& graph_;
  const AttentionSpace& space_;
  const Schedule& schedule_;
  const AttentionSchedule& own_;
  Accuracy accuracy_;
  NodeText node_text_;
  std::string_view index_;
  std::string_view signed_index_;
  KernelNames identifiers_;
  const std::vector<NamedOperand>& operands_;
  const ScratchVector<std::int64_t> iotas_;
  const std::vector<std::string> names_;
  std::vector<std::string> values_;  ///< the text of each value that is known at this place
  std::vector<std::uint8_t> moves_;  ///< of each node, bits of Along
  std::vector<bool> after_;          ///< computed of results
  KernelWriter out_{schedule_};
};

}  // namespace

KernelDescription emit_attention(const TypedGraph& graph, const AttentionSpace& space,
                                 const Schedule& schedule, Accuracy accuracy) {
  return AttentionEmitter(graph, space, schedule, accuracy).run();
}

}  // namespace kiln::fusion
