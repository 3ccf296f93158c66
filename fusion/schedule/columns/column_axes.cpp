#include "fusion/schedule/columns/column_axes.hpp"

#include <algorithm>
#include <bit>

#include "fusion/infer/sum_tree.hpp"
#include "fusion/schedule/rows/row_vectors.hpp"

namespace kiln::fusion {
namespace {

using Axis = MergedAxis;

constexpr std::int64_t kSector = 32;

}  // namespace

bool lies_along_rows(const Axis& kept, const Axis& reduced, std::size_t operand) {
  return kept.size > 1 && reduced.size > 1 && kept.strides[operand] == 1 &&
         abs(reduced.strides[operand]) > 1;
}

bool has_few_neighbours(const Axis& kept, const ScratchVector<Axis>& reduced,
                        std::span<const SizedOperand> operands, std::size_t leading) {
  const Axis& within = reduced.back();
  const bool packs =
      std::ranges::any_of(operands, [](const SizedOperand& o) { return is_packed(o.dtype); });
  return !packs && reduced.size() > 1 && kept.size > 1 && within.strides[leading] == 1 &&
         within.size * element_bytes(operands[leading]) < kSector &&
         kept.strides[leading] == within.size;
}

int joined_columns(const ScratchVector<Axis>& outer, const ScratchVector<Axis>& inner,
                   std::span<const SizedOperand> operands, const ScratchVector<bool>& row_invariant,
                   std::size_t leading) {
  constexpr int kMostBytes = 4;
  if (inner.size() < 2 || has_indexed(operands)) return 1;
  const Axis& group = outer.back();
  const Axis& within = inner.back();
  if (within.strides[leading] != 1 || within.size * element_bytes(operands[leading]) >= kSector ||
      !std::has_single_bit(static_cast<std::uint64_t>(within.size))) {
    return 1;
  }
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (element_bytes(operands[i]) > kMostBytes && !operands[i].iota) return 1;
    if (group.strides[i] != within.strides[i] * within.size) return 1;
    if (row_invariant[i] && group.strides[i] != 0) return 1;
  }
  return static_cast<int>(within.size);
}

RowFold fold_of(const ScratchVector<Axis>& inner, const ReduceSpace& space,
                std::span<const SizedOperand> operands, const ScratchVector<bool>& row_invariant,
                std::size_t leading, const RowFeatures& device, Backend backend) {
  if (inner.size() < 2 || space.trees == 0 || space.gives_places || has_indexed(operands)) {
    return {};
  }
  std::size_t along = 0;
  while (along < inner.size() && inner[along].strides[leading] != 1) ++along;
  if (along + 1 >= inner.size()) return {};
  int most = std::min(kMostColumnVector, full_width(inner[along], product(inner), operands,
                                                    row_invariant, false, backend));
  if (device.forced.width != 0) most = std::min(most, device.forced.width);
  return fold_rows(inner, along, space.splits, most);
}

int residue_parts(Size length, Size splits) {
  const Size chunks = (length + kTreeChunk - 1) / kTreeChunk;
  return static_cast<int>(std::max<Size>(1, splits / power_of_two_from(chunks)));
}

}  // namespace kiln::fusion
