// What plan_layout() decides for a kernel that works element by element: tiles, which operands lie
// between each other, how many elements a work item has, and rows of which a table is made.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fusion/schedule/merged_axes.hpp"

namespace kiln::fusion {

/// Inputs whose neighbours along the innermost axis are far apart, but lie side by side along
/// another axis, are read through tiles of the two, so that both sides move whole lines of memory.
/// The axis is the one that helps most inputs; what does not fit the tiles' memory stays strided.
void choose_tile(const std::vector<MergedAxis>& axes, std::span<const Operand> operands,
                 const DeviceModel& model, Schedule& schedule);

/// Inputs, or outputs, that lie between each other's elements in one memory: halves of pairs and
/// the like. The first of them is then loaded or stored with all others in it.
void find_interleaved(const std::vector<MergedAxis>& axes, std::span<const Operand> operands,
                      std::span<const std::int64_t> offsets,
                      std::vector<OperandSchedule>& schedules);

/// The elements per work item: a full vector of the narrowest contiguous operand, but no more than
/// the row has, and one where nothing is contiguous, since then a vector saves no access.
int choose_width(std::int64_t inner, std::span<const Operand> operands,
                 const std::vector<OperandSchedule>& schedules, const DeviceModel& model);

/// Where what is stored makes vectors short, a work item handles several, so that it has enough
/// bytes under way. They lie in one row, and those of `threads` neighbours fill it together: a
/// short row is a whole number of these, and the end of a long one, which goes vector by vector, is
/// a small part of it. Eight threads store whole lines, but four with more vectors are better than
/// one vector.
void choose_vectors(std::int64_t inner, std::span<const Operand> operands, const DeviceModel& model,
                    Schedule& schedule);

/// The host computes rows that are functions of packed elements alone once for each of the sixteen
/// values, if there are more elements than that, and looks the results up.
inline constexpr std::int64_t kLeastLookedUp = 32;
bool is_table(std::span<const Operand> operands, const std::vector<OperandSchedule>& schedules);

}  // namespace kiln::fusion
