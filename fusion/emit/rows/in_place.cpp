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

// Before the lanes of a vector in shared memory: the values that an earlier pass left there, and
// room for those of this pass.
void ReductionEmitter::open_cached(int pass, int depth) {
  if (!is_in_smem()) return;
  for (const std::size_t id : needed_in(pass)) {
    if (!passes_.has_place(id)) continue;
    const std::string& name = names_[id];
    out_.line(depth, "Vec<f32, {}> {}_kept;", schedule_.width, name);
    if (passes_.cached_in[id] == pass) continue;
    if (from_prefetch_ && rows_.register_vectors() != 0) {
      out_.line(depth, "if (slot < {0}) {1}_kept = {1}_cached[slot < {0} ? slot : 0];",
                rows_.register_vectors(), name);
      out_.line(depth, "if (slot >= {}) {{", rows_.register_vectors());
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
    if (passes_.has_place(id) && passes_.cached_in[id] == pass)
      move_cached(id, depth, "store_part");
  }
}

// Loads or stores a vector of a value, in as many parts as it has places.
void ReductionEmitter::move_cached(std::size_t id, int depth, std::string_view move) {
  int from = 0;
  for (const std::size_t i : passes_.places[id]) {
    const int lanes = std::min(passes_.vector_bytes(operands_[i]) / kBytes, schedule_.width - from);
    out_.line(depth, "{}<{}, {}>({}_kept, {}_smem + {});", move, from, lanes, names_[id],
              operands_[i].name, smem_offset());
    from += lanes;
  }
}

}  // namespace kiln::fusion
