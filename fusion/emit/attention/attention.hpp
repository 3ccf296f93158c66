// The text of kernels of attention.
#pragma once

#include "fusion/emit/emit.hpp"
#include "fusion/infer/attention_space.hpp"

namespace kiln::fusion {

/// `schedule` is of plan_attention(), `space` of the graph.
KernelDescription emit_attention(const TypedGraph& graph, const AttentionSpace& space,
                                 const Schedule& schedule, Accuracy accuracy);

}  // namespace kiln::fusion
