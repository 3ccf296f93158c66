#include "tool/instructions.hpp"

#include <algorithm>
#include <map>

namespace kiln::tool {
namespace {

// AMD: global_load_dwordx4, buffer_store_b128, flat_, scratch_, ds_read_b128. NVIDIA: LDG.E.128,
// STG.E.128, LDL, STL, LDS, STS.
bool moves_data(std::string_view word) {
  for (const std::string_view prefix : {"global_", "buffer_", "flat_", "scratch_"}) {
    if (word.starts_with(prefix)) {
      return word.find("load") != word.npos || word.find("store") != word.npos;
    }
  }
  for (const std::string_view prefix : {"ds_read", "ds_write", "ds_load", "ds_store"}) {
    if (word.starts_with(prefix)) return true;
  }
  for (const std::string_view prefix : {"LDG", "STG", "LDL", "STL", "LDS", "STS"}) {
    if (word == prefix || (word.starts_with(prefix) && word[prefix.size()] == '.')) return true;
  }
  return false;
}

}  // namespace

std::vector<InstructionCount> memory_instructions(std::string_view disassembly) {
  constexpr std::string_view kSeparators = " \t\r\n;,(){}";
  std::map<std::string, int, std::less<>> counts;
  for (std::size_t at = 0; at < disassembly.size();) {
    const std::size_t begin = disassembly.find_first_not_of(kSeparators, at);
    if (begin == disassembly.npos) break;
    const std::size_t end =
        std::min(disassembly.find_first_of(kSeparators, begin), disassembly.size());
    const std::string_view word = disassembly.substr(begin, end - begin);
    if (moves_data(word)) ++counts[std::string(word)];
    at = end;
  }
  std::vector<InstructionCount> result;
  for (const auto& [mnemonic, count] : counts) result.push_back({mnemonic, count});
  std::stable_sort(
      result.begin(), result.end(),
      [](const InstructionCount& a, const InstructionCount& b) { return a.count > b.count; });
  return result;
}

}  // namespace kiln::tool
