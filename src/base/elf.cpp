// See elf.hpp.
#include "base/elf.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <cstring>

namespace kiln::base {
namespace {

// A longer name is none: nothing that is looked for has one, and a table of symbols whose names all
// start in one long string takes time without end.
constexpr std::size_t kLongestName = 4096;

// The part of `bytes` at [offset, offset + size), or nothing if it is not all there.
std::optional<std::string_view> slice(std::string_view bytes, std::uint64_t offset,
                                      std::uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) return std::nullopt;
  return bytes.substr(offset, size);
}

// A T at `offset`: copied, because code objects come from files and need not be aligned.
template <class T>
std::optional<T> read(std::string_view bytes, std::uint64_t offset) {
  const auto part = slice(bytes, offset, sizeof(T));
  if (!part) return std::nullopt;
  T value;
  std::memcpy(&value, part->data(), sizeof(T));
  return value;
}

std::string_view c_string(std::string_view table, std::uint64_t offset) {
  if (offset >= table.size()) return {};
  const std::string_view rest = table.substr(offset, kLongestName);
  const std::size_t end = rest.find('\0');
  return end == rest.npos && rest.size() == kLongestName ? std::string_view{} : rest.substr(0, end);
}

// Element `index` of a table of T.
template <class T>
std::optional<T> element(std::string_view bytes, std::uint64_t table, std::uint64_t index) {
  if (table > bytes.size()) return std::nullopt;
  return read<T>(bytes, table + sizeof(T) * index);
}

// Whether the headers of that size can be read as a table of T. Any other size than T's is foreign;
// 0 would give every section of a file of 64 bytes the contents of the first.
template <class T>
bool is_table_of(std::uint64_t count, std::uint64_t size) {
  return count == 0 || size == sizeof(T);
}

// What symbols(), notes() and dynamic_strings() read in whole.
bool is_read_whole(const ElfSection& section) {
  return section.type == SHT_SYMTAB || section.type == SHT_DYNSYM || section.type == SHT_NOTE ||
         section.type == SHT_DYNAMIC;
}

void read_notes(std::string_view bytes, std::vector<ElfNote>& notes) {
  const auto padded = [](std::uint64_t size) { return (size + 3) & ~std::uint64_t{3}; };
  std::uint64_t at = 0;
  while (const auto header = read<Elf64_Nhdr>(bytes, at)) {
    at += sizeof(Elf64_Nhdr);
    const auto name = slice(bytes, at, header->n_namesz);
    if (!name) return;
    at += padded(header->n_namesz);
    const auto descriptor = slice(bytes, at, header->n_descsz);
    if (!descriptor) return;
    at += padded(header->n_descsz);
    notes.push_back({c_string(*name, 0), header->n_type, *descriptor});
  }
}

}  // namespace

bool has_elf_magic(std::string_view bytes) {
  return bytes.starts_with(std::string_view(ELFMAG, SELFMAG));
}

std::string Elf::header_error(std::string_view bytes) {
  if (!has_elf_magic(bytes)) return "is not ELF";
  const auto header = read<Elf64_Ehdr>(bytes, 0);
  if (!header) return fmt::format("has {} bytes, too few for ELF", bytes.size());
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB) {
    return "is not 64-bit little-endian ELF";
  }
  if (!is_table_of<Elf64_Shdr>(header->e_shnum, header->e_shentsize) ||
      !is_table_of<Elf64_Phdr>(header->e_phnum, header->e_phentsize)) {
    return "has tables with entries of a wrong size";
  }
  return {};
}

std::string Elf::table_error(std::string_view bytes) {
  if (std::string error = header_error(bytes); !error.empty()) return error;
  const Elf64_Ehdr header = *read<Elf64_Ehdr>(bytes, 0);
  const auto is_inside = [&](std::uint64_t offset, std::uint64_t size) {
    return size == 0 || slice(bytes, offset, size);
  };
  if (!is_inside(header.e_phoff, header.e_phnum * sizeof(Elf64_Phdr)) ||
      !is_inside(header.e_shoff, header.e_shnum * sizeof(Elf64_Shdr))) {
    return "has tables that lie outside it";
  }
  return {};
}

std::optional<Elf> Elf::parse(std::string_view bytes) {
  if (!header_error(bytes).empty()) return std::nullopt;
  const auto header = read<Elf64_Ehdr>(bytes, 0);
  Elf elf;
  elf.bytes_ = bytes;
  elf.type_ = header->e_type;
  elf.machine_ = header->e_machine;
  elf.segment_count_ = header->e_phnum;

  const auto section_header = [&](std::uint64_t index) {
    return element<Elf64_Shdr>(bytes, header->e_shoff, index);
  };
  std::string_view names;
  if (const auto table = section_header(header->e_shstrndx)) {
    names = slice(bytes, table->sh_offset, table->sh_size).value_or(std::string_view{});
  }
  // Tables that lie over one another can say far more than the image has bytes.
  std::uint64_t table_bytes = 0;
  for (std::uint64_t i = 0; header->e_shoff != 0 && i < header->e_shnum; ++i) {
    // Indices stay those of the file: symbols and links refer to them.
    const auto raw = section_header(i);
    if (!raw) break;  // the rest of the table is outside the image too
    ElfSection section{c_string(names, raw->sh_name),
                       raw->sh_type,
                       raw->sh_flags,
                       raw->sh_addr,
                       {},
                       raw->sh_size,
                       raw->sh_link,
                       raw->sh_info};
    if (raw->sh_type != SHT_NOBITS) {
      section.bytes = slice(bytes, raw->sh_offset, raw->sh_size).value_or(std::string_view{});
    }
    if (is_read_whole(section)) table_bytes += section.bytes.size();
    elf.sections_.push_back(section);
  }
  std::uint64_t segment_bytes = 0;
  for (std::uint64_t i = 0; header->e_phoff != 0 && i < header->e_phnum; ++i) {
    const auto raw = element<Elf64_Phdr>(bytes, header->e_phoff, i);
    if (!raw) break;
    elf.segments_.push_back(
        {raw->p_type, raw->p_offset, raw->p_filesz, raw->p_vaddr, raw->p_memsz, raw->p_align});
    if (raw->p_type != PT_NOTE) continue;
    if (const auto part = slice(bytes, raw->p_offset, raw->p_filesz)) {
      segment_bytes += part->size();
      elf.note_segments_.push_back(*part);
    }
  }
  if (table_bytes > bytes.size() || segment_bytes > bytes.size()) return std::nullopt;
  return elf;
}

const ElfSection* Elf::section(std::string_view name) const {
  for (const ElfSection& section : sections_) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

std::vector<ElfSymbol> Elf::symbols() const {
  std::vector<ElfSymbol> symbols;
  for (const ElfSection& section : sections_) {
    if (section.type != SHT_SYMTAB && section.type != SHT_DYNSYM) continue;
    const std::string_view names =
        section.link < sections_.size() ? sections_[section.link].bytes : std::string_view{};
    for (std::uint64_t at = 0; const auto raw = read<Elf64_Sym>(section.bytes, at);
         at += sizeof(Elf64_Sym)) {
      symbols.push_back({c_string(names, raw->st_name), raw->st_value, raw->st_size, raw->st_shndx,
                         static_cast<std::uint8_t>(ELF64_ST_TYPE(raw->st_info))});
    }
  }
  return symbols;
}

std::vector<ElfNote> Elf::notes() const {
  std::vector<ElfNote> notes;
  for (const ElfSection& section : sections_) {
    if (section.type == SHT_NOTE) read_notes(section.bytes, notes);
  }
  if (notes.empty()) {
    for (const std::string_view segment : note_segments_) read_notes(segment, notes);
  }
  return notes;
}

std::vector<std::string_view> Elf::dynamic_strings(std::int64_t tag) const {
  std::vector<std::string_view> strings;
  for (const ElfSection& section : sections_) {
    if (section.type != SHT_DYNAMIC || section.link >= sections_.size()) continue;
    for (std::uint64_t at = 0; const auto raw = read<Elf64_Dyn>(section.bytes, at);
         at += sizeof(Elf64_Dyn)) {
      if (raw->d_tag == tag)
        strings.push_back(c_string(sections_[section.link].bytes, raw->d_un.d_val));
    }
  }
  return strings;
}

}  // namespace kiln::base
