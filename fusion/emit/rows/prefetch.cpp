// Prefetching: weights that only the last pass reads and that registers have no room for, and rows
// that are copied to shared memory asynchronously. passes.cpp has the passes.
#include <fmt/format.h>

#include <algorithm>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/rows/reduction_emitter.hpp"

namespace kiln::fusion {
namespace {

// Vectors in flight; more where rows are copied past the registers.
constexpr int kDistance = 2;
constexpr int kDistanceOfCopies = 4;

constexpr int kAligned = 16;  // bytes of the widest access

}  // namespace

// Rows of which every thread has many vectors leave no registers for weights, which come from L2.
// The weights of the last pass are prefetched from before the first pass on, two vectors at a time.
// Layer_norm of 32,768 bf16, f16 and f32 goes from 0.89, 0.86 and 0.89 of a copy on an H200 to
// 0.93, 0.95 and 0.96.
void ReductionEmitter::choose_prefetched() {
  constexpr int kManyVectors = 8;
  constexpr int kMostThreads = 512;
  constexpr int kWide = 8;
  if (schedule_.backend != Backend::nvidia || rows_.vectors < kManyVectors || rows_.columns != 0 ||
      rows_.copied) {
    return;
  }
  if ((in_cluster() && rows_.vectors <= kManyVectors) || is_shifted() || last_pass_ == 0) return;
  if (rows_.block() > kMostThreads && schedule_.width >= kWide) return;  // no registers are left
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const OperandText& operand = operands_[i];
    if (operand.output || operand.row_invariant || operand.in_registers ||
        !is_read(operand, last_pass_))
      continue;
    if (!is_weight(i)) return prefetched_.clear();
    prefetched_.push_back(i);
  }
}

bool ReductionEmitter::is_weight(std::size_t operand) const {
  return schedule_.operands[operand].outer_axes == 0 && !is_indexed(operand);
}

// Whether what is in shared memory is copied there asynchronously, which leaves the registers to
// what is computed and lets threads work on a row as it arrives. Where all of a row is there,
// layer_norm of 32,768 bf16 and f16 goes from 0.94 and 0.945 of a copy on an H200 to 0.955 and
// 0.96. Two operands of rows of several chunks leave two blocks of a multiprocessor enough
// registers so: x + r and its rms_norm, of 65,536 to 262,144 bf16, go from 0.79-0.87 on an H100 to
// 0.85-0.94; with two sums in a pass, whose accumulators take registers too, four statistics of
// them go from 0.80 to 0.53, and are loaded. One operand is better loaded at once: softmax of
// 262,144 bf16 reaches 0.91, and 0.87 so; but of unaligned rows that one block has, whose ends take
// registers too, softmax of 50,257 bf16 goes from 0.81 to 0.84 and rms_norm from 0.75 to 0.81.
bool ReductionEmitter::copies_rows_async() const {
  if (!uses_smem() || schedule_.backend != Backend::nvidia) return false;
  constexpr int kMostRegisters = 28;
  int copied = 0;
  int stored = 0;
  int registers = most_trees() * rows_.sets * schedule_.width;
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!operands_[i].in_smem) continue;
    ++stored;
    copied += is_copied(i) ? 1 : 0;
    registers += register_vectors() * vector_bytes(operands_[i]) / 4;
  }
  const bool several = stored > 1 && registers <= kMostRegisters;
  const bool has_ends = stored == 1 && is_shifted() && !in_cluster();
  if (rows_.copied || (keeps_chunks() && (several || has_ends))) return copied != 0;
  return register_vectors() == 0 && !prefetched_.empty() && is_full() && copied == 1 && stored == 1;
}

bool ReductionEmitter::is_copied(std::size_t operand) const {
  constexpr int kLeast = 4;
  const OperandSchedule& schedule = schedule_.operands[operand];
  const int bytes = vector_bytes(operands_[operand]);
  return operands_[operand].in_smem && bytes >= kLeast && !schedule.unaligned &&
         schedule.access == Access::contiguous && schedule.alignment >= std::min(kAligned, bytes);
}

// The first pass over a row that is being copied, some vectors at a time.
void ReductionEmitter::emit_arriving(int pass) {
  constexpr int kFew = 2;
  constexpr int kMany = 4;
  const int together = keeps_chunks() ? kMany : kFew;
  for (int from = std::max(kept_from_, register_vectors()); from < kept_to_; from += together) {
    const int to = std::min(from + together, kept_to_);
    out_.line(2, "wait_copies<{}>();", rows_.vectors - to);
    emit_slots(pass, from, to, "KILN_UNROLL");
  }
  copies_pending_ = kept_to_ != rows_.vectors;
}

int ReductionEmitter::prefetch_distance() const {
  return copies_rows_async() ? kDistanceOfCopies : kDistance;
}

// Starts prefetching, before the first pass.
void ReductionEmitter::begin_prefetch() {
  if (prefetched_.empty()) return;
  for (const std::size_t i : prefetched_) {
    out_.line(2, "Vec<{}, {}> {}_next[{}];", storage_type(operands_[i].dtype), schedule_.width,
              operands_[i].name, prefetch_distance());
  }
  prefetch(2, "");
}

// The last pass, with prefetched operands.
void ReductionEmitter::emit_prefetched(int pass) {
  const int ahead = prefetch_distance();
  if (copies_pending_) out_.line(2, "wait_copies<0>();");
  copies_pending_ = false;
  out_.line(2, "KILN_UNROLL for (int base = 0; base < {}; base += {}) {{", rows_.vectors, ahead);
  for (const std::size_t i : prefetched_) {
    out_.line(3, "Vec<{0}, {1}> {2}_batch[{3}];", storage_type(operands_[i].dtype), schedule_.width,
              operands_[i].name, prefetch_distance());
  }
  out_.line(3, "KILN_UNROLL for (int step = 0; step < {}; ++step) {{", ahead);
  for (const std::size_t i : prefetched_) {
    out_.line(4, "{0}_batch[step] = {0}_next[step];", operands_[i].name);
  }
  out_.line(3, "}}");
  prefetch(3, fmt::format("base + {} + ", ahead));
  out_.line(3, "KILN_UNROLL for (int step = 0; step < {}; ++step) {{", ahead);
  out_.line(4, "const int slot = base + step;");
  if (rows_.vectors % ahead != 0) out_.line(4, "if (slot >= {}) continue;", rows_.vectors);
  out_.line(4, "const {} vector = {};", index_, slot_vector("slot"));
  skip_missing(4, "slot");
  locate_vector(4);
  from_prefetch_ = true;
  emit_vector(pass, 4, "slot");
  from_prefetch_ = false;
  out_.line(3, "}}");
  out_.line(2, "}}");
}

// Prefetches vectors, from slot `from` + step on. Lanes past the end read the last vector again, as
// in fetch().
void ReductionEmitter::prefetch(int depth, std::string_view from) {
  out_.line(depth, "KILN_UNROLL for (int step = 0; step < {}; ++step) {{", prefetch_distance());
  const std::string slot = fmt::format("{}step", from);
  if (!from.empty()) out_.line(depth + 1, "if ({} >= {}) continue;", slot, rows_.vectors);
  const std::string vector = slot_vector(slot);
  if (is_full()) {
    out_.line(depth + 1, "const {} vector = {};", index_, vector);
  } else {
    out_.line(depth + 1, "const {} vector = least({}, vectors - 1);", index_, vector);
  }
  locate_vector(depth + 1);
  for (const std::size_t i : prefetched_) {
    out_.line(depth + 1, "{}_next[step] = {};", operands_[i].name, load_text(i));
  }
  out_.line(depth, "}}");
}

}  // namespace kiln::fusion
