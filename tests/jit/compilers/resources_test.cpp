// resources(): what is read from real code objects of each kind, and from bytes that are none.
#include "jit/compilers/resources.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/elf.hpp"
#include "kiln/error.hpp"
#include "tests/jit/service/kernels.hpp"
#include "tests/support/code_object.hpp"

namespace kiln::jit {
namespace {

using kiln::testing::amd_code_object;
using kiln::testing::bytes_of;
using kiln::testing::elf_image;
using ::testing::HasSubstr;

constexpr std::uint16_t kMachineAmd = 224;

// What resources() says when it refuses, or "accepted".
std::string refusal(std::string_view code) {
  try {
    resources(code, "kiln_one");
    return "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
}

std::string message_pack(const nlohmann::json& value) {
  const std::vector<std::uint8_t> bytes = nlohmann::json::to_msgpack(value);
  return {bytes.begin(), bytes.end()};
}

// An image of many section headers that all say they are this one.
std::string repeated(const std::string& image, std::uint16_t count, std::uint16_t header_bytes) {
  Elf64_Ehdr header;
  std::memcpy(&header, image.data(), sizeof header);
  const std::string section = image.substr(header.e_shoff + sizeof(Elf64_Shdr), sizeof(Elf64_Shdr));
  header.e_shoff = image.size();
  header.e_shentsize = header_bytes;
  header.e_shnum = count;
  header.e_shstrndx = 0;
  std::string result = bytes_of(header) + image.substr(sizeof header) + section;
  for (std::size_t i = 1; header_bytes != 0 && i < count; ++i) result += section;
  return result;
}

TEST(Resources, refuse_what_is_not_an_elf_image) {
  EXPECT_THROW(resources("", "k"), Error);
  EXPECT_THROW(
      resources("not an image at all, but long enough to be one: 64 bytes and some more", "k"),
      Error);
}

TEST(Resources, of_a_cubin_are_its_registers_shared_memory_and_code) {
  try {
    toolchain(ToolchainKind::nvrtc);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const std::string code = compile(test::tile_request("sm_80")).code;
  const Resources found = resources(code, "kiln_tile");
  EXPECT_GT(found.vgprs.value_or(0), 4);
  EXPECT_EQ(found.lds, 1024);
  EXPECT_GE(found.scratch.value_or(0), 512);
  EXPECT_GT(found.code_bytes, 100U);
  EXPECT_EQ(resources(code, "no_such_kernel").code_bytes, 0U);
}

TEST(Resources, of_amd_metadata_are_the_figures_of_the_kernel_of_that_name) {
  const nlohmann::json other = {{".name", "other"}, {".vgpr_count", 7}};
  const nlohmann::json kernel = {{".args", {{{".size", 8}, {".vgpr_count", 99}}}},
                                 {".name", "kiln_one"},
                                 {".vgpr_count", 12},
                                 {".sgpr_count", 34},
                                 {".vgpr_spill_count", 1},
                                 {".sgpr_spill_count", 2},
                                 {".private_segment_fixed_size", 16},
                                 {".group_segment_fixed_size", std::uint64_t{1} << 40}};
  const std::string code = amd_code_object(message_pack({{"amdhsa.version", {1, 2}},
                                                         {"amdhsa.kernels", {other, kernel, other}},
                                                         {"unused", kernel}}));
  const Resources found = resources(code, "kiln_one");
  EXPECT_EQ(found.vgprs, 12);
  EXPECT_EQ(found.sgprs, 34);
  EXPECT_EQ(found.spills, 3);
  EXPECT_EQ(found.scalar_spills, 2);
  EXPECT_EQ(found.scratch, 16);
  EXPECT_EQ(found.lds, std::nullopt);  // no number of bytes that a block can have
  EXPECT_EQ(resources(code, "absent").vgprs, std::nullopt);
}

TEST(Resources, of_metadata_nested_without_end_are_refused) {
  const std::string arrays(200'000, '\x91');  // each an array of one element, the next
  EXPECT_THAT(refusal(amd_code_object(arrays)), HasSubstr("nested deeper than"));
  std::string maps;
  for (int i = 0; i < 200'000; ++i) maps += "\x81\xa1x";
  EXPECT_THAT(refusal(amd_code_object(maps)), HasSubstr("nested deeper than"));
}

TEST(Resources, of_metadata_that_is_no_message_pack_are_refused) {
  EXPECT_THAT(refusal(amd_code_object("\xc1")), HasSubstr("is no MessagePack"));
  EXPECT_THAT(refusal(amd_code_object("\xdf\xff\xff\xff\xff")), HasSubstr("is no MessagePack"));
  EXPECT_THAT(refusal(amd_code_object("\x80\x80")), HasSubstr("is no MessagePack"));
}

TEST(Resources, of_section_headers_of_no_size_are_refused) {
  const std::string symbols(24 * 1000, '\0');
  const std::string image = elf_image(kMachineAmd, {{".symtab", SHT_SYMTAB, symbols}});
  EXPECT_EQ(refusal(image), "accepted");
  EXPECT_THAT(refusal(repeated(image, 65'535, 0)), HasSubstr("well-formed"));
}

TEST(Resources, of_tables_that_lie_over_one_another_are_refused) {
  const std::string image =
      elf_image(kMachineAmd, {{".symtab", SHT_SYMTAB, std::string(24 * 1000, '\0')}});
  EXPECT_THAT(refusal(repeated(image, 10'000, sizeof(Elf64_Shdr))), HasSubstr("well-formed"));
  const std::string notes =
      elf_image(kMachineAmd, {{".note", SHT_NOTE, std::string(12 * 1000, '\0')}});
  EXPECT_THAT(refusal(repeated(notes, 10'000, sizeof(Elf64_Shdr))), HasSubstr("well-formed"));
}

TEST(Elf, a_name_without_end_is_none) {
  const Elf64_Sym symbol{};
  const auto name_of = [&](std::size_t size) {
    const std::string image =
        elf_image(kMachineAmd, {{".symtab", SHT_SYMTAB, bytes_of(symbol), 2},
                                {".strtab", SHT_STRTAB, std::string(size, 'n') + '\0'}});
    return std::string(base::Elf::parse(image).value().symbols().at(0).name);
  };
  EXPECT_EQ(name_of(4095), std::string(4095, 'n'));
  EXPECT_EQ(name_of(1 << 20), "");
}

TEST(Resources, of_a_damaged_image_never_read_outside_it) {
  CompileRequest request;
  request.entry = "kiln_one";
  request.target = "cpu";
  request.options = compile_options("cpu", false);
  request.source = "extern \"C\" void kiln_one(float* x) { *x = 1; }\n";
  const std::string code = compile(request).code;
  ASSERT_GT(resources(code, "kiln_one").code_bytes, 0U);
  for (std::size_t size = 64; size < code.size(); size += 61) refusal(code.substr(0, size));
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    std::string damaged = code;
    for (int k = 0; k < 8; ++k)
      damaged[16 + random() % (damaged.size() - 16)] = static_cast<char>(random());
    refusal(damaged);
  }
}

}  // namespace
}  // namespace kiln::jit
