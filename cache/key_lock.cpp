#include "cache/key_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>

#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

enum class Try : std::uint8_t { locked, busy, impossible };

Try try_lock(base::Io& io, int fd) {
  if (base::lock_file(io, fd, LOCK_EX | LOCK_NB)) return Try::locked;
  return errno == EWOULDBLOCK ? Try::busy : Try::impossible;
}

// The owner deletes its lock file before it lets go, so a lock may be of a file that is no longer
// the one of that name; then somebody else may hold the one that is.
bool still_named(base::Io& io, const base::UniqueFd& shard, const std::string& name, int fd) {
  struct stat held = {}, named = {};
  return io.stat(fd, held) == 0 && io.stat_at(shard.get(), name.c_str(), named) == 0 &&
         held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

}  // namespace

KeyLock::KeyLock(Directory& directory, const Key& key,
                 std::chrono::steady_clock::time_point deadline,
                 const std::function<bool()>& is_usable)
    : io_(directory.io()), name_(lock_name(key)) {
  state_ = acquire(directory, key, deadline, is_usable);
}

KeyLock::State KeyLock::acquire(Directory& directory, const Key& key,
                                std::chrono::steady_clock::time_point deadline,
                                const std::function<bool()>& is_usable) {
  using std::chrono::microseconds;
  constexpr microseconds kFirstPause{500}, kLongestPause{20'000};
  constexpr int kMostReplaced = 1000;  // far above what waiters can cause: then stat itself fails

  const std::shared_ptr<const base::UniqueFd> root = directory.root(true);
  if (!root) return State::unavailable;
  shard_ = directory.shard(*root, shard_of(key), true);
  if (!shard_) return State::unavailable;
  microseconds pause = kFirstPause;
  for (int replaced = 0; replaced < kMostReplaced;) {
    if (!fd_)
      fd_ = base::open_at(io_, shard_.get(), name_.c_str(), O_RDWR | O_CREAT | O_NONBLOCK, 0600);
    struct stat status = {};
    if (!fd_ || io_.stat(fd_.get(), status) != 0 || !S_ISREG(status.st_mode)) break;
    const Try result = try_lock(io_, fd_.get());
    if (result == Try::impossible) {
      const int error = errno;
      io_.unlink_at(shard_.get(), name_.c_str(), 0);  // of no use to anybody
      errno = error;
      break;
    }
    if (result == Try::locked) {
      if (still_named(io_, shard_, name_, fd_.get())) return State::owned;
      fd_.reset();
      ++replaced;
      continue;
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      fd_.reset();
      return State::expired;
    }
    waited_ = true;
    if (directory.exists(key) && is_usable()) {
      fd_.reset();
      return State::published;
    }
    io_.pause(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
  const int error = errno;
  fd_.reset();
  log_once(
      LogLevel::info, fmt::format("cache.lock:{}", directory.path()),
      fmt::format("cache {}: no lock can be taken ({}); several processes may compile the same "
                  "kernel at once",
                  directory.path(), base::describe_errno(error)));
  return State::unavailable;
}

KeyLock::~KeyLock() {
  if (!fd_) return;
  io_.unlink_at(shard_.get(), name_.c_str(), 0);
  // Not left to close: a forked child may have inherited the descriptor.
  base::lock_file(io_, fd_.get(), LOCK_UN);
}

bool remove_free_lock(base::Io& io, const base::UniqueFd& shard, const std::string& name) {
  const base::UniqueFd fd = base::open_at(io, shard.get(), name.c_str(), O_RDWR | O_NONBLOCK);
  // Where no file can be locked nobody holds this one.
  if (!fd || try_lock(io, fd.get()) == Try::busy) return false;
  const bool removed =
      still_named(io, shard, name, fd.get()) && io.unlink_at(shard.get(), name.c_str(), 0) == 0;
  const int error = errno;
  base::lock_file(io, fd.get(), LOCK_UN);
  errno = error;
  return removed;
}

}  // namespace kiln::cache
