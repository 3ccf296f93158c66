#include "fusion/schedule/products/product_values.hpp"

#include <algorithm>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/infer/iota.hpp"
#include "fusion/schedule/iota_operands.hpp"
#include "fusion/schedule/products/prologue.hpp"

namespace kiln::fusion {
namespace {

// Whether a vector of a row is whole words on GPUs, and on the CPU those that its functions take.
bool has_whole_words(const Schedule& schedule, DType weights) {
  if (schedule.backend == Backend::host) return schedule.width == 32 || schedule.width == 64;
  constexpr int kWord = 32;
  return schedule.width * bits(weights) % kWord == 0 && schedule.width * 8 % kWord == 0;
}

}  // namespace

ProductValues::ProductValues(const TypedGraph& graph, const Schedule& schedule)
    : ProductAxes(schedule), graph_(graph) {
  statistics_ = statistics_of(graph);
  find_scopes();
  find_staged();
  find_products();
  find_forms();
  find_wanted();
  find_fast_path();
}

Scope ProductValues::operand_scope(std::size_t operand) const {
  Scope scope;
  scope.rows = has_stride(operand, row_axis());
  scope.columns = has_columns() && has_stride(operand, row_axis() - 1);
  if (schedule_.operands[operand].access == Access::contiguous || is_gathered(operand)) {
    scope.level = Level::element;
  } else if (schedule_.operands[operand].outer_axes >> first_reduced() != 0) {
    scope.level = Level::group;
  }
  return scope;
}

// Operands are the array arguments in order, then the outputs and the iotas.
std::size_t ProductValues::operand_of(const TypedNode& input) const {
  std::size_t operand = 0;
  for (std::size_t i = 0; i < input.payload; ++i) operand += graph_.arguments[i].scalar ? 0 : 1;
  return operand;
}

std::size_t ProductValues::operand_of_iota(const TypedNode& iota) const {
  const auto axes = iota_axes(graph_);
  const auto place = std::ranges::find(axes, iota_axis(iota)) - axes.begin();
  return schedule_.operands.size() - axes.size() + static_cast<std::size_t>(place);
}

bool ProductValues::has_forms() const {
  return std::ranges::any_of(forms_, [](const auto& form) { return form.has_value(); });
}

void ProductValues::disable_fast_path(std::optional<NodeId> only) {
  only_ = only;
  fast_path_ = in_integers_ = false;
  forms_.assign(graph_.nodes.size(), std::nullopt);
  find_wanted();
}

void ProductValues::find_scopes() {
  scopes_.resize(graph_.nodes.size());
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    Scope& scope = scopes_[id];
    if (node.op == Op::input) scope = operand_scope(operand_of(node));
    if (node.op == Op::iota) scope = operand_scope(operand_of_iota(node));
    const auto depends_on = [&](NodeId operand) {
      scope.level = std::max(scope.level, scopes_[operand].level);
      scope.rows = scope.rows || scopes_[operand].rows;
      scope.columns = scope.columns || scopes_[operand].columns;
    };
    std::ranges::for_each(node.inputs(), depends_on);
    const NodeId* place = node.op == Op::input ? graph_.place_of(false, node.payload) : nullptr;
    if (place != nullptr) depends_on(*place);
    if (statistics_[id]) {
      scope.level = Level::row;
    } else if (is_reduction(node.op)) {
      scope = {Level::result, true, has_columns()};
    }
  }
}

// What the rows share, where it is made of statistics: the last values before rows differ, of which
// there may be one.
void ProductValues::find_staged() {
  in_main_.assign(graph_.nodes.size(), true);
  in_prologue_.assign(graph_.nodes.size(), false);
  if (std::ranges::find(statistics_, true) == statistics_.end()) return;
  staged_ = staged_vector(graph_, scopes_, statistics_);
  if (!staged_) return;
  in_prologue_[*staged_] = true;
  in_main_ = live_but(graph_, graph_.roots(), *staged_);
  for (std::size_t id = *staged_ + 1; id-- > 0;) {
    if (!in_prologue_[id]) continue;
    for (const NodeId operand : graph_.nodes[id].inputs()) in_prologue_[operand] = true;
  }
}

// A product that is only added up is not computed by itself. One that follows the tree is rounded
// before it is added, unless it is exact.
void ProductValues::find_products() {
  in_sum_.assign(graph_.nodes.size(), false);
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    const bool keeps = graph_.rounding == Rounding::once || !is_narrow_float(node.dtype);
    in_sum_[id] = node.op == Op::mul && scopes_[id].level == Level::element && keeps &&
                  is_floating(node.dtype) && (!schedule_.products.tree || is_exact_product(id));
  }
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    if (adds(node) && !statistics_[id]) continue;
    for (const NodeId operand : node.inputs()) in_sum_[operand] = false;
  }
}

// Sums of small integers are added up group by group on GPUs, whatever the number of columns is, so
// that bits do not show it.
void ProductValues::find_forms() {
  forms_.assign(graph_.nodes.size(), std::nullopt);
  find_integer_forms();
  if (in_integers_ || schedule_.backend == Backend::host) return;
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (statistics_[id]) continue;
    auto form = product_form(graph_, static_cast<NodeId>(id), scopes_, in_tiles());
    if (!form || is_dequantised_at_once(*form)) continue;
    const int bits_at_once = schedule_.width * bits(graph_.nodes[form->weight].dtype);
    if (bits_at_once % 32 == 0) forms_[id] = form;
  }
}

// Factors of at most eight bits and at most eleven have exact products, and so have two f16, whose
// least and largest products are no subnormals of f32 and finite.
bool ProductValues::is_exact_product(std::size_t id) const {
  const TypedNode& node = graph_.nodes[id];
  if (node.op != Op::mul || compute_dtype(node.dtype) != DType::f32) return false;
  const auto origin = [&](NodeId from) {
    while (graph_.nodes[from].op == Op::promote) from = graph_.nodes[from].operands[0];
    return graph_.nodes[from];
  };
  for (const std::size_t i : {0u, 1u}) {
    const TypedNode scale = origin(node.operands[1 - i]);
    const TypedNode weight = origin(node.operands[i]);
    const bool narrow = scale.dtype == DType::bf16 || scale.dtype == DType::f16;
    const bool small = is_integer(weight.dtype) && bits(weight.dtype) <= 8;
    const bool halves = weight.dtype == DType::f16 && scale.dtype == DType::f16;
    if (weight.op != Op::input || scale.op != Op::input) continue;
    if ((small && narrow) || halves) return true;
  }
  return false;
}

// Whether weights are dequantised by one instruction, which rounds once: then it costs as much as
// to subtract a zero point.
bool ProductValues::is_dequantised_at_once(const ProductForm& form) const {
  if (schedule_.backend != Backend::amd || !form.bias || form.bias_is_subtracted) return false;
  for (const TypedNode& node : graph_.nodes) {
    if (node.op != Op::add) continue;
    for (const std::size_t i : {0u, 1u}) {
      if (node.operands[i] == *form.bias && is_exact_product(node.operands[1 - i])) return true;
    }
  }
  return false;
}

void ProductValues::find_integer_forms() {
  if (in_tiles()) return;
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    // The CPU has those of several groups, as numbers alone.
    const bool of_bits = graph_.nodes[id].op == Op::bitcast && scopes_[id].level == Level::group;
    if (schedule_.backend == Backend::host && of_bits) return;
  }
  if (staged_) return;
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (!is_reduction(graph_.nodes[id].op)) continue;
    forms_[id] = integer_product_form(graph_, static_cast<NodeId>(id), scopes_);
    in_integers_ = forms_[id] && has_whole_words(schedule_, graph_.nodes[forms_[id]->weight].dtype);
    if (!in_integers_) return forms_.assign(graph_.nodes.size(), std::nullopt);
  }
}

bool ProductValues::adds_vectors() const {
  if (graph_.rounding != Rounding::once) return false;
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    if (!in_main_[id]) continue;
    if (is_reduction(node.op)) {
      if (!adds(node) || compute_dtype(node.dtype) != DType::f32) return false;
    } else if (scopes_[id].level == Level::element && !is_vector(id)) {
      const bool computes = node.op == Op::add || node.op == Op::sub || node.op == Op::mul;
      if (!computes && node.op != Op::promote && node.op != Op::cast) return false;
    }
  }
  return true;
}

NodeId ProductValues::tile_vector(NodeId sum) const {
  NodeId id = forms_[sum]->activation;
  const auto is_widened = [&](const TypedNode& node) {
    return node.op == Op::promote || (node.op == Op::cast && node.dtype == DType::f32 &&
                                      is_narrow_float(graph_.nodes[node.operands[0]].dtype));
  };
  while (is_widened(graph_.nodes[id]) && staged_ != id) id = graph_.nodes[id].operands[0];
  return id;
}

std::optional<NodeId> ProductValues::second_tile_sum() const {
  std::optional<NodeId> last;
  std::size_t count = 0;
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (!is_reduction(graph_.nodes[id].op) || statistics_[id]) continue;
    last = static_cast<NodeId>(id);
    ++count;
  }
  return count == 2 ? last : std::nullopt;
}

ScratchVector<std::pair<std::size_t, std::size_t>> ProductValues::paired_operands() const {
  ScratchVector<std::pair<std::size_t, std::size_t>> pairs;
  if (const auto second = second_tile_sum()) are_alike(*tile_sum(), *second, pairs);
  return pairs;
}

// Whether two values are computed by the same operations, from the same operands or from such as
// stand in each other's place; adds those to `pairs`.
bool ProductValues::are_alike(NodeId a, NodeId b,
                              ScratchVector<std::pair<std::size_t, std::size_t>>& pairs) const {
  ScratchVector<std::pair<NodeId, NodeId>> open;
  open.push_back({a, b});
  while (!open.empty()) {
    const auto [first, second] = open.back();
    open.pop_back();
    if (first == second) continue;
    const TypedNode& x = graph_.nodes[first];
    const TypedNode& y = graph_.nodes[second];
    if (x.op != y.op || x.dtype != y.dtype || x.arity != y.arity) return false;
    if (x.op == Op::input) {
      const std::pair pair{operand_of(x), operand_of(y)};
      const auto alike = [](OperandSchedule operand) {
        operand.alignment = 0;
        operand.before_pdl_wait = false;
        return operand;
      };
      if (alike(schedule_.operands[pair.first]) != alike(schedule_.operands[pair.second])) {
        return false;
      }
      for (const auto& known : pairs) {
        if ((known.first == pair.first) != (known.second == pair.second)) return false;
      }
      if (std::ranges::find(pairs, pair) == pairs.end()) pairs.push_back(pair);
      continue;
    }
    if (x.payload != y.payload) return false;
    for (std::size_t i = 0; i < x.arity; ++i) open.push_back({x.operands[i], y.operands[i]});
  }
  return true;
}

std::optional<NodeId> ProductValues::tile_sum() const {
  std::optional<NodeId> sum;
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (!is_reduction(graph_.nodes[id].op) || statistics_[id]) continue;
    const std::optional<NodeId> second = second_tile_sum();
    if (!forms_[id] || (sum && !second)) return std::nullopt;
    if (sum) {
      ScratchVector<std::pair<std::size_t, std::size_t>> pairs;
      if (forms_[id]->activation != forms_[*sum]->activation || !are_alike(*sum, *second, pairs)) {
        return std::nullopt;
      }
      continue;
    }
    sum = static_cast<NodeId>(id);
  }
  if (!sum) return std::nullopt;
  const NodeId vector = tile_vector(*sum);
  const DType dtype = staged_ == vector ? staged_dtype(graph_, vector) : graph_.nodes[vector].dtype;
  const bool is_pair = dtype == DType::bf16 || dtype == DType::f16;
  return is_vector(vector) && is_pair ? sum : std::nullopt;
}

void ProductValues::find_wanted() {
  wanted_.assign(graph_.nodes.size(), false);
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    if (!is_summed(id) || in_integers_) continue;
    if (forms_[id]) {
      wanted_[forms_[id]->activation] = true;
    } else if (in_sum_[node.operands[0]]) {
      for (const NodeId factor : graph_.nodes[node.operands[0]].inputs()) wanted_[factor] = true;
    } else {
      wanted_[node.operands[0]] = true;
    }
  }
  for (std::size_t id = graph_.nodes.size(); id-- > 0;) {
    if (!wanted_[id] || staged_ == static_cast<NodeId>(id)) continue;
    for (const NodeId operand : graph_.nodes[id].inputs()) wanted_[operand] = true;
  }
}

void ProductValues::find_fast_path() {
  fast_path_ = schedule_.backend == Backend::nvidia && !in_integers_;
  bool scales = false;
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    if (!in_main_[id]) continue;
    if (is_reduction(node.op)) {
      fast_path_ = fast_path_ && adds(node) && compute_dtype(node.dtype) == DType::f32;
    } else if (scopes_[id].level == Level::element && !is_vector(id)) {
      const bool shows = node.op == Op::promote || node.op == Op::mul || node.op == Op::add ||
                         node.op == Op::sub || node.op == Op::neg;
      const bool rounds = is_narrow_float(node.dtype) && graph_.rounding == Rounding::each;
      fast_path_ = fast_path_ && shows && !rounds;
      scales = scales ||
               (node.op == Op::mul && compute_dtype(node.dtype) == DType::f32 && scales_lane(node));
    }
  }
  fast_path_ = fast_path_ && scales;
}

bool ProductValues::scales_lane(const TypedNode& node) const {
  for (const std::size_t i : {0u, 1u}) {
    NodeId lane = node.operands[i];
    while (graph_.nodes[lane].op == Op::promote) lane = graph_.nodes[lane].operands[0];
    const DType dtype = graph_.nodes[lane].dtype;
    const bool liftable = dtype == DType::u4 || dtype == DType::u8;
    if (liftable && graph_.nodes[lane].op == Op::input && scopes_[lane].level == Level::element &&
        scopes_[node.operands[1 - i]].level != Level::element)
      return true;
  }
  return false;
}

}  // namespace kiln::fusion
