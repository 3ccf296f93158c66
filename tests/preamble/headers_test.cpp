// Which headers a kernel carries: all that declare a word of its text and what those include, and
// no others.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <vector>

#include "preamble/preamble.hpp"
#include "tests/support/host_compiler.hpp"

namespace kiln::preamble {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
constexpr Device kDevices[] = {Device::host, Device::amd, Device::nvidia};

std::vector<std::string> names_of(Headers headers) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < header_count(); ++i) {
    if (headers.contains(i)) names.emplace_back(header_name(i));
  }
  return names;
}

std::vector<std::string> needed(std::string_view kernel, Device device) {
  return names_of(needed_by(kernel, device));
}

TEST(Headers, AKernelHasThoseOfItsWordsAndWhatTheyNeed) {
  EXPECT_THAT(needed("", Device::amd), ElementsAre("types.h"));
  EXPECT_THAT(needed("x = to<f32>(y)", Device::amd), ElementsAre("types.h", "convert.h"));
  EXPECT_THAT(needed("narrow::sigmoid(x)", Device::nvidia),
              ElementsAre("types.h", "convert.h", "native.h", "math.h", "signs.h", "exp.h"));
  EXPECT_THAT(needed("divide(n, by)", Device::host), ElementsAre("types.h", "divide.h"));
  EXPECT_EQ(needed_by("to2 tox xto in0_to 1to", Device::host), needed_by("", Device::host));
}

// Elementwise kernels of floats are what there is most of.
TEST(Headers, AFloatDoesNotNeedWhatIsForOtherTypes) {
  for (const Device device : kDevices) {
    const std::vector<std::string> headers =
        needed("f32 x = exp(sqrt(load<4, 16>(row, i)[0])); store<4, 16>(row, i, y)", device);
    for (const char* other : {"complex.h", "packed.h", "products.h", "reduce.h", "random.h"})
      EXPECT_THAT(headers, Not(::testing::Contains(other)));
    EXPECT_THAT(needed("c64 x = exp(y)", device), ::testing::Contains("complex.h"));
    EXPECT_THAT(needed("load(packed(x, 0), 0)", device), ::testing::Contains("packed.h"));
  }
}

TEST(Headers, CommentsDoNotCountUnlessTheyMayBeCode) {
  const Headers none = needed_by("", Device::host);
  const Headers some = needed_by("exp", Device::host);
  ASSERT_NE(some, none);
  EXPECT_EQ(needed_by("  // exp(x)\n\t//exp", Device::host), none);
  for (const char* code :
       {"x; // exp", "// */ exp", "#define X \\\n// exp", "#define X \\\r\n// exp", "/* exp */",
        "\"exp\"", "exp", "//\nexp\n//", "(exp)", "kiln::exp"})
    EXPECT_EQ(needed_by(code, Device::host), some) << code;
}

TEST(Headers, APastedNameMayBeAny) {
  for (const Device device : kDevices) {
    EXPECT_EQ(needed_by("#define CALL(x) kiln::ex##x\n", device), all(device));
    EXPECT_EQ(names_of(all(device)).front(), "types.h");
  }
}

TEST(Headers, HaveNothingForOtherDevices) {
  EXPECT_THAT(names_of(all(Device::amd)), Not(::testing::Contains("host_exp.h")));
  EXPECT_THAT(names_of(all(Device::host)), Not(::testing::Contains("native.h")));
  EXPECT_THAT(names_of(all(Device::amd)), Not(::testing::Contains("product_tiles.h")));
  EXPECT_THAT(text(all(Device::host), Device::host), Not(HasSubstr("asm volatile(\"cp.async")));
  EXPECT_THAT(text(all(Device::nvidia), Device::nvidia), Not(HasSubstr("__builtin_amdgcn")));
  for (const Device device : kDevices) {
    const std::string text_of_all = text(all(device), device);
    EXPECT_THAT(text_of_all, Not(HasSubstr("#include")));
    // A kernel may ask which device it is for; the headers have been asked.
    for (const char* asked : {"#if KILN_HOST\n", "#if !KILN_HOST\n", "#if KILN_NVIDIA\n"})
      EXPECT_THAT(text_of_all, Not(HasSubstr(asked)));
  }
}

// The functions and macros that a text calls and does not declare itself, as members or not.
std::set<std::string> called_in(const std::string& text) {
  std::set<std::string> called, own;
  const auto in_word = [](char c) {
    return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0;
  };
  std::string before = ";";  // the word or sign before
  for (std::size_t at = 0; at < text.size();) {
    if (text.compare(at, 2, "//") == 0) at = std::min(text.find('\n', at), text.size());
    std::size_t end = at;
    while (end < text.size() && in_word(text[end])) ++end;
    if (end == at) {
      if (at < text.size() && text[at] != ' ' && text[at] != '\n') before = text[at];
      ++at;
      continue;
    }
    const std::string word = text.substr(at, end - at);
    if (before == "auto") own.insert(word);
    if (end < text.size() && text[end] == '<')
      end = text.find_first_not_of("<>,: " + kLetters, end);
    if (end < text.size() && text[end] == '(') {
      const bool declares = in_word(before[0]) && before != "return" && before != "else";
      if (declares) own.insert(word);
      const bool is_type = std::isupper(static_cast<unsigned char>(word[0])) != 0;
      if (before != "." && !declares && (!is_type || word.starts_with("KILN_")))
        called.insert(word);
    }
    before = word;
    at += word.size();
  }
  for (const std::string& name : own) called.erase(name);
  return called;
}

// Also what nothing compiles here, for each kind of device.
TEST(Headers, IncludeAHeaderForEachNameThatTheyCall) {
  std::size_t calls = 0;
  for (const Device device : kDevices) {
    for (std::size_t i = 0; i < header_count(); ++i) {
      const Headers self = Headers::only(i);
      if ((all(device) & self).empty()) continue;
      for (const std::string& name : called_in(text(self, device))) {
        const Headers declared = declared_by(name, device);
        calls += (declared & self) != declared ? 1 : 0;
        EXPECT_TRUE(declared.empty() || !(declared & needs_of(i, device)).empty())
            << header_name(i) << " calls " << name << " of "
            << ::testing::PrintToString(names_of(declared)) << ", device "
            << static_cast<int>(device);
      }
    }
  }
  EXPECT_GT(calls, 300U);
}

TEST(Headers, CanBeReadAlone) {
  std::vector<std::string> command = {
      KILN_TEST_COMPILER, "-std=c++17", "-fsyntax-only", "-w", "-I" KILN_TEST_SOURCE, "-x", "c++"};
  for (std::size_t i = 0; i < header_count(); ++i)
    command.push_back(fmt::format("{}/preamble/{}", KILN_TEST_SOURCE, header_name(i)));
  const base::CommandResult result = testing::run_compiler(command);
  EXPECT_TRUE(result.succeeded()) << result.errors;
}

}  // namespace
}  // namespace kiln::preamble
