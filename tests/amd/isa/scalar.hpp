// What scalar instructions have in common: operands with their unwritten bits, and the table that
// scalar.cpp fills with arithmetic and flow.cpp with branches, waits and barriers.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "tests/amd/isa/lanewise.hpp"
#include "tests/amd/isa/wave.hpp"

namespace kiln::amd {

/// A scalar operand: its value, and ones in the bits that nobody has written.
struct Word {
  u64 value = 0;
  u64 unset = 0;
};

Word read_scalar(const Wave& wave, const Operand& operand, bool wide);
/// Refuses an EXEC of which a part is unwritten.
void write_scalar(Wave& wave, const Operand& operand, Word word, bool wide);
void refuse_unset_exec(const Wave& wave, u64 unset);

struct ScalarEntry {
  Execute execute = nullptr;
  u32 variant = 0;
  std::uint8_t destinations = 1;
  std::uint8_t operands = 3;
  bool is_short = false;  ///< the last operand is 16 bits, signed
  bool is_short_unsigned = false;
  bool accumulates = false;  ///< the destination is the first source
};

using ScalarTable = std::unordered_map<std::string, ScalarEntry>;

void add_flow(ScalarTable& entries);
/// s_waitcnt and its kin, and changes of modes that change nothing.
bool translate_wait(const Instruction& instruction, Operation& op);

}  // namespace kiln::amd
