// Operands of vector instructions as lanes, and their results back: modifiers, SDWA, DPP, halves,
// the mask of active lanes, and which lanes hold nothing that anybody has written.
#pragma once

#include "tests/amd/isa/numbers.hpp"
#include "tests/amd/isa/wave.hpp"

namespace kiln::amd {

/// What an operand is read as: it decides what a constant is and where a modifier acts.
enum class Width : std::uint8_t { half, word, pair };

inline const Operand& source(const Operation& op, int index) {
  return op.operands[op.first_source + static_cast<std::size_t>(index)];
}

/// The lanes of 16 or 32 bits of a source: the register itself, or `lanes` filled. 16 bits are in
/// the low half; what is above them is of no meaning. `unset` gains the lanes that are not written.
const std::uint32_t* read_words(const Wave& wave, const Operation& op, int index, Width width,
                                std::uint32_t* lanes, std::uint64_t& unset);
const std::uint64_t* read_pairs(const Wave& wave, const Operation& op, int index,
                                std::uint64_t* lanes, std::uint64_t& unset);
/// One half of a packed operand: `high` as op_sel or op_sel_hi say.
void read_halves(const Wave& wave, const Operation& op, int index, bool high, std::uint32_t* lanes,
                 std::uint64_t& unset);

/// The lanes that the operation writes.
std::uint64_t enabled(const Wave& wave, const Operation& op);

/// Each stores to operand `index`, in the enabled lanes. Of the lanes in `unset` the result is
/// unwritten, altogether or in these bits.
void write_words(Wave& wave, const Operation& op, std::size_t index, const std::uint32_t* lanes,
                 std::uint64_t unset, const std::uint32_t* bits = nullptr);
void write_halves(Wave& wave, const Operation& op, std::size_t index, const std::uint32_t* lanes,
                  std::uint64_t unset, const std::uint32_t* bits = nullptr);
void write_pairs(Wave& wave, const Operation& op, std::size_t index, const std::uint64_t* lanes,
                 std::uint64_t unset_low_word, std::uint64_t unset_high_word);
/// Words whose halves are unset apart.
void write_register(Wave& wave, int index, std::uint64_t active, const std::uint32_t* lanes,
                    std::uint64_t unset_low, std::uint64_t unset_high);

/// Of one lane: ones in the bits of a 32-bit operand that nobody has written.
std::uint32_t unset_bits(const Wave& wave, const Operand& operand, int lane);
/// Of what an operation reads of its source, which may be a byte or a half of it.
std::uint32_t unset_bits(const Wave& wave, const Operation& op, int index, Width width, int lane);

/// The lanes of which the low word of a 64-bit source is not written: compilers fill in that word
/// alone where nobody looks at the upper half of the result.
std::uint64_t unset_low_word(const Wave& wave, const Operation& op, int index);

/// What a constant or a scalar operand is. `unset` becomes true if it holds unwritten bits.
std::uint32_t scalar_word(const Wave& wave, const Operand& operand, Width width, bool& unset);
std::uint64_t scalar_pair(const Wave& wave, const Operand& operand, bool& unset);

}  // namespace kiln::amd
