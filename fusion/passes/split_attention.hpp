// Attention over many keys: few heads would leave most of a device idle, so the keys are cut into
// parts, each with its own largest score, sum of weights and weighted sum, and a second kernel
// combines those. In how many parts depends on the number of keys alone, and they are combined in
// one order, so that a result has the same bits on every run and in every batch.
#pragma once

#include "fusion/passes/passes.hpp"

namespace kiln::fusion {

/// The results of an attention (infer/attention_space.hpp) whose keys are split keep the keys'
/// axis, with one element for each part: their shape tells them from others. What joins them is an
/// ordinary reduction over that axis. `graph` has no trivial reductions (infer/reduce_space.hpp).
ShapedGraph split_attention(const ShapedGraph& graph);

}  // namespace kiln::fusion
