// Two versions of kiln on one directory: each finds its own entries and leaves the other's alone,
// whatever both do at once.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/subprocess.hpp"
#include "cache/bundle.hpp"
#include "fault_io.hpp"
#include "kiln/cache.hpp"
#include "sample.hpp"
#include "tests/fuzz/seal.hpp"
#include "tests/support/child_process.hpp"

namespace kiln::cache {
namespace {

using kiln::testing::fork_child;
using kiln::testing::Pipe;

constexpr std::uint64_t kEntries = 40;

/// The key that a kiln of the next entry format makes: its version is hashed.
Key next_key(std::uint64_t number) {
  Key key = sample_key(number);
  key.low ^= 0x5555;
  return key;
}

/// What that kiln writes: another version, and after it nothing that this kiln could know.
std::string next_file(std::uint64_t number) {
  std::string bytes =
      encode(next_key(number), sample_entry(number)).substr(0, 12) + noise(500 + number, number);
  bytes[8] = static_cast<char>(kEntryVersion + 1);
  return bytes;
}

/// That kiln's process: publishes and reads back, all the time, until it is told to end.
int run_next_version(const std::string& directory, Pipe& end) {
  const auto io = std::make_shared<FaultIo>();
  Counters counters;
  Directory other(*io, {directory, true, 0, 0}, counters);
  for (std::uint64_t round = 0;; ++round) {
    for (std::uint64_t number = 0; number < kEntries; ++number) {
      if (!other.publish(next_key(number), next_file(number))) return 1;
      if (read_file(path_of(directory, next_key(number))) != next_file(number)) return 2;
    }
    if (round > 0 && end.is_readable()) return 0;
  }
}

TEST(Versions, OnOneDirectoryLeaveEachOtherAlone) {
  const TemporaryDirectory temporary(fast_directory(16 << 20));
  const std::string directory = temporary.path("kiln");
  LogRecord log;
  Pipe end;
  const pid_t child = fork_child([&] { return run_next_version(directory, end); });

  Config config = config_for(directory);
  config.io = std::make_shared<FaultIo>();
  std::uint64_t others = 0;
  for (int round = 0; round < 30 || (others < kEntries && round < 10'000); ++round) {
    const auto cache = Cache::open(config);
    for (std::uint64_t number = 0; number < kEntries; ++number) {
      const Fetched fetched =
          fetch(*cache, sample_key(number), [&] { return sample_entry(number); });
      ASSERT_EQ(fetched.entry.code, sample_entry(number).code);
      EXPECT_FALSE(cache->find(next_key(number)));
    }
    const Verification verification = verify(*cache, true);
    others = verification.other_versions;
    EXPECT_EQ(verification.entries, kEntries);
    EXPECT_TRUE(verification.problems.empty());
    for (const Listing& listing : list(*cache)) {
      EXPECT_EQ(listing.other_version, !listing.problem.empty()) << listing.problem;
    }
  }
  end.send('e');
  EXPECT_EQ(base::wait_for(child), 0);
  EXPECT_EQ(others, kEntries);
  for (std::uint64_t number = 0; number < kEntries; ++number) {
    EXPECT_EQ(read_file(path_of(directory, next_key(number))), next_file(number));
  }
  EXPECT_EQ(count_quarantined(directory), 0u);
  EXPECT_EQ(log.text(), "");
}

TEST(Versions, OfABundleThatIsNotOursIsRefusedInWords) {
  std::string bytes = encode_bundle({{sample_key(), encode(sample_key(), sample_entry())}}, {});
  bytes[8] = static_cast<char>(kBundleVersion + 1);
  seal(bytes, bundle_index_size(bytes));
  EXPECT_EQ(check_bundle(bytes, {}).reason, "is not a kiln bundle of a version this kiln reads");
}

// File systems differ in what they keep and allow. Nothing depends on it.
class OddFileSystem : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = config_for(temporary_.path("kiln"));
    config_.max_size = 100'000;
  }
  void expect_the_used_one_stays() {
    const auto cache = Cache::open(config_);
    for (std::uint64_t i = 0; i < 15; ++i) {
      ASSERT_TRUE(cache->publish(sample_key(i), sample_entry(i, 5'000)));
      const auto age = std::chrono::hours(100 - static_cast<int>(i));
      fs::last_write_time(path(i), fs::file_time_type::clock::now() - age);
    }
    ASSERT_TRUE(cache->find(sample_key(0)));  // the oldest is used
    set_access_times();
    for (std::uint64_t i = 15; i < 25; ++i) cache->publish(sample_key(i), sample_entry(i, 5'000));
    EXPECT_GT(cache->stats()[Count::evicted], 0u);
    EXPECT_TRUE(cache->find(sample_key(0)));
    EXPECT_FALSE(cache->find(sample_key(1)));
  }
  /// The opposite of what was used: nobody may look at these.
  void set_access_times() {
    for (std::uint64_t i = 0; i < 15; ++i) {
      const struct timespec times[2] = {{i == 0 ? 0 : 2'000'000'000, 0}, {0, UTIME_OMIT}};
      ASSERT_EQ(::utimensat(AT_FDCWD, path(i).c_str(), times, 0), 0);
    }
  }
  std::string path(std::uint64_t number) const {
    return path_of(config_.directory, sample_key(number));
  }
  TemporaryDirectory temporary_;
  Config config_;
  LogRecord log_;
};

TEST_F(OddFileSystem, AccessTimesSayNothingAboutRecency) { expect_the_used_one_stays(); }

TEST_F(OddFileSystem, RecencyIsKeptWhereAccessTimesAreNot) {
  constexpr int kNoMount = 77;
  const pid_t child = fork_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", "", MS_REC | MS_PRIVATE, "") != 0 ||
        ::mount("tmpfs", temporary_.path().c_str(), "tmpfs", MS_NOATIME, "size=4m,mode=0700") !=
            0) {
      return kNoMount;
    }
    expect_the_used_one_stays();
    return HasFailure() ? 1 : 0;
  });
  const int status = base::wait_for(child).value();
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoMount) GTEST_SKIP() << "needs root, to mount a tmpfs with noatime";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// As some network file systems are: no locks, no fsync.
class WithoutLocks : public FaultIo {
 public:
  int lock(int, int) override {
    errno = ENOLCK;
    return -1;
  }
  int sync(int) override {
    errno = EINVAL;
    return -1;
  }
};

TEST_F(OddFileSystem, WithoutLocksAndFsyncEverythingWorksAndItIsSaid) {
  config_.io = std::make_shared<WithoutLocks>();
  int compiles = 0;
  const auto compile = [&] { return ++compiles, sample_entry(); };
  EXPECT_EQ(fetch(*Cache::open(config_), sample_key(), compile).from, From::compiled);
  EXPECT_EQ(fetch(*Cache::open(config_), sample_key(), compile).from, From::disk);
  EXPECT_EQ(compiles, 1);
  EXPECT_NE(log_.text().find("no lock can be taken"), std::string::npos);
}

// A server that has done what it was asked and lost the answer.
class LosesAnswers : public FaultIo {
 public:
  int rename_at(int from_directory, const char* from, int to_directory, const char* to) override {
    FaultIo::rename_at(from_directory, from, to_directory, to);
    errno = ENOENT;
    return -1;
  }
};

TEST_F(OddFileSystem, ARenameWhoseAnswerIsLostLeavesAGoodEntry) {
  config_.io = std::make_shared<LosesAnswers>();
  const auto cache = Cache::open(config_);
  EXPECT_EQ(fetch(*cache, sample_key(), [] { return sample_entry(); }).entry.code,
            sample_entry().code);
  EXPECT_TRUE(cache->find(sample_key()));
  EXPECT_EQ(count_files(config_.directory, ".tmp"), 0u);
}

}  // namespace
}  // namespace kiln::cache
