// Quotients by one number for each row or column: what depends only on the divisor is computed once
// for all of a thread's elements (preamble/quotients.h). passes.cpp computes other values.
#include <fmt/format.h>

#include <set>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/rows/reduction_emitter.hpp"
#include "fusion/graph/dtype_lattice.hpp"

namespace kiln::fusion {

// Of a value that the pass needs.
bool ReductionEmitter::is_shared_quotient(std::size_t id, int pass) const {
  const TypedNode& node = graph_.nodes[id];
  if (node.op != Op::div || compute_dtype(node.dtype) != DType::f32) return false;
  const NodeId by = node.operands[1];
  return row_invariant_[by] && graph_.nodes[by].op != Op::constant && !is_cached_for(id, pass);
}

// The quotients of the last pass that share a divisor. Their lanes are computed again where a
// dividend or the divisor is outside the range of the fast method.
std::vector<std::size_t> ReductionEmitter::shared_quotients(int pass) const {
  std::vector<std::size_t> quotients;
  if (is_host() || accuracy_ == Accuracy::fast || pass != last_pass_ ||
      !reductions_in(pass).empty()) {
    return quotients;
  }
  for (const std::size_t id : needed_in(pass)) {
    if (is_shared_quotient(id, pass)) quotients.push_back(id);
  }
  return quotients;
}

void ReductionEmitter::prepare_divisors(int pass) {
  std::set<NodeId> prepared;
  for (const std::size_t id : shared_quotients(pass)) {
    const NodeId by = graph_.nodes[id].operands[1];
    if (!prepared.insert(by).second) continue;
    if (rows_.columns == 0) {
      out_.line(2, "const Divisor {}_divisor = divisor({});", names_[by], values_[by]);
      continue;
    }
    out_.line(2, "Divisor {}_divisor[{}];", names_[by], schedule_.width);
    out_.line(2, "KILN_FOR_EACH_LANE(lane, width, lanes) {{");
    out_.line(3, "{}_divisor[lane] = divisor({});", names_[by], values_[by]);
    out_.line(2, "}}");
  }
}

// Writes the lanes of a vector with the fast method, and again without it if that does not apply.
void ReductionEmitter::emit_lanes(int pass, int depth, std::string_view slot) {
  const std::vector<std::size_t> quotients =
      at_ends_ ? std::vector<std::size_t>() : shared_quotients(pass);
  if (quotients.empty()) return emit_each_lane(pass, depth, slot);
  std::string found;
  for (const std::size_t id : quotients) {
    out_.line(depth, "Unusual {}_unusual;", names_[id]);
    found += fmt::format("{}{}_unusual.found({}_divisor)", found.empty() ? "" : " || ", names_[id],
                         names_[graph_.nodes[id].operands[1]]);
  }
  fast_quotients_ = true;
  emit_each_lane(pass, depth, slot);
  fast_quotients_ = false;
  out_.line(depth, "if ({}) {{", found);
  emit_each_lane(pass, depth + 1, slot);
  out_.line(depth, "}}");
}

void ReductionEmitter::emit_fast_quotient(std::size_t id, int depth) {
  const TypedNode& node = graph_.nodes[id];
  const std::string quotient =
      fmt::format("quotient({}, {}_divisor{}, {}_unusual)", values_[node.operands[0]],
                  names_[node.operands[1]], rows_.columns == 0 ? "" : "[lane]", names_[id]);
  out_.line(depth, "const f32 {} = {};", names_[id], node_text_.rounded(node, quotient));
  values_[id] = names_[id];
}

}  // namespace kiln::fusion
