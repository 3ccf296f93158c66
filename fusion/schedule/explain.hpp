// Explains a layout to people: why a call gets the schedule that it gets, and how fast that should
// be. Nothing here decides anything.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/schedule/layout.hpp"
#include "fusion/schedule/rows/pass_schedule.hpp"

namespace kiln::fusion {

struct OperandReport {
  std::string name;
  std::string access;       ///< "contiguous, 16 bytes at a time"
  std::string reason;       ///< why not a wider access, or why it needs none
  std::uint64_t bytes = 0;  ///< that a launch moves, every element once
};

struct LayoutReport {
  std::vector<std::string> axes;    ///< which were merged, which were not and why
  std::string width;                ///< elements per work item, and why not more
  std::string index;                ///< bits of an index, and why
  std::vector<std::string> passes;  ///< over rows or columns: what each computes, what is on chip
                                    ///< for the next and how it got there
  std::vector<std::string> loops;   ///< of products: how a thread goes through its rows;
                                    ///< elementwise: how operands move
  std::vector<OperandReport> operands;
};

/// `operands` and `names` as given to plan_layout(), and the layout that it planned.
LayoutReport explain(const Dims& shape, std::span<const Operand> operands,
                     std::span<const std::string> names, const Layout& layout);

/// LayoutReport::passes, of a kernel over rows or columns.
std::vector<std::string> explain_passes(const TypedGraph& graph, std::span<const std::string> names,
                                        const PassSchedule& passes);

/// What a launch should cost, for arrays that are larger than every cache:
///   time = max(memory, arithmetic), on GPUs (memory^p + arithmetic^p)^(1/p) with p = 3 without
///     rows, 2 of rows and 1 where blocks keep much of them or clusters share them, where the
///     bytes' copy takes 1,
///   memory = bytes that cross the memory bus / bytes of the operands: an operand whose neighbours
///     are far apart fetches whole sectors (32 bytes on GPUs, lines of 64 on the CPU) for each,
///   arithmetic = operations per byte / operations that the target does while it copies a byte.
struct Estimate {
  double fraction_of_copy = 1;
  double memory = 1;
  double arithmetic = 0;
  double operations = 0;  ///< per element of the output, in multiples of one f32 addition; on the
                          ///< CPU with conversions, and with what passes over a row do again
};
Estimate estimate(const TypedGraph& graph, const Dims& shape, std::span<const Operand> operands,
                  const Layout& layout, std::string_view target);

}  // namespace kiln::fusion
