// Every call of this module that reaches the kernel goes through Io, so that a test can make each
// of them fail, stop short, or end the process. The methods are the system calls: -1 and errno.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln::cache {

class Io {
 public:
  virtual ~Io() = default;

  virtual int open_at(int directory, const char* name, int flags, mode_t mode);
  virtual int close(int fd);
  virtual int stat(int fd, struct stat& out);
  /// Of the name itself: a symlink is not followed.
  virtual int stat_at(int directory, const char* name, struct stat& out);
  virtual ssize_t read(int fd, void* to, std::size_t size, std::uint64_t offset);
  virtual ssize_t write(int fd, const void* from, std::size_t size);
  virtual int sync(int fd);
  virtual int rename_at(int from_directory, const char* from, int to_directory, const char* to);
  /// Follows a symlink in `from`, which may be one of /proc/self/fd.
  virtual int link_at(int from_directory, const char* from, int to_directory, const char* to);
  virtual int unlink_at(int directory, const char* name, int flags);
  virtual int make_directory_at(int directory, const char* name, mode_t mode);
  /// Sets the time of the last use (mtime; atime too), in nanoseconds since 1970.
  virtual int set_time(int fd, std::int64_t nanoseconds);
  virtual int lock(int fd, int operation);
  /// Appends the names in a directory, without "." and "..".
  virtual int names(int directory, std::vector<std::string>& out);
  /// The wall clock, which may jump; nanoseconds since 1970.
  virtual std::int64_t now();
  virtual void pause(std::chrono::microseconds time);
};

/// The system's own.
Io& system_io();

/// A file descriptor that is closed through the Io it came from.
class Fd {
 public:
  Fd() = default;
  Fd(Io& io, int fd) : io_(&io), fd_(fd) {}
  Fd(Fd&& other) noexcept : io_(other.io_), fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    reset();
    io_ = other.io_;
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~Fd() { reset(); }

  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }
  void reset() {
    if (fd_ >= 0) io_->close(std::exchange(fd_, -1));
  }

 private:
  Io* io_ = nullptr;
  int fd_ = -1;
};

/// open_at that starts again when a signal interrupts it; O_CLOEXEC and O_NOFOLLOW always.
Fd open_at(Io& io, int directory, const char* name, int flags, mode_t mode = 0);

/// Reads `size` bytes from `offset`; what is there if the file is shorter. False, errno: it failed.
bool read_bytes(Io& io, int fd, std::uint64_t offset, std::uint64_t size, std::string& out);
/// Writes all of `bytes`. False, errno: it failed.
bool write_bytes(Io& io, int fd, std::string_view bytes);
/// Waits until the file is on the disk; without this a power cut may leave a name with no bytes
/// behind it. Some file systems have no such thing and say EINVAL: true, since a checksum tells.
bool sync_file(Io& io, int fd);

/// What errno says, in words.
std::string describe_errno(int error);

constexpr std::int64_t nanoseconds(const struct stat& status) {
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

}  // namespace kiln::cache
