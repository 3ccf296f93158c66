// The passes over rows that a kernel takes while it grows: a value is known after as many passes as
// reductions stand before it, and every pass computes from the kernel's arrays what its reductions
// need. What a cut would take instead is compared with that here; where values go is in
// partition.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fusion/partition/facts.hpp"
#include "fusion/partition/stores.hpp"

namespace kiln::fusion {

class RowPasses {
 public:
  /// `home` has the kernel of each computed value, or kNoKernel. Adds to `steps` the number of
  /// values that it looks at.
  RowPasses(const PartitionFacts& facts, const CostModel& model, std::span<const std::int64_t> home,
            std::uint64_t& steps);

  /// Whether kernel `place`, with a value more, would take longer for what its passes compute again
  /// than for everything once and for storing and reading what the value is computed from. As much
  /// as it computes once is free: kernels keep what costs most (ReductionEmitter::keep_functions).
  /// So no kernel computes more than that, whatever its length.
  bool recomputes_too_much(NodeId id, std::int64_t place, const Group& group);

  /// After the value has joined the kernel.
  void add(NodeId id, std::int64_t place, Group& group);

 private:
  bool is_of_row(NodeId id, const Group& group) const;
  int pass_of(NodeId id, std::int64_t place) const;
  bool is_computed_in(NodeId id, int pass) const;
  template <class Visit>
  void for_each_new(NodeId from, int pass, std::int64_t place, const Group& group,
                    const Visit& visit);
  double bytes_of_cut(NodeId id, std::int64_t place, const Group& group) const;

  const PartitionFacts& facts_;
  const CostModel& model_;
  std::span<const std::int64_t> home_;
  std::vector<int> after_;                ///< as many passes is a value known
  std::vector<std::vector<int>> passes_;  ///< whose reductions a value is computed for
  std::vector<std::uint32_t> visited_;    ///< by which walk a value was seen last
  std::uint32_t walk_ = 0;
  std::uint64_t* steps_;
};

}  // namespace kiln::fusion
