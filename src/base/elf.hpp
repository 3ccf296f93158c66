// A bounds-checked reader of 64-bit little-endian ELF images, as far as code objects, cubins and
// shared objects need it, and the only one. It knows nothing of kernels: see
// jit/compilers/resources.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::base {

struct ElfSection {
  std::string_view name;  ///< empty if it has over 4095 bytes, as are all names below
  std::uint32_t type = 0;
  std::uint64_t flags = 0;
  std::uint64_t address = 0;
  std::string_view bytes;  ///< empty for SHT_NOBITS, whose size is in `size`
  std::uint64_t size = 0;
  std::uint32_t link = 0;
  std::uint32_t info = 0;
};

/// A program header: what a loader maps.
struct ElfSegment {
  std::uint32_t type = 0;
  std::uint64_t offset = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t address = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t alignment = 0;
};

struct ElfSymbol {
  std::string_view name;
  std::uint64_t value = 0;
  std::uint64_t size = 0;
  std::uint16_t section = 0;
  std::uint8_t type = 0;  ///< STT_FUNC, STT_OBJECT...
};

struct ElfNote {
  std::string_view name;  ///< without its terminator
  std::uint32_t type = 0;
  std::string_view descriptor;
};

/// Whether the bytes begin as ELF images do, of whatever kind.
bool has_elf_magic(std::string_view bytes);

/// Views into the caller's bytes, which must outlive it.
class Elf {
 public:
  /// Why the header of `bytes` is none of an image that parse() reads, as the end of a sentence:
  /// "is not ELF", "is not 64-bit little-endian ELF", "has tables with entries of a wrong size".
  /// Empty if it is one.
  static std::string header_error(std::string_view bytes);
  /// header_error(), or that its tables of segments and sections lie outside the image.
  static std::string table_error(std::string_view bytes);

  /// Nothing if there is a header_error(), or if symbol tables or notes lie over one another.
  /// Segments and sections that lie outside the image are left out. What is read of an image is
  /// thus bounded by its size.
  static std::optional<Elf> parse(std::string_view bytes);

  std::uint16_t type() const { return type_; }  ///< ET_DYN, ET_EXEC...
  std::uint16_t machine() const { return machine_; }
  /// How many segments the header says that there are.
  std::size_t segment_count() const { return segment_count_; }
  /// Those whose headers are inside the image; what they describe may not be.
  const std::vector<ElfSegment>& segments() const { return segments_; }
  const std::vector<ElfSection>& sections() const { return sections_; }
  const ElfSection* section(std::string_view name) const;
  /// Of every symbol table, static and dynamic.
  std::vector<ElfSymbol> symbols() const;
  /// Of every note section and, where there are none, note segment.
  std::vector<ElfNote> notes() const;
  /// The strings of that tag in the dynamic section (DT_NEEDED, DT_SONAME).
  std::vector<std::string_view> dynamic_strings(std::int64_t tag) const;

 private:
  std::string_view bytes_;
  std::uint16_t type_ = 0;
  std::uint16_t machine_ = 0;
  std::size_t segment_count_ = 0;
  std::vector<ElfSegment> segments_;
  std::vector<ElfSection> sections_;
  std::vector<std::string_view> note_segments_;
};

}  // namespace kiln::base
