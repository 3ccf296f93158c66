// What a kiln does with what another version of it has left, seen from outside: the section
// "Upgrades" of cache/README.md. That files of older formats are read is in
// tests/cache/golden_test.cpp.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cache/bundle.hpp"
#include "cache/entry.hpp"
#include "tests/src/tool/tool_process.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kVersionOffset = 8;  // in entries and in bundles, after the magic

class ToolUpgrade : public testing::ToolTest {
 protected:
  void SetUp() override {
    ToolTest::SetUp();
    KILN_NEED(host);
    key_ = json::parse(compile("--json").out)[0]["key"];
  }

  testing::Finished compile(const std::string& option) {
    return run({"compile", "x * x", "--type", "x=f32[64]", "--target", "cpu", option});
  }

  std::string entry_file(const std::string& key) const {
    return "cache/" + key.substr(0, 2) + "/" + key + ".kiln";
  }

  std::string key_;
};

TEST_F(ToolUpgrade, EntriesOfAnotherFormatAreNamedAndLeftAlone) {
  std::string bytes = read(path(entry_file(key_)));
  bytes.at(kVersionOffset) = static_cast<char>(cache::kEntryVersion + 1);
  std::string other = key_;  // its version is hashed, so that kiln has another key for the kernel
  other.back() = other.back() == '0' ? '1' : '0';
  const std::string file = put(entry_file(other), bytes);

  EXPECT_THAT(compile("--json").out, HasSubstr(key_));
  const testing::Finished verified = run({"cache", "verify", "--repair"});
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("1 in another entry format, not checked"));
  EXPECT_THAT(run({"cache", "ls"}).out, HasSubstr("has format version 2, this kiln reads 1"));
  EXPECT_EQ(read(file), bytes);
}

TEST_F(ToolUpgrade, BundlesOfAnotherFormatAreRefusedAndNotUsed) {
  ASSERT_EQ(run({"cache", "export", path("bundle")}).code, 0);
  std::string bytes = read(path("bundle"));
  bytes.at(kVersionOffset) = static_cast<char>(cache::kBundleVersion + 1);
  const std::string bundle = put("newer", bytes);

  const testing::Finished imported = run({"cache", "import", bundle});
  EXPECT_EQ(imported.code, 1);
  EXPECT_THAT(imported.err, HasSubstr("is not a kiln bundle of a version this kiln reads"));
  environment_["KILN_CACHE_DIR"] = path("empty");
  environment_["KILN_CACHE_READONLY_DIRS"] = bundle;
  const testing::Finished compiled = compile("--json");
  EXPECT_EQ(compiled.code, 0);
  EXPECT_THAT(compiled.err,
              HasSubstr("is not a kiln bundle of a version this kiln reads; not used"));
  EXPECT_EQ(json::parse(compiled.out)[0]["key"], key_);
}

TEST_F(ToolUpgrade, LinesOfAnotherManifestAreNamedAndTheOthersCompiled) {
  const std::string manifest =
      put("m.jsonl", R"({"name":"now","expression":"x * 3","types":{"x":"f32[16]"}})"
                     "\n"
                     R"({"name":"later","expression":"x * 4","types":{"x":"f32[16]"},"tile":8})"
                     "\n");
  const testing::Finished finished = run({"compile", "--manifest", manifest, "--target", "cpu"});
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.err, AllOf(HasSubstr("m.jsonl:2: expected name, expression, "),
                                  HasSubstr("found 'tile'")));
  EXPECT_THAT(finished.out, HasSubstr("1 compiled, 0 already there, 0 failed, 1 bad lines"));
}

}  // namespace
}  // namespace kiln
