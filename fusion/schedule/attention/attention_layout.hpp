// Plans the layout of attention: which queries share a block, and how its threads share keys and
// the elements of their rows.
#pragma once

#include <span>

#include "fusion/infer/attention_space.hpp"
#include "fusion/schedule/layout.hpp"

namespace kiln::fusion {

/// Operands as in plan_layout(), with strides over `shape`, which counts in place of the space's. A
/// work item is a part of the keys of one head, for all queries that share them, or as many as
/// registers allow. Queries whose keys end elsewhere, of which `bounds` say so, are in different
/// groups.
SizedLayout plan_attention(const AttentionSpace& space, const Sizes& shape,
                           std::span<const SizedOperand> operands, Backend backend,
                           std::span<const AxisBound> bounds = {});

}  // namespace kiln::fusion
