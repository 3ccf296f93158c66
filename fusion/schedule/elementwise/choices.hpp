// What plan_layout() decides for elementwise kernels: tiles, interleaved operands, vectors, and
// whether results are looked up in a table.
#pragma once

#include <cstdint>
#include <span>

#include "fusion/schedule/merged_axes.hpp"

namespace kiln::fusion {

/// Inputs that are strided along the innermost axis but contiguous along another one are read
/// through tiles of the two axes, so that both sides access whole cache lines. Chooses the axis
/// that helps most inputs, and the tile's shape from both extents; what does not fit the shared
/// memory for tiles stays strided.
void choose_tile(const ScratchVector<MergedAxis>& axes, std::span<const SizedOperand> operands,
                 const DeviceModel& model, Schedule& schedule);

/// Finds inputs, or outputs, that are interleaved in one memory, such as the two halves of pairs.
/// One vector then loads or stores the elements of all of them.
void find_interleaved(const ScratchVector<MergedAxis>& axes, std::span<const SizedOperand> operands,
                      std::span<const Size> offsets, ScratchVector<OperandSchedule>& schedules);

/// Elements per work item: a full vector of the narrowest contiguous operand, at most a row, and
/// one where nothing is contiguous, since a vector would save no access.
int choose_width(Size inner, std::span<const SizedOperand> operands,
                 const ScratchVector<OperandSchedule>& schedules, const DeviceModel& model);

/// Gives a work item several vectors where outputs keep vectors short, so that it has enough bytes
/// in flight. The vectors of `threads` neighbours fill part of one row together: a short row is a
/// multiple of that, and the end of a long row, which goes vector by vector, is a small fraction of
/// it. Eight threads store whole cache lines, but four with more vectors are better than one
/// vector.
void choose_vectors(Size inner, std::span<const SizedOperand> operands, const DeviceModel& model,
                    Schedule& schedule);

/// The most neighbours along the innermost axis, up to the schedule's width, that are aligned in
/// every operand, or every output, that has an element for each of the space.
int aligned_elements(const ScratchVector<MergedAxis>& axes, std::span<const SizedOperand> operands,
                     std::span<const Size> offsets, const Schedule& schedule,
                     bool outputs_only = false);

/// The axes but for two: that of tiles' rows and the innermost one.
ScratchVector<MergedAxis> axes_beside(const ScratchVector<MergedAxis>& axes, std::size_t tile_axis);

/// For GPUs: gives tiles vectors that are aligned along the innermost axis. Where narrow outputs
/// are not, but are one run along both axes of the tiles, of which a tile has whole rows, they are
/// stored in whole vectors, in which rows end; what lies otherwise has an address for each element.
void choose_tile_vectors(const ScratchVector<MergedAxis>& axes,
                         std::span<const SizedOperand> operands, std::span<const Size> offsets,
                         Schedule& schedule);

/// For GPUs, with tiles: which operands a block loads before its threads meet, as far as registers
/// go. And how many blocks an NVIDIA multiprocessor must have room for: two, or three where a block
/// loads one operand alone by then, so that enough bytes are in flight.
void choose_preloaded(std::span<const SizedOperand> operands, const DeviceModel& model,
                      Schedule& schedule);

/// For GPUs: where a vector of an output is less aligned than it is long, a work item gets shorter
/// ones, each of them aligned, that lie as far apart as `threads` neighbours fill with theirs: each
/// access of these then reads or writes whole cache lines, and as many bytes are in flight. If rows
/// are too short for that, or for one vector, elements are counted over all axes. So they are where
/// narrow outputs are one run, which is stored in whole vectors: then elements of one vector are of
/// several rows, and each has an address of its own. Whether it did.
bool choose_interleaved_vectors(const ScratchVector<MergedAxis>& axes,
                                std::span<const SizedOperand> operands,
                                std::span<const Size> offsets, const DeviceModel& model,
                                Schedule& schedule);

/// On the CPU: rows that depend on one packed input alone are computed once for each of its sixteen
/// values and looked up, if they have more elements than that.
inline constexpr std::int64_t kLeastLookedUp = 32;
bool is_table(std::span<const SizedOperand> operands,
              const ScratchVector<OperandSchedule>& schedules);

}  // namespace kiln::fusion
