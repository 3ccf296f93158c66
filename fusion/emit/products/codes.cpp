// What a matrix-vector product on the CPU computes from packed weights and their groups alone:
// there are sixteen results, which are looked up by the codes of weights
// (preamble/product_vectors.h).
#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/products/emitter.hpp"

namespace kiln::fusion {

std::vector<std::optional<std::size_t>> ProductEmitter::packed_origins() const {
  std::vector<std::optional<std::size_t>> origins(graph_.nodes.size());
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const TypedNode& node = graph_.nodes[id];
    const Scope& scope = nodes_.scope(id);
    if (scope.level != Level::element || !scope.rows || scope.columns || !nodes_.is_wanted(id))
      continue;
    if (node.op == Op::input) {
      const std::size_t i = nodes_.operand_of(node);
      if (is_packed(operands_[i].dtype)) origins[id] = i;
      continue;
    }
    bool one = true;
    for (const NodeId operand : node.inputs()) {
      if (nodes_.scope(operand).level != Level::element) continue;
      one = one && origins[operand] && (!origins[id] || origins[id] == origins[operand]);
      origins[id] = origins[operand];
    }
    if (!one) origins[id].reset();
  }
  return origins;
}

// Writes what is computed from packed weights alone: functions of these, whose results are looked
// up.
void ProductEmitter::results_of_codes() {
  const std::vector<std::optional<std::size_t>> origins = packed_origins();
  std::vector<bool> used(graph_.nodes.size(), false);
  const auto use = [&](NodeId id) {
    used[id] = used[id] || (origins[id] && graph_.nodes[id].op != Op::input);
  };
  for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
    const bool computes = nodes_.is_wanted(id) && !origins[id];
    if (!computes && !nodes_.is_summed(id)) continue;
    for (const NodeId operand : graph_.nodes[id].inputs()) {
      // The factors of a product that is added to something are used in its place.
      if (!loops_.added[operand] && !nodes_.is_in_sum(operand)) {
        use(operand);
        continue;
      }
      for (const NodeId factor : graph_.nodes[operand].inputs()) use(factor);
    }
  }
  const std::vector<std::string> before = values_;
  for (NodeId result = 0; result < graph_.nodes.size(); ++result) {
    looked_up_[result] = origins[result] && graph_.nodes[result].op != Op::input;
    if (!used[result]) continue;
    const std::string& weights = operands_[*origins[result]].name;
    const std::vector<bool> computed = all_of({result});
    out_.line(5, "const auto {}_of_code = [&](Floats {}) KILN_INLINED {{", names_[result], weights);
    for (NodeId id = 0; id <= result; ++id) {
      if (!computed[id] || !origins[id]) continue;
      if (graph_.nodes[id].op == Op::input) {
        values_[id] = weights;
        lanes_[id] = {weights, false};
        continue;
      }
      const std::string text = value_text(id);
      if (text.empty()) continue;
      out_.line(6, "const Floats {} = {};", names_[id], text);
      values_[id] = names_[id];
    }
    out_.line(6, "return {};", values_[result]);
    out_.line(5, "}};");
    out_.line(5, "const auto {0}_results = results_of({1}_lanes, {0}_of_code);", names_[result],
              weights);
  }
  values_ = before;
  for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
    if (graph_.nodes[id].op == Op::input && origins[id]) lane_of(id, *origins[id]);
    if (!looked_up_[id]) continue;
    values_[id] = used[id] ? names_[id] + "_results[lane]" : std::string();
    lanes_[id] = {};
  }
}

}  // namespace kiln::fusion
