// kiln/cache.hpp as a program uses it: through the public headers, on a cache that kiln filled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <kiln/kiln.hpp>
#include <thread>

#include "ahead/compile_only.hpp"
#include "jit/toolchain/toolchain.hpp"
#include "kernel/process_cache.hpp"
#include "tests/support/redis_server.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CacheApi : public ::testing::Test {
 protected:
  void SetUp() override {
    KILN_NEED(host);
    // The process has one cache for its functions, in the directory of the first test.
    static const testing::TemporaryDirectory directory;
    directory_ = directory.path();
    ::setenv("KILN_CACHE_DIR", directory_.c_str(), 1);
    cache_ = cache::open();
    cache::clear(*cache_);
  }

  /// Compiles a kernel of its own for each name, as a call does.
  cache::Key compile(const std::string& name, const std::string& text) {
    const Function function = parse(name, text);
    std::vector<float> x(64, 1), y(64);
    const Stream stream;
    function(stream, {View(x.data(), DType::f32, {64}, stream.device)},
             {View(y.data(), DType::f32, {64}, stream.device)});
    const auto listings = cache::list(*cache_, {.function = name});
    EXPECT_EQ(listings.size(), 1u);
    return listings.empty() ? cache::Key{} : listings[0].key;
  }
  std::string path(const std::string& name) const { return directory_ + "/" + name; }

  std::string directory_;
  std::shared_ptr<cache::Cache> cache_;
};

TEST_F(CacheApi, ShowsWhatTheFunctionsOfThisProcessLeft) {
  EXPECT_EQ(cache::directory(*cache_), directory_);
  EXPECT_EQ(cache::health_error(*cache_), "");
  const cache::Key key = compile("api_show", "x * 3 + 7");
  int seen = 0;
  cache::for_each(*cache_, {}, [&](const cache::Listing& listing) {
    EXPECT_EQ(listing.metadata.function, "api_show");
    EXPECT_EQ(listing.file_bytes, fs::file_size(listing.path));
    EXPECT_EQ(listing.problem, "");
    return ++seen < 10;
  });
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(cache::resolve(*cache_, key.hex().substr(0, 9)), key);
  const cache::Entry entry = cache::read(*cache_, key);
  EXPECT_THAT(entry.source, HasSubstr(entry.metadata.entry));
  EXPECT_EQ(entry.code.substr(1, 3), "ELF");
  const cache::Usage usage = cache::usage(*cache_);
  EXPECT_EQ(usage.entries, 1u);
  EXPECT_EQ(usage.max_size, std::uint64_t{1} << 30);
  EXPECT_GE(cache::stats(*cache_)[cache::Count::compiled], 1u);
  cache::zero_stats(*cache_);
  EXPECT_EQ(cache::stats(*cache_)[cache::Count::compiled], 0u);
}

TEST_F(CacheApi, VerifiesRepairsAndCompilesAgain) {
  const cache::Key key = compile("api_verify", "x * 5 - 2");
  EXPECT_TRUE(cache::verify(*cache_).problems.empty());
  const cache::Recompilation again = cache::recompile(*cache_);
  EXPECT_EQ(again.same, 1u);
  EXPECT_TRUE(again.problems.empty());
  const std::string file = cache::list(*cache_)[0].path;
  std::fstream(file, std::ios::binary | std::ios::in | std::ios::out).seekp(200).put('\0').put('x');
  const cache::Verification bad = cache::verify(*cache_);
  ASSERT_EQ(bad.problems.size(), 1u);
  EXPECT_EQ(bad.problems[0].path, file);
  EXPECT_FALSE(bad.problems[0].repaired);
  EXPECT_TRUE(cache::verify(*cache_, true).problems.at(0).repaired);
  EXPECT_EQ(cache::usage(*cache_).quarantined, 1u);
  EXPECT_THROW(cache::read(*cache_, key), Error);
}

TEST_F(CacheApi, MovesEntriesToAnotherDirectory) {
  const cache::Key key = compile("api_move", "x * 11 - 4");
  compile("api_stay", "x * 13 - 4");
  EXPECT_EQ(cache::export_bundle(*cache_, path("bundle"), {.function = "api_move"}).entries, 1u);
  const auto other = cache::open(path("other"));
  EXPECT_EQ(cache::directory(*other), path("other"));
  const cache::Transfer imported = cache::import_bundle(*other, path("bundle"));
  EXPECT_EQ(imported.entries, 1u);
  EXPECT_EQ(imported.signature, cache::Signature::none);
  EXPECT_EQ(cache::read(*other, key), cache::read(*cache_, key));
  EXPECT_EQ(cache::list(*other).size(), 1u);
}

TEST_F(CacheApi, ExplainsAndTrims) {
  const cache::Key a = compile("api_a", "x * 17"), b = compile("api_b", "x * 19");
  const auto differences = cache::explain(cache::read(*cache_, a), cache::read(*cache_, b));
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(differences[0].tag, "source");
  cache::TrimPolicy policy;
  policy.filter.function = "api_a";
  policy.dry_run = true;
  EXPECT_EQ(cache::trim(*cache_, policy).entries.size(), 1u);
  EXPECT_EQ(cache::usage(*cache_).entries, 2u);
  policy.dry_run = false;
  EXPECT_EQ(cache::trim(*cache_, policy).entries.at(0).key, a);
  EXPECT_EQ(cache::usage(*cache_).entries, 1u);
  EXPECT_EQ(cache::clear(*cache_).entries.size(), 1u);
}

TEST_F(CacheApi, SaysThatNothingIsKept) {
  ::setenv("KILN_CACHE", "off", 1);
  try {
    cache::open();
    ADD_FAILURE() << "opened what is off";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::not_found);
    EXPECT_THAT(error.what(), HasSubstr("KILN_CACHE=off"));
  }
  EXPECT_EQ(cache::list(*cache::open(directory_)).size(), 0u);
  ::unsetenv("KILN_CACHE");
}

TEST_F(CacheApi, UsesARemoteCacheThatTheProgramNames) {
  const std::string secret = "0123456789abcdef0123456789abcdef";
  const auto error_of = [](const std::string& url, const std::string& with) {
    try {
      cache::use_remote(url, with);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(error_of("host", secret), HasSubstr("expected redis://"));
  EXPECT_THAT(error_of("redis://host", ""), HasSubstr("needs KILN_CACHE_SECRET"));
  EXPECT_THAT(error_of("redis://host", "short"), HasSubstr("16 or more characters"));
  if (testing::redis_program().empty()) {
    GTEST_SKIP() << "neither valkey-server nor redis-server is installed";
  }
  const testing::RedisServer server;
  const std::string url = "redis+unix://" + server.socket() + "?wait=20s";
  try {
    cache::use_remote(url, secret);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    GTEST_SKIP() << error.what();
  }
  const std::uint64_t before = process_cache().stats()[cache::Count::remote_published];
  compile("api_remote", "x * 3 + 8");
  ASSERT_TRUE(
      process_cache().flush_remote(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
  EXPECT_EQ(process_cache().stats()[cache::Count::remote_published], before + 1);
  EXPECT_EQ(cache::push(*cache::open(directory_), {.function = "api_remote"}).present, 1u);
  cache::use_remote("", "");
  EXPECT_THROW(cache::push(*cache::open(directory_)), Error);
  EXPECT_EQ(process_cache().remote(), nullptr);
}

TEST_F(CacheApi, WaitsForAnotherMachineThatCompilesTheSameKernel) {
  const std::string secret = "0123456789abcdef0123456789abcdef";
  if (!cache::remote_unsupported({}).empty()) GTEST_SKIP() << cache::remote_unsupported({});
  if (testing::redis_program().empty()) {
    GTEST_SKIP() << "neither valkey-server nor redis-server is installed";
  }
  Specification types;
  types.arguments = {{"x", DType::f32, {64}, {}}};
  const auto build = [&] {
    return compile_for(parse("api_wait", "x * 5 + 8"), types, jit::host_target());
  };
  const CompiledKernel compiled = build();
  ASSERT_EQ(compiled.info.cache, CacheState::compiled);
  const cache::Key key = cache::Key::parse(compiled.info.key).value();
  const cache::Entry entry = cache::read(*cache_, key);
  cache::clear(*cache_);

  const testing::RedisServer server;
  const std::string url = "redis+unix://" + server.socket() + "?wait=60s&answer=60s&lease=600s";
  const testing::TemporaryDirectory directory;
  cache::Config config;
  config.directory = directory.path();
  config.secret = cache::Secret(secret);
  config.remote = cache::parse_remote_url(url);
  cache::Cache other(config);
  const cache::Cache::Claim claim = std::move(other.claim({&key, 1}).front());
  ASSERT_TRUE(claim.lease);
  cache::use_remote(url, secret);
  std::thread machine([&] {
    // Until somebody else has tried to get the lease.
    cache::Connection connection(*config.remote, -1);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    EXPECT_EQ(connection.open(limit), "");
    const cache::Command ask = {"INFO", "commandstats"};
    std::vector<cache::Reply> replies;
    do {
      ASSERT_FALSE(connection.exchange({&ask, 1}, 1 << 20, limit, replies));
    } while (replies.front().text.find("cmdstat_set:calls=1,") != std::string::npos);
    EXPECT_TRUE(other.publish(key, entry));
  });
  const CompiledKernel fetched = build();
  machine.join();
  cache::use_remote("", "");
  EXPECT_EQ(fetched.info.cache, CacheState::remote);
  EXPECT_EQ(fetched.code, compiled.code);
}

}  // namespace
}  // namespace kiln
