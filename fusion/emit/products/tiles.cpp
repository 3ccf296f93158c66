// Sums of small weights times vectors of 16-bit floats in tiles (preamble/product_tiles.h): where
// rows, vectors and lines are, and what is stored. Rows whose results are not finite are added up
// again, term by term (sums.cpp).
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
    if (is_reduction(graph_.nodes[id].op)) continue;
    for (const NodeId operand : graph_.nodes[id].inputs()) wanted.push_back(operand);
  }
  return all;
}

void ProductEmitter::name_tiles() {
  const NodeId sum = *nodes_.tile_sum();
  const ProductForm& form = *nodes_.form(sum);
  const TileSchedule& tiles = products_.tiles;
  const std::string_view rest = form.bias ? "bias" : form.point ? "point" : "none";
  out_.line(1,
            "// Weights, factors, lanes, sharers, steps of a line, columns, rest, threads, steps, "
            "sets, whole, ahead, placed.");
  out_.line(1,
            "using Tiles = Tiling<{}, {}, {}, {}, {}, {}, TileRest::{}, {}, {}, {}, {}, {}, {}>;",
            storage_type(graph_.nodes[form.lane].dtype),
            storage_type(graph_.nodes[nodes_.tile_vector(sum)].dtype), schedule_.width,
            tiles.vectors_per_group, tiles.steps_per_group, products_.columns, rest,
            shares_.threads * shares_.rows, tiles.steps, tiles.sets, tiles.whole, tiles.prefetch,
            tiles.x_in_smem);
  if (tiles.split_k) {
    out_.line(1, "using Parts = RowParts<Tiles, {}, {}, {}>;",
              storage_type(operands_[scales_of_lines()].dtype), tiles.steps_per_group,
              tiles.single_tile);
    out_.line(1, "KILN_SHARED Parts::Memory part_memory;");
    out_.line(1, "KILN_SHARED_BY_LAUNCH(128, held_sets);");
    return;
  }
  out_.line(1, "KILN_SHARED TileMemory<Tiles> tile_memory;");
  if (!tiles.x_in_registers) return;
  out_.line(1, "KILN_SHARED HeldLines<Tiles> held_lines;");
  out_.line(1, "KILN_SHARED_BY_LAUNCH(128, held_sets);");
}

void ProductEmitter::sum_up_in_tiles() {
  if (products_.tiles.split_k) return sum_up_in_parts();
  rows_of_weights();
  columns_of_vectors();
  lines_of_rows();
  store_tiles();
  add_tiles_again();
  out_.line(2,
            "{}<Tiles>(tile_memory, {}u32(vectors), u32(row_count), u32({}), "
            "u32(row_blocks.divisor), {}, weights_of, vector_of, line_of, add_again, store_of);",
            products_.tiles.x_in_registers ? "sum_held_tiles" : "sum_tiles",
            products_.tiles.x_in_registers ? "held_lines, held_sets, " : "",
            batch_axes() > 0 ? "block" : "item", reads_early() ? "early != 0" : "false");
}

std::uint32_t ProductEmitter::held_bytes() const {
  if (!in_tiles()) return 0;
  if (products_.tiles.split_k) {  // RowParts::Stage, of each wave
    constexpr int kRows = 8;
    constexpr int kSteps = 16;
    constexpr int kStepBytes = 32;
    constexpr int kPiece = 16;
    constexpr int kLineBytes = 2;
    const int lines = kSteps / products_.tiles.steps_per_group;
    const int operands = nodes_.form(*nodes_.tile_sum())->has_rest() ? 2 : 1;
    const int row = kSteps * kStepBytes + operands * std::max(kPiece, lines * kLineBytes);
    return static_cast<std::uint32_t>(kRows * row * shares_.rows);
  }
  if (!products_.tiles.x_in_registers) return 0;
  constexpr int kRows = 16;
  constexpr int kSets = 2;  // of each wave
  const DType weights = graph_.nodes[nodes_.form(*nodes_.tile_sum())->lane].dtype;
  const int row = static_cast<int>(products_.tiles.sets) * products_.tiles.steps * 4 *
                  schedule_.width * bits(weights) / 8;
  return static_cast<std::uint32_t>(kRows * kSets * row);
}

// Rows whose results are not finite, one after the other and term by term. Before any is stored:
// what a result is stored over may be read for it.
void ProductEmitter::add_tiles_again() {
  const NodeId sum = *nodes_.tile_sum();
  wanted_ = all_of({graph_.nodes[sum].operands[0]});
  out_.line(2, "const auto add_again = [&]({} tile) {{", index_);
  out_.line(3, "for (int i = 0; i < 16; ++i) {{");
  out_.indent(2);
  out_.line(2, "if (is_finite_row(tile_memory, i)) continue;");
  out_.line(2, "const {0} row = row_or_last(tile * 16 + {0}(i), row_count);", index_);
  nodes_.go_carefully();
  find_rows(2);
  emit_values(Level::row, 2);
  declare_results();
  out_.line(2, "KILN_SYNCHRONIZE();");
  sum_up();
  const std::string& own = name_of(sum);
  out_.line(2, "if (is_first<{}>()) {{", shares_.threads);
  out_.line(3, "KILN_EACH(c, {0}) tile_memory.result[i * {0} + c] = {1}_of[c];", products_.columns,
            own);
  out_.line(2, "}}");
  out_.indent(-2);
  out_.line(3, "}}");
  out_.line(2, "}};");
  wanted_.clear();
}

// As sum_up_in_tiles(), of rows of which waves have parts: a wave adds one up again.
void ProductEmitter::sum_up_in_parts() {
  rows_of_weights();
  lines_of_parts();
  const NodeId sum = *nodes_.tile_sum();
  const std::size_t weights = nodes_.operand_of(graph_.nodes[nodes_.form(sum)->lane]);
  out_.line(2, "const {} apart = {} >> 1;", signed_index_,
            has_stride(weights, row_axis()) ? stride_name(weights, row_axis()) : "0");
  const NodeId x = nodes_.tile_vector(sum);
  wanted_ = all_of({x});
  out_.line(2, "const auto vector_of = [&] {{");
  find_rows(3);
  out_.line(3, "return {};", tile_pointer(nodes_.operand_of(graph_.nodes[x])));
  out_.line(2, "}};");
  wanted_.clear();
  store_tiles();
  wanted_ = all_of({graph_.nodes[sum].operands[0]});
  out_.line(2, "const auto add_again = [&]({} row) {{", index_);
  out_.indent(1);
  nodes_.go_carefully();
  find_rows(2);
  emit_values(Level::row, 2);
  declare_results();
  sum_up();
  out_.line(2, "return {}_of[0];", name_of(sum));
  out_.indent(-1);
  out_.line(2, "}};");
  wanted_.clear();
  out_.line(2, "const u32 share = u32(divide((row_count + 7) / 8, row_blocks));");
  out_.line(2,
            "sum_row_parts<Tiles, Parts>(part_memory, held_sets, u32(row_count), u32({}), "
            "u32(row_blocks.divisor), share, {}, vector_of(), apart, weights_of, scales_of, "
            "rests_of, line_from, add_again, store_of);",
            batch_axes() > 0 ? "block" : "item", reads_early() ? "early != 0" : "false");
}

bool ProductEmitter::reads_early() const {
  return schedule_.pdl && products_.tiles.weights_before_pdl_wait;
}

std::size_t ProductEmitter::scales_of_lines() const {
  return nodes_.operand_of(graph_.nodes[*nodes_.form(*nodes_.tile_sum())->scale]);
}
std::size_t ProductEmitter::rests_of_lines() const {
  const ProductForm& form = *nodes_.form(*nodes_.tile_sum());
  if (!form.has_rest()) return scales_of_lines();
  return nodes_.operand_of(graph_.nodes[form.bias ? *form.bias : *form.point]);
}

void ProductEmitter::lines_of_parts() {
  const ProductForm& form = *nodes_.form(*nodes_.tile_sum());
  const auto row_of = [&](std::string_view name, NodeId node, std::size_t operand) {
    wanted_ = all_of({node});
    out_.line(2, "const auto {} = [&]({} row) {{", name, index_);
    find_rows(3);
    out_.line(3, "return {};", tile_pointer(operand));
    out_.line(2, "}};");
    wanted_.clear();
  };
  row_of("scales_of", *form.scale, scales_of_lines());
  row_of("rests_of",
         form.bias    ? *form.bias
         : form.point ? *form.point
                      : *form.scale,
         rests_of_lines());
  out_.line(2, "const auto line_from = [&]({0} scale, {0} rest) {{",
            storage_type(operands_[scales_of_lines()].dtype));
  out_.line(3, "return TileLine{{to<f32>(scale), {}to<f32>(rest)}};",
            form.bias_is_subtracted ? "-" : "");
  out_.line(2, "}};");
}

std::string ProductEmitter::tile_pointer(std::size_t i) const {
  const std::string row = row_text(i);
  const std::string& name = operands_[i].name;
  if (row.empty()) return name + "_data";
  return fmt::format("{}_data + {}", name,
                     is_packed(operands_[i].dtype) ? fmt::format("({} >> 1)", row) : row);
}

void ProductEmitter::rows_of_weights() {
  const NodeId lane = nodes_.form(*nodes_.tile_sum())->lane;
  wanted_ = all_of({lane});
  out_.line(2, "const auto weights_of = [&]({} row) {{", index_);
  find_rows(3);
  out_.line(3, "return {};", tile_pointer(nodes_.operand_of(graph_.nodes[lane])));
  out_.line(2, "}};");
}

void ProductEmitter::columns_of_vectors() {
  const NodeId x = nodes_.tile_vector(*nodes_.tile_sum());
  wanted_ = all_of({x});
  one_column_ = true;
  out_.line(2, "const auto vector_of = [&]({} c) {{", index_);
  find_rows(3);
  out_.line(3, "return {};", tile_pointer(nodes_.operand_of(graph_.nodes[x])));
  out_.line(2, "}};");
  one_column_ = false;
}

void ProductEmitter::lines_of_rows() {
  const ProductForm& form = *nodes_.form(*nodes_.tile_sum());
  std::vector<NodeId> parts;
  for (const auto& part : {form.scale, form.bias, form.point}) {
    if (part) parts.push_back(*part);
  }
  wanted_ = all_of(parts);
  out_.line(2, "const auto line_of = [&]({0} row, {0} line) {{", index_);
  if (has_lines()) out_.coordinates(3, index_, "line", first_reduced(), inner());
  find_rows(3);
  emit_values(Level::row, 3);
  emit_values(Level::line, 3);
  std::string rest = "0.0f";
  if (form.bias) rest = (form.bias_is_subtracted ? "-" : "") + values_[*form.bias];
  if (form.point) rest = values_[*form.point];
  out_.line(3, "return TileLine{{{}, {}}};", form.scale ? values_[*form.scale] : "1.0f", rest);
  out_.line(2, "}};");
  wanted_.clear();
}

void ProductEmitter::store_tiles() {
  const NodeId sum = *nodes_.tile_sum();
  std::vector<NodeId> results;
  for (const OperandText& operand : operands_) {
    if (operand.output) results.push_back(operand.value);
  }
  wanted_ = all_of(std::move(results));
  one_column_ = true;
  out_.line(2, "const auto store_of = [&]({0} row, {0} c, f32 {1}_of) {{", index_, name_of(sum));
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
