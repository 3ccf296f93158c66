// Sums of small weights times vectors of 16-bit floats by matrix instructions
// (preamble/product_tiles.h): lambdas that give the device code rows, vectors and groups, and that
// store results. Rows whose results are not finite are recomputed term by term (sums.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/products/emitter.hpp"

namespace kiln::fusion {

std::vector<bool> ProductEmitter::all_of(std::vector<NodeId> wanted) const {
  std::vector<bool> all(graph_.nodes.size(), false);
  while (!wanted.empty()) {
    const NodeId id = wanted.back();
    wanted.pop_back();
    if (all[id]) continue;
    all[id] = true;
    if (is_reduction(graph_.nodes[id].op) || nodes_.staged() == id) continue;
    for (const NodeId operand : graph_.nodes[id].inputs()) wanted.push_back(operand);
    const TypedNode& node = graph_.nodes[id];
    const NodeId* place = node.op == Op::input ? graph_.place_of(false, node.payload) : nullptr;
    if (place != nullptr) wanted.push_back(*place);
  }
  return all;
}

// Declares the shape of the tiles and the shared memory, and asserts that a launch provides as much
// of it as the device code uses.
void ProductEmitter::declare_tiles() {
  const NodeId sum = *nodes_.tile_sum();
  const ProductForm& form = *nodes_.form(sum);
  const TileSchedule& tiles = products_.tiles;
  out_.line(1, "struct Shape {{");
  out_.line(2, "using Weight = {};", storage_type(graph_.nodes[form.weight].dtype));
  out_.line(2, "using Activation = {};", storage_type(graph_.nodes[nodes_.tile_vector(sum)].dtype));
  out_.line(2, "enum : int {{");
  out_.line(3, "lanes = {},", schedule_.width);
  out_.line(3, "steps_per_group = {},", tiles.steps_per_group);
  out_.line(3, "columns = {},", products_.columns);
  out_.line(3, "sums = {},", tiles.sums);
  out_.line(3, "threads = {},", shares_.threads * shares_.rows);
  out_.line(3, "steps = {},", tiles.steps);
  out_.line(3, "sets = {},", tiles.sets);
  out_.line(3, "run = {},", tiles.run);
  out_.line(3, "rounds = {},", tiles.prefetch || tiles.x_in_registers ? 2 : 1);
  out_.line(3, "beside = {},", tiles.beside);
  out_.line(3, "copied = {},",
            schedule_.operands[nodes_.operand_of(graph_.nodes[form.weight])].alignment);
  out_.line(2, "}};");
  out_.line(2, "enum : bool {{");
  out_.line(3, "has_bias = {},", form.bias.has_value());
  out_.line(3, "has_zero_point = {},", form.zero_point.has_value());
  out_.line(3, "whole = {},", tiles.whole);
  out_.line(3, "prefetch = {},", tiles.prefetch);
  out_.line(3, "x_in_smem = {},", tiles.x_in_smem);
  out_.line(3, "prologue = {},", has_prologue());
  out_.line(3, "staged = {},", tiles.staged);
  out_.line(2, "}};");
  out_.line(1, "}};");
  out_.line(1, "using Tiles = Tiling<Shape>;");
  for (const auto& [first, second] : pairs_) {
    out_.line(1, "const auto* const {0}_of_first = {0}_data;", operands_[first].name);
  }
  if (tiles.split_k) {
    out_.line(1, "using Split = SplitKTiles<Tiles, {}, {}>;",
              storage_type(operands_[scales_of_groups()].dtype), tiles.single_tile);
    out_.line(1, "KILN_SHARED Split::Memory split_memory;");
    out_.line(1, "KILN_DYNAMIC_SHARED(128, staged_weights);");
    out_.line(1, "static_assert(Tiles::kWaves * sizeof(Split::Stage) == {},", staged_bytes());
    out_.line(1, "              \"a launch gives a block other shared memory\");");
    return;
  }
  out_.line(1, "KILN_SHARED TileMemory<Tiles> tile_memory;");
  if (!tiles.x_in_registers && !tiles.staged) return;
  if (tiles.x_in_registers) out_.line(1, "KILN_SHARED StagedGroups<Tiles> staged_groups;");
  out_.line(1, "KILN_DYNAMIC_SHARED(128, staged_weights);");
  out_.line(1, "static_assert(Tiles::kWaves * 2 * sizeof({}) == {},", stage_type(), staged_bytes());
  out_.line(1, "              \"a launch gives a block other shared memory\");");
}

void ProductEmitter::sum_tiles() {
  if (products_.tiles.split_k) return sum_split_k_tiles();
  rows_of_weights();
  columns_of_vectors();
  groups_of_rows();
  store_tiles();
  emit_recompute();
  out_.line(2,
            "{}<Tiles{}>(tile_memory, {}u32(vectors), u32({}), u32({}), "
            "u32(row_blocks.divisor), {}, weights_of, vector_of, group_of, recompute, store_of{});",
            products_.tiles.x_in_registers ? "sum_register_tiles" : "sum_tiles",
            products_.tiles.beside != 0 ? fmt::format(", {}", stage_type()) : "",
            products_.tiles.x_in_registers ? "staged_groups, staged_weights, "
            : products_.tiles.staged       ? "staged_weights, "
                                           : "nullptr, ",
            tile_rows(), batch_axes() > 0 ? "block" : "item",
            loads_before_pdl_wait() ? "launched_early != 0" : "false", prologue_argument());
}

std::string_view ProductEmitter::stage_type() const {
  return products_.tiles.beside != 0 ? "StagedLines<Tiles>" : "StagedWeights<Tiles>";
}

std::string_view ProductEmitter::prologue_argument() const {
  return has_prologue() ? ", prologue_of(early_own, load_own, stage_own)" : "";
}

// The beginning of a column of what matrix instructions multiply with weights.
std::string ProductEmitter::tile_column(NodeId x) const {
  if (nodes_.staged() == x) return fmt::format("(const Shape::Activation*)({})", staged_column());
  return tile_pointer(nodes_.operand_of(graph_.nodes[x]));
}

// Of weights, and of the numbers of groups, that waves stage in shared memory. The kernel's text
// asserts that its types are as large (declare_tiles).
std::uint32_t ProductEmitter::staged_bytes() const {
  if (!in_tiles()) return 0;
  if (products_.tiles.split_k) {  // SplitKTiles::Stage, of each wave
    constexpr int kRows = 8;
    constexpr int kSteps = 16;
    constexpr int kStepBytes = 32;
    constexpr int kChunk = 16;
    constexpr int kScaleBytes = 2;
    const int groups = kSteps / products_.tiles.steps_per_group;
    const int operands = nodes_.form(*nodes_.tile_sum())->is_centered() ? 2 : 1;
    const int row = kSteps * kStepBytes + operands * std::max(kChunk, groups * kScaleBytes);
    return static_cast<std::uint32_t>(kRows * row * shares_.rows);
  }
  if (!products_.tiles.x_in_registers && !products_.tiles.staged) return 0;
  constexpr int kRows = 16;
  constexpr int kSets = 2;  // of each wave: one is multiplied while the next is copied
  constexpr int kWave = 32;
  const DType weights = graph_.nodes[nodes_.form(*nodes_.tile_sum())->weight].dtype;
  const int row = products_.tiles.steps * 4 * schedule_.width * bits(weights) / 8;
  return static_cast<std::uint32_t>(kRows * kSets * row * (shares_.threads / kWave));
}

// Recomputes rows whose results are not finite, one after the other and term by term, before any
// result is stored: outputs may overwrite inputs that this reads.
void ProductEmitter::emit_recompute() {
  const NodeId sum = *nodes_.tile_sum();
  wanted_ = all_of({graph_.nodes[sum].operands[0]});
  out_.line(2, "const auto recompute = [&]({} tile) {{", index_);
  out_.line(3, "for (int i = 0; i < 16 * Tiles::kBeside; ++i) {{");
  out_.indent(2);
  out_.line(2, "if (is_finite_row(tile_memory, i)) continue;");
  out_.line(2, "const {0} {1} = row_or_last({0}(Tiles::row_of(u32(tile), u32(i))), {2});", index_,
            tile_row(), tile_rows());
  pick_sum(2);
  nodes_.disable_fast_path(sum);
  find_rows(2);
  emit_values(Level::row, 2);
  declare_results();
  out_.line(2, "KILN_SYNCHRONIZE();");
  sum_up();
  const std::string& own = names_[sum];
  out_.line(2, "if (is_first<{}>()) {{", shares_.threads);
  out_.line(
      3,
      "KILN_EACH(c, {0}) {{ replace_unless_finite(tile_memory.result[i * {0} + c], {1}_of[c]); }}",
      products_.columns, own);
  out_.line(2, "}}");
  out_.indent(-2);
  out_.line(3, "}}");
  out_.line(2, "}};");
  wanted_.clear();
}

// Like sum_tiles(), for a split reduction within the block: one wave recomputes a row.
void ProductEmitter::sum_split_k_tiles() {
  rows_of_weights();
  groups_of_split_k();
  const NodeId sum = *nodes_.tile_sum();
  const std::size_t weights = nodes_.operand_of(graph_.nodes[nodes_.form(sum)->weight]);
  out_.line(2, "const {} row_stride = {} >> 1;", signed_index_,
            has_stride(weights, row_axis()) ? operands_[weights].stride_name(row_axis()) : "0");
  const NodeId x = nodes_.tile_vector(sum);
  wanted_ = all_of({x});
  out_.line(2, "const auto vector_of = [&] {{");
  find_rows(3);
  out_.line(3, "return {};", tile_column(x));
  out_.line(2, "}};");
  wanted_.clear();
  store_tiles();
  wanted_ = all_of({graph_.nodes[sum].operands[0]});
  out_.line(2, "const auto recompute = [&]({} {}) {{", index_, tile_row());
  out_.indent(1);
  pick_sum(2);
  nodes_.disable_fast_path(sum);
  find_rows(2);
  emit_values(Level::row, 2);
  declare_results();
  sum_up();
  out_.line(2, "return {}_of[0];", names_[sum]);
  out_.indent(-1);
  out_.line(2, "}};");
  wanted_.clear();
  out_.line(2, "const u32 share = u32(divide(({} + 7) / 8, row_blocks));", tile_rows());
  out_.line(2,
            "sum_split_k_tiles<Tiles, Split>(split_memory, staged_weights, u32({}), u32({}), "
            "u32(row_blocks.divisor), share, {}, vector_of(), row_stride, weights_of, scales_of, "
            "offsets_of, group_from, recompute, store_of{});",
            tile_rows(), batch_axes() > 0 ? "block" : "item",
            loads_before_pdl_wait() ? "launched_early != 0" : "false", prologue_argument());
}

bool ProductEmitter::loads_before_pdl_wait() const {
  return schedule_.pdl && products_.tiles.weights_before_pdl_wait;
}

std::size_t ProductEmitter::scales_of_groups() const {
  return nodes_.operand_of(graph_.nodes[*nodes_.form(*nodes_.tile_sum())->scale]);
}
std::size_t ProductEmitter::offsets_of_groups() const {
  const ProductForm& form = *nodes_.form(*nodes_.tile_sum());
  if (!form.is_centered()) return scales_of_groups();
  return nodes_.operand_of(graph_.nodes[form.bias ? *form.bias : *form.zero_point]);
}

void ProductEmitter::groups_of_split_k() {
  const ProductForm& form = *nodes_.form(*nodes_.tile_sum());
  const auto row_of = [&](std::string_view name, NodeId node, std::size_t operand) {
    wanted_ = all_of({node});
    out_.line(2, "const auto {} = [&]({} {}) {{", name, index_, tile_row());
    pick_sum(3);
    find_rows(3);
    out_.line(3, "return {};", tile_pointer(operand));
    out_.line(2, "}};");
    wanted_.clear();
  };
  row_of("scales_of", *form.scale, scales_of_groups());
  row_of("offsets_of",
         form.bias         ? *form.bias
         : form.zero_point ? *form.zero_point
                           : *form.scale,
         offsets_of_groups());
  out_.line(2, "const auto group_from = [&]({0} scale, {0} offset) {{",
            storage_type(operands_[scales_of_groups()].dtype));
  out_.line(3, "return TileGroup{{to<f32>(scale), {}to<f32>(offset)}};",
            form.bias_is_subtracted ? "-" : "");
  out_.line(2, "}};");
}

std::string ProductEmitter::tile_rows() const {
  return has_two_sums() ? "row_count * 2" : "row_count";
}

// Rows of two sums take turns in a tile.
void ProductEmitter::pick_sum(int depth) {
  if (!has_two_sums()) return;
  out_.line(depth, "const {} row = tile_row / 2;", index_);
  for (const auto& [first, second] : pairs_) {
    if (!is_used(operands_[first])) continue;
    out_.line(depth, "const auto* const {0}_data = tile_row % 2 == 0 ? {0}_of_first : {1}_data;",
              operands_[first].name, operands_[second].name);
  }
}

std::string ProductEmitter::tile_pointer(std::size_t i) const {
  const std::string row = row_text(i);
  const std::string& name = operands_[i].name;
  if (row.empty()) return name + "_data";
  return fmt::format("{}_data + {}", name,
                     is_packed(operands_[i].dtype) ? fmt::format("({} >> 1)", row) : row);
}

// Returns where an operand's rows begin, or a function that gathers a vector of one, or that finds
// an element of one.
void ProductEmitter::return_row(std::size_t i) {
  find_rows(3);
  if (is_in_lines(i)) return return_elements(i);
  if (!is_gathered(i)) {
    out_.line(3, "return {};", tile_pointer(i));
    return;
  }
  out_.line(3, "return [=]({} vector) KILN_INLINED {{", index_);
  if (has_groups()) {
    out_.line(4, "const {} group = divide(vector, columns);", index_);
    out_.line(4, "const {} first = (vector - group * columns.divisor) * {};", index_,
              schedule_.width);
    out_.coordinates(4, index_, "group", first_reduced(), inner());
  } else {
    out_.line(4, "const {} first = vector * {};", index_, schedule_.width);
  }
  out_.line(4, "return {};", gathered(i, schedule_.width, "first"));
  out_.line(3, "}};");
}

void ProductEmitter::return_elements(std::size_t i) {
  out_.line(3, "return [=]({} element) KILN_INLINED {{", index_);
  std::string first = "element";
  if (has_groups()) {
    out_.line(4, "const {} group = divide(element / {}, columns);", index_, schedule_.width);
    out_.coordinates(4, index_, "group", first_reduced(), inner());
    first = fmt::format("element - group * (columns.divisor * {})", schedule_.width);
  }
  std::string place;
  for (const std::string& part : {row_text(i), in_group(i, "")}) {
    if (!part.empty()) place += part + " + ";
  }
  place += fmt::format("{}_place({}({}))", operands_[i].name, index_, first);
  out_.line(4, "return {}_data + {};", operands_[i].name,
            is_packed(operands_[i].dtype) ? fmt::format("({} >> 1)", place) : place);
  out_.line(3, "}};");
}

void ProductEmitter::rows_of_weights() {
  const NodeId weight = nodes_.form(*nodes_.tile_sum())->weight;
  wanted_ = all_of({weight});
  out_.line(2, "const auto weights_of = [&]({} {}) KILN_INLINED {{", index_, tile_row());
  pick_sum(3);
  return_row(nodes_.operand_of(graph_.nodes[weight]));
  out_.line(2, "}};");
}

void ProductEmitter::columns_of_vectors() {
  const NodeId x = nodes_.tile_vector(*nodes_.tile_sum());
  wanted_ = all_of({x});
  one_column_ = true;
  out_.line(2, "const auto vector_of = [&]({} c) KILN_INLINED {{", index_);
  if (nodes_.staged() == x) {
    find_rows(3);
    out_.line(3, "return {};", tile_column(x));
  } else {
    return_row(nodes_.operand_of(graph_.nodes[x]));
  }
  out_.line(2, "}};");
  one_column_ = false;
}

void ProductEmitter::groups_of_rows() {
  const ProductForm& form = *nodes_.form(*nodes_.tile_sum());
  std::vector<NodeId> parts;
  for (const auto& part : {form.scale, form.bias, form.zero_point}) {
    if (part) parts.push_back(*part);
  }
  wanted_ = all_of(parts);
  out_.line(2, "const auto group_of = [&]({0} {1}, {0} group) {{", index_, tile_row());
  pick_sum(3);
  if (has_groups()) out_.coordinates(3, index_, "group", first_reduced(), inner());
  find_rows(3);
  emit_values(Level::row, 3);
  emit_values(Level::group, 3);
  std::string offset = "0.0f";
  if (form.bias) offset = (form.bias_is_subtracted ? "-" : "") + values_[*form.bias];
  if (form.zero_point) offset = values_[*form.zero_point];
  out_.line(3, "return TileGroup{{{}, {}}};", form.scale ? values_[*form.scale] : "1.0f", offset);
  out_.line(2, "}};");
  wanted_.clear();
}

void ProductEmitter::store_tiles() {
  const NodeId sum = *nodes_.tile_sum();
  std::vector<NodeId> results;
  for (const OperandText& operand : operands_) {
    if (operand.output) results.push_back(operand.value);
  }
  for (const IndexedOperand& operand : graph_.indexed) results.push_back(operand.place);
  wanted_ = all_of(std::move(results));
  one_column_ = true;
  const std::string second =
      has_two_sums() ? fmt::format(", f32 {}_of", names_[*nodes_.second_tile_sum()]) : "";
  out_.line(2, "const auto store_of = [&]({0} row, {0} c, f32 {1}_of{2}) {{", index_, names_[sum],
            second);
  out_.line(3, "if (row >= row_count) return;");
  find_rows(3);
  emit_values(Level::row, 3);
  emit_results(3);
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (operands_[i].output) out_.line(3, "{}", store(i, "row"));
  }
  out_.line(2, "}};");
  one_column_ = false;
  wanted_.clear();
}

}  // namespace kiln::fusion
