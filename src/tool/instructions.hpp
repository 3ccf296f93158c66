// Counts of the instructions that move data, read from a disassembly: whether a kernel loads whole
// vectors is the first thing to look at.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln::tool {

struct InstructionCount {
  std::string mnemonic;
  int count = 0;
};

/// The loads and stores of memory in the text of an AMD or NVIDIA disassembler, the most frequent
/// first. Empty for other code.
std::vector<InstructionCount> memory_instructions(std::string_view disassembly);

}  // namespace kiln::tool
