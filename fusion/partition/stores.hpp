// What of a partition is stored: of the values of each kernel those that others need, unless
// computing them again costs less. Where values are computed is decided before, in partition.cpp.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "fusion/partition/facts.hpp"

namespace kiln::fusion {

inline constexpr std::int64_t kNoKernel = -1;

/// A kernel while it grows.
struct Group {
  Dims shape;
  std::vector<bool> reduced;
  std::vector<BoundedAxis> bounds;  ///< of all values, but of axes that have been reduced
  std::int64_t splits = 1;          ///< of each row
  std::size_t values = 0;
  std::size_t reductions = 0;  ///< of those
  std::unordered_set<NodeId> arrays;
  std::string reason;
  bool has_iota = false;               ///< reads one, as random numbers do
  bool packs = false;                  ///< stores packed numbers
  bool alone = false;                  ///< nothing joins what it began with
  std::vector<NodeId> places{};        ///< values that say where take reads and put writes
  std::unordered_set<NodeId> updates;  ///< arguments that put updates
  std::size_t running = 0;             ///< the axis of running results, from 1; 0: there are none
  std::optional<std::size_t> call;
  bool attention = false;  ///< is one attention (infer/attention_space.hpp), which nothing joins
  int passes = 1;          ///< over each row
  double once = 0;         ///< operations on an element, of values that are not one for each row
  double again = 0;        ///< operations on an element that passes after the first compute again

  Dims row_shape() const {
    Dims result = shape;
    for (std::size_t k = 0; k < reduced.size(); ++k) {
      if (reduced[k]) result[k] = 1;
    }
    return result;
  }
};

/// Whether a kernel that reads that array, in one pass over rows, may be one of products: of packed
/// numbers, or with what rows share.
bool is_of_products(const PartitionFacts& facts, const Group& group, NodeId array);

/// What a kernel stores, what it computes for that and reads of arguments, operands first, and what
/// it reads of other kernels.
struct StoredValues {
  std::vector<NodeId> results;
  std::vector<NodeId> values;
  std::set<NodeId> reads;
};

/// For each kernel. `home` has the kernel of each computed value, or kNoKernel. Adds to `steps` the
/// number of values that it looks at.
std::vector<StoredValues> stored_values(const PartitionFacts& facts, const CostModel& model,
                                        std::span<const std::int64_t> home,
                                        std::span<const Group> kernels, std::uint64_t& steps);

}  // namespace kiln::fusion
