// What is on its way before its turn: weights that the last pass alone reads and that registers
// have no room for, and rows that are copied into shared memory. The passes themselves are in
// passes.cpp.
#include <fmt/format.h>

#include <algorithm>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/rows/reduction_emitter.hpp"

namespace kiln::fusion {
namespace {

// Vectors; more where rows are copied past the registers.
constexpr int kAhead = 2;
constexpr int kAheadOfCopies = 4;

}  // namespace

// Rows of which every thread has many vectors leave no room for weights, which come from the second
// cache: those of the last pass are asked for before the first one, two vectors at a time, and go
// on two vectors ahead of what is stored. Layer_norm of 32,768 bf16, f16 and f32 goes from 0.89,
// 0.86 and 0.89 of a copy on an H200 to 0.93, 0.95 and 0.96.
void ReductionEmitter::choose_ahead() {
  constexpr int kManyVectors = 8;
  constexpr int kMostThreads = 512;
  constexpr int kWide = 8;
  if (schedule_.backend != Backend::nvidia || rows_.vectors < kManyVectors || rows_.columns != 0)
    return;
  if ((in_cluster() && rows_.vectors <= kManyVectors) || is_shifted() || last_pass_ == 0) return;
  if (rows_.block() > kMostThreads && schedule_.width >= kWide) return;  // no registers are left
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const OperandText& operand = operands_[i];
    if (operand.output || operand.row_invariant || operand.in_registers ||
        !is_read(operand, last_pass_))
      continue;
    if (!is_weight(i)) return ahead_.clear();
    ahead_.push_back(i);
  }
}

bool ReductionEmitter::is_weight(std::size_t operand) const {
  return schedule_.operands[operand].outer_axes == 0;
}

// A row of which shared memory has all goes there past the registers, which are left to weights,
// and is worked on as it arrives: layer_norm of 32,768 bf16 and f16 goes from 0.94 and 0.945 of a
// copy on an H200 to 0.955 and 0.96.
bool ReductionEmitter::copies_rows() const {
  constexpr int kCopied = 16;
  if (!has_stored() || ahead_.empty() || in_registers() != 0 || !is_full()) return false;
  int copied = 0;
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!operands_[i].in_smem) continue;
    const OperandSchedule& schedule = schedule_.operands[i];
    if (schedule.unaligned || schedule.access != Access::contiguous ||
        schedule.alignment != kCopied || vector_bytes(operands_[i]) != kCopied) {
      return false;
    }
    ++copied;
  }
  return copied == 1;
}

// The first pass over all that is copied, two vectors at a time.
void ReductionEmitter::emit_arriving(int pass) {
  constexpr int kTogether = 2;
  for (int from = 0; from < rows_.vectors; from += kTogether) {
    const int to = std::min(from + kTogether, rows_.vectors);
    out_.line(2, "await_copies<{}>();", rows_.vectors - to);
    emit_slots(pass, from, to, "KILN_UNROLL");
  }
  copying_ = false;
}

int ReductionEmitter::count_ahead() const { return copies_rows() ? kAheadOfCopies : kAhead; }

// The first of them, before the first pass.
void ReductionEmitter::begin_ahead() {
  if (ahead_.empty()) return;
  for (const std::size_t i : ahead_) {
    out_.line(2, "Vec<{}, {}> {}_next[{}];", storage_type(operands_[i].dtype), schedule_.width,
              operands_[i].name, count_ahead());
  }
  fetch_ahead(2, "");
}

// The last pass, where what it alone reads is on its way before its turn.
void ReductionEmitter::emit_ahead(int pass) {
  const int ahead = count_ahead();
  if (copying_) out_.line(2, "await_copies<0>();");
  copying_ = false;
  out_.line(2, "KILN_UNROLL for (int held = 0; held < {}; held += {}) {{", rows_.vectors, ahead);
  for (const std::size_t i : ahead_) {
    out_.line(3, "Vec<{0}, {1}> {2}_batch[{3}];", storage_type(operands_[i].dtype), schedule_.width,
              operands_[i].name, count_ahead());
  }
  out_.line(3, "KILN_UNROLL for (int step = 0; step < {}; ++step) {{", ahead);
  for (const std::size_t i : ahead_) {
    out_.line(4, "{0}_batch[step] = {0}_next[step];", operands_[i].name);
  }
  out_.line(3, "}}");
  fetch_ahead(3, fmt::format("held + {} + ", ahead));
  out_.line(3, "KILN_UNROLL for (int step = 0; step < {}; ++step) {{", ahead);
  out_.line(4, "const int slot = held + step;");
  if (rows_.vectors % ahead != 0) out_.line(4, "if (slot >= {}) continue;", rows_.vectors);
  out_.line(4, "const {0} vector = {0}(slot) * {1} + thread;", index_, rows_.threads);
  skip_missing(4, "slot");
  place_vector(4);
  taken_ahead_ = true;
  emit_vector(pass, 4, "slot");
  taken_ahead_ = false;
  out_.line(3, "}}");
  out_.line(2, "}}");
}

// From the slot whose text is followed by the step. Lanes past the end read the last vector again,
// as in fetch().
void ReductionEmitter::fetch_ahead(int depth, std::string_view from) {
  out_.line(depth, "KILN_UNROLL for (int step = 0; step < {}; ++step) {{", count_ahead());
  const std::string slot = fmt::format("{}step", from);
  if (!from.empty()) out_.line(depth + 1, "if ({} >= {}) continue;", slot, rows_.vectors);
  const std::string vector = fmt::format("{}({}) * {} + thread", index_, slot, rows_.threads);
  if (is_full()) {
    out_.line(depth + 1, "const {} vector = {};", index_, vector);
  } else {
    out_.line(depth + 1, "const {} vector = least({}, vectors - 1);", index_, vector);
  }
  place_vector(depth + 1);
  for (const std::size_t i : ahead_) {
    out_.line(depth + 1, "{}_next[step] = {};", operands_[i].name, load_text(i));
  }
  out_.line(depth, "}}");
}

}  // namespace kiln::fusion
