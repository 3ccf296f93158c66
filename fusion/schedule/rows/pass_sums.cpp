// Sums and products in the order of their tree: which they are, and how many a thread or a block
// has partial results of at a time.
#include <algorithm>
#include <bit>

#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/infer/reduce_space.hpp"
#include "fusion/schedule/rows/pass_planner.hpp"

namespace kiln::fusion {

// On the CPU a row of one vector has a lane for each residue.
bool PassSchedule::sums_in_tree(const TypedNode& node) const {
  if (rows.columns != 0) return sums_floats(node);
  if (!is_host()) return rows.has_row_trees() && sums_floats(node);
  const bool of_one_vector = in_parts() && rows.vectors == 1;
  return sums_floats(node) && !of_one_vector;
}

void PassPlanner::find_sums() {
  int trees = 0;
  for (const Ids& reductions : passes_.reductions) {
    Ids& own = passes_.trees.emplace_back();
    std::ranges::copy_if(reductions, std::back_inserter(own),
                         [&](std::size_t id) { return passes_.sums_in_tree(graph_.nodes[id]); });
    passes_.most_trees = std::max(passes_.most_trees, static_cast<int>(own.size()));
    trees += static_cast<int>(own.size());
    for (const std::size_t id : own) {
      const int bytes = bits(compute_dtype(graph_.nodes[id].dtype)) / 8;
      passes_.partial_bytes = std::max(passes_.partial_bytes, bytes);
    }
  }
  for (int pass = 0; pass <= passes_.last; ++pass) {
    passes_.in_pairs.push_back(sums_in_pairs(pass));
  }
  if (passes_.is_host() || rows_.columns != 0) return;
  if (!rows_.has_row_chunks()) {
    passes_.tree_buffers = trees;
    return;
  }
  if (rows_.keeps_chunks()) {
    const int slots = passes_.chunk_slots();
    const int chunks = (rows_.vectors + slots - 1) / slots;
    passes_.chunks_kept = rows_.in_cluster()
                              ? chunks
                              : static_cast<int>(std::bit_ceil(static_cast<unsigned>(chunks)));
  } else {
    constexpr int kMost = 8;
    constexpr int kSharedBytes = 32 << 10;
    constexpr int kApart = 4;  // lanes of a wave whose vectors are far apart
    const int left =
        std::max(1, schedule_.width / kApart) * rows_.block_threads() * passes_.partial_bytes;
    passes_.chunks_together =
        std::clamp(kSharedBytes / (left * std::max(1, passes_.most_trees)), 1, kMost);
  }
}

// Whether a pass over columns on the CPU only adds up numbers of one type, and copies none of them:
// then two elements of a column at a time, so that accumulators are loaded and stored half as
// often.
bool PassPlanner::sums_in_pairs(int pass) const {
  const Ids& reductions = passes_.reductions[static_cast<std::size_t>(pass)];
  if (!passes_.is_host() || rows_.columns == 0 || reductions.empty()) return false;
  const DType dtype = compute_dtype(graph_.nodes[reductions.front()].dtype);
  for (std::size_t i = 0; i < passes_.operands.size(); ++i) {
    const RowOperand& operand = passes_.operands[i];
    const bool varies = operand.output && !operand.row_invariant;
    if (varies && pass == passes_.last) return false;
    if (passes_.is_read(operand, pass) && (operand.in_blocks || is_indexed(i))) return false;
  }
  return std::ranges::all_of(reductions, [&](std::size_t id) {
    return passes_.sums_in_tree(graph_.nodes[id]) && compute_dtype(graph_.nodes[id].dtype) == dtype;
  });
}

}  // namespace kiln::fusion
