// Quotients by one number for each row or column: what depends only on the divisor is computed once
// for all of a thread's elements (preamble/division.h). passes.cpp computes other values.
#include <fmt/format.h>

#include <set>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/rows/reduction_emitter.hpp"
#include "fusion/graph/dtype_lattice.hpp"

namespace kiln::fusion {

void ReductionEmitter::prepare_divisors(int pass) {
  std::set<NodeId> prepared;
  if (pass != passes_.last) return;
  for (const std::size_t id : passes_.quotients) {
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
  const Ids quotients = at_ends_ || pass != passes_.last ? Ids() : passes_.quotients;
  if (quotients.empty()) return emit_each_lane(pass, depth, slot);
  std::string found;
  for (const std::size_t id : quotients) {
    out_.line(depth, "Unusual {}_unusual;", names_[id]);
    found += fmt::format("{}{}_unusual.found({}_divisor)", found.empty() ? "" : " || ", names_[id],
                         names_[graph_.nodes[id].operands[1]]);
  }
  quotients_ = Quotients::fast;
  emit_each_lane(pass, depth, slot);
  quotients_ = Quotients::unusual;
  out_.line(depth, "if ({}) {{", found);
  emit_each_lane(pass, depth + 1, slot);
  out_.line(depth, "}}");
  quotients_ = Quotients::plain;
}

void ReductionEmitter::emit_quotient(std::size_t id, int depth) {
  const TypedNode& node = graph_.nodes[id];
  const std::string& a = values_[node.operands[0]];
  const NodeId by = node.operands[1];
  const std::string quotient =
      quotients_ == Quotients::fast
          ? fmt::format("quotient({}, {}_divisor{}, {}_unusual)", a, names_[by],
                        rows_.columns == 0 ? "" : "[lane]", names_[id])
          : fmt::format("unusual_quotient({}, {})", a, values_[by]);
  out_.line(depth, "const f32 {} = {};", names_[id], node_text_.rounded(node, quotient));
  values_[id] = names_[id];
}

}  // namespace kiln::fusion
