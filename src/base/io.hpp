// Files as the system gives them: the calls on them, the owner of a descriptor, and loops around
// calls that a signal interrupts or that do less than they were asked. Whoever has to survive each
// failure takes an Io, which a test replaces by one that fails, stops short, or ends the process.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln::base {

/// The system calls: each gives -1 and sets errno where it fails.
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

/// The owner of a descriptor, which is closed through the Io that it came from.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd, Io& io = system_io()) : io_(&io), fd_(fd) {}
  ~UniqueFd() { reset(); }
  UniqueFd(UniqueFd&& other) noexcept : io_(other.io_), fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    reset();
    io_ = other.io_;
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }

  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }
  void reset() { close(); }
  /// False, errno: bytes that were written may be lost. The descriptor is closed in any case.
  bool close();

 private:
  Io* io_ = nullptr;
  int fd_ = -1;
};

/// Owns `fd`, or a copy of it above the standard descriptors if it is one of those, as it is in a
/// program that was started without them: what that program prints must not go there, nor may a
/// child's own descriptors 0, 1 and 2 replace it. Empty if there is no other (errno says why).
UniqueFd own_descriptor(int fd);

/// Two descriptors that are connected, both as own_descriptor() gives them and with O_CLOEXEC.
struct DescriptorPair {
  UniqueFd first;
  UniqueFd second;
};
/// What is written to `second` is read from `first`. Empty, errno: it failed.
DescriptorPair make_pipe();
/// Local stream sockets: what is sent to one is received from the other. Empty, errno: it failed.
DescriptorPair make_socket_pair();
/// Closes all descriptors of this process from `first` on, whoever owns them: for a program that
/// has just been started and wants none of what it inherited.
void close_inherited_from(int first);

/// Opens a file that the user named, through symbolic links; O_CLOEXEC always.
UniqueFd open_file(Io& io, const std::string& path, int flags, mode_t mode = 0);
/// Opens a name in a directory and follows no symbolic link; O_CLOEXEC always.
UniqueFd open_at(Io& io, int directory, const std::string& name, int flags, mode_t mode = 0);

/// Fills `to` from `offset` on; `count` is less than its size where the file is shorter. False,
/// errno: it failed.
bool read_bytes(Io& io, int fd, std::uint64_t offset, std::span<std::byte> to, std::size_t& count);
/// Reads `size` bytes from `offset`; what is there if the file is shorter. False, errno: it failed.
bool read_bytes(Io& io, int fd, std::uint64_t offset, std::uint64_t size, std::string& out);
/// Writes all of `bytes`. False, errno: it failed.
bool write_bytes(Io& io, int fd, std::string_view bytes);
/// Waits until the file is on the disk; without this a power cut may leave a name with no bytes
/// behind it. True also for EINVAL, which file systems answer that cannot do this.
bool sync_file(Io& io, int fd);

/// Takes a lock of flock(2), or with LOCK_UN gives it back; however often a signal interrupts the
/// wait. False, errno: it failed, with LOCK_NB as EWOULDBLOCK where somebody else has it.
bool lock_file(Io& io, int fd, int operation);

/// The system's message for an errno. Safe on any thread.
std::string describe_errno(int error);

/// In nanoseconds since 1970.
constexpr std::int64_t modification_time(const struct stat& status) {
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

}  // namespace kiln::base
