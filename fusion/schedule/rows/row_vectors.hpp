// How rows are cut into vectors: how wide these are, and where they lie in rows that are not
// aligned.
#pragma once

#include <span>

#include "fusion/schedule/merged_axes.hpp"

namespace kiln::fusion {

/// The elements of all of these axes.
Size product(std::span<const MergedAxis> axes);

/// For short rows, and few columns, the CPU adds no more elements side by side than there are.
inline constexpr int kLeastLanes = 8;

/// Elements in a vector of the narrowest operand; of rows that are not short, on NVIDIA GPUs, of
/// the narrowest one that is read, since wider ones take more registers than stores of whole
/// vectors are worth: maximum, and quotient as i8, of 14,336 f32 go from 0.65 of a copy to 1.06
/// with four elements instead of sixteen, of 5,120 bf16 from 0.80 to 0.94. Of a row, row-invariant
/// operands have one register, not one for each element; of columns they have vectors too, which
/// are stored once. On the CPU vectors are of a row of `length` elements, whatever axes these are
/// of: if that leaves many elements, each has those of one segment, and others are copied
/// (preamble/host_segments.h).
int full_width(const MergedAxis& inner, Size length, std::span<const SizedOperand> operands,
               const ScratchVector<bool>& row_invariant, bool by_columns, Backend backend);

/// Whether rows have elements a step apart, as halves of pairs, of which neighbouring threads then
/// take neighbours one by one: norm and rotation of pairs of 256 f16 go from 0.61 of a copy
/// to 1.03. Of longer rows threads would not keep all elements, each of which takes a register.
bool has_steps(const MergedAxis& inner, std::span<const SizedOperand> operands,
               const ScratchVector<bool>& row_invariant);

/// Bytes to which all vectors of an aligned operand are aligned.
int vector_alignment(const SizedOperand& operand, int width);

/// Whether load_unaligned() (preamble/strides.h) supports the operand.
bool has_words(const SizedOperand& operand, int width);

/// Whether `a` is aligned wherever vectors of `b` begin, if nothing but their offsets from
/// multiples of 16 bytes is known.
bool in_phase(const SizedOperand& a, const SizedOperand& b, const ScratchVector<MergedAxis>& axes,
              std::size_t i, std::size_t k, int width);

/// The operand whose aligned vectors are read: the leading one, or if its vectors are wider than 16
/// bytes, beyond which alignment is unknown, another one. -1: rows are aligned.
int phase_operand(const ScratchVector<MergedAxis>& axes, std::span<const SizedOperand> operands,
                  const ScratchVector<bool>& row_invariant, std::size_t leading, int width);

/// The distance between rows that are misaligned by the same number of elements.
int equal_phase_step(const SizedOperand& operand, const MergedAxis& axis, std::size_t index,
                     int width);

}  // namespace kiln::fusion
