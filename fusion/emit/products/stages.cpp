// Sums of integer products on the CPU: vectors that all rows share are arranged a stage at a time
// for the many rows of a work item (preamble/product_integers.h), with the values of the groups
// that are in it. Then a few rows at a time are multiplied side by side.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/products/emitter.hpp"
#include "fusion/graph/dtype_lattice.hpp"

namespace kiln::fusion {

void ProductEmitter::sum_in_stages(const std::vector<NodeId>& sums) {
  for (const NodeId id : sums) {
    const bool whole = is_integer(graph_.nodes[id].dtype);
    out_.line(2, "{} {}_sums{};", whole ? "WholeSums" : "ScaledSums", names_[id],
              extents(every_result()));
    if (has_rest(id)) {
      out_.line(2, "Groups<f32> {}_rests{} = {{}};", names_[id], extents(every_result()));
    }
  }
  in_groups_ = true;
  if (has_groups()) out_.line(2, "const {} groups = divide(vectors, columns);", index_);
  before_groups_ = out_.here();
  out_.line(2, "for ({} vector = 0; vector < vectors; vector += kStaged) {{", index_);
  out_.line(3, "const u32 count = staged_vectors(vectors - vector);");
  if (has_groups()) out_.line(3, "const {} group = divide(vector, columns);", index_);
  stage_vectors(sums);
  group_declarations_.clear();
  compute_group_values();
  out_.insert(before_groups_, group_declarations_);
  multiply_staged(sums);
  out_.line(2, "}}");
  for (const NodeId id : sums) {
    const std::string at = indices(every_result());
    const std::string rest =
        has_rest(id) ? fmt::format(" + total({}_rests{})", names_[id], at) : "";
    take_total(id, fmt::format("total({}_sums{}){}", names_[id], at, rest));
  }
}

bool ProductEmitter::has_rest(NodeId sum) const {
  return !is_integer(graph_.nodes[sum].dtype) && nodes_.form(sum)->has_offset();
}

// Arranges the vectors of a stage, and notes in which of its groups each one is and where weights
// are for it.
void ProductEmitter::stage_vectors(const std::vector<NodeId>& sums) {
  std::vector<std::string> before;
  std::vector<std::string> within;
  const auto once = [](std::vector<std::string>& lines, const std::string& line) {
    if (std::ranges::find(lines, line) == lines.end()) lines.push_back(line);
  };
  for (const NodeId id : sums) {
    const ProductForm& form = *nodes_.form(id);
    const std::size_t weights = nodes_.operand_of(graph_.nodes[form.weight]);
    const std::size_t x = nodes_.operand_of(graph_.nodes[form.activation]);
    const std::string types =
        fmt::format("{}, {}", storage_type(operands_[weights].dtype), schedule_.width);
    const std::string staged = integer_vector(form);
    const Scope& scope = operands_[x].scope;
    once(before, fmt::format("StagedVectors<{}> {}{};", types, staged, extents(scope)));
    if (is_gathered(x)) {
      for (const std::string& line : gather(x, schedule_.width, "first", scope)) once(within, line);
    }
    once(within, fmt::format("{}{}{}.set(i, dot_vector<{}, {}>({}));", loops(scope), staged,
                             indices(scope), types, alignment_of(x),
                             is_gathered(x) ? gathered_row(x, scope) : row_and_first(x, "first")));
    const std::string& rows = operands_[weights].name;
    once(before, fmt::format("{} {}_places[kStaged];", signed_index_, rows));
    once(within,
         fmt::format("{}_places[i] = {};", rows,
                     is_gathered(weights) ? in_group(weights, "0") : in_group(weights, "first")));
    if (is_gathered(weights)) {
      once(before, fmt::format("{} {}_firsts[kStaged];", index_, rows));
      once(within, fmt::format("{}_firsts[i] = first;", rows));
    }
    if (!has_rest(id)) continue;
    once(before, fmt::format("Groups<f32> {}_totals{} = {{}};", staged, extents(scope)));
    once(within, fmt::format("{0}{1}_totals{2}[{3}] += {1}{2}.total(i);", loops(scope), staged,
                             indices(scope), has_groups() ? "of_group[i]" : "0"));
  }
  if (has_groups()) out_.line(3, "u32 of_group[kStaged];");
  for (const std::string& line : before) out_.line(3, "{}", line);
  out_.line(3, "KILN_EACH_STAGED(i, count) {{");
  if (has_groups()) {
    out_.line(4, "const {} own_group = divide(vector + i, columns);", index_);
    out_.line(4, "const {} first = (vector + i - own_group * columns.divisor) * {};", index_,
              schedule_.width);
    out_.coordinates(4, index_, "own_group", first_reduced(), inner());
    out_.line(4, "of_group[i] = u32(own_group - group);");
  } else {
    out_.line(4, "const {} first = (vector + i) * {};", index_, schedule_.width);
  }
  for (const std::string& line : within) out_.line(4, "{}", line);
  out_.line(3, "}}");
}

// What is left of a bias or a zero point that is no multiple of the scale, times the sum of each
// group's activations.
void ProductEmitter::add_rests(NodeId sum) {
  if (!has_rest(sum)) return;
  const ProductForm& form = *nodes_.form(sum);
  const std::size_t x = nodes_.operand_of(graph_.nodes[form.activation]);
  const std::string rests = names_[sum] + "_rests" + indices(every_result());
  out_.line(3, "{}KILN_EACH_GROUP_VECTOR(g) {{", loops(every_result()));
  out_.line(4, "const Floats rest = {}_offset{}{};", names_[sum], group_indices(of_offset(form)),
            form.activation_scale ? " * " + of_form(*form.activation_scale) : "");
  out_.line(4, "{0}.set(g, add_product({0}[g], first_groups(rest, g, {1}), {2}_totals{3}[g]));",
            rests, has_groups() ? "of_group[count - 1] + 1" : "1", integer_vector(form),
            indices(operands_[x].scope));
  out_.line(3, "}}");
}

// Multiplies the vectors of a stage by the weights of a few rows side by side, whose sums are in
// registers.
void ProductEmitter::multiply_staged(const std::vector<NodeId>& sums) {
  const bool many = by_rows(every_result());
  const std::string row = many ? "const int r = side + s; " : "";
  const std::string part = indices_beside(every_result());
  if (many) {
    out_.line(3, "KILN_EACH_SIDE(side, {}, {}) {{", loops_.rows, loops_.rows_beside);
  } else {
    out_.line(3, "{{");
  }
  declare_beside(sums);
  out_.line(4, "KILN_EACH_STAGED(i, count) {{");
  out_.line(5, "const u32 g = {};", has_groups() ? "of_group[i]" : "0");
  for (const std::size_t weights : weights_of(sums)) {
    if (is_across(weights)) transpose_weights(weights, 5);
  }
  out_.line(5, "{}{{", loops_beside({Level::result, true, false}));
  if (many) out_.line(6, "{}", row);
  find_weights(sums, 6, false);
  out_.line(6, "{}{{", loops_beside({Level::result, false, true}));
  find_weights(sums, 7, true);
  for (const NodeId id : sums) multiply(id, names_[id] + "_part" + part);
  out_.line(6, "}}");
  out_.line(5, "}}");
  out_.line(4, "}}");
  for (const NodeId id : sums) {
    out_.line(4, "{}{{ {}{}_sums{}.add({}_part{}); }}", loops_beside(every_result()), row,
              names_[id], indices(every_result()), names_[id], part);
  }
  out_.line(3, "}}");
}

std::string ProductEmitter::loops_beside(const Scope& scope) const {
  std::string text;
  if (by_rows(scope)) text += fmt::format("KILN_EACH_VECTOR(s, {}) ", loops_.rows_beside);
  if (by_columns(scope)) text += fmt::format("KILN_EACH_VECTOR(c, {}) ", products_.columns);
  return text;
}

std::string ProductEmitter::extents_beside(const Scope& scope) const {
  std::string text;
  if (by_rows(scope)) text += fmt::format("[{}]", loops_.rows_beside);
  if (by_columns(scope)) text += fmt::format("[{}]", products_.columns);
  return text;
}

std::string ProductEmitter::indices_beside(const Scope& scope) const {
  return fmt::format("{}{}", by_rows(scope) ? "[s]" : "", by_columns(scope) ? "[c]" : "");
}

// The operands of weights of some sums, each once.
std::vector<std::size_t> ProductEmitter::weights_of(const std::vector<NodeId>& sums) const {
  std::vector<std::size_t> operands;
  for (const NodeId id : sums) {
    const std::size_t weights = nodes_.operand_of(graph_.nodes[nodes_.form(id)->weight]);
    if (std::ranges::find(operands, weights) == operands.end()) operands.push_back(weights);
  }
  return operands;
}

// Declares what there is of the rows side by side: sums, and where weights and the values of groups
// begin, of which compilers would else keep the place of each row's.
void ProductEmitter::declare_beside(const std::vector<NodeId>& sums) {
  const auto begin_at = [&](const std::string& name, const Scope& scope) {
    if (by_rows(scope)) out_.line(4, "auto* const {0}_side = {0} + side;", name);
  };
  for (const NodeId id : sums) {
    const ProductForm& form = *nodes_.form(id);
    const bool whole = is_integer(graph_.nodes[id].dtype);
    out_.line(4, "{} {}_part{};", whole ? "WholeSums" : "ScaledSums", names_[id],
              extents_beside(every_result()));
    if (form.is_centered())
      begin_at(names_[id] + (whole ? "_zero_point" : "_center"), of_zero_point(form));
    if (!whole) begin_at(names_[id] + "_factor", of_scales(form));
  }
  for (const std::size_t weights : weights_of(sums)) {
    if (is_gathered(weights)) continue;
    const OperandText& operand = operands_[weights];
    const std::string type = fmt::format("{}, {}", storage_type(operand.dtype), schedule_.width);
    std::string row = row_text(weights);
    if (is_packed(operand.dtype)) {
      row = fmt::format("packed({}_data, {})", operand.name,
                        row.empty() ? fmt::format("{}(0)", signed_index_) : row);
    } else {
      row = fmt::format("{}_data{}{}", operand.name, row.empty() ? "" : " + ", row);
    }
    out_.line(4, "DotWeights<{}> {}_dots{};", type, operand.name, extents_beside(operand.scope));
    out_.line(4, "{}{{ {}{}_dots{} = dot_weights<{}, {}>({}, {}(0)); }}",
              loops_beside(operand.scope), by_rows(operand.scope) ? "const int r = side + s; " : "",
              operand.name, indices_beside(operand.scope), schedule_.width, alignment_of(weights),
              row, signed_index_);
  }
}

void ProductEmitter::find_weights(const std::vector<NodeId>& sums, int depth, bool of_columns) {
  for (const std::size_t weights : weights_of(sums)) {
    const OperandText& operand = operands_[weights];
    if (by_columns(operand.scope) != of_columns) continue;
    if (is_gathered(weights)) {
      gather_weights(weights, depth);
      continue;
    }
    out_.line(depth, "const auto {0}_at = {0}_dots{1}.at({0}_places[i]);", operand.name,
              indices_beside(operand.scope));
    if (operand.scope.rows)
      prefetch(weights, depth, schedule_.width, Scope{}, operand.name + "_at.from");
  }
}

// Those of a vector of the rows side by side, which are side by side in memory.
void ProductEmitter::transpose_weights(std::size_t weights, int depth) {
  const OperandText& operand = operands_[weights];
  const std::string stride = operand.stride_name(inner());
  const std::string offset = fmt::format("{0}_row[side] + {0}_places[i] + {1}({0}_firsts[i]) * {2}",
                                         operand.name, signed_index_, stride);
  const std::string from = is_packed(operand.dtype)
                               ? fmt::format("packed({}_data, {})", operand.name, offset)
                               : fmt::format("{}_data + {}", operand.name, offset);
  out_.line(depth, "Gathered<{}, {}> {}_near{};", storage_type(operand.dtype), schedule_.width,
            operand.name, extents_beside(operand.scope));
  out_.line(depth, "transpose_vectors<{}>({}_near, {}, i64({}));", schedule_.width, operand.name,
            from, stride);
}

// Those of a vector of the current row, where they lie anywhere.
void ProductEmitter::gather_weights(std::size_t weights, int depth) {
  const OperandText& operand = operands_[weights];
  if (is_across(weights)) {
    const std::string near = operand.name + "_near" + indices_beside(operand.scope) + ".row()";
    out_.line(depth, "const auto {}_at = dot_weights<{}, {}>({});", operand.name, schedule_.width,
              alignment_of(weights),
              is_packed(operand.dtype)
                  ? fmt::format("packed({0}, {1}(0)), {1}(0)", near, signed_index_)
                  : fmt::format("{}, {}(0)", near, signed_index_));
    return;
  }
  std::string row = row_text(weights);
  row += fmt::format("{}{}_places[i]", row.empty() ? "" : " + ", operand.name);
  const std::string from = is_packed(operand.dtype)
                               ? fmt::format("packed({}_data, {})", operand.name, row)
                               : fmt::format("{}_data + {}", operand.name, row);
  out_.line(depth, "const auto {0}_near = gathered<{1}, {2}>({3}, {0}_firsts[i], {0}_place);",
            operand.name, schedule_.width, gathered_run(weights, schedule_.width), from);
  out_.line(depth, "const auto {}_at = dot_weights<{}, {}>({});", operand.name, schedule_.width,
            alignment_of(weights), gathered_row(weights, Scope{}));
}

// A value of a group.
std::string ProductEmitter::beside(const std::string& name, const Scope& scope) const {
  return fmt::format("{}{}{}[g]", name, by_rows(scope) ? "_side" : "", indices_beside(scope));
}

// Adds the products of a vector, less the zero points, to a sum.
void ProductEmitter::multiply(NodeId sum, const std::string& to) {
  const ProductForm& form = *nodes_.form(sum);
  const std::size_t weights = nodes_.operand_of(graph_.nodes[form.weight]);
  const std::size_t x = nodes_.operand_of(graph_.nodes[form.activation]);
  const std::string staged = integer_vector(form) + indices(operands_[x].scope);
  const std::string dots =
      fmt::format("dot_products({}_at, {}.vector[i])", operands_[weights].name, staged);
  const std::string_view type = storage_type(operands_[weights].dtype);
  if (is_integer(graph_.nodes[sum].dtype)) {
    const std::string zero_point =
        form.is_centered()
            ? fmt::format("i32({})", beside(names_[sum] + "_zero_point", of_zero_point(form)))
            : "0";
    out_.line(7, "add_whole({}, centered_products<{}>({}, {}.sum[i], {}));", to, type, dots, staged,
              zero_point);
    return;
  }
  const std::string centered =
      form.is_centered()
          ? fmt::format("centered_floats({}, as_floats({}.sum[i]), {})", dots, staged,
                        beside(names_[sum] + "_center", of_zero_point(form)))
          : fmt::format("centered_floats<{}>({}, as_floats({}.sum[i]))", type, dots, staged);
  out_.line(7, "add_scaled({}, {}, {});", to, centered,
            beside(names_[sum] + "_factor", of_scales(form)));
}

}  // namespace kiln::fusion
