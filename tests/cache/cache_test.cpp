// The life of an entry through the facade, on a disk that works.
#include "cache/cache.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "fault_io.hpp"
#include "kiln/cache.hpp"
#include "sample.hpp"

namespace kiln::cache {
namespace {

using ::testing::HasSubstr;

class CacheTest : public ::testing::Test {
 protected:
  std::shared_ptr<Cache> open() { return Cache::open(config_for(directory())); }
  std::string directory() const { return temporary_.path("kiln"); }
  TemporaryDirectory temporary_;
  LogRecord log_;
};

TEST_F(CacheTest, CompilesOnceThenFindsOnDisk) {
  int compiles = 0;
  const auto compile = [&] { return ++compiles, sample_entry(); };
  EXPECT_EQ(fetch(*open(), sample_key(), compile).from, From::compiled);
  const Fetched again = fetch(*open(), sample_key(), compile);
  EXPECT_EQ(again.from, From::disk);
  EXPECT_EQ(again.entry.code, sample_entry().code);
  EXPECT_EQ(again.entry.metadata.entry, sample_entry().metadata.entry);
  EXPECT_EQ(compiles, 1);
  EXPECT_EQ(open()->read(sample_key())->metadata, sample_entry().metadata);
  EXPECT_EQ(open()->read(sample_key())->source, sample_entry().source);
  EXPECT_EQ(log_.text(), "");
}

TEST_F(CacheTest, EverythingIsPrivateToTheUser) {
  open()->publish(sample_key(), sample_entry());
  for (const auto& file : fs::recursive_directory_iterator(temporary_.path())) {
    EXPECT_EQ(fs::status(file).permissions() & (fs::perms::group_all | fs::perms::others_all),
              fs::perms::none)
        << file;
  }
  EXPECT_EQ(count_files(directory(), ".kiln"), 1u);
  EXPECT_EQ(count_files(directory(), ".tmp"), 0u);
}

TEST_F(CacheTest, AMissLeavesNothingBehind) {
  EXPECT_FALSE(open()->find(sample_key()));
  EXPECT_FALSE(fs::exists(directory()));
}

TEST_F(CacheTest, PublishFillsInTimeAndVersion) {
  Entry entry = sample_entry();
  entry.metadata.created = 0;
  entry.metadata.kiln_version.clear();
  ASSERT_TRUE(open()->publish(sample_key(), entry));
  const auto found = open()->find(sample_key());
  EXPECT_GT(found->metadata.created, 1'600'000'000);
  EXPECT_NE(found->metadata.kiln_version, "");
}

TEST_F(CacheTest, WithoutToolchainIdentityNothingIsKept) {
  Entry entry = sample_entry();
  entry.metadata.toolchain_identity.clear();
  EXPECT_FALSE(open()->publish(sample_key(), entry));
  EXPECT_FALSE(open()->find(sample_key()));
  EXPECT_THAT(log_.text(), HasSubstr("identity"));
}

TEST_F(CacheTest, ARejectedEntryIsQuarantinedAndCompiledAgain) {
  const auto cache = open();
  int compiles = 0;
  const auto compile = [&] { return ++compiles, sample_entry(); };
  fetch(*cache, sample_key(), compile);
  cache->reject(sample_key(), "hipErrorSharedObjectInitFailed");
  EXPECT_EQ(count_quarantined(directory()), 1u);
  EXPECT_THAT(log_.text(), HasSubstr("hipErrorSharedObjectInitFailed"));
  EXPECT_EQ(fetch(*cache, sample_key(), compile).from, From::compiled);
  EXPECT_EQ(fetch(*cache, sample_key(), compile).from, From::disk);
  EXPECT_EQ(compiles, 2);
}

TEST_F(CacheTest, ACompileThatFailsLeavesNoLock) {
  const auto cache = open();
  EXPECT_THROW(
      fetch(*cache, sample_key(), []() -> Entry { throw Error(Code::io, "worker is gone"); }),
      Error);
  EXPECT_EQ(count_files(directory(), ".lock"), 0u);
  EXPECT_EQ(fetch(*cache, sample_key(), [] { return sample_entry(); }).from, From::compiled);
}

TEST_F(CacheTest, ManyThreadsOnOneKeyCompileOnce) {
  const auto cache = open();
  std::atomic<int> compiles{0};
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 32; ++i) {
    threads.emplace_back([&] {
      const Fetched fetched =
          fetch(*cache, sample_key(), [&] { return ++compiles, sample_entry(); });
      right += fetched.entry.code == sample_entry().code;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compiles, 1);
  EXPECT_EQ(right, 32);
}

TEST_F(CacheTest, UnrelatedKeysDoNotWaitForEachOther) {
  Config config = config_for(directory());
  const auto io = std::make_shared<FaultIo>();
  io->on_pause = [] { ADD_FAILURE() << "waited for the lock of another key"; };
  config.io = io;
  config.wait_limit = std::chrono::seconds(1);  // which ends the test where they do
  const auto cache = Cache::open(config);
  // The compile of 1 needs that of 2 to finish, in another thread.
  const Fetched outer = fetch(*cache, sample_key(1), [&] {
    std::thread([&] { fetch(*cache, sample_key(2), [] { return sample_entry(2); }); }).join();
    return sample_entry(1);
  });
  EXPECT_EQ(outer.from, From::compiled);
  EXPECT_TRUE(cache->find(sample_key(2)));
  EXPECT_EQ(cache->stats()[Count::compiled], 2u);
}

TEST_F(CacheTest, AWaiterDoesNotWaitBeyondItsLimit) {
  Config config = config_for(directory());
  config.wait_limit = std::chrono::milliseconds(1);
  const auto cache = Cache::open(config);
  const auto other = Cache::open(config);
  int compiles = 0;
  // While the first compiles, a second thread and a second "process" get tired of waiting.
  fetch(*cache, sample_key(), [&] {
    std::thread([&] {
      fetch(*cache, sample_key(), [&] { return ++compiles, sample_entry(); });
      fs::remove(path_of(directory(), sample_key()));
      fetch(*other, sample_key(), [&] { return ++compiles, sample_entry(); });
    }).join();
    return ++compiles, sample_entry();
  });
  EXPECT_EQ(compiles, 3);
}

TEST_F(CacheTest, SurvivesThatItsDirectoryIsDeleted) {
  const auto cache = open();
  cache->publish(sample_key(1), sample_entry(1));
  fs::remove_all(directory());
  EXPECT_FALSE(cache->find(sample_key(1)));
  EXPECT_TRUE(cache->publish(sample_key(2), sample_entry(2)));
  EXPECT_TRUE(cache->find(sample_key(2)));
}

TEST_F(CacheTest, OffMeansOffAndQuiet) {
  Config config;
  config.why_uncached = "KILN_CACHE=off";
  const auto cache = Cache::open(config);
  int compiles = 0;
  for (int i = 0; i < 2; ++i)
    fetch(*cache, sample_key(), [&] { return ++compiles, sample_entry(); });
  EXPECT_EQ(compiles, 2);
  EXPECT_EQ(log_.text(), "");
  EXPECT_EQ(cache->health_error(), "KILN_CACHE=off");
}

// What a warm first call pays: the handle of the sub-directory, which is trusted by its own status,
// then one open, one look at the status, and a read of the head and of the code each: the source,
// most of the entry, stays where it is.
TEST_F(CacheTest, AHitIsOneOpenAndReadsTheHeadAndTheCode) {
  open()->publish(sample_key(), sample_entry(0, 100'000));
  Config config = config_for(directory());
  const auto io = std::make_shared<FaultIo>();
  config.io = io;
  const auto cache = Cache::open(config);
  ASSERT_TRUE(cache->find(sample_key()));  // opens the directory itself
  const std::size_t before = io->history().size();
  ASSERT_TRUE(cache->find(sample_key()));
  EXPECT_EQ(
      std::vector<std::string>(io->history().begin() + static_cast<std::ptrdiff_t>(before),
                               io->history().end()),
      (std::vector<std::string>{"open", "stat", "open", "stat", "read", "read", "close", "close"}));
}

// Whatever is wrong with the file of an entry: a hit is the right code, and what is wrong with the
// part that a launch needs sends the file to quarantine.
TEST_F(CacheTest, NoFlippedByteOfAFileGivesOtherCode) {
  const auto cache = open();
  cache->publish(sample_key(), sample_entry());
  const std::string path = path_of(*cache, sample_key());
  const std::string good = read_file(path);
  const Head head = decode_head(good);
  std::size_t hits = 0;
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x10);
    fs::remove(path);
    write_text(path, bytes);
    const auto found = cache->find(sample_key());
    const bool in_code = i >= head.code_offset && i < head.code_offset + head.code_bytes;
    const bool needed = i < head_size(good) || in_code;
    ASSERT_EQ(found.has_value(), !needed) << "byte " << i;
    const bool other_version = i >= 8 && i < 12;  // which may be right for another kiln
    ASSERT_EQ(fs::exists(path), !needed || other_version) << "byte " << i;
    if (found) {
      ASSERT_EQ(found->code, sample_entry().code) << "byte " << i;
    }
    hits += found ? 1 : 0;
  }
  EXPECT_GT(hits, 0u);
  std::printf("%zu cases\n", good.size());
}

TEST_F(CacheTest, ATruncatedFileIsNoHit) {
  const auto cache = open();
  cache->publish(sample_key(), sample_entry());
  const std::string path = path_of(*cache, sample_key());
  const std::string good = read_file(path);
  for (std::size_t size = 0; size < good.size(); ++size) {
    fs::remove(path);
    write_text(path, good.substr(0, size));
    ASSERT_FALSE(cache->find(sample_key())) << size;
  }
}

// As an earlier kiln wrote it.
TEST_F(CacheTest, AnEntryWithoutADigestOfItsCodeIsAHit) {
  const auto cache = open();
  cache->publish(sample_key(), sample_entry());
  const std::string path = path_of(*cache, sample_key());
  fs::remove(path);
  write_text(path, read_file(KILN_TEST_GOLDEN "/entry-v1.kiln"));
  const auto found = cache->find(sample_key());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->code, sample_entry().code);
}

TEST_F(CacheTest, CountingTakesNoLockAndNoSystemCallButOnceInThousands) {
  Config config = config_for(directory());
  const auto io = std::make_shared<FaultIo>();
  config.io = io;
  const auto cache = Cache::open(config);
  cache->publish(sample_key(), sample_entry());
  const auto locks = [&,
                      published = std::count(io->history().begin(), io->history().end(), "flock")] {
    return std::count(io->history().begin(), io->history().end(), "flock") - published;
  };
  for (int i = 0; i < 4095; ++i) cache->find(sample_key());
  EXPECT_EQ(locks(), 0);
  EXPECT_EQ(cache->own_stats()[Count::hits], 4095u);
  cache->find(sample_key());  // what was counted is added to the file
  EXPECT_EQ(locks(), 2) << "the lock, and its release";
  EXPECT_EQ(cache->own_stats()[Count::hits], 0u);
  EXPECT_EQ(cache->stats()[Count::hits], 4096u);
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
}

TEST_F(CacheTest, WithoutACompilerTheEntryOfAnotherToolchainIsFound) {
  std::vector<Ingredient> unknown = sample_ingredients();
  unknown[4].value.clear();  // the toolchain
  {
    const auto cache = open();
    EXPECT_FALSE(cache->find_any_toolchain(unknown));
    cache->publish(sample_key(1), sample_entry(1));
    Entry older = sample_entry();
    older.metadata.created -= 1000;
    older.metadata.ingredients[4].value = "comgr:older";
    cache->publish(make_key(older.metadata.ingredients), older);
    cache->publish(sample_key(), sample_entry());
    EXPECT_FALSE(cache->find_any_toolchain(unknown)) << "the heads are read once";
    export_bundle(*cache, temporary_.path("bundle"));
  }
  EXPECT_EQ(open()->find_any_toolchain(unknown), sample_key());
  Config config = config_for(temporary_.path("other"));
  config.readonly = {temporary_.path("bundle")};
  const auto shipped = Cache::open(config);
  EXPECT_EQ(shipped->find_any_toolchain(unknown), sample_key());
  unknown[3].value = "gfx90a:sramecc+:xnack+";
  EXPECT_FALSE(shipped->find_any_toolchain(unknown));
}

TEST_F(CacheTest, WhatALayerHasIsCopiedLaterUnlessItWasRejectedMeanwhile) {
  {
    const auto cache = open();
    cache->publish(sample_key(), sample_entry());
    cache->publish(sample_key(1), sample_entry(1));
    export_bundle(*cache, temporary_.path("bundle"));
  }
  Config config = config_for(temporary_.path("other"));
  config.readonly = {temporary_.path("bundle")};
  std::vector<std::function<void()>> copies;
  config.later = [&](std::function<void()> copy) { copies.push_back(std::move(copy)); };
  const auto cache = Cache::open(config);
  EXPECT_TRUE(cache->find(sample_key()));
  EXPECT_TRUE(cache->find(sample_key(1)));
  ASSERT_EQ(copies.size(), 2U);
  EXPECT_FALSE(cache->directory()->exists(sample_key()));
  cache->reject(sample_key(1), "the driver refuses it");
  for (const auto& copy : copies) copy();
  EXPECT_TRUE(cache->directory()->exists(sample_key()));
  EXPECT_FALSE(cache->directory()->exists(sample_key(1)));
}

TEST_F(CacheTest, CountsWhatHappens) {
  {
    const auto cache = open();
    fetch(*cache, sample_key(), [] { return sample_entry(); });
    cache->find(sample_key());
    cache->find(sample_key(7));
  }
  const auto cache = open();
  Stats stats = cache->stats();
  EXPECT_EQ(stats[Count::hits], 1u);
  EXPECT_EQ(stats[Count::misses], 2u);
  EXPECT_EQ(stats[Count::compiled], 1u);
  EXPECT_EQ(stats[Count::published], 1u);
  EXPECT_EQ(stats[Count::published_bytes], fs::file_size(path_of(directory(), sample_key())));
  EXPECT_TRUE(cache->zero_stats());
  EXPECT_EQ(open()->stats().values, Stats{}.values);
}

TEST_F(CacheTest, TornStatisticsStartAgain) {
  fetch(*open(), sample_key(), [] { return sample_entry(); });
  std::string text = read_file(directory() + "/stats");
  text[40] = '9';
  write_text(directory() + "/stats", text);
  EXPECT_EQ(open()->stats().values, Stats{}.values);
  open()->find(sample_key());
  EXPECT_EQ(open()->stats()[Count::hits], 1u);
}

}  // namespace
}  // namespace kiln::cache
