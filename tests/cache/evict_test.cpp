// What goes when there is too much: the decision, and how the directory carries it out.
#include "cache/evict.hpp"

#include <gtest/gtest.h>

#include "fault_io.hpp"
#include "kiln/cache.hpp"
#include "sample.hpp"

namespace kiln::cache {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kDay = 24 * 3600 * kSecond;
constexpr std::int64_t kNow = 20'000 * kDay;

using Victims = std::vector<std::size_t>;

TEST(ChooseVictims, TheLeastRecentlyUsedGoUntilTheRestFits) {
  const std::vector<Candidate> files = {
      {"a", 10, kNow - 1}, {"b", 10, kNow - 3}, {"c", 10, kNow - 2}, {"d", 10, kNow - 4}};
  EXPECT_EQ(choose_victims(files, {kNow, 40, {}}), Victims{});
  EXPECT_EQ(choose_victims(files, {kNow, 39, {}}), Victims{3});
  EXPECT_EQ(choose_victims(files, {kNow, 20, {}}), (Victims{3, 1}));
  EXPECT_EQ(choose_victims(files, {kNow, 0, {}}), (Victims{3, 1, 2, 0}));
}

TEST(ChooseVictims, EqualTimesGoByName) {
  const std::vector<Candidate> files = {{"b", 1, kNow}, {"a", 1, kNow}, {"c", 1, kNow}};
  EXPECT_EQ(choose_victims(files, {kNow, 1, {}}), (Victims{1, 0}));
}

TEST(ChooseVictims, WhatWasNotUsedForLongGoesHoweverSmall) {
  const std::vector<Candidate> files = {{"a", 1, kNow - 3 * kDay}, {"b", 1, kNow - kDay}};
  EXPECT_EQ(choose_victims(files, {kNow, {}, 2 * kDay}), Victims{0});
  EXPECT_EQ(choose_victims(files, {kNow, {}, {}}), Victims{});
}

TEST(ChooseVictims, ATimeFromTheFutureIsTheOldest) {
  const std::vector<Candidate> files = {
      {"old", 1, kNow - 9 * kDay}, {"future", 1, kNow + kDay}, {"skewed", 1, kNow + kSecond}};
  EXPECT_EQ(choose_victims(files, {kNow, 1, {}}), (Victims{1, 0}));
}

TEST(ShouldTouch, OncePerIntervalAndAfterTheClockWasSetBack) {
  EXPECT_FALSE(should_touch(kNow - 9 * kSecond, kNow, 10 * kSecond));
  EXPECT_TRUE(should_touch(kNow - 11 * kSecond, kNow, 10 * kSecond));
  EXPECT_FALSE(should_touch(kNow + 60 * kSecond, kNow, 10 * kSecond));
  EXPECT_TRUE(should_touch(kNow + kDay, kNow, 10 * kSecond));
}

TEST(Share, CoversTheBoundInEqualPartsOfAtLeastFourMiB) {
  for (const std::uint64_t size :
       {std::uint64_t{100}, std::uint64_t{4} << 20, std::uint64_t{64} << 20, std::uint64_t{1} << 30,
        std::uint64_t{1} << 40}) {
    std::uint64_t sum = 0;
    for (unsigned shard = 0; shard < kShards;) {
      const Share share = share_of(shard, size);
      EXPECT_EQ(share.first, shard);
      EXPECT_EQ(share_of(shard + share.count - 1, size).first, shard);
      EXPECT_TRUE(share.count == kShards || share.max_bytes >= 4 << 20) << size;
      EXPECT_LE(share.low_bytes, share.max_bytes);
      sum += share.max_bytes;
      shard += share.count;
    }
    EXPECT_LE(sum, size);
    EXPECT_GE(sum, size - size / 100);
  }
  EXPECT_EQ(share_of(7, std::uint64_t{1} << 30).count, 1u);
}

class Eviction : public ::testing::Test {
 protected:
  std::shared_ptr<Cache> open(std::uint64_t max_size) {
    Config config = config_for(directory());
    config.max_size = max_size;
    config.io = io_;
    return Cache::open(config);
  }
  void set_age(std::uint64_t number, std::chrono::hours age) {
    fs::last_write_time(path_of(directory(), sample_key(number)),
                        fs::file_time_type::clock::now() - age);
  }
  std::string directory() const { return temporary_.path("kiln"); }
  TemporaryDirectory temporary_;
  std::shared_ptr<FaultIo> io_ = std::make_shared<FaultIo>();
  LogRecord log_;
};

TEST_F(Eviction, KeepsTheBoundAndWhatWasUsedLast) {
  const auto cache = open(100'000);
  for (std::uint64_t i = 0; i < 40; ++i) {
    ASSERT_TRUE(cache->publish(sample_key(i), sample_entry(i, 5'000)));
    EXPECT_TRUE(cache->find(sample_key(i)));
    EXPECT_LE(usage(*cache).bytes, 100'000u);
    set_age(i, std::chrono::hours(100 - static_cast<int>(i)));
    // The first is used all the time, so it stays although it is the oldest.
    EXPECT_TRUE(cache->find(sample_key(0)));
  }
  EXPECT_GE(usage(*cache).bytes, 70'000u);
  EXPECT_FALSE(cache->find(sample_key(1)));
  EXPECT_TRUE(cache->find(sample_key(39)));
  EXPECT_GT(cache->stats()[Count::evicted], 20u);
}

TEST_F(Eviction, AHitRenewsTheTimeOnceAndNotWithinTheInterval) {
  const auto cache = open(0);
  cache->publish(sample_key(), sample_entry());
  const auto calls_of = [&](std::string_view name) {
    return std::count(io_->history().begin(), io_->history().end(), name);
  };
  cache->find(sample_key());
  EXPECT_EQ(calls_of("utimens"), 0);
  set_age(0, std::chrono::hours(5));
  for (int i = 0; i < 3; ++i) cache->find(sample_key());
  EXPECT_EQ(calls_of("utimens"), 1);
  EXPECT_GT(list(*cache)[0].last_used, io_->now() / kSecond - 60);
}

TEST_F(Eviction, AClockThatIsSetBackDoesNotMakeEntriesImmortal) {
  const auto cache = open(100'000);
  io_->clock_offset = 365 * kDay;
  cache->publish(sample_key(1), sample_entry(1, 5'000));
  cache->publish(sample_key(2), sample_entry(2, 20'000));
  for (const std::uint64_t number : {1, 2}) set_age(number, std::chrono::hours(-365 * 24));
  io_->clock_offset = 0;
  EXPECT_TRUE(cache->find(sample_key(1)));  // a use renews it
  for (std::uint64_t i = 10; i < 28 && cache->stats()[Count::evicted] == 0; ++i) {
    cache->publish(sample_key(i), sample_entry(i, 5'000));
  }
  EXPECT_EQ(cache->stats()[Count::evicted], 1u);
  EXPECT_FALSE(cache->find(sample_key(2)));
  EXPECT_TRUE(cache->find(sample_key(1)));
}

TEST_F(Eviction, AClockThatIsSetForwardLosesNothing) {
  const auto cache = open(100'000);
  for (std::uint64_t i = 0; i < 10; ++i) cache->publish(sample_key(i), sample_entry(i, 5'000));
  io_->clock_offset = 3650 * kDay;
  cache->publish(sample_key(10), sample_entry(10, 5'000));
  for (std::uint64_t i = 0; i <= 10; ++i) EXPECT_TRUE(cache->find(sample_key(i)));
}

TEST_F(Eviction, AnEntryAboveTheBoundIsNotKeptAndPushesNothingOut) {
  const auto cache = open(20'000);
  cache->publish(sample_key(1), sample_entry(1, 5'000));
  EXPECT_FALSE(cache->publish(sample_key(2), sample_entry(2, 50'000)));
  EXPECT_TRUE(cache->find(sample_key(1)));
  EXPECT_NE(log_.text().find("the bound is 20000"), std::string::npos);
}

TEST_F(Eviction, OfAnotherFormatVersionCountsAndIsOtherwiseLeftAlone) {
  const auto cache = open(100'000);
  cache->publish(sample_key(1), sample_entry(1, 5'000));
  const std::string path = path_of(directory(), sample_key(1));
  std::string bytes = read_file(path);
  bytes[8] = 2;  // the version
  bytes[30] = static_cast<char>(bytes[30] ^ 0x55);
  write_text(path, bytes);

  EXPECT_FALSE(cache->find(sample_key(1)));
  EXPECT_EQ(count_quarantined(directory()), 0u);
  EXPECT_TRUE(list(*cache)[0].other_version);
  const Verification verification = verify(*cache, true);
  EXPECT_EQ(verification.other_versions, 1u);
  EXPECT_TRUE(verification.problems.empty());
  EXPECT_EQ(read_file(path), bytes);

  set_age(1, std::chrono::hours(50));
  for (std::uint64_t i = 10; i < 40; ++i) cache->publish(sample_key(i), sample_entry(i, 5'000));
  EXPECT_FALSE(fs::exists(path)) << "the bound holds for all versions together";
}

}  // namespace
}  // namespace kiln::cache
