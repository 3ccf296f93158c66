#include "cache/key.hpp"

#include <gtest/gtest.h>

#include <set>

#include "sample.hpp"

namespace kiln::cache {
namespace {

TEST(Key, HexIsReadBack) {
  const Key key{0x0123456789abcdef, 0xfedcba9876543210};
  EXPECT_EQ(key.hex(), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(Key::parse(key.hex()), key);
  EXPECT_EQ(Key::parse(key.hex().substr(1)), std::nullopt);
  EXPECT_EQ(Key::parse("0123456789ABCDEFfedcba9876543210"), std::nullopt);
  EXPECT_EQ(Key::parse("+123456789abcdeffedcba9876543210"), std::nullopt);
  EXPECT_EQ(Key::parse(" 123456789abcdeffedcba987654321x"), std::nullopt);
}

TEST(Key, IsTheSameInEveryProcessAndRelease) {
  // A change of this value loses every user's cache: it needs a new entry version.
  EXPECT_EQ(make_key(sample_ingredients()).hex(), "651568f309d00c9d8785838c359800fc");
}

TEST(Key, EveryIngredientAndItsPlaceCount) {
  const std::vector<Ingredient> base = sample_ingredients();
  std::set<Key> keys = {make_key(base)};
  std::size_t variants = 1;
  for (std::size_t i = 0; i < base.size(); ++i) {
    auto changed = base;
    changed[i].value += " ";
    keys.insert(make_key(changed));
    changed = base;
    changed[i].tag += "x";
    keys.insert(make_key(changed));
    changed = base;
    changed.erase(changed.begin() + static_cast<std::ptrdiff_t>(i));
    keys.insert(make_key(changed));
    changed = base;
    changed.insert(changed.begin() + static_cast<std::ptrdiff_t>(i), {"", ""});
    keys.insert(make_key(changed));
    variants += 4;
  }
  auto swapped = base;
  std::swap(swapped[1], swapped[2]);
  keys.insert(make_key(swapped));
  EXPECT_EQ(keys.size(), variants + 1);
}

TEST(Key, OfAListInTwoPartsIsThatOfTheWhole) {
  const std::vector<Ingredient> all = sample_ingredients();
  for (std::size_t at = 0; at <= all.size(); ++at) {
    const std::span<const Ingredient> whole(all);
    EXPECT_EQ(make_key(whole.first(at), whole.subspan(at)), make_key(all));
  }
}

TEST(Key, NothingIsConcatenatedWithoutALength) {
  const std::vector<Ingredient> a = {{"option", "-DA"}, {"option", "-DB"}};
  const std::vector<Ingredient> b = {{"option", "-DA-DB"}, {"option", ""}};
  const std::vector<Ingredient> c = {{"option", "-DAoption-DB"}};
  const std::vector<Ingredient> d = {{"option-", "DA"}, {"option", "-DB"}};
  EXPECT_EQ((std::set<Key>{make_key(a), make_key(b), make_key(c), make_key(d)}.size()), 4u);
}

TEST(ModuleName, IsAShortIdentifierWhateverTheFunctionIsCalled) {
  const Key key{0x0123456789abcdef, 1};
  EXPECT_EQ(module_name("SwiGLU", key), "kiln_swiglu_0123456789abcdef");
  EXPECT_EQ(module_name("", key), "kiln__0123456789abcdef");
  for (const std::string& name :
       {std::string(100'000, 'x'), std::string("a\0b", 3), std::string("é /..\n"), noise(500, 3)}) {
    const std::string module = module_name(name, key);
    EXPECT_LE(module.size(), kMaxModuleName);
    EXPECT_EQ(module.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"), std::string::npos);
    EXPECT_TRUE(module.ends_with("_0123456789abcdef"));
  }
}

TEST(Summary, KeepsSmallValuesAndHashesLargeOnes) {
  const std::vector<Ingredient> summary =
      summarise(std::vector<Ingredient>{{"target", "sm_90"}, {"source", std::string(257, 'x')}});
  EXPECT_EQ(summary[0].value, "sm_90");
  EXPECT_TRUE(summary[1].value.starts_with("xxh3:"));
  EXPECT_TRUE(summary[1].value.ends_with(" (257 bytes)"));
}

}  // namespace
}  // namespace kiln::cache
