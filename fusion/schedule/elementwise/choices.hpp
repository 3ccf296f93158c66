// What plan_layout() decides for elementwise kernels: tiles, interleaved operands, vectors, and
// whether results are looked up in a table.
#pragma once

#include <cstdint>
#include <span>

#include "fusion/schedule/merged_axes.hpp"

namespace kiln::fusion {

/// Inputs that are strided along the innermost axis but contiguous along another one are read
/// through tiles of the two axes, so that both sides access whole cache lines. Chooses the axis
/// that helps most inputs; what does not fit the shared memory for tiles stays strided.
void choose_tile(const ScratchVector<MergedAxis>& axes, std::span<const Operand> operands,
                 const DeviceModel& model, Schedule& schedule);

/// Finds inputs, or outputs, that are interleaved in one memory, such as the two halves of pairs.
/// One vector then loads or stores the elements of all of them.
void find_interleaved(const ScratchVector<MergedAxis>& axes, std::span<const Operand> operands,
                      std::span<const std::int64_t> offsets,
                      ScratchVector<OperandSchedule>& schedules);

/// Elements per work item: a full vector of the narrowest contiguous operand, at most a row, and
/// one where nothing is contiguous, since a vector would save no access.
int choose_width(std::int64_t inner, std::span<const Operand> operands,
                 const ScratchVector<OperandSchedule>& schedules, const DeviceModel& model);

/// Gives a work item several vectors where outputs keep vectors short, so that it has enough bytes
/// in flight. The vectors of `threads` neighbours fill part of one row together: a short row is a
/// multiple of that, and the end of a long row, which goes vector by vector, is a small fraction of
/// it. Eight threads store whole cache lines, but four with more vectors are better than one
/// vector.
void choose_vectors(std::int64_t inner, std::span<const Operand> operands, const DeviceModel& model,
                    Schedule& schedule);

/// On the CPU: rows that depend on one packed input alone are computed once for each of its sixteen
/// values and looked up, if they have more elements than that.
inline constexpr std::int64_t kLeastLookedUp = 32;
bool is_table(std::span<const Operand> operands, const ScratchVector<OperandSchedule>& schedules);

}  // namespace kiln::fusion
