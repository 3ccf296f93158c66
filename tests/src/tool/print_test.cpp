// Text from elsewhere on a terminal, and what of it fits a column.
#include "tool/print.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace kiln::tool {
namespace {

// What `work` writes to standard output.
template <class Work>
std::string printed(const Work& work) {
  ::testing::internal::CaptureStdout();
  work();
  std::fflush(stdout);
  return ::testing::internal::GetCapturedStdout();
}

TEST(Printable, every_control_character_is_an_escape) {
  for (int c = 0; c < 0x20; ++c) {
    const std::string text = printable(std::string(1, static_cast<char>(c)));
    EXPECT_EQ(text[0], '\\') << c;
    for (const char shown : text) EXPECT_GE(shown, 0x20) << c;
  }
  EXPECT_EQ(printable("\x1b]0;title\a\x7f"), "\\u001b]0;title\\u0007\\u007f");
  EXPECT_EQ(printable("two\nlines\t"), "two\\nlines\\t");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m");  // CSI in one character
  EXPECT_EQ(printable("a\xe2\x80\xae"
                      "b"),
            "a\\u202eb");  // what follows goes right to left
  EXPECT_EQ(printable("\xe2\x80\xa8"), "\\u2028");
}

TEST(Printable, other_text_stays_and_what_is_not_utf_8_is_bytes) {
  const std::string text = "x * \xce\xb1 + \xe2\x89\xa4 \xf0\x9f\x94\xa5 \\";
  EXPECT_EQ(printable(text), text);
  EXPECT_EQ(printable("\x9b"
                      "31m"),
            "\\x9b31m");
  EXPECT_EQ(printable("\xc2"), "\\xc2");
  EXPECT_EQ(printable("\xe2\x80"), "\\xe2\\x80");
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b");           // ESC, written too long
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // half a pair of UTF-16
  EXPECT_EQ(printable("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");
}

TEST(Print, tables_lines_and_json_write_no_control_characters_of_others) {
  const std::string hostile =
      "a\x1b[2J\xc2\x9b"
      "b\x7f";
  const std::string lines = printed([&] {
    Table table({"NAME", "VALUE"});
    table.row({hostile, red(hostile)});
    table.row({"two\nlines", clip(hostile, 80)});
    table.print();
    print("{}\n", hostile);
    print_json({{"text", hostile}});
    JsonArrayPrinter array;
    array.print({{"text", hostile}});
  });
  for (const char c : lines) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << lines;
  EXPECT_NE(lines.find("two\\nlines"), lines.npos);
}

TEST(Print, json_stays_json_of_the_same_text) {
  const std::string hostile =
      "a\x1b[2J\xc2\x9b"
      "b\x7f";
  const std::string text = printed([&] { print_json({{"text", hostile}}); });
  EXPECT_EQ(Json::parse(text)["text"], hostile);
}

TEST(Print, an_array_element_by_element_is_the_array) {
  for (std::size_t size = 0; size < 4; ++size) {
    Json whole = Json::array();
    for (std::size_t i = 0; i < size; ++i) whole.push_back({{"i", i}, {"of", {1, 2}}});
    const std::string parts = printed([&] {
      JsonArrayPrinter array;
      for (const Json& element : whole) array.print(element);
    });
    EXPECT_EQ(parts, printed([&] { print_json(whole); }));
  }
}

TEST(Clip, keeps_to_the_columns_and_makes_one_line) {
  EXPECT_EQ(clip("a\nb\tc", 10), "a b c");
  EXPECT_EQ(clip("abcdefghij", 10), "abcdefghij");
  EXPECT_EQ(clip("abcdefghijk", 10), "abcdefg...");
  EXPECT_EQ(clip("\xce\xb1\xce\xb2\xce\xb3\xce\xb4\xce\xb5", 4), "\xce\xb1...");
  EXPECT_EQ(clip("\x1b\x1b", 10), "\\u001b\\...");
}

}  // namespace
}  // namespace kiln::tool
