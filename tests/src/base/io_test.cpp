// Loops around system calls that a signal interrupts or that do less than they were asked, over an
// Io that does so.
#include "base/io.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>

#include "tests/support/temporary_directory.hpp"

namespace kiln::base {
namespace {

/// Every other call is interrupted, and no read or write does more than three bytes. From
/// `fail_from` bytes on they fail.
class HesitantIo : public Io {
 public:
  std::size_t fail_from = SIZE_MAX;

  int open_at(int directory, const char* name, int flags, mode_t mode) override {
    return interrupted() ? -1 : Io::open_at(directory, name, flags, mode);
  }
  ssize_t read(int fd, void* to, std::size_t size, std::uint64_t offset) override {
    return stops() ? -1 : count(Io::read(fd, to, std::min(size, kMost), offset));
  }
  ssize_t write(int fd, const void* from, std::size_t size) override {
    return stops() ? -1 : count(Io::write(fd, from, std::min(size, kMost)));
  }
  int sync(int fd) override { return interrupted() ? -1 : Io::sync(fd); }
  int lock(int fd, int operation) override { return interrupted() ? -1 : Io::lock(fd, operation); }

 private:
  static constexpr std::size_t kMost = 3;

  bool interrupted() {
    errno = EINTR;
    return ++calls_ % 2 != 0;
  }
  bool stops() {
    if (done_ < fail_from) return interrupted();
    errno = EIO;
    return true;
  }
  ssize_t count(ssize_t done) {
    done_ += static_cast<std::size_t>(done);
    return done;
  }
  std::size_t calls_ = 0;
  std::size_t done_ = 0;
};

class HesitantCalls : public ::testing::Test {
 protected:
  UniqueFd open(int flags = O_RDONLY) { return open_file(io_, path_, flags); }

  const testing::TemporaryDirectory directory_;
  const std::string path_ = directory_.put("file", "ten letters");
  HesitantIo io_;
};

TEST_F(HesitantCalls, ReadsAreCompleted) {
  const UniqueFd fd = open();
  ASSERT_TRUE(fd);
  std::string text;
  ASSERT_TRUE(read_bytes(io_, fd.get(), 4, 7, text));
  EXPECT_EQ(text, "letters");
}

TEST_F(HesitantCalls, AReadEndsWithTheFile) {
  const UniqueFd fd = open();
  std::string text = "of before";
  ASSERT_TRUE(read_bytes(io_, fd.get(), 8, 100, text));
  EXPECT_EQ(text, "ers");
  ASSERT_TRUE(read_bytes(io_, fd.get(), 100, 1, text));
  EXPECT_EQ(text, "");
}

TEST_F(HesitantCalls, AReadThatFailsSaysSoWithItsReason) {
  const UniqueFd fd = open();
  io_.fail_from = 6;
  std::string text;
  EXPECT_FALSE(read_bytes(io_, fd.get(), 0, 11, text));
  EXPECT_EQ(errno, EIO);
}

TEST_F(HesitantCalls, WritesAreCompleted) {
  const UniqueFd fd = open(O_WRONLY | O_TRUNC);
  ASSERT_TRUE(fd);
  EXPECT_TRUE(write_bytes(io_, fd.get(), "longer than three"));
  EXPECT_TRUE(sync_file(io_, fd.get()));
  EXPECT_EQ(testing::read_file(path_), "longer than three");
}

TEST_F(HesitantCalls, AWriteThatFailsSaysSoWithItsReason) {
  const UniqueFd fd = open(O_WRONLY | O_TRUNC);
  io_.fail_from = 6;
  EXPECT_FALSE(write_bytes(io_, fd.get(), "longer than three"));
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(testing::read_file(path_), "longer");
}

TEST_F(HesitantCalls, ALockIsTakenOrHeldByAnother) {
  const UniqueFd first = open();
  const UniqueFd second = open();
  EXPECT_TRUE(lock_file(io_, first.get(), LOCK_EX));
  EXPECT_FALSE(lock_file(io_, second.get(), LOCK_EX | LOCK_NB));
  EXPECT_EQ(errno, EWOULDBLOCK);
  EXPECT_TRUE(lock_file(io_, first.get(), LOCK_UN));
  EXPECT_TRUE(lock_file(io_, second.get(), LOCK_EX | LOCK_NB));
}

TEST(Open, FollowsSymbolicLinksOnlyOfTheUser) {
  const testing::TemporaryDirectory directory;
  ASSERT_EQ(::symlink(directory.put("file", "").c_str(), directory.path("link").c_str()), 0);
  EXPECT_TRUE(open_file(system_io(), directory.path("link"), O_RDONLY));
  EXPECT_FALSE(open_at(system_io(), AT_FDCWD, directory.path("link"), O_RDONLY));
  EXPECT_EQ(errno, ELOOP);
}

/// What goes in at `to` comes out at `from`, and no program that is started has either.
void expect_connected(const UniqueFd& from, const UniqueFd& to) {
  for (const UniqueFd* end : {&from, &to}) {
    ASSERT_GT(end->get(), STDERR_FILENO);
    EXPECT_NE(::fcntl(end->get(), F_GETFD) & FD_CLOEXEC, 0);
  }
  ASSERT_EQ(::write(to.get(), "x", 1), 1);
  char got = 0;
  ASSERT_EQ(::read(from.get(), &got, 1), 1);
  EXPECT_EQ(got, 'x');
}

TEST(Pairs, OfAPipeAreConnectedOneWay) {
  const DescriptorPair pipe = make_pipe();
  expect_connected(pipe.first, pipe.second);
  EXPECT_EQ(::write(pipe.first.get(), "x", 1), -1);
}

TEST(Pairs, OfSocketsAreConnectedBothWays) {
  const DescriptorPair sockets = make_socket_pair();
  expect_connected(sockets.first, sockets.second);
  expect_connected(sockets.second, sockets.first);
}

TEST(Pairs, LeaveTheStandardDescriptorsFree) {
  const UniqueFd kept(::dup(STDIN_FILENO));
  ::close(STDIN_FILENO);
  const DescriptorPair pipe = make_pipe();
  const DescriptorPair sockets = make_socket_pair();
  EXPECT_EQ(::fcntl(STDIN_FILENO, F_GETFD), -1);
  expect_connected(pipe.first, pipe.second);
  expect_connected(sockets.first, sockets.second);
  if (kept) ::dup2(kept.get(), STDIN_FILENO);
}

}  // namespace
}  // namespace kiln::base
