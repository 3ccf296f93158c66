#include "cache/config.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "sample.hpp"

namespace kiln::cache {
namespace {

// Sets the environment for one test and puts it back.
class ConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      ::unsetenv(name);
    }
    set("HOME", "/home/somebody");
  }
  ~ConfigTest() override {
    for (const char* name : kNames) ::unsetenv(name);
    for (const auto& [name, value] : before_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  void set(const char* name, const char* value) { ::setenv(name, value, 1); }
  Config read() { return Config::from_environment(); }

  static constexpr const char* kNames[] = {
      "KILN_CACHE",          "KILN_CACHE_DIR",           "XDG_CACHE_HOME",    "HOME",
      "KILN_CACHE_MAX_SIZE", "KILN_CACHE_READONLY_DIRS", "KILN_CACHE_SECRET", "KILN_REMOTE_CACHE"};
  std::map<std::string, std::string> before_;
};

TEST_F(ConfigTest, TheDirectoryIsTheFirstThatIsNamed) {
  EXPECT_EQ(read().directory, "/home/somebody/.cache/kiln");
  set("XDG_CACHE_HOME", "relative");
  EXPECT_EQ(read().directory, "/home/somebody/.cache/kiln");
  set("XDG_CACHE_HOME", "/var/xdg");
  EXPECT_EQ(read().directory, "/var/xdg/kiln");
  set("KILN_CACHE_DIR", "/srv/kernels/");
  EXPECT_EQ(read().directory, "/srv/kernels/");
  set("KILN_CACHE_DIR", "here");
  EXPECT_EQ(read().directory, (fs::current_path() / "here").string());
  set("KILN_CACHE", "off");
  EXPECT_EQ(read().directory, "");
}

TEST_F(ConfigTest, WithoutAHomeNothingIsKeptAndItIsSaid) {
  ::unsetenv("HOME");
  const Config config = read();
  EXPECT_EQ(config.directory, "");
  EXPECT_NE(config.why_uncached.find("HOME"), std::string::npos);
  LogRecord log;
  const auto cache = Cache::open(config);
  EXPECT_EQ(fetch(*cache, sample_key(), [] { return sample_entry(); }).from, From::compiled);
  EXPECT_FALSE(cache->find(sample_key()));
  EXPECT_EQ(cache->health_error(), config.why_uncached);
  EXPECT_NE(log.text().find("nothing is kept on disk"), std::string::npos);
}

TEST_F(ConfigTest, ReadOnlyDirectoriesAreSeparatedByColons) {
  set("KILN_CACHE_READONLY_DIRS", ":/opt/a::/opt/b:");
  EXPECT_EQ(read().readonly, (std::vector<std::string>{"/opt/a", "/opt/b"}));
}

TEST_F(ConfigTest, TheBoundIsReadOrTheDefaultIsUsedAndSaid) {
  set("KILN_CACHE_MAX_SIZE", "512M");
  EXPECT_EQ(read().max_size, 512u << 20);
  LogRecord log;
  set("KILN_CACHE_MAX_SIZE", "a lot");
  EXPECT_EQ(read().max_size, 1u << 30);
  EXPECT_NE(log.text().find("'a lot'"), std::string::npos);
}

TEST_F(ConfigTest, TheRemoteCacheNeedsASecretAndItIsSaidWithoutThePassword) {
  LogRecord log;
  EXPECT_FALSE(read().remote);
  EXPECT_EQ(log.text(), "");
  set("KILN_REMOTE_CACHE", "redis://user:hunter2@host");
  EXPECT_FALSE(read().remote);
  EXPECT_NE(log.text().find("KILN_REMOTE_CACHE: not used: it needs KILN_CACHE_SECRET"),
            std::string::npos)
      << log.text();
  EXPECT_EQ(log.text().find("hunter2"), std::string::npos);
  set("KILN_CACHE_SECRET", "0123456789abcdef0123456789abcdef");
  set("KILN_REMOTE_CACHE", "redis://user:hunter2@host:hunter2");
  EXPECT_FALSE(read().remote);
  if (!remote_unsupported({}).empty()) GTEST_SKIP() << remote_unsupported({});
  set("KILN_REMOTE_CACHE", "redis://user:hunter2@host");
  ASSERT_TRUE(read().remote);
  EXPECT_EQ(read().remote->password, "hunter2");
  set("KILN_CACHE", "off");
  EXPECT_FALSE(read().remote);
}

TEST_F(ConfigTest, TheSecretIsReadAndTheEmptyOneIsNone) {
  EXPECT_FALSE(read().secret);
  set("KILN_CACHE_SECRET", "");
  EXPECT_FALSE(read().secret);
  set("KILN_CACHE_SECRET", "abc");
  EXPECT_TRUE(read().secret.accepts(Secret("abc").sign("x", "y"), "x", "y"));
}

TEST_F(ConfigTest, ADirectoryOfTheCallersComesBeforeTheEnvironment) {
  set("KILN_CACHE", "off");
  set("KILN_CACHE_DIR", "/srv/kernels");
  set("KILN_CACHE_MAX_SIZE", "512M");
  const Config config = Config::from_environment("/srv/mine");
  EXPECT_EQ(config.directory, "/srv/mine");
  EXPECT_EQ(config.max_size, 512u << 20);
  EXPECT_EQ(config.why_uncached, "");
  EXPECT_EQ(Config::from_environment("mine").directory, (fs::current_path() / "mine").string());
}

TEST(ParseSize, TakesPowersOf1024AndNothingElse) {
  EXPECT_EQ(parse_size("0"), 0u);
  EXPECT_EQ(parse_size("4096"), 4096u);
  EXPECT_EQ(parse_size("4096B"), 4096u);
  EXPECT_EQ(parse_size("1k"), 1024u);
  EXPECT_EQ(parse_size("1.5GiB"), 3u << 29);
  EXPECT_EQ(parse_size("2TB"), std::uint64_t{2} << 40);
  for (const char* text : {"", "-1", "x", "1x", "1 G", "1GG", "1e3", "0x10", "inf", "nan",
                           "99999999999T", "1iB", " 1"}) {
    EXPECT_EQ(parse_size(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace kiln::cache
