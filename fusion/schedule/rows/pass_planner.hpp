// Makes a PassSchedule, step by step: pass_planner.cpp finds what each pass needs,
// cached_values.cpp what is cached for later ones, pass_memory.cpp how operands get on chip, and
// pass_sums.cpp how sums are combined.
#pragma once

#include <optional>
#include <vector>

#include "fusion/schedule/node_methods.hpp"
#include "fusion/schedule/rows/pass_schedule.hpp"

namespace kiln::fusion {

class PassPlanner {
 public:
  PassPlanner(const TypedGraph& graph, const Schedule& schedule, Accuracy accuracy);
  PassSchedule run();

 private:
  using Ids = PassSchedule::Ids;

  // pass_planner.cpp
  void find_operands();
  void store_unrounded(std::size_t operand);
  bool converts_vectors(std::size_t operand) const;
  bool converts_in_blocks(std::size_t operand) const;
  void order_passes();
  void find_quotients();
  void choose_next_prefetched();
  int row_group() const;

  // cached_values.cpp
  void find_needed();
  void walk_passes(const std::vector<bool>& has_room);
  int most_cached() const;
  bool is_worth_caching(std::size_t id) const;
  bool saves_in_place(std::size_t id) const;
  std::optional<std::size_t> place_cached();

  // pass_memory.cpp
  void choose_memory();
  void choose_smem();
  bool gives_place(std::size_t operand) const;
  void choose_prefetched();
  bool can_copy(std::size_t operand) const;
  bool copies_async() const;
  int accumulators() const;
  int min_blocks() const;
  int most_blocks() const;
  bool loads_words() const;

  // pass_sums.cpp
  void find_sums();
  bool sums_in_pairs(int pass) const;

  bool is_weight(std::size_t operand) const {
    return schedule_.operands[operand].outer_axes == 0 && !is_indexed(operand);
  }
  bool is_indexed(std::size_t operand) const {
    return schedule_.operands[operand].indexing != Indexing::none;
  }
  std::uint32_t first_reduced() const {
    return static_cast<std::uint32_t>(schedule_.rank - rows_.axes - (rows_.columns == 0 ? 0 : 1));
  }

  const TypedGraph& graph_;
  const Schedule& schedule_;
  const RowSchedule& rows_;
  const Accuracy accuracy_;
  const NodeMethods methods_;
  PassSchedule passes_;
};

}  // namespace kiln::fusion
