// See io.hpp.
#include "base/io.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

namespace kiln::base {

int Io::open_at(int directory, const char* name, int flags, mode_t mode) {
  return ::openat(directory, name, flags, mode);
}
int Io::close(int fd) { return ::close(fd); }
int Io::stat(int fd, struct stat& out) { return ::fstat(fd, &out); }
int Io::stat_at(int directory, const char* name, struct stat& out) {
  return ::fstatat(directory, name, &out, AT_SYMLINK_NOFOLLOW);
}
ssize_t Io::read(int fd, void* to, std::size_t size, std::uint64_t offset) {
  return ::pread(fd, to, size, static_cast<off_t>(offset));
}
ssize_t Io::write(int fd, const void* from, std::size_t size) { return ::write(fd, from, size); }
int Io::sync(int fd) { return ::fsync(fd); }
int Io::rename_at(int from_directory, const char* from, int to_directory, const char* to) {
  return ::renameat(from_directory, from, to_directory, to);
}
int Io::link_at(int from_directory, const char* from, int to_directory, const char* to) {
  return ::linkat(from_directory, from, to_directory, to, AT_SYMLINK_FOLLOW);
}
int Io::unlink_at(int directory, const char* name, int flags) {
  return ::unlinkat(directory, name, flags);
}
int Io::make_directory_at(int directory, const char* name, mode_t mode) {
  return ::mkdirat(directory, name, mode);
}
int Io::set_time(int fd, std::int64_t nanoseconds) {
  struct timespec time = {};
  time.tv_sec = static_cast<time_t>(nanoseconds / 1'000'000'000);
  time.tv_nsec = static_cast<long>(nanoseconds % 1'000'000'000);
  const struct timespec times[2] = {time, time};
  return ::futimens(fd, times);
}
int Io::lock(int fd, int operation) { return ::flock(fd, operation); }

int Io::names(int directory, std::vector<std::string>& out) {
  // A descriptor of its own: a DIR owns the one it is given, and two would share one position.
  const int fd = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return -1;
  const auto close_directory = [](DIR* stream) { ::closedir(stream); };
  const std::unique_ptr<DIR, decltype(close_directory)> stream(::fdopendir(fd), close_directory);
  if (!stream) {
    ::close(fd);
    return -1;
  }
  for (errno = 0; const dirent* file = ::readdir(stream.get()); errno = 0) {
    const std::string_view name = file->d_name;
    if (name != "." && name != "..") out.emplace_back(name);
  }
  return errno == 0 ? 0 : -1;
}

std::int64_t Io::now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}
void Io::pause(std::chrono::microseconds time) { std::this_thread::sleep_for(time); }

Io& system_io() {
  static auto* const io = new Io;
  return *io;
}

bool UniqueFd::close() {
  // Linux has closed the descriptor also where it was interrupted.
  return fd_ < 0 || io_->close(std::exchange(fd_, -1)) == 0 || errno == EINTR;
}

UniqueFd own_descriptor(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return UniqueFd(fd);
  const UniqueFd low(fd);
  return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

namespace {

DescriptorPair own_both(const std::array<int, 2>& ends) {
  DescriptorPair pair{own_descriptor(ends[0]), own_descriptor(ends[1])};
  if (pair.first && pair.second) return pair;
  const int error = errno;
  pair = {};
  errno = error;
  return pair;
}

}  // namespace

DescriptorPair make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  return own_both(ends);
}

DescriptorPair make_socket_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return {};
  return own_both(ends);
}

void close_inherited_from(int first) {
#ifdef SYS_close_range
  if (::syscall(SYS_close_range, first, ~0U, 0) == 0) return;
#endif
  constexpr int kMost = 4096;  // Linux before 5.9 has no other way
  for (int fd = first; fd < kMost; ++fd) ::close(fd);
}

UniqueFd open_file(Io& io, const std::string& path, int flags, mode_t mode) {
  int fd = -1;
  do {
    fd = io.open_at(AT_FDCWD, path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return UniqueFd(fd, io);
}

UniqueFd open_at(Io& io, int directory, const std::string& name, int flags, mode_t mode) {
  int fd = -1;
  do {
    fd = io.open_at(directory, name.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, mode);
  } while (fd < 0 && errno == EINTR);
  return UniqueFd(fd, io);
}

bool read_bytes(Io& io, int fd, std::uint64_t offset, std::span<std::byte> to, std::size_t& count) {
  count = 0;
  while (count < to.size()) {
    const ssize_t got = io.read(fd, to.data() + count, to.size() - count, offset + count);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) break;
    count += static_cast<std::size_t>(got);
  }
  return true;
}

bool read_bytes(Io& io, int fd, std::uint64_t offset, std::uint64_t size, std::string& out) {
  out.resize(size);
  std::size_t count = 0;
  if (!read_bytes(io, fd, offset, std::as_writable_bytes(std::span(out)), count)) return false;
  out.resize(count);
  return true;
}

bool write_bytes(Io& io, int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = io.write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

bool sync_file(Io& io, int fd) {
  int result = 0;
  do {
    result = io.sync(fd);
  } while (result != 0 && errno == EINTR);
  return result == 0 || errno == EINVAL;
}

bool lock_file(Io& io, int fd, int operation) {
  int result = 0;
  do {
    result = io.lock(fd, operation);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

std::string describe_errno(int error) { return std::generic_category().message(error); }

}  // namespace kiln::base
