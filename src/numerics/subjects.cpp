#include "numerics/subjects.hpp"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "fusion/graph/composition.hpp"

namespace kiln::numerics {
namespace {

// Predicates, comparisons and bit operations give no float; where and conj give an operand.
bool is_measured(const fusion::OpInfo& op) {
  using fusion::Rule;
  const bool floating =
      op.rule == Rule::same || op.rule == Rule::integral || op.rule == Rule::floating;
  return floating && op.arity > 0 && op.op != fusion::Op::conj;
}

}  // namespace

std::string Subject::text() const {
  constexpr std::array<std::string_view, 3> kOperands = {"x", "x, y", "x, y, z"};
  return fmt::format("{}({})", name, kOperands[static_cast<std::size_t>(arity - 1)]);
}

bool Subject::takes(DType dtype) const {
  return dtype != DType::c64 || (op && fusion::takes_complex(*op));
}

const std::vector<Subject>& all_subjects() {
  static const std::vector<Subject> subjects = [] {
    std::vector<Subject> all;
    for (const fusion::OpInfo& op : fusion::all_ops()) {
      if (is_measured(op)) all.push_back({std::string(op.name), op.op, op.arity});
    }
    for (const fusion::Composition& composition : fusion::all_compositions()) {
      if (composition.min_arity == 1) all.push_back({std::string(composition.name), {}, 1});
    }
    return all;
  }();
  return subjects;
}

}  // namespace kiln::numerics
