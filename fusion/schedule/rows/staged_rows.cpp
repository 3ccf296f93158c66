#include "fusion/schedule/rows/staged_rows.hpp"

#include <algorithm>

#include "fusion/schedule/rows/row_mapping.hpp"

namespace kiln::fusion {
namespace {

// A short row has too few aligned vectors for what its ends cost. What threads do once for each row
// takes as long as a dozen elements: few of them share a row, as long as registers and shared
// memory have room for what each has of it, and there are threads enough. Rows that are no whole
// vectors begin in different banks of shared memory.
constexpr int kMostStagedRow = 512;
constexpr int kStagedRegisters = 32;       // of a thread, for elements of all operands
constexpr int kStagedRowBytes = 16 << 10;  // of shared memory, for a block
constexpr int kStagedElements = 8;         // of a thread, where there are few rows
constexpr int kFewestStagedThreads = 2;    // AMD's compiler makes words of neighbours, unaligned
constexpr int kMostStagedThreads = 32;
constexpr std::int64_t kEnoughStagedThreads = 1 << 16;

}  // namespace

bool can_stage(const ScratchVector<MergedAxis>& axes, const SizedOperand& operand, std::size_t i) {
  return axes.back().strides[i] == 1 && !is_packed(operand.dtype) && !operand.indexed.exists() &&
         are_one_range(axes, i) &&
         alignment_of(operand, 0, axes, axes.size() - 1, i, 1) >= element_bytes(operand);
}

// Weights, which the caches keep, are read where they are.
int threads_of_staged(const ScratchVector<MergedAxis>& axes, std::span<const SizedOperand> operands,
                      const ScratchVector<bool>& row_invariant, int width, Size count, int forced) {
  const Size length = axes.back().size;
  if (axes.size() < 2 || length > kMostStagedRow || length % width == 0) return 0;
  int loaded = 0;
  int bytes = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].iota || row_invariant[i]) continue;
    const bool moves = std::ranges::any_of(
        axes.begin(), axes.end() - 1, [&](const MergedAxis& axis) { return axis.strides[i] != 0; });
    if (!moves && !operands[i].output && axes.back().strides[i] == 1) continue;
    if (!can_stage(axes, operands[i], i)) return 0;
    loaded += operands[i].output ? 0 : 1;
    bytes += element_bytes(operands[i]);
  }
  if (bytes == 0) return 0;
  const int each = std::max(1, std::min(kStagedRegisters / std::max(1, loaded),
                                        kStagedRowBytes / (kStagedBlock * bytes)));
  int threads = std::max(kFewestStagedThreads, power_of_two_from((length + each - 1) / each));
  if (forced != 0) threads = std::max(threads, forced);
  while (forced == 0 && threads < kMostStagedThreads && length > kStagedElements * threads &&
         count * threads < kEnoughStagedThreads) {
    threads *= 2;
  }
  return threads <= kMostStagedThreads ? threads : 0;
}

// There is room for a few more elements than a thread has, so that one kernel does for several
// lengths.
void keep_staged(RowSchedule& rows, Size length) {
  constexpr int kSteps = 8;
  const Size each = std::max<Size>(1, (length + rows.threads - 1) / rows.threads);
  const int step = std::max(1, static_cast<int>(bit_floor(each)) / kSteps);
  rows.vectors = static_cast<int>((each + step - 1) / step) * step;
  rows.full_vectors = rows.vectors - step;
  rows.in_smem = 0;
}

}  // namespace kiln::fusion
