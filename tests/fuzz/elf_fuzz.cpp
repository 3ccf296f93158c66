// Any bytes as an ELF image, and as the rest of one whose header is right: refused, or every view
// of it lies in the bytes, and the tables say no more than the bytes hold.
#include <elf.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include "base/elf.hpp"
#include "cache/entry.hpp"
#include "jit/compilers/resources.hpp"
#include "jit/device/cpu/shared_object.hpp"
#include "kiln/error.hpp"

using namespace kiln;
using namespace kiln::jit;

namespace {

void check_view(std::string_view bytes, std::string_view part) {
  if (part.empty()) return;
  if (part.data() < bytes.data() || part.data() + part.size() > bytes.data() + bytes.size()) {
    std::abort();
  }
}

void check(std::string_view bytes) {
  try {
    resources(bytes, "kiln_k");
  } catch (const Error&) {
  }
  kiln::cache::check_elf(bytes);
  cpu::why_not_loadable(std::as_bytes(std::span(bytes)));
  const std::optional<kiln::base::Elf> elf = kiln::base::Elf::parse(bytes);
  if (!elf) return;
  for (const kiln::base::ElfSection& section : elf->sections()) {
    check_view(bytes, section.name);
    check_view(bytes, section.bytes);
  }
  const std::vector<kiln::base::ElfSymbol> symbols = elf->symbols();
  if (symbols.size() * sizeof(Elf64_Sym) > bytes.size()) std::abort();
  for (const kiln::base::ElfSymbol& symbol : symbols) check_view(bytes, symbol.name);
  const std::vector<kiln::base::ElfNote> notes = elf->notes();
  if (notes.size() * sizeof(Elf64_Nhdr) > bytes.size()) std::abort();
  for (const kiln::base::ElfNote& note : notes) check_view(bytes, note.descriptor);
  for (const std::string_view name : elf->dynamic_strings(DT_NEEDED)) check_view(bytes, name);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  check(bytes);
  if (size < sizeof(Elf64_Ehdr)) return 0;
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_shentsize = sizeof(Elf64_Shdr);
  for (const std::uint16_t machine : {224, 190}) {  // EM_AMDGPU, EM_CUDA
    header.e_machine = machine;
    std::memcpy(bytes.data(), &header, sizeof header);
    check(bytes);
  }
  return 0;
}
