// toolchains.json: what it remembers, and that nothing which can lie in its place hangs, crashes,
// is believed or is written where it should not be.
#include "jit/toolchain/toolchain_cache.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/temporary.hpp"
#include "jit/service/compile.hpp"
#include "jit/toolchain/file_identity.hpp"
#include "jit/toolchain/settings.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

namespace fs = std::filesystem;

using ::testing::IsEmpty;

using Targets = std::map<std::string, bool>;

class ToolchainCaches : public ::testing::Test {
 protected:
  ToolchainCaches() : directory_("kiln-test") {
    set_log([this](LogLevel, std::string_view line) { logged_.emplace_back(line); });
  }
  ~ToolchainCaches() override { set_log({}); }

  std::string directory() const { return directory_.path(); }
  std::string file() const { return directory() + "/toolchains.json"; }
  void put(std::string_view text) const {
    std::ofstream(file(), std::ios::binary) << text;
    chmod(file().c_str(), 0600);
  }
  /// It knows nothing, and what it is given is there for the next process.
  void expect_starts_anew() const {
    ToolchainCache cache(directory());
    EXPECT_THAT(cache.targets("toolchain"), IsEmpty());
    EXPECT_FALSE(cache.compiler("compiler"));
    cache.remember_targets("toolchain", {{"gfx9999", false}});
    EXPECT_EQ(ToolchainCache(directory()).targets("toolchain"), (Targets{{"gfx9999", false}}));
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(file())));
  }

  base::TemporaryDirectory directory_;
  std::vector<std::string> logged_;
};

TEST_F(ToolchainCaches, OutlivesTheProcessAndIsOneFile) {
  ToolchainCache cache(directory());
  cache.remember_targets("a", {{"gfx906", true}});
  ToolchainCache(directory()).remember_targets("b", {{"gfx908", false}});
  cache.remember_targets("a", {{"gfx9999", false}});
  const ToolchainCache next(directory());
  EXPECT_EQ(next.targets("a"), (Targets{{"gfx906", true}, {"gfx9999", false}}));
  EXPECT_EQ(next.targets("b"), (Targets{{"gfx908", false}}));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory()), fs::directory_iterator()), 1);
  EXPECT_THAT(logged_, IsEmpty());
}

TEST_F(ToolchainCaches, OfACompilerHoldsAsLongAsItsEvidence) {
  const std::string program = directory_.write("program", "one");
  const std::string absent = directory() + "/absent";
  const std::string searched = directory() + "/searched";
  fs::create_directory(searched);
  const auto remember = [&] {
    ToolchainCache(directory())
        .remember_compiler("c++", {"version 1", "identity 1"},
                           {{program, file_stamp(program)},
                            {absent, file_stamp(absent)},
                            {searched, file_stamp(searched)}});
    const auto found = ToolchainCache(directory()).compiler("c++");
    ASSERT_TRUE(found);
    EXPECT_EQ(found->version, "version 1");
    EXPECT_EQ(found->identity, "identity 1");
    EXPECT_FALSE(ToolchainCache(directory()).compiler("another"));
  };
  remember();
  std::ofstream(program) << "of another size";
  EXPECT_FALSE(ToolchainCache(directory()).compiler("c++"));
  remember();
  fs::rename(directory_.write("replacement", "of another size"), program);
  EXPECT_FALSE(ToolchainCache(directory()).compiler("c++"))
      << "a file of the same size and another inode";
  remember();
  std::ofstream(absent) << "now it is there";
  EXPECT_FALSE(ToolchainCache(directory()).compiler("c++"));
  // Its clock need not have ticked since it was made.
  fs::last_write_time(searched, fs::file_time_type::clock::now() - std::chrono::hours(1));
  remember();
  fs::create_directory(searched + "/new");
  EXPECT_FALSE(ToolchainCache(directory()).compiler("c++"));
}

TEST_F(ToolchainCaches, OfACompilerWithAForeignNameIsWritten) {
  ToolchainCache(directory()).remember_compiler("c++", {"compil\xe9 par", "identity"}, {});
  const auto found = ToolchainCache(directory()).compiler("c++");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->identity, "identity");
}

TEST_F(ToolchainCaches, OfACompilerWithoutAnIdentityIsNotKept) {
  ToolchainCache(directory()).remember_compiler("c++", {"version 1", ""}, {});
  EXPECT_FALSE(ToolchainCache(directory()).compiler("c++"));
}

class IllFormed : public ToolchainCaches, public ::testing::WithParamInterface<const char*> {};

TEST_P(IllFormed, IsIgnoredLoggedOnceAndReplaced) {
  put(GetParam());
  EXPECT_THAT(ToolchainCache(directory()).targets("toolchain"), IsEmpty());
  EXPECT_FALSE(ToolchainCache(directory()).compiler("compiler"));
  EXPECT_LE(logged_.size(), 1U);
  expect_starts_anew();
}

INSTANTIATE_TEST_SUITE_P(
    Every, IllFormed,
    ::testing::Values(
        "", "\n", "{", "[]", "[1, 2]", "null", "\"text\"", "7", "{}", "\xff\xfe",
        R"({"format": "x"})", R"({"format": 1})", R"({"format": 1e999})", R"({"format": [3]})",
        R"({"format": {}})", R"({"format": null})",
        R"({"format": -2, "compilers": {}, "targets": {}})", R"({"format": 3})",
        R"({"format": 3, "compilers": {}})", R"({"format": 3, "targets": {}})",
        R"({"format": 3, "compilers": 3, "targets": {}})",
        R"({"format": 3, "compilers": "x", "targets": {}})",
        R"({"format": 3, "compilers": [7], "targets": {}})",
        R"({"format": 3, "compilers": {"compiler": 7}, "targets": {}})",
        R"({"format": 3, "compilers": {"compiler": {}}, "targets": {}})",
        R"({"format": 3, "compilers": {"compiler": {"version": 1, "identity": "", "evidence": {}}},
            "targets": {}})",
        R"({"format": 3, "compilers": {"compiler": {"version": "", "identity": [], "evidence": {}}},
            "targets": {}})",
        R"({"format": 3, "compilers": {"compiler": {"version": "", "identity": "", "evidence": 3}},
            "targets": {}})",
        R"({"format": 3, "compilers": {"compiler": {"version": "", "identity": "",
            "evidence": {"/": 3}}}, "targets": {}})",
        R"({"format": 3, "compilers": {}, "targets": []})",
        R"({"format": 3, "compilers": {}, "targets": [[]]})",
        R"({"format": 3, "compilers": {}, "targets": {"toolchain": 3}})",
        R"({"format": 3, "compilers": {}, "targets": {"toolchain": {"gfx906": "yes"}}})",
        R"({"format": 3, "compilers": {}, "targets": {"toolchain": {"gfx906": null}}})",
        R"({"format": 3, "compilers": {}, "targets": {"toolchain": {"gfx906": true}})"));

TEST_F(ToolchainCaches, DeepNestingIsIgnored) {
  for (const char* open : {"[", "{\"format\":"}) {
    std::string text;
    while (text.size() < 100'000) text += open;
    put(text);
    expect_starts_anew();
  }
}

TEST_F(ToolchainCaches, AHugeFileIsNotRead) {
  put("{}");
  fs::resize_file(file(), std::uintmax_t{1} << 40);  // all holes
  expect_starts_anew();
  EXPECT_LT(fs::file_size(file()), 1U << 20);
}

TEST_F(ToolchainCaches, APipeThatNobodyWritesToIsNotWaitedFor) {
  ASSERT_EQ(mkfifo(file().c_str(), 0600), 0);
  expect_starts_anew();
}

TEST_F(ToolchainCaches, ASymlinkIsReplacedAndNotFollowed) {
  const std::string elsewhere = directory_.write("elsewhere", R"({"format": 3, "compilers": {},
    "targets": {"toolchain": {"gfx906": false}}})");
  chmod(elsewhere.c_str(), 0600);
  fs::create_symlink(elsewhere, file());
  const std::string before = base::read_whole_file(elsewhere);
  expect_starts_anew();
  EXPECT_EQ(base::read_whole_file(elsewhere), before);
}

TEST_F(ToolchainCaches, ADirectoryInItsPlaceCostsMemoryOnly) {
  fs::create_directory(file());
  ToolchainCache cache(directory());
  cache.remember_targets("toolchain", {{"gfx906", true}});
  EXPECT_EQ(cache.targets("toolchain"), (Targets{{"gfx906", true}}));
  EXPECT_THAT(ToolchainCache(directory()).targets("toolchain"), IsEmpty());
  EXPECT_EQ(std::distance(fs::directory_iterator(directory()), fs::directory_iterator()), 1);
}

TEST_F(ToolchainCaches, WhatOthersMayWriteIsNotBelieved) {
  put(R"({"format": 3, "compilers": {}, "targets": {"toolchain": {"gfx906": false}}})");
  EXPECT_EQ(ToolchainCache(directory()).targets("toolchain"), (Targets{{"gfx906", false}}));
  for (const mode_t mode : {0620U, 0602U}) {
    chmod(file().c_str(), mode);
    EXPECT_THAT(ToolchainCache(directory()).targets("toolchain"), IsEmpty()) << mode;
  }
  if (geteuid() == 0) {
    chmod(file().c_str(), 0600);
    ASSERT_EQ(chown(file().c_str(), 65534, 65534), 0);
    EXPECT_THAT(ToolchainCache(directory()).targets("toolchain"), IsEmpty());
  }
  expect_starts_anew();
}

TEST_F(ToolchainCaches, AFileThatCannotBeReadIsReplaced) {
  if (geteuid() == 0) GTEST_SKIP() << "root reads everything";
  put(R"({"format": 3, "compilers": {}, "targets": {}})");
  chmod(file().c_str(), 0);
  expect_starts_anew();
}

TEST_F(ToolchainCaches, NothingIsWrittenIntoADirectoryThatIsNotTrusted) {
  for (const mode_t mode : {0777U, 0770U, 01777U}) {
    chmod(directory().c_str(), mode);
    ToolchainCache(directory()).remember_targets("toolchain", {{"gfx906", true}});
    EXPECT_TRUE(fs::is_empty(directory())) << mode;
  }
  chmod(directory().c_str(), 0777);
  const std::string below = directory() + "/below";  // anybody may exchange it
  ToolchainCache(below).remember_targets("toolchain", {{"gfx906", true}});
  EXPECT_FALSE(fs::exists(below));
  EXPECT_LE(logged_.size(), 2U) << "once for each directory";
}

TEST_F(ToolchainCaches, NothingIsWrittenWithTheCacheOff) {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  const std::string before = variable("KILN_CACHE_DIR");
  setenv("KILN_CACHE_DIR", directory().c_str(), 1);
  EXPECT_EQ(settings_from_environment().cache_directory, directory());
  setenv("KILN_CACHE", "off", 1);
  EXPECT_EQ(settings_from_environment().cache_directory, "");
  toolchains();
  EXPECT_TRUE(fs::is_empty(directory()));
  unsetenv("KILN_CACHE");
  setenv("KILN_CACHE_DIR", before.c_str(), 1);
  ToolchainCache nowhere("");
  nowhere.remember_targets("toolchain", {{"gfx906", true}});
  EXPECT_THAT(logged_, IsEmpty());
}

}  // namespace
}  // namespace kiln::jit
