// See comgr.hpp. Instruction by instruction, because the numbers of comgr's whole-file actions
// changed between its releases 2 and 3.
#include "jit/compilers/comgr.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/elf.hpp"
#include "jit/compilers/compiler.hpp"
#include "jit/compilers/symbols.hpp"

namespace kiln::jit {
namespace {

struct DisassemblyInfo {
  std::uint64_t handle;
};

// The one piece of state that comgr hands back to the callbacks.
struct Cursor {
  std::string_view text;      // of the section
  std::uint64_t address = 0;  // of its first byte
  std::string instruction;
};

std::uint64_t read_memory(std::uint64_t from, char* to, std::uint64_t size, void* user) {
  const Cursor& cursor = *static_cast<const Cursor*>(user);
  if (from < cursor.address || from - cursor.address >= cursor.text.size()) return 0;
  const std::uint64_t offset = from - cursor.address;
  const std::uint64_t count = std::min<std::uint64_t>(size, cursor.text.size() - offset);
  std::memcpy(to, cursor.text.data() + offset, count);
  return count;
}

void print_instruction(const char* instruction, void* user) {
  static_cast<Cursor*>(user)->instruction = instruction;
}

void print_address(std::uint64_t address, void* user) {
  static_cast<Cursor*>(user)->instruction += fmt::format("  // {:#x}", address);
}

class Disassembler {
 public:
  Disassembler(const std::string& comgr, const std::string& target) {
    const base::DynamicLibrary library = load_library(comgr);
    create_ = find_symbol<Create>(library, "amd_comgr_create_disassembly_info", comgr);
    destroy_ = find_symbol<Destroy>(library, "amd_comgr_destroy_disassembly_info", comgr);
    one_ = find_symbol<One>(library, "amd_comgr_disassemble_instruction", comgr);
    const std::string isa = "amdgcn-amd-amdhsa--" + target;
    if (create_(isa.c_str(), read_memory, print_instruction, print_address, &info_) != 0) {
      throw CompilerError(Code::unsupported, fmt::format("{} does not know {}", comgr, isa), "");
    }
  }
  ~Disassembler() { destroy_(info_); }
  Disassembler(const Disassembler&) = delete;
  Disassembler& operator=(const Disassembler&) = delete;

  // `symbol` lies in the cursor's section.
  void function(const base::ElfSymbol& symbol, Cursor& cursor, std::string& text) const {
    text += fmt::format("{}:\n", symbol.name);
    const std::uint64_t end = symbol.value + symbol.size;
    for (std::uint64_t at = symbol.value; at < end;) {
      std::uint64_t size = 0;
      cursor.instruction.clear();
      if (one_(info_, at, &cursor, &size) != 0 || size == 0) {
        size = 4;  // every instruction is a multiple of this
        cursor.instruction = "\t<not an instruction>";
      }
      text += fmt::format("  {:08x}:{}\n", at, cursor.instruction);
      at += size;
    }
  }

 private:
  using Create = int(const char*, std::uint64_t (*)(std::uint64_t, char*, std::uint64_t, void*),
                     void (*)(const char*, void*), void (*)(std::uint64_t, void*),
                     DisassemblyInfo*);
  using Destroy = int(DisassemblyInfo);
  using One = int(DisassemblyInfo, std::uint64_t, void*, std::uint64_t*);

  Create* create_ = nullptr;
  Destroy* destroy_ = nullptr;
  One* one_ = nullptr;
  DisassemblyInfo info_{};
};

bool lies_in(const base::ElfSymbol& symbol, const base::ElfSection& section) {
  if (symbol.value < section.address) return false;
  const std::uint64_t offset = symbol.value - section.address;
  return offset <= section.bytes.size() && symbol.size <= section.bytes.size() - offset;
}

}  // namespace

std::string disassemble_with_comgr(const std::string& comgr, const DisassembleTask& task) {
  const auto elf = base::Elf::parse(task.code);
  if (!elf) {
    throw CompilerError(Code::invalid_argument, "the code is not a well-formed ELF image", "");
  }
  const Disassembler disassembler(comgr, task.target);
  std::string text;
  std::set<std::string_view> done;  // the static and the dynamic table name the same functions
  std::uint64_t bytes = 0;
  for (const base::ElfSymbol& symbol : elf->symbols()) {
    if (symbol.type != STT_FUNC || symbol.section >= elf->sections().size()) continue;
    if (!done.insert(symbol.name).second) continue;
    const base::ElfSection& section = elf->sections()[symbol.section];
    if (!lies_in(symbol, section)) {
      throw CompilerError(
          Code::invalid_argument,
          fmt::format("the code's function {} lies outside its section", symbol.name), "");
    }
    bytes += symbol.size;
    if (bytes > task.code.size()) {
      throw CompilerError(Code::invalid_argument,
                          "the code's functions lie over one another and are longer than the image",
                          "");
    }
    Cursor cursor{section.bytes, section.address, {}};
    disassembler.function(symbol, cursor, text);
  }
  return text;
}

}  // namespace kiln::jit
