// Sums of integer products (preamble/product_integers.h): whole vectors of small weights times
// vectors of 8-bit integers that all rows share, exact, then scaled once for each group.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/products/emitter.hpp"
#include "fusion/graph/dtype_lattice.hpp"

namespace kiln::fusion {

void ProductEmitter::sum_integers() {
  std::vector<NodeId> sums;
  for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
    if (is_reduction(graph_.nodes[id].op)) sums.push_back(id);
  }
  begin_turns();
  if (host()) {
    sum_in_stages(sums);
    return end_turns();
  }
  for (const NodeId id : sums) {
    out_.line(2, "{} {}_sums{};", is_integer(graph_.nodes[id].dtype) ? "WholeSums" : "ScaledSums",
              names_[id], extents(every_result()));
  }
  begin_vectors();
  load_integers();
  group_values();
  for (const NodeId id : sums) add_integers(id);
  end_vectors();
  for (const NodeId id : sums) {
    take_total(id, fmt::format("total({}_sums{})", names_[id], indices(every_result())));
  }
  end_turns();
}

// Loads the weights of each row, and the vectors arranged like weights of each dtype, with their
// sums.
void ProductEmitter::load_integers() {
  std::vector<std::string> loaded;
  const auto load_once = [&](const std::string& type, const std::string& name, const Scope& scope,
                             const std::string& text) {
    if (std::ranges::find(loaded, name) != loaded.end()) return;
    loaded.push_back(name);
    out_.line(3, "{} {}{};", type, name, extents(scope));
    out_.line(3, "{}{}{} = {};", loops(scope), name, indices(scope), text);
  };
  const auto row_of = [&](std::size_t i) {
    if (!is_gathered(i)) return row_and_first(i, "first");
    const Scope& scope = operands_[i].scope;
    const std::string name = operands_[i].name + "_near";
    if (std::ranges::find(loaded, name) == loaded.end()) {
      loaded.push_back(name);
      for (const std::string& line : gather(i, schedule_.width, "first", scope)) {
        out_.line(3, "{}", line);
      }
    }
    return gathered_row(i, scope);
  };
  for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
    if (!nodes_.form(id)) continue;
    const ProductForm& form = *nodes_.form(id);
    const std::size_t weights = nodes_.operand_of(graph_.nodes[form.weight]);
    const std::size_t x = nodes_.operand_of(graph_.nodes[form.activation]);
    const std::string_view type = storage_type(operands_[weights].dtype);
    const int width = schedule_.width;
    const OperandText& rows = operands_[weights];
    const std::string dots = rows.name + "_dots";
    load_once(
        fmt::format("DotWeights<{}, {}>", type, width), dots, rows.scope,
        fmt::format("dot_weights<{}, {}>({})", width, alignment_of(weights), row_of(weights)));
    const std::string name = integer_vector(form);
    load_once(fmt::format("DotVector<{}, {}>", type, width), name, operands_[x].scope,
              fmt::format("dot_vector<{}, {}, {}>({})", type, width, alignment_of(x), row_of(x)));
    load_once("Dots", name + "_sum", operands_[x].scope,
              fmt::format("activation_sum({}{})", name, indices(operands_[x].scope)));
  }
}

std::string ProductEmitter::integer_vector(const ProductForm& form) const {
  const std::size_t x = nodes_.operand_of(graph_.nodes[form.activation]);
  return fmt::format("{}_for_{}", operands_[x].name, name(graph_.nodes[form.weight].dtype));
}

Scope ProductEmitter::of_scales(const ProductForm& form) const {
  return of_group({form.scale, form.activation_scale});
}

// On the CPU the factors of the products of each group are computed with the values of groups.
void ProductEmitter::begin_integers(NodeId sum) {
  const ProductForm& form = *nodes_.form(sum);
  if (!form.integers || !host() || is_integer(graph_.nodes[sum].dtype)) return;
  if (form.is_centered()) {
    const Scope centers = of_zero_point(form);
    keep_of_group("f32", names_[sum] + "_center", centers);
    out_.line(3, "{}{}", form_loops(centers),
              set_of_group(names_[sum] + "_center", centers,
                           fmt::format("center_of<{}>({}_zero_point{})",
                                       storage_type(graph_.nodes[form.weight].dtype), names_[sum],
                                       group_indices(centers))));
  }
  const std::string times =
      form.activation_scale ? fmt::format(" * {}", of_form(*form.activation_scale)) : "";
  const Scope factors = of_scales(form);
  keep_of_group("f32", names_[sum] + "_factor", factors);
  const std::string scale = form.scale ? of_form(*form.scale) : "in_all(1.0f)";
  out_.line(3, "{}{}", form_loops(factors),
            set_of_group(names_[sum] + "_factor", factors, scale + times));
  add_rests(sum);
}

// Adds the products of a vector, less the zero points, and what is left of a zero point or a bias
// that is no multiple of the scale.
void ProductEmitter::add_integers(NodeId sum) {
  const ProductForm& form = *nodes_.form(sum);
  const std::size_t weights = nodes_.operand_of(graph_.nodes[form.weight]);
  const std::size_t x = nodes_.operand_of(graph_.nodes[form.activation]);
  const std::string sums = fmt::format("{}_sums{}", names_[sum], indices(every_result()));
  const std::string vector = integer_vector(form);
  const std::string at_x = indices(operands_[x].scope);
  out_.line(3, "{}{{", loops(every_result()));
  out_.line(4, "const Dots products = centered_products<{}>(",
            storage_type(operands_[weights].dtype));
  out_.line(6, "dot_products({0}_dots{1}, {2}{3}), {2}_sum{3}, {4});", operands_[weights].name,
            indices(operands_[weights].scope), vector, at_x,
            form.is_centered() ? fmt::format("i32({}_zero_point{})", names_[sum],
                                             group_indices(of_zero_point(form)))
                               : "0");
  if (is_integer(graph_.nodes[sum].dtype)) {
    out_.line(4, "add_whole({}, products);", sums);
  } else {
    const auto factor = [&](const std::optional<NodeId>& scale) {
      return scale ? values_[*scale] : std::string("1.0f");
    };
    const std::string of_activation = factor(form.activation_scale);
    out_.line(4, "add_scaled({}, products, {}, {});", sums, factor(form.scale), of_activation);
    if (form.has_offset()) {
      out_.line(4, "add_scaled({}, {}_sum{}, {}_offset{}, {});", sums, vector, at_x, names_[sum],
                group_indices(of_offset(form)), of_activation);
    }
  }
  out_.line(3, "}}");
}

}  // namespace kiln::fusion
