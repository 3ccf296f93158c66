// Values that a later pass needs again take the places of the operands that they are computed from:
// of rows in shared memory, where what a thread reads and writes is its own, and of columns in
// registers.
#include <fmt/format.h>

#include <algorithm>

#include "fusion/emit/rows/reduction_emitter.hpp"

namespace kiln::fusion {
namespace {

constexpr int kBytes = 4;  // of an f32

}  // namespace

// Whether reading a value again saves more than writing it costs: a quarter of an instruction for
// each lane. On an H100 min, max and std of gelu_tanh(x) * g go from 0.52 of a copy to 0.79
// (11,008 f16), a softmax of silu(x) * g from 0.69 to 0.89 (8,192 f16), and that of columns, whose
// operands and exponentials no longer need registers side by side, from 0.59 to 0.93 (1,024 f32).
// Rows of 65,536 bf16 that a cluster shares go from 0.79 to 0.68: blocks wait for the slowest.
bool ReductionEmitter::saves_in_place(std::size_t id) const {
  constexpr double kLeastCost = 4;
  const TypedNode& result = graph_.nodes[id];
  if (in_cluster()) return false;
  if (result.op == Op::input || node_text_.rounds(result)) return false;
  std::vector<bool> needed(id + 1, false);
  needed[id] = true;
  double cost = 0;
  for (std::size_t i = id + 1; i-- > 0;) {
    if (!needed[i] || row_invariant_[i]) continue;
    const TypedNode& node = graph_.nodes[i];
    cost += node.op == Op::input ? 1 : info(node.op).cost;
    for (const NodeId operand : node.inputs()) needed[operand] = true;
  }
  return cost >= kLeastCost;
}

// Finds a place for each value that is cached, among those that nothing needs any more once the
// value is computed. Returns a value that has none.
std::optional<std::size_t> ReductionEmitter::place_cached() {
  places_.assign(graph_.nodes.size(), {});
  std::vector<int> busy_until(operands_.size(), -1);  // by operand: the last pass that needs it
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    for (int pass = 0; pass <= last_pass_; ++pass) {
      if (is_read(operands_[i], pass)) busy_until[i] = pass;
    }
  }
  for (int pass = 0; pass < last_pass_; ++pass) {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (cached_in_[id] != pass) continue;
      int missing = schedule_.width;  // lanes
      for (std::size_t i = 0; i < operands_.size() && missing > 0; ++i) {
        const bool is_kept =
            !operands_[i].output && schedule_.operands[i].in_registers && busy_until[i] >= 0;
        const int lanes = vector_bytes(operands_[i]) / kBytes;
        if (!is_kept || busy_until[i] > pass || lanes == 0) continue;
        places_[id].push_back(i);
        missing -= lanes;
      }
      if (missing > 0) return id;
      int last = pass;
      for (int later = pass; later <= last_pass_; ++later) {
        if (is_needed(id, later)) last = later;
      }
      for (const std::size_t i : places_[id]) busy_until[i] = last;
    }
  }
  return std::nullopt;
}

bool ReductionEmitter::gives_place(std::size_t operand) const {
  return std::ranges::any_of(places_, [&](const std::vector<std::size_t>& places) {
    return std::ranges::count(places, operand) != 0;
  });
}

// Before the lanes of a vector in shared memory: the values that an earlier pass left there, and
// room for those of this pass.
void ReductionEmitter::open_cached(int pass, int depth) {
  if (!is_in_smem()) return;
  for (const std::size_t id : needed_in(pass)) {
    if (!has_place(id)) continue;
    const std::string& name = names_[id];
    out_.line(depth, "Vec<f32, {}> {}_kept;", schedule_.width, name);
    if (cached_in_[id] == pass) continue;
    if (from_prefetch_ && register_vectors() != 0) {
      out_.line(depth, "if (slot < {0}) {1}_kept = {1}_cached[slot < {0} ? slot : 0];",
                register_vectors(), name);
      out_.line(depth, "if (slot >= {}) {{", register_vectors());
      move_cached(id, depth + 1, "load_part");
      out_.line(depth, "}}");
    } else {
      move_cached(id, depth, "load_part");
    }
  }
}

void ReductionEmitter::close_cached(int pass, int depth) {
  if (!is_in_smem()) return;
  for (const std::size_t id : needed_in(pass)) {
    if (has_place(id) && cached_in_[id] == pass) move_cached(id, depth, "store_part");
  }
}

// Loads or stores a vector of a value, in as many parts as it has places.
void ReductionEmitter::move_cached(std::size_t id, int depth, std::string_view move) {
  int from = 0;
  for (const std::size_t i : places_[id]) {
    const int lanes = std::min(vector_bytes(operands_[i]) / kBytes, schedule_.width - from);
    out_.line(depth, "{}<{}, {}>({}_kept, {}_smem + {});", move, from, lanes, names_[id],
              operands_[i].name, smem_offset());
    from += lanes;
  }
}

}  // namespace kiln::fusion
