// One kernel of a partition as a graph of its own.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fusion/partition/partition.hpp"

namespace kiln::fusion {

struct KernelGraph {
  TypedGraph graph;
  Graph untyped;  ///< `graph` for people: names and text
  std::vector<NodeId>
      arguments;  ///< of `graph`: nodes of the whole graph: leaves, stored values, views
};

/// Something that a kernel stores: a value, in a dtype.
struct Store {
  NodeId value = 0;
  DType dtype = DType::f32;
};

KernelGraph kernel_graph(const PlacedGraph& whole, const KernelPart& part,
                         std::span<const Store> stores);

}  // namespace kiln::fusion
