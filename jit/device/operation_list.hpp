// A graph's operations, run one by one in the order of the list: what the CPU does for a graph, and
// a GPU when its driver cannot make one.
#pragma once

#include <vector>

#include "jit/device/graph.hpp"

namespace kiln::jit {

class OperationList {
 public:
  /// Throws as check_nodes().
  OperationList(Backend& backend, std::vector<GraphNode> nodes);

  void run(const Stream& stream) const;

  // As PreparedGraph::update.
  void update(std::uint32_t node, const Arguments& arguments);
  void update(std::uint32_t node, const CopyNode& copy);
  void update(std::uint32_t node, const FillNode& fill);

  const std::vector<GraphNode>& nodes() const { return nodes_; }

 private:
  template <class Kind>
  Kind& node_of_kind(std::uint32_t node, const char* kind);

  Backend* backend_;
  std::vector<GraphNode> nodes_;
};

/// A graph that is always run as a list.
std::unique_ptr<PreparedGraph> prepare_list(Backend& backend, std::vector<GraphNode> nodes);

}  // namespace kiln::jit
