// Hostile and odd directories: what is there instead of an entry is never used, never followed and
// never waited for; it goes to quarantine and the user gets a compile.
#include "cache/trust.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/subprocess.hpp"
#include "kiln/cache.hpp"
#include "sample.hpp"
#include "tests/support/child_process.hpp"

namespace kiln::cache {
namespace {

using ::testing::HasSubstr;
constexpr uid_t kNobody = 65534;
constexpr int kUnreachable = 77;  // the child cannot get to the directory at all

class Trust : public ::testing::Test {
 protected:
  void SetUp() override {
    cache_ = Cache::open(config_for(directory()));
    ASSERT_TRUE(cache_->publish(sample_key(), sample_entry()));
    path_ = path_of(directory(), sample_key());
  }
  std::string directory() const { return temporary_.path("kiln"); }

  void expect_healed() {
    int compiles = 0;
    const auto compile = [&] { return ++compiles, sample_entry(); };
    EXPECT_EQ(fetch(*cache_, sample_key(), compile).from, From::compiled);
    EXPECT_EQ(fetch(*cache_, sample_key(), compile).from, From::disk);
    EXPECT_EQ(compiles, 1);
    EXPECT_EQ(count_quarantined(directory()), 1u);
    EXPECT_THAT(log_.text(), HasSubstr(sample_key().hex()));
  }
  // Nothing of the directory is used, and the reason names `path`.
  void expect_unused(const std::string& path, const std::string& reason) {
    const auto cache = Cache::open(config_for(directory()));
    EXPECT_FALSE(cache->find(sample_key()));
    EXPECT_FALSE(cache->publish(sample_key(5), sample_entry(5)));
    EXPECT_EQ(fetch(*cache, sample_key(), [] { return sample_entry(); }).from, From::compiled);
    EXPECT_THAT(log_.text(), HasSubstr(path));
    EXPECT_THAT(log_.text(), HasSubstr(reason));
    EXPECT_FALSE(fs::exists(path_of(directory(), sample_key(5))));
  }

  TemporaryDirectory temporary_;
  LogRecord log_;
  std::shared_ptr<Cache> cache_;
  std::string path_;
};

TEST_F(Trust, ASymlinkInPlaceOfAnEntryIsNotFollowed) {
  const std::string elsewhere = temporary_.path("elsewhere");
  fs::rename(path_, elsewhere);
  fs::create_symlink(elsewhere, path_);
  EXPECT_FALSE(cache_->find(sample_key()));
  expect_healed();
  EXPECT_TRUE(fs::exists(elsewhere));
}

TEST_F(Trust, AFifoInPlaceOfAnEntryDoesNotHang) {
  fs::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  expect_healed();
}

TEST_F(Trust, ASocketInPlaceOfAnEntryIsMovedAway) {
  fs::remove(path_);
  const base::UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(path_.size(), sizeof address.sun_path);
  path_.copy(address.sun_path, path_.size());
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  expect_healed();
}

TEST_F(Trust, ADirectoryInPlaceOfAnEntryIsMovedAway) {
  fs::remove(path_);
  fs::create_directory(path_);
  write_text(path_ + "/something", "of the user");
  expect_healed();
  EXPECT_EQ(count_files(directory() + "/quarantine", "something"), 1u);
}

TEST_F(Trust, AnEmptyFileAndAHugeOneAreMovedAway) {
  write_text(path_, "");
  expect_healed();
  fs::resize_file(path_, kMaxEntryBytes + 1);
  EXPECT_FALSE(cache_->find(sample_key()));
  EXPECT_EQ(count_quarantined(directory()), 2u);
}

TEST_F(Trust, AnEntryThatOthersMayWriteIsNotUsed) {
  ASSERT_EQ(::chmod(path_.c_str(), 0620), 0);
  expect_healed();
  EXPECT_THAT(log_.text(), HasSubstr("may be written by others (mode 0620)"));
}

TEST_F(Trust, AnEntryOfAnotherUserIsNotUsed) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give a file to another user";
  ASSERT_EQ(::chown(path_.c_str(), 12345, 12345), 0);
  expect_healed();
  EXPECT_THAT(log_.text(), HasSubstr("is owned by uid 12345"));
}

TEST_F(Trust, ADirectoryOfAnotherUserIsNotUsed) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give a directory to another user";
  ASSERT_EQ(::chown(directory().c_str(), 12345, 12345), 0);
  expect_unused(directory(), "is owned by uid 12345");
}

TEST_F(Trust, ADirectoryThatOthersMayWriteIsNotUsed) {
  ASSERT_EQ(::chmod(directory().c_str(), 0770), 0);
  expect_unused(directory(), "may be written by others (mode 0770)");
}

TEST_F(Trust, ASubDirectoryThatOthersMayWriteIsNotUsed) {
  const std::string shard = fs::path(path_).parent_path();
  ASSERT_EQ(::chmod(shard.c_str(), 0777), 0);
  const auto cache = Cache::open(config_for(directory()));
  EXPECT_FALSE(cache->find(sample_key()));
  EXPECT_FALSE(cache->publish(sample_key(), sample_entry()));
  EXPECT_THAT(log_.text(), HasSubstr("may be written by others (mode 0777)"));
}

TEST_F(Trust, ASubDirectoryThatIsASymlinkIsNotFollowed) {
  const std::string shard = fs::path(path_).parent_path();
  fs::rename(shard, temporary_.path("elsewhere"));
  fs::create_directory_symlink(temporary_.path("elsewhere"), shard);
  EXPECT_FALSE(cache_->find(sample_key()));
  EXPECT_FALSE(cache_->publish(sample_key(), sample_entry()));
  EXPECT_EQ(count_files(temporary_.path("elsewhere"), ".kiln"), 1u);
}

TEST_F(Trust, AParentThatAnybodyMayWriteIsNotUsedUnlessItIsSticky) {
  ASSERT_EQ(::chmod(temporary_.path().c_str(), 0777), 0);
  expect_unused(temporary_.path(), "may be written by anybody (mode 0777) and is not sticky");
  ASSERT_EQ(::chmod(temporary_.path().c_str(), 01777), 0);
  EXPECT_TRUE(Cache::open(config_for(directory()))->find(sample_key()));
}

TEST_F(Trust, ASymlinkAboveTheDirectoryIsTheUsersOwn) {
  fs::create_directory_symlink(temporary_.path(), temporary_.path("link"));
  EXPECT_TRUE(Cache::open(config_for(temporary_.path("link/kiln")))->find(sample_key()));
}

TEST_F(Trust, AFileInPlaceOfTheDirectoryIsSaidAndNotTouched) {
  const std::string file = temporary_.path("file");
  write_text(file, "of the user");
  const auto cache = Cache::open(config_for(file));
  EXPECT_FALSE(cache->publish(sample_key(), sample_entry()));
  EXPECT_THAT(cache->health_error(), HasSubstr(file));
  EXPECT_EQ(read_file(file), "of the user");
}

TEST_F(Trust, WhatIsWrongIsSaidOnce) {
  ASSERT_EQ(::chmod(directory().c_str(), 0777), 0);
  const auto cache = Cache::open(config_for(directory()));
  for (std::uint64_t i = 0; i < 5; ++i)
    fetch(*cache, sample_key(i), [&] { return sample_entry(i); });
  const std::string text = log_.text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

TEST_F(Trust, WhatAnotherProcessHasHealedIsNotQuarantined) {
  Directory& directory = *cache_->directory();
  const auto root = directory.root(false);
  const base::UniqueFd shard = directory.shard(*root, shard_of(sample_key()), false);
  struct stat seen = {};
  ASSERT_EQ(::stat(path_.c_str(), &seen), 0);
  ASSERT_TRUE(cache_->publish(sample_key(), sample_entry()));  // a new file of that name
  directory.quarantine(shard, entry_name(sample_key()), &seen, "was bad");
  EXPECT_TRUE(cache_->find(sample_key()));
  EXPECT_EQ(count_quarantined(this->directory()), 0u);
}

TEST_F(Trust, ManyBadEntriesDoNotFillTheQuarantine) {
  for (std::uint64_t i = 0; i < 80; ++i) {
    ASSERT_TRUE(cache_->publish(sample_key(i), sample_entry(i)));
    cache_->reject(sample_key(i), "no");
  }
  EXPECT_EQ(count_quarantined(directory()), 64u);
}

// Permissions mean nothing to root, so this runs as somebody else.
TEST_F(Trust, AReadOnlyDirectoryIsReadAndNotWritten) {
  ASSERT_EQ(::chmod(temporary_.path().c_str(), 0755), 0);
  for (const auto& file : fs::recursive_directory_iterator(temporary_.path())) {
    const mode_t mode = file.is_directory() ? 0500 : 0400;
    ASSERT_EQ(::chmod(file.path().c_str(), mode), 0);
    if (::geteuid() == 0) {
      ASSERT_EQ(::chown(file.path().c_str(), kNobody, kNobody), 0);
    }
  }
  const pid_t child = kiln::testing::fork_child([&] {
    if (::geteuid() == 0 && ::setuid(kNobody) != 0) return 10;
    if (::access(directory().c_str(), R_OK | X_OK) != 0) return kUnreachable;
    const auto cache = Cache::open(config_for(directory()));
    if (!cache->find(sample_key())) return 11;
    if (cache->publish(sample_key(1), sample_entry(1))) return 12;
    if (fetch(*cache, sample_key(1), [] { return sample_entry(1); }).from != From::compiled) {
      return 13;
    }
    if (cache->health_error().find("cannot be written") == std::string::npos) return 15;
    return log_.text().find("Permission denied") == std::string::npos ? 14 : 0;
  });
  const int status = base::wait_for(child).value();
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kUnreachable) {
    GTEST_SKIP() << "a directory above " << directory() << " is closed to other users";
  }
  EXPECT_EQ(WEXITSTATUS(status), 0);
  for (const auto& file : fs::recursive_directory_iterator(temporary_.path())) {
    ::chmod(file.path().c_str(), 0700);  // so that it can be removed
  }
}

}  // namespace
}  // namespace kiln::cache
