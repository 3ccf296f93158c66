// Why a value cannot join a kernel that has begun: in words, which say why the next kernel begins.
// Which kernel a value is to join is in partition.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fusion/partition/facts.hpp"
#include "fusion/partition/stores.hpp"

namespace kiln::fusion {

class Obstacles {
 public:
  /// `home` has the kernel of each computed value, a position in `groups`, or kNoKernel.
  Obstacles(const PartitionFacts& facts, const CostModel& model,
            const std::vector<std::int64_t>& home, const std::vector<Group>& groups)
      : facts_(facts), model_(model), home_(home), groups_(groups) {}

  /// Why the value cannot join the kernel, one of the groups; empty if it can.
  std::string of(NodeId id, const Group& group) const;
  /// The same of what is read and updated in place, by the value with all `operands`.
  std::string of_update(NodeId id, const std::vector<NodeId>& operands, const Group& group) const;

 private:
  std::string of_bounds(NodeId id, const Group& group) const;
  std::string of_places(NodeId id, const Group& group) const;
  std::string of_running(NodeId id, const Group& group) const;
  bool reads_splits(NodeId id, const Group& group) const;
  bool reads_more_products(NodeId id, const Group& group) const;
  bool packs_rows(NodeId id, const Group& group) const;

  const PartitionFacts& facts_;
  const CostModel& model_;
  const std::vector<std::int64_t>& home_;
  const std::vector<Group>& groups_;
};

}  // namespace kiln::fusion
