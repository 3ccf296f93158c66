// ELF images that are cut off, of another kind, or that point outside themselves.
#include "base/elf.hpp"

#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

#include "tests/support/code_object.hpp"

namespace kiln::base {
namespace {

std::string sample_image() {
  return testing::elf_image(EM_X86_64, {{".text", SHT_PROGBITS, "code"},
                                        {".note", SHT_NOTE, testing::elf_note("kiln", 7, "note")}});
}

/// sample_image() with another header, or another header of its section 1.
std::string with_header(const std::function<void(Elf64_Ehdr&)>& change) {
  std::string image = sample_image();
  Elf64_Ehdr header;
  std::memcpy(&header, image.data(), sizeof header);
  change(header);
  std::memcpy(image.data(), &header, sizeof header);
  return image;
}
std::string with_section(const std::function<void(Elf64_Shdr&)>& change) {
  std::string image = sample_image();
  Elf64_Ehdr header;
  std::memcpy(&header, image.data(), sizeof header);
  char* const at = image.data() + header.e_shoff + sizeof(Elf64_Shdr);
  Elf64_Shdr section;
  std::memcpy(&section, at, sizeof section);
  change(section);
  std::memcpy(at, &section, sizeof section);
  return image;
}

TEST(ElfImages, AreReadWhereTheyAreWhole) {
  const std::string image = sample_image();
  EXPECT_EQ(Elf::table_error(image), "");
  const auto elf = Elf::parse(image);
  ASSERT_TRUE(elf);
  EXPECT_EQ(elf->type(), ET_DYN);
  EXPECT_EQ(elf->machine(), EM_X86_64);
  ASSERT_NE(elf->section(".text"), nullptr);
  EXPECT_EQ(elf->section(".text")->bytes, "code");
  EXPECT_EQ(elf->section(".data"), nullptr);
  ASSERT_EQ(elf->notes().size(), 1U);
  EXPECT_EQ(elf->notes()[0].name, "kiln");
  EXPECT_EQ(elf->notes()[0].type, 7U);
  EXPECT_EQ(elf->notes()[0].descriptor, "note");
}

TEST(ElfImages, OfAnotherKindAreRefusedWithTheReason) {
  const std::string image = sample_image();
  EXPECT_EQ(Elf::header_error(""), "is not ELF");
  EXPECT_EQ(Elf::header_error("\177EL"), "is not ELF");
  EXPECT_EQ(Elf::header_error("!" + image.substr(1)), "is not ELF");
  EXPECT_EQ(Elf::header_error(image.substr(0, sizeof(Elf64_Ehdr) - 1)),
            "has 63 bytes, too few for ELF");
  const char* const foreign = "is not 64-bit little-endian ELF";
  EXPECT_EQ(Elf::header_error(with_header([](auto& h) { h.e_ident[EI_CLASS] = ELFCLASS32; })),
            foreign);
  EXPECT_EQ(Elf::header_error(with_header([](auto& h) { h.e_ident[EI_DATA] = ELFDATA2MSB; })),
            foreign);
  const char* const size = "has tables with entries of a wrong size";
  EXPECT_EQ(Elf::header_error(with_header([](auto& h) { h.e_shentsize = 0; })), size);
  EXPECT_EQ(Elf::header_error(with_header([](auto& h) { h.e_phnum = 1; })), size);
  EXPECT_FALSE(Elf::parse(with_header([](auto& h) { h.e_shentsize = 0; })));
}

TEST(ElfImages, WithTablesOutsideThemAreToldAndHaveNoSections) {
  const std::uint64_t last = UINT64_MAX;
  for (const std::uint64_t offset :
       {sample_image().size() - 1, sample_image().size() + 1, last - 64, last}) {
    const std::string image = with_header([&](auto& h) { h.e_shoff = offset; });
    EXPECT_EQ(Elf::table_error(image), "has tables that lie outside it") << offset;
    const auto elf = Elf::parse(image);
    ASSERT_TRUE(elf) << offset;
    EXPECT_TRUE(elf->sections().empty()) << offset;
  }
  const std::string segments = with_header([&](auto& h) {
    h.e_phoff = last - 8;
    h.e_phnum = 3;
    h.e_phentsize = sizeof(Elf64_Phdr);
  });
  EXPECT_EQ(Elf::table_error(segments), "has tables that lie outside it");
  ASSERT_TRUE(Elf::parse(segments));
  EXPECT_EQ(Elf::parse(segments)->segment_count(), 3U);
  EXPECT_TRUE(Elf::parse(segments)->segments().empty());
}

TEST(ElfImages, WithSectionsOutsideThemHaveNoBytesOfThem) {
  const std::string overflows = with_section([](auto& s) {
    s.sh_offset = UINT64_MAX - 1;
    s.sh_size = 4;
  });
  const std::string too_long = with_section([](auto& s) { s.sh_size = UINT64_MAX; });
  for (const std::string& image : {overflows, too_long}) {
    const auto elf = Elf::parse(image);
    ASSERT_TRUE(elf);
    ASSERT_NE(elf->section(".text"), nullptr);
    EXPECT_EQ(elf->section(".text")->bytes, "");
  }
  const auto unnamed = Elf::parse(with_section([](auto& s) { s.sh_name = UINT32_MAX; }));
  ASSERT_TRUE(unnamed);
  EXPECT_EQ(unnamed->sections()[1].name, "");
  EXPECT_EQ(unnamed->sections()[1].bytes, "code");
}

TEST(ElfImages, CutOffAnywhereGiveOnlyWhatIsThere) {
  const std::string image = sample_image();
  for (std::size_t size = 0; size < image.size(); ++size) {
    const std::string_view part = std::string_view(image).substr(0, size);
    EXPECT_NE(Elf::table_error(part), "") << size;
    const auto elf = Elf::parse(part);
    EXPECT_EQ(elf.has_value(), size >= sizeof(Elf64_Ehdr)) << size;
    if (!elf) continue;
    EXPECT_LT(elf->sections().size(), 4U) << size;
    for (const ElfSection& section : elf->sections()) {
      EXPECT_TRUE(section.bytes.empty() ||
                  (section.bytes.data() >= part.data() &&
                   section.bytes.data() + section.bytes.size() <= part.data() + part.size()))
          << size;
    }
  }
}

}  // namespace
}  // namespace kiln::base
