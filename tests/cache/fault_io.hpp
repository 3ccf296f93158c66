// An Io that counts its calls and lets a chosen one fail, stop short, or end the process. It also
// has a clock that can be set, and knows which descriptors are open.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/io.hpp"

namespace kiln::cache {

class FaultIo : public base::Io {
 public:
  // Which calls: the `first`-th and the `count - 1` after it.
  int first = std::numeric_limits<int>::max();
  int count = 1;
  /// Only calls of this name, as in history(); empty: any.
  std::string named;
  /// They fail with this errno ...
  int error = 0;
  /// ... or the process is killed before or after the first of them (a write is half done then).
  enum class Kill { never, before, after } kill = Kill::never;
  /// At most so many bytes per read or write.
  std::size_t chunk = std::numeric_limits<std::size_t>::max();
  /// Added to the clock.
  std::atomic<std::int64_t> clock_offset{0};
  std::function<void()> on_pause;
  /// Called with the name before every open.
  std::function<void(std::string_view name)> on_open;
  /// The most bytes that one read or write has asked for so far.
  std::size_t largest = 0;

  int calls() const { return calls_; }
  int open_descriptors() const { return open_; }
  /// The name of every call so far, in order.
  const std::vector<std::string>& history() const { return history_; }

  int open_at(int directory, const char* name, int flags, mode_t mode) override {
    if (on_open) on_open(name);
    const int fd = run("open", [&] { return Io::open_at(directory, name, flags, mode); });
    open_ += fd >= 0;
    return fd;
  }
  int close(int fd) override {
    --open_;
    // The descriptor is gone whatever close says.
    return run(
        "close", [&] { return Io::close(fd); }, [&] { Io::close(fd); });
  }
  int stat(int fd, struct stat& out) override {
    return run("stat", [&] { return Io::stat(fd, out); });
  }
  int stat_at(int directory, const char* name, struct stat& out) override {
    return run("stat_at", [&] { return Io::stat_at(directory, name, out); });
  }
  ssize_t read(int fd, void* to, std::size_t size, std::uint64_t offset) override {
    largest = std::max(largest, size);
    return run("read", [&] { return Io::read(fd, to, std::min(size, chunk), offset); });
  }
  ssize_t write(int fd, const void* from, std::size_t size) override {
    largest = std::max(largest, size);
    const bool dying = kill == Kill::after && calls_ == first;
    const std::size_t most = dying ? size / 2 : std::min(size, chunk);
    return run("write", [&] { return Io::write(fd, from, most); });
  }
  // What a disk survives is not the question here, so nothing waits for one.
  int sync(int) override {
    return run("sync", [] { return 0; });
  }
  int rename_at(int from_directory, const char* from, int to_directory, const char* to) override {
    return run("rename", [&] { return Io::rename_at(from_directory, from, to_directory, to); });
  }
  int link_at(int from_directory, const char* from, int to_directory, const char* to) override {
    return run("link", [&] { return Io::link_at(from_directory, from, to_directory, to); });
  }
  int unlink_at(int directory, const char* name, int flags) override {
    return run("unlink", [&] { return Io::unlink_at(directory, name, flags); });
  }
  int make_directory_at(int directory, const char* name, mode_t mode) override {
    return run("mkdir", [&] { return Io::make_directory_at(directory, name, mode); });
  }
  int set_time(int fd, std::int64_t nanoseconds) override {
    return run("utimens", [&] { return Io::set_time(fd, nanoseconds); });
  }
  int lock(int fd, int operation) override {
    return run("flock", [&] { return Io::lock(fd, operation); });
  }
  int names(int directory, std::vector<std::string>& out) override {
    return run("readdir", [&] { return Io::names(directory, out); });
  }
  std::int64_t now() override { return Io::now() + clock_offset; }
  void pause(std::chrono::microseconds time) override {
    if (on_pause) on_pause();
    Io::pause(time);
  }

 private:
  template <class Call>
  auto run(const char* name, Call call, const std::function<void()>& instead = {})
      -> decltype(call()) {
    const int number = calls_++;
    history_.emplace_back(name);
    const bool chosen =
        number >= first && number - first < count && (named.empty() || named == name);
    if (chosen && kill == Kill::before) ::kill(::getpid(), SIGKILL);
    if (chosen && error != 0) {
      if (instead) instead();
      errno = error;
      return -1;
    }
    const auto result = call();
    if (chosen && kill == Kill::after) ::kill(::getpid(), SIGKILL);
    return result;
  }

  int calls_ = 0;
  int open_ = 0;
  std::vector<std::string> history_;
};

}  // namespace kiln::cache
