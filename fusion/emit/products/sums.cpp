// The loops that add up the sums of a matrix-vector product. What all rows share is computed first
// and kept for all of them; small integers of a group are added up before they are scaled
// (product_form.hpp).
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/products/emitter.hpp"

namespace kiln::fusion {

bool ProductEmitter::sums_in_blocks(const TypedNode& node) const {
  return !products_.tree && (adds(node) || node.op == Op::prod) && !is_integer(node.dtype);
}

void ProductEmitter::declare_results() {
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (!nodes_.is_summed(id)) continue;
    out_.line(2, "{} {}_of[{}];", compute_type(graph_.nodes[id].dtype), names_[id], results());
    if (products_.tree) {
      out_.line(2, "{} {}_sums[{}];", turn_type(graph_.nodes[id]), names_[id], results());
    }
  }
}

void ProductEmitter::sum_up() {
  if (nodes_.in_integers()) return sum_integers();
  begin_turns();
  begin_sums();
  for_each_vector();
  end_sums();
  end_turns();
}

// What a thread adds vectors to.
std::string ProductEmitter::sums_type(const TypedNode& node) const {
  if (!loops_.in_vectors) {
    return fmt::format("Lanes<{}, {}>", compute_type(node.dtype), loops_.lanes_per_sum);
  }
  if (host()) return products_.tree ? "VectorSums<kVectors>" : "VectorSums<kVectorSums>";
  return fmt::format("VectorSums<{}>", products_.tree ? schedule_.width / 2 : 1);
}

// What it has of a sum after a turn.
std::string ProductEmitter::turn_type(const TypedNode& node) const {
  const std::string_view type = compute_type(node.dtype);
  if (!products_.tree) return std::string(type);
  if (loops_.in_vectors && host()) return sums_type(node);
  return fmt::format("Lanes<{}, {}>", type, schedule_.width);
}

// The order in which vectors are added up is the one in which threads would, had each a turn of its
// own (preamble/products.h).
void ProductEmitter::begin_turns() {
  if (host() && products_.tree) out_.line(2, "{} done = 0;", index_);
  if (products_.turns == 1) return;
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (!nodes_.is_summed(id)) continue;
    out_.line(2, "Turns<{}, {}, {}> {}_turns;", turn_type(graph_.nodes[id]), products_.turns,
              results(), names_[id]);
  }
  out_.line(2, "KILN_EACH_TURN(turn, {}) {{", products_.turns);
  out_.indent(1);
}

void ProductEmitter::take_total(NodeId sum, const std::string& total) {
  const std::string_view kept = products_.tree ? "sums" : "of";
  out_.line(2, "{}{}_{}[{}] = {};", loops(every_result()), names_[sum], kept, result_index(),
            total);
  if (products_.turns == 1) return;
  out_.line(2, "{0}_turns.add<{1}>(turn, {0}_{2});", names_[sum],
            info(graph_.nodes[sum].op).combiner, kept);
}

// Then combines what the threads of the rows have.
void ProductEmitter::end_turns() {
  if (products_.turns > 1) {
    out_.indent(-1);
    out_.line(2, "}}");
  }
  bool first = true;
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (!nodes_.is_summed(id)) continue;
    const std::string_view op = info(graph_.nodes[id].op).combiner;
    if (products_.tree && host()) {
      out_.line(2, "{}{}_of[{}] = {}({}_sums[{}]);", loops(every_result()), names_[id],
                result_index(), fold_of(op, schedule_.width), names_[id], result_index());
      continue;
    }
    const std::string beside = goes_across() ? fmt::format("{}, ", products_.beside) : "";
    if (loops_.share_slots && !first) out_.line(2, "KILN_SYNCHRONIZE();");
    first = false;
    const std::string lanes = products_.tree ? fmt::format("{}_sums, ", names_[id]) : "";
    out_.line(2, "{}{}<{}, {}{}>({}_of, {}{});", products_.tree ? "reduce_lanes" : "reduce",
              goes_across()    ? "_beside"
              : products_.tree ? ""
                               : "_all",
              op, beside, shares_.threads, names_[id], lanes, slots_of(id));
  }
}

// Writes the code that recomputes results that are not finite, without the fast path. Others stay
// as they are, so that their bits do not show what is computed beside them.
void ProductEmitter::recompute_non_finite() {
  std::string finite;
  std::vector<NodeId> sums;
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    if (!nodes_.is_summed(id) || is_integer(node.dtype) ||
        !(nodes_.has_fast_path() || nodes_.form(id)))
      continue;
    finite += fmt::format("{}all_finite({}_of)", finite.empty() ? "" : " && ", names_[id]);
    sums.push_back(static_cast<NodeId>(id));
  }
  nodes_.disable_fast_path();
  if (finite.empty()) return;  // sums of integers
  // All threads of a block compute again, or none, where they meet for that.
  out_.line(2, "if ({}) {{",
            goes_across() ? fmt::format("any_in_block(!({}), not_finite)", finite)
                          : fmt::format("!({})", finite));
  out_.indent(1);
  for (const NodeId id : sums) out_.line(2, "const FirstResults {0}_first({0}_of);", names_[id]);
  if (shares_.rows == 1 && !goes_across()) out_.line(2, "KILN_SYNCHRONIZE();");
  sum_up();
  for (const NodeId id : sums) out_.line(2, "{0}_first.restore_finite({0}_of);", names_[id]);
  out_.indent(-1);
  out_.line(2, "}}");
}

void ProductEmitter::begin_sums() {
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    if (!nodes_.is_summed(id)) continue;
    const std::string type = sums_type(node);
    const auto declare = [&](std::string_view suffix) {
      out_.line(2, "{} {}_{}{}{};", type, names_[id], suffix, extents(every_result()),
                loops_.in_vectors ? " = {}" : "");
      if (loops_.in_vectors) return;
      out_.line(2, "{}{}_{}{} = identity_lanes<{}, {}, {}>();", loops(every_result()), names_[id],
                suffix, indices(every_result()), info(node.op).combiner, compute_type(node.dtype),
                loops_.lanes_per_sum);
    };
    declare("lanes");
    if (sums_in_blocks(node)) declare("all");
  }
}

// Opens the loop over the vectors of a row. The CPU has one over groups around it, with what it
// computes once for each.
void ProductEmitter::begin_vectors() {
  const std::string scale = schedule_.width == 1 ? "" : fmt::format(" * {}", schedule_.width);
  in_groups_ = loops_.several_groups;
  if (in_groups_) out_.line(2, "const {} groups = divide(vectors, columns);", index_);
  before_groups_ = out_.here();
  if (goes_group_by_group()) {
    out_.line(2, "for ({} group = 0, vector = 0; vector < vectors; ++group) {{", index_);
    if (in_groups_) out_.line(3, "const u32 g = u32(group % kGroups);");
    out_.coordinates(3, index_, "group", first_reduced(), inner());
    group_values();
    out_.line(3, "for ({0} first = 0; first < columns.divisor{1}; first += {2}, ++vector) {{",
              index_, scale, schedule_.width);
    out_.indent(1);
    return;
  }
  const std::string_view turn = products_.turns == 1 ? "0" : "turn";
  if (goes_across()) {
    out_.line(2, "KILN_FOR_VECTORS_BESIDE({}, {}, {}, {}, {}, vector, vectors) {{", index_,
              products_.beside, shares_.threads, products_.turns, turn);
  } else {
    if (products_.in_flight > 1) {
      out_.line(2, "KILN_UNROLL_{}", products_.in_flight == 2 ? "TWICE" : "FOUR_TIMES");
    }
    out_.line(2, "KILN_FOR_VECTORS_OF_TURN({}, {}, {}, {}, vector, vectors) {{", index_,
              shares_.threads, products_.turns, turn);
  }
  if (has_groups()) {
    out_.line(3, "const {} group = divide(vector, columns);", index_);
    out_.line(3, "const {} first = (vector - group * columns.divisor){};", index_, scale);
    out_.coordinates(3, index_, "group", first_reduced(), inner());
  } else {
    out_.line(3, "const {} first = vector{};", index_, scale);
  }
  if (host()) group_values();
}

void ProductEmitter::end_vectors() {
  if (host() && products_.tree) out_.line(3, "++done;");
  if (goes_group_by_group()) {
    out_.indent(-1);
    out_.line(3, "}}");
  }
  out_.line(2, "}}");
}

void ProductEmitter::for_each_vector() {
  begin_vectors();
  if (!host()) {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (is_loaded(i) && !loops_.by_part[i]) load(i, 3, schedule_.width, "first");
    }
    group_values();
  }
  for (std::size_t i = 0; host() && i < operands_.size(); ++i) {
    if (!is_loaded(i) || !is_across(i)) continue;
    for (const std::string& line : gather(i, schedule_.width, "first", operands_[i].scope)) {
      out_.line(3, "{}", line);
    }
  }
  if (has_parts()) {
    out_.line(3, "KILN_EACH(part, {}) {{", schedule_.width / products_.lanes);
  } else {
    out_.line(3, "{{");
  }
  first_ = has_parts() ? fmt::format("first + {}(part * {})", index_, products_.lanes) : "first";
  row_invariant_elements();
  add_activations(Loop::part);
  rows_elements();
  out_.line(3, "}}");
  end_groups();
  carry_over(3, loops_.in_vectors && host()
                    ? fmt::format("if (ends_vectors<{}>(vector)) ", schedule_.width)
                : host() ? fmt::format("if (ends_sum_block<{}, 1>(vector)) ", shares_.threads)
                         : "");
  end_vectors();
  if (host()) carry_over(2, "");
}

bool ProductEmitter::is_loaded(std::size_t i) const {
  const OperandText& operand = operands_[i];
  return !operand.output && operand.scope.level == Level::element && is_used(operand);
}

bool ProductEmitter::has_packed_elements() const {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (is_loaded(i) && is_packed(operands_[i].dtype)) return true;
  }
  return false;
}

// The scope of loaded lanes: those that are loaded part by part are inside the loop over the rows.
Scope ProductEmitter::loaded_scope(std::size_t i) const {
  Scope scope = operands_[i].scope;
  scope.rows = scope.rows && !loops_.by_part[i];
  return scope;
}

// An operand's row and the first element of a vector in it, as functions that load take them.
std::string ProductEmitter::row_and_first(std::size_t i, const std::string& first) const {
  const OperandText& operand = operands_[i];
  const std::string row = row_text(i);
  // Added separately, so that what rows have in common is computed once.
  if (!is_packed(operand.dtype)) {
    return fmt::format("{}_data{}{}, {}", operand.name, row.empty() ? "" : " + ", row,
                       in_group(i, first));
  }
  return fmt::format("packed({}_data, {}), {}", operand.name,
                     row.empty() ? fmt::format("{}(0)", signed_index_) : row, in_group(i, first));
}

void ProductEmitter::load(std::size_t i, int depth, int width, const std::string& first) {
  const OperandText& operand = operands_[i];
  const bool simd = loops_.in_vectors && host();
  const bool beside_packed = simd && has_packed_elements() && !is_packed(operand.dtype);
  const std::string_view stored = storage_type(operand.dtype);
  const std::string type = beside_packed ? fmt::format("InPackedLanes<{}>", stored)
                           : simd        ? fmt::format("VectorsOf<{}>", stored)
                                         : fmt::format("LanesOf<{}, {}>", stored, width);
  const Scope scope = loaded_scope(i);
  if (is_gathered(i) && !(is_across(i) && host())) {
    for (const std::string& line : gather(i, width, first, scope)) out_.line(depth, "{}", line);
  }
  const std::string from = is_gathered(i) ? gathered_row(i, scope) : row_and_first(i, first);
  const std::string text = beside_packed ? fmt::format("in_packed_lanes(vectors_of({}))", from)
                           : simd
                               ? fmt::format("vectors_of({})", from)
                               : fmt::format("lanes_of<{}, {}>({})", width, alignment_of(i), from);
  if (extents(scope).empty()) {
    out_.line(depth, "const {} {}_lanes = {};", type, operand.name, text);
    if (simd && operand.scope.rows && !is_gathered(i))
      prefetch(i, depth, width, scope, operand.name + "_lanes.row");
    return;
  }
  out_.line(depth, "{} {}_lanes{};", type, operand.name, extents(scope));
  out_.line(depth, "{}{}_lanes{} = {};", loops(scope), operand.name, indices(scope), text);
}

// Prefetches what lies in the rows after those of a work item where `lanes` does in them.
void ProductEmitter::prefetch(std::size_t i, int depth, int width, const Scope& scope,
                              const std::string& lanes) {
  const OperandText& operand = operands_[i];
  // Turns go back and forth in a row; what is prefetched meanwhile is in the order of memory.
  const std::string from =
      products_.tree && !has_groups()
          ? fmt::format("{}_data + {} + done * {}", operand.name, row_text(i), width)
          : lanes;
  out_.line(depth, "{}prefetch_lanes<{}, {}>({}, i64({}) * {});", loops(scope),
            storage_type(operand.dtype), width, from, operand.stride_name(row_axis()), loops_.rows);
}

// Writes what all rows share of a part of a vector: it is computed once and kept.
void ProductEmitter::row_invariant_elements() {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (is_loaded(i) && loops_.by_part[i] && !operands_[i].scope.rows)
      load(i, 4, products_.lanes, first_);
  }
  if (has_prologue()) load_staged(4);
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const Scope& scope = nodes_.scope(id);
    if (scope.level != Level::element || scope.rows || !nodes_.is_wanted(id)) continue;
    std::string text = value_text(id);
    if (text.empty()) {
      if (!nodes_.is_vector(id)) continue;
      text = values_[id];
    }
    // Its name differs from that of the lanes.
    out_.line(4, "{} {}{}[{}];", element_type(id), names_[id], extents(scope), lanes());
    out_.line(4, "{}{}(lane, {}) {}{}[lane] = {};", loops(scope), each_lane(), lanes(), names_[id],
              indices(scope), text);
    values_[id] = fmt::format("{}{}[lane]", names_[id], indices(scope));
  }
}

void ProductEmitter::rows_elements() {
  if (loops_.rows > 1) {
    out_.line(4, "{}(r, {}) {{", each(), loops_.rows);
  } else {
    out_.line(4, "{{");
  }
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (is_loaded(i) && loops_.by_part[i] && operands_[i].scope.rows)
      load(i, 5, products_.lanes, first_);
  }
  if (loops_.in_vectors && host()) results_of_codes();
  if (has_columns()) {
    rows_values();
    add_activations(Loop::row);
    out_.line(5, "{}(c, {}) {}(lane, {}) {{", each(), products_.columns, each_lane(), lanes());
  } else {
    out_.line(5, "{}(lane, {}) {{", each_lane(), lanes());
  }
  lane_values();
  add_activations(Loop::result);
  combine(6);
  out_.line(5, "}}");
  out_.line(4, "}}");
}

// Writes what the columns share of a part of a row: it is computed once and kept.
void ProductEmitter::rows_values() {
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const Scope& scope = nodes_.scope(id);
    if (scope.level != Level::element || !scope.rows || scope.columns || !nodes_.is_wanted(id))
      continue;
    const std::string text = looked_up_[id] ? values_[id] : value_text(id);
    if (text.empty()) continue;
    out_.line(5, "KILN_LANES {} {}[{}];", element_type(id), names_[id], lanes());
    out_.line(5, "{}(lane, {}) {}[lane] = {};", each_lane(), lanes(), names_[id], text);
    values_[id] = names_[id] + "[lane]";
  }
}

void ProductEmitter::lane_values() {
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const Scope& scope = nodes_.scope(id);
    if (scope.level != Level::element || !scope.rows || scope.columns != has_columns() ||
        !nodes_.is_wanted(id) || looked_up_[id])
      continue;
    const std::string text = value_text(id);
    if (text.empty()) continue;
    out_.line(6, "const {} {} = {};", element_type(id), names_[id], text);
    values_[id] = names_[id];
  }
}

void ProductEmitter::combine(int depth) {
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    if (!nodes_.is_summed(id)) continue;
    std::string lane = !host() ? "0" : loops_.in_vectors ? "lane % kVectorSums" : "lane";
    if (products_.tree) lane = has_parts() ? fmt::format("part * {} + lane", lanes()) : "lane";
    const std::string sum =
        fmt::format("{}_lanes{}[{}]", names_[id], indices(every_result()), lane);
    const NodeId operand = node.operands[0];
    if (nodes_.form(id)) {
      const std::string& text = lanes_[nodes_.form(id)->weight].text;
      const std::string number =
          nodes_.form(id)->is_centered()
              ? fmt::format("minus_zero_point({}, {}_zero_point{})", text, names_[id],
                            indices(of_zero_point(*nodes_.form(id))))
          : loops_.in_vectors ? text
                              : fmt::format("to<f32>({})", text);
      out_.line(depth, "{0} = add_product({0}, {1}, {2});", sum, number,
                values_[nodes_.form(id)->activation]);
    } else if (nodes_.is_in_sum(operand)) {
      const TypedNode& product = graph_.nodes[operand];
      out_.line(depth, "{0} = add_product({0}, {1}, {2});", sum, values_[product.operands[0]],
                values_[product.operands[1]]);
    } else if (loops_.in_vectors) {
      out_.line(depth, "{} += {};", sum, values_[operand]);
    } else {
      out_.line(depth, "{0} = {1}::combine({0}, {2});", sum, info(node.op).combiner,
                values_[operand]);
    }
  }
}

void ProductEmitter::carry_over(int depth, const std::string& guard) {
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    if (!nodes_.is_summed(id) || !sums_in_blocks(node) || nodes_.form(id)) continue;
    const std::string operation =
        loops_.in_vectors ? "" : fmt::format("<{}>", info(node.op).combiner);
    out_.line(depth, "{0}{1}carry{2}({3}_all{4}, {3}_lanes{4});", guard, loops(every_result()),
              operation, names_[id], indices(every_result()));
  }
}

// The function that makes one result of those of lanes.
std::string ProductEmitter::fold_of(std::string_view op, int lanes) const {
  if (!loops_.in_vectors) return fmt::format("fold<{}, {}>", op, lanes);
  return host() && has_packed_elements() ? "total_of_packed" : "total";
}

void ProductEmitter::end_sums() {
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    if (!nodes_.is_summed(id)) continue;
    const std::string sums = fmt::format(
        "{}_{}{}", names_[id], sums_in_blocks(node) ? "all" : "lanes", indices(every_result()));
    const std::string fold = !products_.tree ? fold_of(info(node.op).combiner, loops_.lanes_per_sum)
                             : in_pairs()    ? "lanes_of_sums"
                                             : "";
    take_total(static_cast<NodeId>(id), fold.empty() ? sums : fmt::format("{}({})", fold, sums));
  }
}
}  // namespace kiln::fusion
