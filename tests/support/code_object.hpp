// Code objects made by hand, as small as they can be, for the readers of foreign bytes.
#pragma once

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::testing {

/// One section: what its header says, and the bytes it covers.
struct Section {
  std::string name;
  std::uint32_t type = SHT_PROGBITS;
  std::string bytes;
  std::uint32_t link = 0;
};

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// A 64-bit little-endian ELF image: header, the sections' bytes, section headers. Section 0 is the
/// null section, the last one holds the names; `sections` are those between.
inline std::string elf_image(std::uint16_t machine, std::vector<Section> sections) {
  sections.insert(sections.begin(), Section{"", SHT_NULL, ""});
  sections.push_back({".shstrtab", SHT_STRTAB, ""});
  std::vector<Elf64_Shdr> headers(sections.size());
  std::string& names = sections.back().bytes;
  for (std::size_t i = 0; i < sections.size(); ++i) {
    headers[i].sh_name = static_cast<Elf64_Word>(names.size());
    names += sections[i].name + '\0';
  }
  std::string contents;
  for (std::size_t i = 1; i < sections.size(); ++i) {
    headers[i].sh_type = sections[i].type;
    headers[i].sh_link = sections[i].link;
    headers[i].sh_offset = sizeof(Elf64_Ehdr) + contents.size();
    headers[i].sh_size = sections[i].bytes.size();
    contents += sections[i].bytes;
  }
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_DYN;
  header.e_machine = machine;
  header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof header;
  header.e_shoff = sizeof header + contents.size();
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = static_cast<Elf64_Half>(sections.size());
  header.e_shstrndx = static_cast<Elf64_Half>(sections.size() - 1);
  std::string image = bytes_of(header) + contents;
  for (const Elf64_Shdr& section : headers) image += bytes_of(section);
  return image;
}

inline std::string elf_note(std::string_view name, std::uint32_t type, std::string_view bytes) {
  const auto padded = [](std::string text) {
    text.resize((text.size() + 3) / 4 * 4);
    return text;
  };
  const Elf64_Nhdr header{static_cast<Elf64_Word>(name.size() + 1),
                          static_cast<Elf64_Word>(bytes.size()), type};
  return bytes_of(header) + padded(std::string(name) + '\0') + padded(std::string(bytes));
}

/// An AMD code object of nothing but that metadata, in MessagePack.
inline std::string amd_code_object(std::string_view metadata) {
  constexpr std::uint16_t kMachineAmd = 224;
  constexpr std::uint32_t kMetadata = 32;  // NT_AMDGPU_METADATA
  return elf_image(kMachineAmd, {{".note", SHT_NOTE, elf_note("AMDGPU", kMetadata, metadata)}});
}

}  // namespace kiln::testing
