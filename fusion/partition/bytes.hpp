// What a partition moves: bytes of each kernel, against one kernel for each operation and against
// the least that any would have to. For the cost model and for people.
#pragma once

#include "fusion/partition/partition.hpp"

namespace kiln::fusion {

/// Fills in the bytes of `partition` and of its kernels.
void count_bytes(const PlacedGraph& graph, Partition& partition);

}  // namespace kiln::fusion
