// Splitting text: which parts each kind of split gives.
#include "base/text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kiln::base {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Split, GivesThePartsThatAreAskedFor) {
  const char* text = "| a b ||c | ";
  EXPECT_THAT(split(text, '|'), ElementsAre(" a b ", "c ", " "));
  EXPECT_THAT(split(text, '|', Parts::all), ElementsAre("", " a b ", "", "c ", " "));
  EXPECT_THAT(split(text, '|', Parts::trimmed), ElementsAre("a b", "c"));
}

TEST(Split, GivesOneEmptyPartOfAnEmptyTextOnlyIfEmptyPartsCount) {
  EXPECT_THAT(split("", ','), IsEmpty());
  EXPECT_THAT(split("", ',', Parts::all), ElementsAre(""));
  EXPECT_THAT(split("", ',', Parts::trimmed), IsEmpty());
}

}  // namespace
}  // namespace kiln::base
