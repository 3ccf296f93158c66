// The frame of a matrix-vector product: operands, parameters, the rows of a thread, and the
// results. sums.cpp adds up the sums.
#include "fusion/emit/products/products.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/products/emitter.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/infer/iota.hpp"
#include "fusion/schedule/iota_operands.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {

ProductEmitter::ProductEmitter(const TypedGraph& graph, const Schedule& schedule,
                               const ProductLoops& loops, Accuracy accuracy)
    : ProductAxes(schedule),
      graph_(graph),
      nodes_(graph, schedule),
      shares_(schedule.reduction),
      products_(schedule.products),
      loops_(loops),
      accuracy_(accuracy),
      node_text_(graph, accuracy, schedule.backend),
      before_rows_(graph_before_rows()),
      prologue_text_(before_rows_, accuracy, schedule.backend),
      index_(schedule.wide_index ? "u64" : "u32"),
      signed_index_(schedule.wide_index ? "i64" : "i32"),
      identifiers_(graph),
      values_(graph.nodes.size()),
      storage_(graph.nodes.size()),
      names_(value_names(graph)),
      lanes_(graph.nodes.size()),
      looked_up_(graph.nodes.size(), false) {
  if (has_two_sums()) pairs_ = nodes_.paired_operands();
}

KernelDescription ProductEmitter::run() {
  const std::uint32_t shared_bytes = staged_bytes();
  collect_operands();
  collect_parameters();
  out_.open(identifiers_.commented(), schedule_, graph_.rounding, accuracy_);
  out_.signature(shares_.threads * shares_.rows, loops_.min_blocks);
  out_.pdl_trigger();
  declare_prologue();
  if (!in_tiles()) out_.pdl_wait(1);
  if (loops_.in_vectors) out_.line(1, "constexpr int kVectors = {} / kSimd;", products_.lanes);
  find_gathered(1);
  shared_memory();
  define_prologue();
  if (has_prologue() && !in_tiles()) {
    out_.line(1, "load_own();");
    out_.line(1, "stage_own();");
  }
  out_.line(1, "KILN_FOR_EACH_BLOCK({}, item, work_items) {{", index_);
  find_item();
  if (in_tiles()) {
    sum_tiles();
  } else {
    const std::string row_of = goes_across()
                                   ? fmt::format("row_beside<{}>", products_.beside)
                                   : fmt::format("row_of<{}, {}>", shares_.threads, shares_.rows);
    out_.line(2, "const {} row = {}({}){};", index_, row_of, batch_axes() > 0 ? "block" : "item",
              loops_.rows == 1 ? "" : fmt::format(" * {}", loops_.rows));
    find_rows(2);
    emit_values(Level::row, 2);
    declare_results();
    sum_up();
    if (nodes_.has_fast_path() || nodes_.has_forms()) recompute_non_finite();
    store_results();
  }
  out_.line(1, "}}");
  out_.close();
  KernelDescription kernel =
      out_.finish(static_cast<std::uint32_t>(shares_.threads * shares_.rows));
  kernel.shared_bytes = shared_bytes;
  return kernel;
}

void ProductEmitter::collect_operands() {
  for (const NamedOperand& operand : identifiers_.operands()) {
    operands_.push_back({operand, nodes_.operand_scope(operands_.size())});
  }
  for (const std::int64_t axis : iota_axes(graph_)) {
    const std::string name = iota_name(axis);
    operands_.push_back({{name, name, graph_.arguments.size(), 0, DType::i64, false},
                         nodes_.operand_scope(operands_.size()),
                         true});
  }
  if (operands_.size() != schedule_.operands.size()) {
    throw Error(Code::internal,
                "emit_products: the schedule and the graph differ in their number of operands");
  }
}

void ProductEmitter::collect_parameters() {
  using P = Parameter::Kind;
  identifiers_.add_pointers(out_);
  identifiers_.add_scalars(out_, node_text_);
  out_.add_count(P::vectors, "vectors");
  out_.add_count(P::length, "length");
  out_.add_count(P::row_count, "row_count");
  if (batch_axes() > 0 || in_tiles()) out_.add_divisor(P::row_blocks, "row_blocks");
  if (std::ranges::any_of(schedule_.operands, &OperandSchedule::repeats))
    out_.add_divisor(P::row_repeats, "row_repeats");
  if (has_groups()) out_.add_divisor(P::columns, "columns");
  for (std::uint32_t k = 1; k < rank(); ++k) {
    if (k < batch_axes() || (k > first_reduced() && k != inner()))
      out_.add_divisor(P::extent, fmt::format("extent_{}", k), k);
  }
  out_.add_count(P::work_items, "work_items");
  if (loads_before_pdl_wait()) out_.add_count(P::launched_early, "launched_early");
  for (std::uint32_t i = 0; i < operands_.size(); ++i) {
    if (schedule_.operands[i].start) {
      out_.add_offset(P::start, operands_[i].name + "_start", i);
    }
    for (std::uint32_t k = 0; k < rank(); ++k) {
      if (has_stride(i, k)) out_.add_offset(P::stride, operands_[i].stride_name(k), i, k);
    }
    if (place_of(i) != nullptr) {
      out_.add_offset(P::place_stride, operands_[i].name + "_place_stride", i);
      out_.add_offset(P::place_count, operands_[i].name + "_places", i);
    }
  }
}

void ProductEmitter::shared_memory() {
  if (in_tiles()) declare_tiles();
  if (products_.tree && host()) return;
  std::vector<std::string> declared;
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (!nodes_.is_summed(id)) continue;
    std::string name = slots_of(id);
    if (std::ranges::find(declared, name) != declared.end()) continue;
    const std::string_view type = compute_type(graph_.nodes[id].dtype);
    const std::string_view kind = products_.tree  ? goes_across() ? "LaneSlotsBeside" : "LaneSlots"
                                  : goes_across() ? "SlotsBeside"
                                                  : "ManySlots";
    const std::string beside = goes_across() ? fmt::format(", {}", products_.beside) : "";
    const std::string lanes = products_.tree ? fmt::format(", {}", schedule_.width) : "";
    out_.line(1, "KILN_SHARED {}<{}{}, {}, {}{}> {};", kind, type, beside, shares_.threads,
              results(), lanes, name);
    declared.push_back(std::move(name));
  }
  if (goes_across() && (nodes_.has_fast_path() || nodes_.has_forms())) {
    out_.line(1, "KILN_SHARED Slots<u32, {}> not_finite;", shares_.threads * shares_.rows);
  }
}

std::string ProductEmitter::slots_of(std::size_t sum) const {
  return fmt::format("{}_slots", loops_.share_slots ? compute_type(graph_.nodes[sum].dtype)
                                                    : std::string_view(names_[sum]));
}

void ProductEmitter::find_item() {
  if (schedule_.wide_index) out_.line(2, "KILN_SYNCHRONIZE();");  // slots may still be read
  if (batch_axes() > 0) {
    out_.line(2, "const {} batch = divide(item, row_blocks);", index_);
    out_.line(2, "const {} block = item - batch * row_blocks.divisor;", index_);
    out_.coordinates(2, index_, "batch", 0, batch_axes());
  }
}

std::string ProductEmitter::row_offset(std::size_t i) const {
  std::string text = schedule_.operands[i].start ? operands_[i].name + "_start" : "";
  for (std::uint32_t k = 0; k < first_reduced(); ++k) {
    if (!has_stride(i, k)) continue;
    const bool repeats = k == row_axis() && schedule_.operands[i].repeats;
    text += fmt::format("{}{}({}) * {}", text.empty() ? "" : " + ", signed_index_,
                        repeats ? fmt::format("divide({}, row_repeats)", at(k)) : at(k),
                        operands_[i].stride_name(k));
  }
  return text;
}

std::string ProductEmitter::row_number(const TypedNode& iota) const {
  const auto operand = std::ranges::find(operands_, iota_name(iota_axis(iota)), &OperandText::name);
  const std::string number = row_offset(static_cast<std::size_t>(operand - operands_.begin()));
  const std::string_view type = compute_type(iota.dtype);
  return node_text_.rounded(
      iota, fmt::format("to<{}>({})", type,
                        number.empty() ? fmt::format("{}(0)", signed_index_) : number));
}

void ProductEmitter::find_rows(int depth) {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const OperandText& operand = operands_[i];
    if (operand.output || !is_used(operand)) continue;
    const std::string text = row_offset(i);
    if (text.empty()) continue;
    if (extents(operand.scope).empty()) {
      out_.line(depth, "const {} {}_row = {};", signed_index_, operand.name, text);
      continue;
    }
    out_.line(depth, "{} {}_row{};", signed_index_, operand.name, extents(operand.scope));
    out_.line(depth, "{}{}_row{} = {};", loops(operand.scope), operand.name, indices(operand.scope),
              text);
  }
}

void ProductEmitter::store_results() {
  out_.line(2, "{}{{", loops(every_result()));
  emit_results(3);
  const std::string row = takes_lines()      ? row_of_lines()
                          : loops_.rows == 1 ? "row"
                                             : fmt::format("row + {}(r)", index_);
  const std::string is_first = goes_across() ? fmt::format("is_first_beside<{}>", products_.beside)
                                             : fmt::format("is_first<{}>", shares_.threads);
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!operands_[i].output) continue;
    out_.line(3, "if ({}() && {}) {}", is_first,
              takes_lines() ? fmt::format("{} >= row", row) : fmt::format("{} < row_count", row),
              store(i, row));
  }
  out_.line(2, "}}");
}

// Writes the values that depend on reductions.
void ProductEmitter::emit_results(int depth) {
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    if (nodes_.scope(id).level != Level::result) continue;
    const std::string_view type = compute_type(node.dtype);
    std::string text;
    if (is_reduction(node.op)) {
      text = one_column_ ? fmt::format("{}_of", names_[id])
                         : fmt::format("{}_of[{}]", names_[id], result_index());
      if (node.op == Op::mean) text = fmt::format("div({}, to<{}>(length))", text, type);
      text = node_text_.rounded(node, text);
    } else {
      text = value_text(id);
      if (text.empty()) continue;
    }
    out_.line(depth, "const {} {} = {};", type, names_[id], text);
    values_[id] = names_[id];
  }
}

const NodeId* ProductEmitter::place_of(std::size_t i) const {
  if (operands_[i].iota) return nullptr;
  if (!operands_[i].output) return graph_.place_of(false, operands_[i].argument);
  const auto first = std::ranges::find_if(operands_, &OperandText::output);
  return graph_.place_of(true, i - static_cast<std::size_t>(first - operands_.begin()));
}

std::string ProductEmitter::store(std::size_t i, const std::string& of_row) const {
  const OperandText& operand = operands_[i];
  const std::string row =
      schedule_.operands[i].repeats
          ? fmt::format("{0} - divide({0}, row_repeats) * row_repeats.divisor", of_row)
          : of_row;
  std::string pointer = operand.name + "_data";
  for (std::uint32_t k = 0; k < first_reduced(); ++k) {
    if (!has_stride(i, k)) continue;
    const bool column = has_columns() && k + 1 == row_axis();
    pointer += fmt::format(" + {}({}) * {}", signed_index_,
                           k == row_axis() ? row
                           : column        ? "c"
                                           : fmt::format("at_{}", k),
                           operands_[i].stride_name(k));
  }
  const std::string value =
      fmt::format("to<{}>({})", storage_type(operand.dtype), values_[operand.value]);
  const NodeId* place = place_of(i);
  if (place == nullptr) return fmt::format("*({}) = {};", pointer, value);
  return fmt::format("if (is_place({0}, {1}_places)) *({2} + {3}({0}) * {1}_place_stride) = {4};",
                     values_[*place], operand.name, pointer, signed_index_, value);
}

KernelDescription emit_products(const TypedGraph& graph, const Schedule& schedule,
                                const ProductLoops& loops, Accuracy accuracy) {
  return ProductEmitter(graph, schedule, loops, accuracy).run();
}

}  // namespace kiln::fusion
