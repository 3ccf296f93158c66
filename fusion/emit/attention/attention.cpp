// The frame of attention. The kernel's text has what differs from one to another as functions of a
// query of the group and a key: what is loaded of a key, its product, its score, what is loaded of
// a value, what its weight multiplies, and what is stored. How they are called is in attend()
// (preamble/attention.h).
#include "fusion/emit/attention/attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fusion/emit/attention/emitter.hpp"
#include "fusion/emit/device_text.hpp"
#include "fusion/infer/iota.hpp"
#include "fusion/schedule/iota_operands.hpp"

namespace kiln::fusion {

AttentionEmitter::AttentionEmitter(const TypedGraph& graph, const AttentionSpace& space,
                                   const Schedule& schedule, Accuracy accuracy)
    : graph_(graph),
      space_(space),
      schedule_(schedule),
      own_(schedule.attention),
      accuracy_(accuracy),
      node_text_(graph, accuracy, schedule.backend),
      index_(schedule.wide_index ? "u64" : "u32"),
      signed_index_(schedule.wide_index ? "i64" : "i32"),
      identifiers_(graph),
      operands_(identifiers_.operands()),
      iotas_(iota_axes(graph)),
      names_(value_names(graph)),
      moves_(graph.nodes.size(), 0),
      after_(graph.nodes.size(), false) {
  known_.values.resize(graph.nodes.size());
  known_.located.resize(operands_.size() + iotas_.size(), false);
  find_moves();
}

KernelDescription AttentionEmitter::run() {
  collect_parameters();
  out_.open(identifiers_.commented(), schedule_, graph_.rounding, accuracy_);
  out_.signature(own_.threads);
  out_.pdl_wait(1);
  declare_form();
  out_.line(1, "KILN_FOR_EACH_BLOCK({}, item, work_items) {{", index_);
  begin_item();
  emit_keys();
  emit_invariants();
  emit_products();
  emit_score();
  emit_values();
  emit_call();
  emit_results();
  out_.line(1, "}}");
  out_.close();
  return out_.finish(static_cast<std::uint32_t>(own_.threads));
}

std::uint32_t AttentionEmitter::first_query_axis() const {
  return key_axis() - static_cast<std::uint32_t>(own_.group_axes);
}

bool AttentionEmitter::moves_along(std::size_t i, std::uint32_t axis) const {
  return (schedule_.operands[i].outer_axes >> axis & 1) != 0;
}

// An operand's stride along the depth or the values' elements is 1 where it is contiguous.
bool AttentionEmitter::has_stride(std::size_t i, std::uint32_t axis) const {
  const bool unit = axis >= depth_axis() && schedule_.operands[i].access == Access::contiguous;
  return moves_along(i, axis) && !unit;
}

std::size_t AttentionEmitter::iota_of(const TypedNode& node) const {
  const auto found = std::ranges::find(iotas_, iota_axis(node));
  return operands_.size() + static_cast<std::size_t>(found - iotas_.begin());
}

std::size_t AttentionEmitter::operand_of(const TypedNode& node) const {
  if (node.op == Op::iota) return iota_of(node);
  const auto found = std::ranges::find_if(operands_, [&](const NamedOperand& operand) {
    return !operand.output && operand.argument == node.payload;
  });
  return static_cast<std::size_t>(found - operands_.begin());
}

std::string AttentionEmitter::name_of(std::size_t i) const {
  return i < operands_.size() ? operands_[i].name : iota_name(iotas_[i - operands_.size()]);
}

std::string AttentionEmitter::stride_of(std::size_t i, std::uint32_t axis) const {
  return fmt::format("{}_stride_{}", name_of(i), axis);
}

// What each value differs by, where `lanes` is the axis of the lanes of what it is needed for.
void AttentionEmitter::find_moves() {
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
      if (is_indexed(i)) moves_[id] |= moves_[place_node(i)];
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

void AttentionEmitter::collect_parameters() {
  using P = Parameter::Kind;
  identifiers_.add_pointers(out_);
  identifiers_.add_scalars(out_, node_text_);
  out_.add_count(P::length, "keys");
  if (own_.split) {
    out_.add_divisor(P::splits, "splits");
    out_.add_count(P::vectors, "tiles");
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
    if (is_indexed(i)) {
      out_.add_offset(P::place_stride, name_of(i) + "_place_stride", i);
      out_.add_offset(P::place_count, name_of(i) + "_places", i);
    }
  }
}

std::string AttentionEmitter::lanes_text(const AttentionLanes& lanes) {
  return fmt::format("RowLanes<{}, {}, {}, {}, {}>", lanes.extent, lanes.width, lanes.vectors,
                     lanes.threads, lanes.together);
}

void AttentionEmitter::declare_form() {
  out_.line(1, "using Keys = {};", lanes_text(own_.keys));
  out_.line(1, "using Values = {};", lanes_text(own_.values));
  out_.line(1, "using Form = AttentionForm<{}, {}, {}, {}, Keys, Values>;", own_.threads, own_.tile,
            own_.queries(), own_.prefetch);
  out_.line(1, "KILN_SHARED AttentionSlots<Form> slots;");
}

void AttentionEmitter::begin_item() {
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
void AttentionEmitter::emit_keys() {
  std::vector<NodeId> ends;
  for (const BoundedAxis& bound : graph_.bounds) ends.push_back(bound.end);
  for (const NodeId id : missing(ends)) define(2, id);
  std::string end = "keys";
  for (const NodeId id : ends) end = fmt::format("end_within({}, {})", known_.values[id], end);
  if (!ends.empty()) out_.line(2, "const {} key_end = {};", index_, end);
  const std::string_view last = ends.empty() ? "keys" : "key_end";
  if (own_.split) {
    out_.line(2, "const {} first_key = divide(split * tiles, splits) * {};", index_, own_.tile);
    out_.line(2, "const {} last_key = least(divide((split + 1) * tiles, splits) * {}, {});", index_,
              own_.tile, last);
  } else {
    out_.line(2, "const {} first_key = 0;", index_);
    out_.line(2, "const {} last_key = {};", index_, last);
  }
}

// Where an operand's element is for query `q` and a key.
std::string AttentionEmitter::place(std::size_t i) const {
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
  if (is_indexed(i)) text += fmt::format(" + {}_at", name_of(i));
  return text;
}

// ---- The parts
// --------------------------------------------------------------------------------------

void AttentionEmitter::emit_products() {
  const Known outside = known_;
  const Side side = key_side();
  const NodeId reduced = graph_.nodes[space_.nodes.product].operands[0];
  const TypedNode& root = graph_.nodes[reduced];
  const bool product = root.op == Op::mul;
  const std::vector<NodeId> factors = product
                                          ? std::vector<NodeId>{root.operands[0], root.operands[1]}
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
  known_ = outside;
}

void AttentionEmitter::emit_score() {
  const Known outside = known_;
  const AttentionNodes& nodes = space_.nodes;
  known_.values[nodes.product] = names_[nodes.product];
  const std::vector<NodeId> ids = missing({nodes.scores});
  out_.line(2, "const auto score = [&](int q, {} key, f32 {}) KILN_INLINED {{", index_,
            names_[nodes.product]);
  for (const NodeId id : ids) define(3, id);
  out_.line(3, "return {};", known_.values[nodes.scores]);
  out_.line(2, "}};");
  known_ = outside;
}

void AttentionEmitter::emit_values() {
  const Known outside = known_;
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
  known_ = outside;
}

void AttentionEmitter::emit_call() {
  const std::string_view exponential = accuracy_ == Accuracy::strict ? "strict::exp"
                                       : accuracy_ == Accuracy::fast ? "fast::exp"
                                                                     : "exp_not_positive";
  out_.line(2, "const auto exponential = [](f32 x) KILN_INLINED {{ return {}(x); }};", exponential);
  out_.line(2, "KILN_LANES f32 sums[{}][Values::lanes];", own_.queries());
  out_.line(2, "attend<Form>(slots, first_key, last_key, sums, load_key, product, score,");
  out_.line(2, "             load_value, weigh, exponential);");
}

KernelDescription emit_attention(const TypedGraph& graph, const AttentionSpace& space,
                                 const Schedule& schedule, Accuracy accuracy) {
  return AttentionEmitter(graph, space, schedule, accuracy).run();
}

}  // namespace kiln::fusion
