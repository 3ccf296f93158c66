// Prefetching: weights that only the last pass reads and that registers have no room for, and rows
// that are copied to shared memory asynchronously. passes.cpp has the passes.
#include <fmt/format.h>

#include <algorithm>

#include "fusion/emit/device_text.hpp"
#include "fusion/emit/rows/reduction_emitter.hpp"

namespace kiln::fusion {

// The first pass over a row that is being copied, some vectors at a time.
void ReductionEmitter::emit_arriving(int pass) {
  const int together = passes_.copies_together;
  for (int from = std::max(kept_from_, rows_.register_vectors()); from < kept_to_;
       from += together) {
    const int to = std::min(from + together, kept_to_);
    out_.line(2, "wait_copies<{}>();", rows_.vectors - to);
    emit_slots(pass, from, to, "KILN_UNROLL");
  }
  copies_pending_ = kept_to_ != rows_.vectors;
}

// Starts prefetching, before the first pass.
void ReductionEmitter::begin_prefetch() {
  if (passes_.prefetched.empty()) return;
  for (const std::size_t i : passes_.prefetched) {
    out_.line(2, "Vec<{}, {}> {}_next[{}];", storage_type(operands_[i].dtype), schedule_.width,
              operands_[i].name, passes_.prefetch_distance);
  }
  prefetch(2, "");
}

// The last pass, with prefetched operands.
void ReductionEmitter::emit_prefetched(int pass) {
  const int ahead = passes_.prefetch_distance;
  if (copies_pending_) out_.line(2, "wait_copies<0>();");
  copies_pending_ = false;
  out_.line(2, "KILN_UNROLL for (int base = 0; base < {}; base += {}) {{", rows_.vectors, ahead);
  for (const std::size_t i : passes_.prefetched) {
    out_.line(3, "Vec<{0}, {1}> {2}_batch[{3}];", storage_type(operands_[i].dtype), schedule_.width,
              operands_[i].name, passes_.prefetch_distance);
  }
  out_.line(3, "KILN_UNROLL for (int step = 0; step < {}; ++step) {{", ahead);
  for (const std::size_t i : passes_.prefetched) {
    out_.line(4, "{0}_batch[step] = {0}_next[step];", operands_[i].name);
  }
  out_.line(3, "}}");
  prefetch(3, fmt::format("base + {} + ", ahead));
  out_.line(3, "KILN_UNROLL for (int step = 0; step < {}; ++step) {{", ahead);
  out_.line(4, "const int slot = base + step;");
  if (rows_.vectors % ahead != 0) out_.line(4, "if (slot >= {}) continue;", rows_.vectors);
  find_vector(4, slot_vector("slot"), "slot");
  locate_vector(4);
  from_prefetch_ = true;
  emit_vector(pass, 4, "slot");
  from_prefetch_ = false;
  may_miss_ = false;
  out_.line(3, "}}");
  out_.line(2, "}}");
}

// Prefetches vectors, from slot `from` + step on. Lanes past the end read the last vector again, as
// in fetch().
void ReductionEmitter::prefetch(int depth, std::string_view from) {
  out_.line(depth, "KILN_UNROLL for (int step = 0; step < {}; ++step) {{",
            passes_.prefetch_distance);
  const std::string slot = fmt::format("{}step", from);
  if (!from.empty()) out_.line(depth + 1, "if ({} >= {}) continue;", slot, rows_.vectors);
  const std::string vector = slot_vector(slot);
  if (rows_.is_full()) {
    out_.line(depth + 1, "const {} vector = {};", index_, vector);
  } else {
    out_.line(depth + 1, "const {} vector = least({}, vectors - 1);", index_, vector);
  }
  locate_vector(depth + 1);
  for (const std::size_t i : passes_.prefetched) {
    out_.line(depth + 1, "{}_next[step] = {};", operands_[i].name, load_text(i));
  }
  out_.line(depth, "}}");
}

}  // namespace kiln::fusion
