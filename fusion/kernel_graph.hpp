// One kernel of a partition as a graph of its own, and where the temporaries between kernels lie.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fusion/partition.hpp"

namespace kiln::fusion {

struct KernelGraph {
  TypedGraph graph;
  Graph untyped;  ///< the same for people: names and text
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

/// A temporary is written by kernel `first` and read for the last time by kernel `last`.
struct Lifetime {
  std::uint64_t bytes = 0;
  std::size_t first = 0;
  std::size_t last = 0;
};

struct Workspace {
  std::vector<std::uint64_t> offsets;  ///< of each temporary, multiples of 256
  std::uint64_t bytes = 0;
};

/// Temporaries that live at the same time lie apart. The lowest free place is taken, in the order
/// in which they are written or by their size, whichever takes less.
Workspace plan_workspace(std::span<const Lifetime> lifetimes);

}  // namespace kiln::fusion
