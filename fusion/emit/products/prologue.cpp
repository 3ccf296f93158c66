// The prologue of a product (schedule/products/prologue.hpp): before its rows a block computes the
// vectors that they share, and stages them in shared memory (preamble/prologue.h).
#include "fusion/schedule/products/prologue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/products/emitter.hpp"
#include "fusion/graph/dtype_lattice.hpp"

namespace kiln::fusion {

std::string ProductEmitter::staged_column() const {
  return fmt::format("prologue_memory.column({})", has_columns() ? "c" : "0");
}

void ProductEmitter::declare_prologue() {
  if (!has_prologue()) return;
  int slot_bytes = 1;
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (!nodes_.is_statistic(id)) continue;
    slot_bytes = std::max(slot_bytes, bits(compute_dtype(graph_.nodes[id].dtype)) / 8);
  }
  const PrologueSchedule& own = products_.prologue;
  out_.line(1, "using Vectors = PrologueMemory<{}, {}, {}, {}, {}, {}>;",
            storage_type(staged_dtype()), products_.columns, own.threads, own.elements, own.width,
            slot_bytes);
  out_.line(1, "KILN_SHARED Vectors prologue_memory;");
  if (keeps_vectors(products_)) {
    for (const std::size_t i : prologue_vectors()) {
      out_.line(1, "Vec<{}, {}> {}_own{}[Vectors::kSlots];", storage_type(operands_[i].dtype),
                products_.prologue.width, operands_[i].name,
                extents({Level::element, false, operands_[i].scope.columns}));
    }
  }
  define_loads(true);
  if (!in_tiles()) out_.line(1, "early_own();");
}

// Its values are computed by the methods of a kernel that stores what is staged.
TypedGraph ProductEmitter::graph_before_rows() const {
  TypedGraph before = graph_;
  if (!has_prologue()) return before;
  const NodeId staged = *nodes_.staged();
  before.nodes.resize(staged + 1);
  before.outputs = {staged};
  before.indexed.clear();
  before.bounds.clear();
  if (const DType dtype = staged_dtype(); dtype != graph_.nodes[staged].dtype) {
    before.nodes.push_back({Op::promote, dtype, 1, {staged}, 0});
    before.outputs = {staged + 1};
  }
  return before;
}

// Writes a function that loads vectors that threads keep: those that no kernel before writes, or
// the others.
void ProductEmitter::define_loads(bool early) {
  out_.line(1, "const auto {} = [&]() KILN_INLINED {{", early ? "early_own" : "load_own");
  wanted_.assign(graph_.nodes.size(), false);
  std::string loads;
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    if (!nodes_.is_in_prologue(id) || node.op != Op::input) continue;
    wanted_[id] = schedule_.operands[nodes_.operand_of(node)].before_pdl_wait == early;
  }
  std::vector<std::size_t> vectors = prologue_vectors();
  std::erase_if(vectors,
                [&](std::size_t i) { return schedule_.operands[i].before_pdl_wait != early; });
  if (keeps_vectors(products_) && !vectors.empty()) {
    find_rows(2);
    out_.line(2, "Vectors::each_own(length, [&](int slot, u32 first) KILN_INLINED {{");
    for (const std::size_t i : vectors) {
      const Scope scope{Level::element, false, operands_[i].scope.columns};
      out_.line(3, "{}{}_own{}[slot] = {};", loops(scope), operands_[i].name, indices(scope),
                prologue_lanes(i));
    }
    out_.line(2, "}});");
  }
  out_.line(1, "}};");
  wanted_.clear();
}

// Declares the functions that compute vectors before the rows, once the first of them is there.
void ProductEmitter::define_prologue() {
  if (!has_prologue()) return;
  define_loads(false);
  wanted_.assign(graph_.nodes.size(), false);
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) wanted_[id] = nodes_.is_in_prologue(id);
  out_.line(1, "const auto stage_own = [&]() KILN_INLINED {{");
  find_rows(2);
  bool again = false;
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (!nodes_.is_in_prologue(id) || nodes_.scope(id).level == Level::element) continue;
    if (!nodes_.is_statistic(id)) {
      emit_row_value(id, 2);
      continue;
    }
    if (again) out_.line(2, "KILN_SYNCHRONIZE();");  // slots may still be read
    again = true;
    emit_statistic(static_cast<NodeId>(id));
  }
  const NodeId value = prologue_text_.unrounded(*nodes_.staged());
  out_.line(2,
            "stage_columns(prologue_memory, length, [&](int c, int slot, u32 first, auto& staged) "
            "KILN_INLINED {{");
  emit_prologue_elements(value);
  out_.line(4, "staged[lane] = to<{}>({});", storage_type(staged_dtype()), values_[value]);
  out_.line(3, "}}");
  out_.line(2, "}});");
  out_.line(1, "}};");
  wanted_.clear();
}

// Operands of which the prologue reads a vector.
std::vector<std::size_t> ProductEmitter::prologue_vectors() const {
  std::vector<std::size_t> found;
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    if (!nodes_.is_in_prologue(id) || node.op != Op::input) continue;
    const std::size_t i = nodes_.operand_of(node);
    if (operands_[i].scope.level == Level::element && std::ranges::find(found, i) == found.end()) {
      found.push_back(i);
    }
  }
  return found;
}

std::string ProductEmitter::prologue_lanes(std::size_t i) const {
  const OperandText& operand = operands_[i];
  const int width = products_.prologue.width;
  const int alignment =
      std::min(schedule_.operands[i].alignment, width * std::max(1, bits(operand.dtype) / 8));
  const std::string row = row_text(i);
  return fmt::format("load<{}, {}>({}_data{}{}, first)", width, alignment, operand.name,
                     row.empty() ? "" : " + ", row);
}

void ProductEmitter::emit_statistic(NodeId id) {
  const TypedNode& node = graph_.nodes[id];
  const std::string_view type = compute_type(node.dtype);
  out_.line(2, "{} {}_of[{}];", type, names_[id], products_.columns);
  out_.line(2,
            "reduce_columns<{}>({}_of, prologue_memory, length, [&](int c, int slot, u32 first, "
            "auto& lanes) KILN_INLINED {{",
            info(node.op).combiner, names_[id]);
  emit_prologue_elements(node.operands[0]);
  out_.line(4, "lanes[lane] = {}::combine(lanes[lane], {});", info(node.op).combiner,
            values_[node.operands[0]]);
  out_.line(3, "}}");
  out_.line(2, "}});");
  const Scope& scope = nodes_.scope(id);
  std::string text = fmt::format("{}_of[{}]", names_[id], by_columns(scope) ? "c" : "0");
  if (node.op == Op::mean) text = fmt::format("div({}, to<{}>(length))", text, type);
  text = prologue_text_.rounded(node, text);
  if (extents(scope).empty()) {
    out_.line(2, "const {} {} = {};", type, names_[id], text);
  } else {
    out_.line(2, "{} {}{};", type, names_[id], extents(scope));
    out_.line(2, "{}{}{} = {};", loops(scope), names_[id], indices(scope), text);
  }
  values_[id] = names_[id] + indices(scope);
}

// Loads the lanes of a part of a staged vector, as those of an operand that rows share.
void ProductEmitter::load_staged(int depth) {
  constexpr int kMostAlignment = 16;
  const NodeId id = *nodes_.staged();
  const Scope scope{Level::element, false, has_columns()};
  const std::string_view type = storage_type(staged_dtype());
  const int lanes = products_.lanes;
  const int alignment = std::min(kMostAlignment, lanes * std::max(1, bits(staged_dtype()) / 8));
  std::string first = fmt::format("u32(vector) * {}", schedule_.width);
  if (lanes < schedule_.width) first += fmt::format(" + u32(part * {})", lanes);
  const std::string name = names_[id] + "_staged";
  out_.line(depth, "LanesOf<{}, {}> {}{};", type, lanes, name, extents(scope));
  out_.line(depth, "{}{}{} = lanes_of<{}, {}>({}, {});", loops(scope), name, indices(scope), lanes,
            alignment, staged_column(), first);
  const std::string loaded = name + indices(scope);
  const std::string lane =
      in_pairs() ? fmt::format("pair_of({}, lane)", loaded) : fmt::format("{}[lane]", loaded);
  if (node_text_.needs_storage(id)) storage_[id] = fmt::format("as_stored({})", lane);
  values_[id] = loops_.in_vectors
                    ? lane
                    : fmt::format("to<{}>({})", compute_type(graph_.nodes[id].dtype), lane);
}

// Opens a loop over the lanes of a vector, with an element of a value of the prologue and what it
// is computed from.
void ProductEmitter::emit_prologue_elements(NodeId of) {
  std::vector<bool> needed(of + 1, false);
  needed[of] = true;
  for (std::size_t id = of + 1; id-- > 0;) {
    if (!needed[id] || nodes_.scope(id).level != Level::element) continue;
    for (const NodeId operand : graph_.nodes[id].inputs()) needed[operand] = true;
  }
  if (!keeps_vectors(products_)) {
    for (const std::size_t i : prologue_vectors()) {
      const bool reads = std::ranges::any_of(graph_.nodes, [&](const TypedNode& node) {
        const auto id = static_cast<std::size_t>(&node - graph_.nodes.data());
        return id <= of && needed[id] && node.op == Op::input && nodes_.operand_of(node) == i;
      });
      if (reads) out_.line(3, "const auto {}_lanes = {};", operands_[i].name, prologue_lanes(i));
    }
  }
  out_.line(3, "KILN_UNROLL for (int lane = 0; lane < {}; ++lane) {{", products_.prologue.width);
  for (std::size_t id = 0; id <= of; ++id) {
    if (!needed[id] || nodes_.scope(id).level != Level::element) continue;
    const TypedNode& node = graph_.nodes[id];
    std::string text;
    if (node.op == Op::input) {
      const std::size_t i = nodes_.operand_of(node);
      const std::string element =
          keeps_vectors(products_)
              ? fmt::format("{}_own{}[slot][lane]", operands_[i].name, indices(operands_[i].scope))
              : fmt::format("{}_lanes[lane]", operands_[i].name);
      if (prologue_text_.needs_storage(static_cast<NodeId>(id))) storage_[id] = element;
      names_[id] = operands_[i].name;
      text = fmt::format("to<{}>({})", compute_type(node.dtype), element);
    } else {
      if (prologue_text_.needs_storage(static_cast<NodeId>(id)))
        storage_[id] = prologue_text_.bits(node, values_, storage_);
      const NodeText::Expression expression =
          prologue_text_.of(static_cast<NodeId>(id), values_, storage_);
      if (expression.same) {
        values_[id] = expression.text;
        continue;
      }
      text = expression.text;
    }
    out_.line(4, "const {} {} = {};", compute_type(node.dtype), names_[id], text);
    values_[id] = names_[id];
  }
}

}  // namespace kiln::fusion
