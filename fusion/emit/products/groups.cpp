// Values of the groups of a row in a matrix-vector product. GPUs compute them where a group begins;
// on the CPU those of several groups are computed in vectors and kept beside the loop.
#include <fmt/format.h>

#include <string>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/products/emitter.hpp"

namespace kiln::fusion {

void ProductEmitter::group_values() {
  if (!in_groups_) {
    emit_values(Level::group, 3);
    begin_groups();
    return;
  }
  group_declarations_.clear();
  out_.line(3, "if (g == 0) {{");
  out_.indent(1);
  compute_group_values();
  out_.indent(-1);
  out_.line(3, "}}");
  out_.insert(before_groups_, group_declarations_);
}

// Computes what there is of each of several groups, from `group` on: first what rows share. Where
// there are many rows, the rest in one loop over them.
void ProductEmitter::compute_group_values() {
  compute_group_values(false);
  const Scope rows{Level::group, true, false};
  const bool in_loop = in_stages() && by_rows(rows);
  if (in_loop) {
    out_.line(3, "{}{{", loops(rows));
    out_.indent(1);
    in_row_ = true;
  }
  compute_group_values(true);
  begin_groups();
  if (!in_loop) return;
  in_row_ = false;
  out_.indent(-1);
  out_.line(3, "}}");
}

void ProductEmitter::compute_group_values(bool of_rows) {
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    const Scope& scope = nodes_.scope(id);
    if (scope.level != Level::group || is_reduction(node.op) || by_rows(scope) != of_rows) continue;
    if (node.op == Op::input) {
      load_group_value(id);
      continue;
    }
    const std::string text = value_text(id);
    if (text.empty()) continue;
    declare_of_group(compute_type(node.dtype), names_[id], scope);
    values_[id] = names_[id] + group_indices(scope);
    out_.line(3, "{}{} = {};", group_loops(scope), values_[id], text);
  }
}

// Loads what an operand has for several groups: whole numbers of its elements apart along one axis,
// or one by one.
void ProductEmitter::load_group_value(std::size_t id) {
  const TypedNode& node = graph_.nodes[id];
  const std::size_t i = nodes_.operand_of(node);
  const OperandText& operand = operands_[i];
  const std::string_view type = compute_type(node.dtype);
  names_[id] = operand.name;
  declare_of_group(type, operand.name, operand.scope);
  values_[id] = operand.name + group_indices(operand.scope);
  const std::uint32_t axis = first_reduced();
  if (axis + 1 == inner() && !is_packed(operand.dtype)) {
    const std::string row = row_text(i);
    out_.line(3, "{}load_groups({}{}, {}_data{}{} + {}(group) * {}, {}, u32(groups - group));",
              loops(operand.scope), operand.name, indices(operand.scope), operand.name,
              row.empty() ? "" : " + ", row, signed_index_, operand.stride_name(axis),
              operand.stride_name(axis));
    return;
  }
  out_.line(3, "for (u32 g = 0; g < kGroups && group + g < groups; ++g) {{");
  out_.coordinates(4, index_, "(group + g)", first_reduced(), inner());
  out_.line(4, "{}{} = to<{}>({});", loops(operand.scope), values_[id], type, one_element(i));
  out_.line(3, "}}");
}

// Declares what there is of each group, for rows and columns as it depends on them.
void ProductEmitter::declare_of_group(std::string_view type, const std::string& name,
                                      const Scope& scope) {
  if (!in_groups_) {
    out_.line(3, "{} {}{};", type, name, extents(scope));
    return;
  }
  if (in_row_ && by_rows(scope)) {
    out_.line(3, "OneRow<Groups<{}>{}> {};", type, extents({scope.level, false, scope.columns}),
              name);
    return;
  }
  keep_of_group(type, name, scope);
}

// The same where it is used after the loop over rows too.
void ProductEmitter::keep_of_group(std::string_view type, const std::string& name,
                                   const Scope& scope) {
  group_declarations_ +=
      fmt::format("{}Groups<{}> {}{};\n", out_.indentation(2), type, name, extents(scope));
}

std::string ProductEmitter::group_loops(const Scope& scope) const {
  return loops(scope) + (in_groups_ ? "KILN_EACH_GROUP(g) " : "");
}

std::string ProductEmitter::group_indices(const Scope& scope) const {
  return indices(scope) + (in_groups_ ? "[g]" : "");
}

Scope ProductEmitter::of_group(std::initializer_list<std::optional<NodeId>> parts) const {
  Scope scope{Level::group, false, false};
  for (const std::optional<NodeId>& part : parts) {
    if (!part) continue;
    scope.rows = scope.rows || nodes_.scope(*part).rows;
    scope.columns = scope.columns || nodes_.scope(*part).columns;
  }
  return scope;
}

// That of a bias is found by its scale.
Scope ProductEmitter::of_zero_point(const ProductForm& form) const {
  return form.bias ? of_group({form.bias, form.scale}) : of_group({form.zero_point});
}

Scope ProductEmitter::of_offset(const ProductForm& form) const {
  return of_group({form.bias, form.zero_point, form.scale});
}

Scope ProductEmitter::of_activation(const ProductForm& form) const {
  return of_group({form.activation});
}

// Begins a statement by which a value of a form is computed for each group, to be followed by
// set_of_group(): in vectors, which compilers do not make of a loop with a quotient in it.
std::string ProductEmitter::form_loops(const Scope& scope) const {
  return loops(scope) + (in_groups_ ? "KILN_EACH_GROUP_VECTOR(g) " : "");
}

std::string ProductEmitter::set_of_group(const std::string& name, const Scope& scope,
                                         const std::string& value) const {
  return in_groups_ ? fmt::format("{}{}.set(g, {});", name, indices(scope), value)
                    : fmt::format("{}{} = {};", name, indices(scope), value);
}

// What is of a row stands for all of its groups.
std::string ProductEmitter::of_form(NodeId part) const {
  return in_groups_ ? fmt::format("in_all({})", values_[part]) : values_[part];
}

void ProductEmitter::begin_groups() {
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (!nodes_.form(id)) continue;
    const ProductForm& form = *nodes_.form(id);
    value_text(form.weight);  // what the lanes are called
    if (!form.is_centered()) {
      begin_integers(static_cast<NodeId>(id));
      continue;
    }
    const std::string scale = form.scale ? of_form(*form.scale) : "1.0f";
    const std::string& own = names_[id];
    const Scope zero_points = of_zero_point(form);
    const Scope offsets = of_offset(form);
    const std::string zero_point = fmt::format("{}_zero_point{}", own, group_indices(zero_points));
    const auto set = [&](int depth, std::string_view what, const Scope& scope,
                         const std::string& value) {
      out_.line(depth, "{}", set_of_group(fmt::format("{}_{}", own, what), scope, value));
    };
    if (is_integer(graph_.nodes[id].dtype) && in_stages()) {
      keep_of_group("f32", own + "_zero_point", zero_points);
    } else {
      declare_of_group("f32", own + "_zero_point", zero_points);
    }
    if (!form.has_offset()) {
      out_.line(3, "{}{}", form_loops(zero_points),
                set_of_group(own + "_zero_point", zero_points, of_form(*form.zero_point)));
      begin_integers(static_cast<NodeId>(id));
      continue;
    }
    declare_of_group("f32", own + "_offset", offsets);
    out_.line(3, "{}{{", form_loops(offsets));
    if (form.zero_point) {
      const std::string given = of_form(*form.zero_point);
      set(4, "zero_point", zero_points, fmt::format("nearest_zero_point({})", given));
      set(4, "offset", offsets, fmt::format("({} - {}) * {}", zero_point, given, scale));
    } else {
      const bool minus = form.bias_is_subtracted;
      const std::string bias = of_form(*form.bias);
      const std::string offset = (minus ? "-" : "") + bias;
      set(4, "zero_point", zero_points,
          fmt::format("nearest_zero_point({}{}, {})", minus ? "" : "-", bias, scale));
      set(4, "offset", offsets,
          in_groups_ ? fmt::format("add_product({}, {}, {})", offset, zero_point, scale)
                     : fmt::format("fma({}, {}, {})", zero_point, scale, offset));
    }
    out_.line(3, "}}");
    begin_integers(static_cast<NodeId>(id));
    if (form.integers) continue;
    out_.line(3, "{} {}_activation{} = {{}};", loops_.in_vectors ? "Floats" : "f32", own,
              extents(of_activation(form)));
  }
}

ProductEmitter::Loop ProductEmitter::loop_of(NodeId element) const {
  const Scope& scope = nodes_.scope(element);
  if (!scope.rows) return Loop::part;
  return has_columns() && !scope.columns ? Loop::row : Loop::result;
}

// Adds the activations that are computed in such a loop to their sums.
void ProductEmitter::add_activations(Loop loop) {
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (!nodes_.form(id) || !nodes_.form(id)->has_offset()) continue;
    const NodeId activation = nodes_.form(id)->activation;
    if (loop_of(activation) != loop) continue;
    const std::string sum =
        fmt::format("{}_activation{}", names_[id], indices(of_activation(*nodes_.form(id))));
    if (loop == Loop::result) {
      out_.line(6, "{} += {};", sum, values_[activation]);
      continue;
    }
    const std::string columns = loop == Loop::part ? loops(of_activation(*nodes_.form(id))) : "";
    out_.line(loop == Loop::part ? 4 : 5, "{}{}(lane, {}) {} += {};", columns, each(), lanes(), sum,
              values_[activation]);
  }
}

void ProductEmitter::end_groups() {
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    if (!nodes_.form(id)) continue;
    const ProductForm& form = *nodes_.form(id);
    const std::string at = indices(every_result());
    const std::string& own = names_[id];
    out_.line(3, "{}{{", loops(every_result()));
    out_.line(4, "carry_scaled({0}_all{1}, {0}_lanes{1}, {2});", own, at,
              form.scale ? values_[*form.scale] : "1.0f");
    if (form.has_offset()) {
      out_.line(4, "{0}_all{1}[0] = add_product({0}_all{1}[0], {0}_offset{2}, {0}_activation{3});",
                own, at, indices(of_offset(form)), indices(of_activation(form)));
    }
    out_.line(3, "}}");
  }
}

}  // namespace kiln::fusion
