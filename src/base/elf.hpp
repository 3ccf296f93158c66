// A bounds-checked reader of 64-bit little-endian ELF images, as far as code objects, cubins and
// shared objects need it. It knows nothing of kernels: see jit/compilers/resources.cpp.
#pragma once

#include <cstdint>
#include <optional>
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

/// Views into the caller's bytes, which must outlive it.
class Elf {
 public:
  /// Nothing if `bytes` does not start with a 64-bit little-endian ELF header, if its tables have
  /// entries of other sizes than that has, or if its symbol tables or notes lie over one another.
  /// Sections that lie outside the image are left out. What is read of an image is thus bounded by
  /// its size.
  static std::optional<Elf> parse(std::string_view bytes);

  std::uint16_t machine() const { return machine_; }
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
  std::uint16_t machine_ = 0;
  std::vector<ElfSection> sections_;
  std::vector<std::string_view> note_segments_;
};

}  // namespace kiln::base
