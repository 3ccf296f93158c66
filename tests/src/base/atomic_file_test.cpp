// A file is replaced whole or stays as it was, and no other file is left.
#include "base/atomic_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/temporary_directory.hpp"

namespace kiln::base {
namespace {

/// The call of that name fails, with EIO; files without a name are not to be had where `named`.
class FailingIo : public Io {
 public:
  std::string_view call;
  bool named = false;

  int open_at(int directory, const char* name, int flags, mode_t mode) override {
    if (named && (flags & O_TMPFILE) == O_TMPFILE) return fail(EOPNOTSUPP);
    return call == "open" ? fail() : Io::open_at(directory, name, flags, mode);
  }
  int close(int fd) override {
    const int result = Io::close(fd);
    return call == "close" ? fail() : result;
  }
  ssize_t write(int fd, const void* from, std::size_t size) override {
    return call == "write" ? fail() : Io::write(fd, from, size);
  }
  int sync(int fd) override { return call == "sync" ? fail() : Io::sync(fd); }
  int link_at(int from_directory, const char* from, int to_directory, const char* to) override {
    return call == "link" ? fail() : Io::link_at(from_directory, from, to_directory, to);
  }
  int rename_at(int from_directory, const char* from, int to_directory, const char* to) override {
    return call == "rename" ? fail() : Io::rename_at(from_directory, from, to_directory, to);
  }

 private:
  static int fail(int error = EIO) {
    errno = error;
    return -1;
  }
};

/// With a temporary name from the beginning, and without any before the end.
class AtomicFiles : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    io_.named = !GetParam();
    const UniqueFd file = open_file(system_io(), directory_.path(), O_RDWR | O_TMPFILE, 0600);
    if (GetParam() && !file) GTEST_SKIP() << "no O_TMPFILE on this file system";
  }
  AtomicFile::Options options() const { return {.sync = true, .unnamed = GetParam()}; }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& file : std::filesystem::directory_iterator(directory_.path()))
      names.push_back(file.path().filename());
    return names;
  }

  const testing::TemporaryDirectory directory_;
  const std::string path_ = directory_.put("file", "old");
  FailingIo io_;
};

TEST_P(AtomicFiles, ReplaceAtTheirCommit) {
  AtomicFile file(io_, AT_FDCWD, path_, options());
  EXPECT_TRUE(file.write("ne"));
  EXPECT_TRUE(file.write("w"));
  EXPECT_EQ(testing::read_file(path_), "old");
  EXPECT_TRUE(file.commit());
  EXPECT_EQ(testing::read_file(path_), "new");
  EXPECT_EQ(names(), std::vector<std::string>{"file"});
  EXPECT_EQ(std::filesystem::status(path_).permissions() & std::filesystem::perms::mask,
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_P(AtomicFiles, WithoutACommitLeaveNothing) {
  {
    AtomicFile file(io_, AT_FDCWD, path_, options());
    EXPECT_TRUE(file.write("new"));
  }
  EXPECT_EQ(testing::read_file(path_), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"file"});
}

TEST_P(AtomicFiles, ThatFailLeaveTheOldFileAndNothingElse) {
  for (const char* call : {"open", "write", "sync", GetParam() ? "link" : "close", "rename"}) {
    io_.call = call;
    {
      AtomicFile file(io_, AT_FDCWD, path_, options());
      EXPECT_FALSE(file.write("new") && file.commit()) << call;
      EXPECT_FALSE(file.commit()) << call;
      EXPECT_EQ(file.error(), EIO) << call;
    }
    EXPECT_EQ(testing::read_file(path_), "old") << call;
    EXPECT_EQ(names(), std::vector<std::string>{"file"}) << call;
  }
}

TEST_P(AtomicFiles, ReplaceASymbolicLinkAndNotWhatItNames) {
  std::filesystem::create_symlink("file", directory_.path("link"));
  AtomicFile file(io_, AT_FDCWD, directory_.path("link"), options());
  EXPECT_TRUE(file.write("new") && file.commit());
  EXPECT_FALSE(std::filesystem::is_symlink(directory_.path("link")));
  EXPECT_EQ(testing::read_file(directory_.path("link")), "new");
  EXPECT_EQ(testing::read_file(path_), "old");
}

INSTANTIATE_TEST_SUITE_P(, AtomicFiles, ::testing::Bool(), [](const auto& info) {
  return info.param ? std::string("unnamed") : std::string("named");
});

TEST(ScratchFiles, HaveNoName) {
  const testing::TemporaryDirectory directory;
  for (const bool named : {false, true}) {
    FailingIo io;
    io.named = named;
    const UniqueFd file = open_scratch(io, directory.path());
    ASSERT_TRUE(file);
    EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
    EXPECT_TRUE(write_bytes(io, file.get(), "kept"));
    std::string text;
    EXPECT_TRUE(read_bytes(io, file.get(), 0, 4, text));
    EXPECT_EQ(text, "kept");
  }
}

}  // namespace
}  // namespace kiln::base
