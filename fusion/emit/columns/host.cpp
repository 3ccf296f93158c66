// Sums of columns on the CPU, in the order of their tree (preamble/tree.h).
#include <fmt/format.h>

#include <algorithm>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/rows/reduction_emitter.hpp"

namespace kiln::fusion {

// A pass over columns of which some are added up.
void ReductionEmitter::emit_column_trees(int pass, const Ids& trees) {
  const bool pairs = passes_.in_pairs[static_cast<std::size_t>(pass)];
  if (rows_.split) locate_part();
  out_.line(2, "{0}[&]({1} chunk, {1} count, int merges) KILN_INLINED {{", each_chunk("vectors"),
            index_);
  const std::string type = pairs ? define_element(pass) : "";
  out_.line(3, "walk_elements<{1}>(count, {2}, [&]({0} one, {0} other, auto step) KILN_INLINED {{",
            index_, pairs ? 2 : 1, rows_.split ? "u32(part.own), u32(part.sharing)" : "0u, 1u");
  for (const std::size_t id : trees) {
    out_.line(4, "auto& {0}_lanes = {0}_tree.residue();", names_[id]);
  }
  if (pass == 0) prefetch_next_elements(pairs);
  if (pairs) {
    out_.line(4, "const auto of_one = element(one);");
    out_.line(4, "const auto of_other = element(other);");
    out_.line(4, "KILN_FOR_EACH_LANE(lane, width, lanes) {{");
    out_.line(5, "const {} first_terms = of_one(lane);", type);
    out_.line(5, "const {} second_terms = of_other(lane);", type);
    for (std::size_t k = 0; k < trees.size(); ++k) {
      out_.line(5,
                "{0}_lanes[lane] = {0}_tree.combine(step, {0}_lanes[lane], first_terms[{1}], "
                "second_terms[{1}]);",
                names_[trees[k]], k);
    }
    out_.line(4, "}}");
  } else {
    out_.line(4, "const {} vector = chunk + one;", index_);
    locate_vector(4);
    load_vector(pass, 4);
    emit_vector(pass, 4, "vector");
  }
  out_.line(4, "if (!step.ends) return;");
  for (const std::size_t id : trees) {
    out_.line(4, "{}_tree.end(step.merges + (step.last ? merges : 0));", names_[id]);
  }
  out_.line(3, "}});");
  out_.line(2, "}});");
}

// Defines what a pass adds up of one element of each column, as a function of its lane. Returns the
// type of that.
std::string ReductionEmitter::define_element(int pass) {
  const Ids& trees = reductions_in(pass);
  const std::string type =
      fmt::format("Lanes<{}, {}>", partial_type(graph_.nodes[trees.front()]), trees.size());
  out_.line(3, "const auto element = [&]({} in_chunk) KILN_INLINED {{", index_);
  out_.line(4, "const {} vector = chunk + in_chunk;", index_);
  locate_vector(4);
  load_vector(pass, 4);
  std::string captured;
  const auto counts = [](const OperandText& operand) {
    return operand.iota && !operand.row_invariant;
  };
  for (std::uint32_t k = first_reduced(); k < inner(); ++k) {
    if (std::ranges::any_of(operands_, counts)) captured += fmt::format(", at_{}", k);
  }
  for (const OperandText& operand : operands_) {
    if (operand.output || operand.row_invariant || !passes_.is_read(operand, pass)) continue;
    captured += fmt::format(", {}_lanes", operand.name);
  }
  out_.line(4, "return [&{}](int lane) KILN_INLINED {{", captured);
  for (const std::size_t id : needed_in(pass)) emit_element(id, pass, 5, "vector");
  std::string terms;
  for (const std::size_t id : trees) {
    terms += (terms.empty() ? "" : ", ") + values_[graph_.nodes[id].operands[0]];
  }
  out_.line(5, "return {}{{{{{}}}}};", type, terms);
  out_.line(4, "}};");
  out_.line(3, "}};");
  return type;
}

void ReductionEmitter::prefetch_next_elements(bool pairs) {
  const std::uint32_t axis = first_reduced();
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const OperandText& operand = operands_[i];
    if (!operand.next_prefetched) continue;
    for (const std::string_view next : {"next", "after_next"}) {
      if (next == "after_next" && !pairs) continue;
      out_.line(4, "prefetch<{}>({}_row, i64(chunk + step.{}) * i64({}) + i64(first));",
                schedule_.width, operand.name, next, operand.stride_name(axis));
    }
  }
}

}  // namespace kiln::fusion
